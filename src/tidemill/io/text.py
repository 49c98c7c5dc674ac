"""Read CSV and JSON lines in blocks, in the types that the stream declares.

Instants are ISO text, or ints if the stream declares their unit. Text without a zone is in the zone of the
stream, UTC by default. Durations are whole microseconds. In CSV, only an empty field without quotes is null,
in any column. In JSON lines, a missing field is null.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidemill.core.batch import check_schema
from tidemill.core.errors import UserError
from tidemill.core.time_reading import PLAIN, Reading
from tidemill.core.types import DURATION, TIMESTAMP, DataType, to_arrow
from tidemill.io.chunks import RawChunk, readable, step_of
from tidemill.plan.nodes import Source

_BLOCK = 4 << 20
# A date alone has no zone, although its end looks like an offset.
_ZONED = r":[0-9.]*(Z|[+-][0-9]{2}(:?[0-9]{2})?)$|T[0-9]{2}(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
_FINER = r"(\.[0-9]{6})[0-9]+"


def read_csv(path: Path, source: Source) -> Iterator[RawChunk]:
    """Read a CSV file with a header, on one thread so that errors can name the row."""
    import pyarrow.csv as csv

    place = f"file {path}"
    with readable(source, place):
        if _blank(path):
            return
        header = pa.schema([pa.field(name, pa.null()) for name in _header(path)])
        check_schema(header, source.schema, source.reading, step=step_of(source, place))
        reader = csv.open_csv(
            path,
            read_options=csv.ReadOptions(block_size=_BLOCK, use_threads=False),
            convert_options=_csv_options(source),
        )
        with reader:
            yield from _raw_chunks(reader, source, place, first_row=2)


def read_json(path: Path, source: Source) -> Iterator[RawChunk]:
    """Read a file with one JSON object on each line."""
    import pyarrow.json as pj

    place = f"file {path}"
    with readable(source, place):
        if _blank(path):
            return
        reader = pj.open_json(
            path,
            read_options=pj.ReadOptions(block_size=_BLOCK),
            parse_options=_json_options(source),
        )
        with reader:
            yield from _raw_chunks(reader, source, place, first_row=1)


def found_csv(path: Path) -> pa.Schema:
    """Return the columns of a CSV file with the types of their first values."""
    import pyarrow.csv as csv

    if _blank(path):
        return pa.schema([])
    options = csv.ReadOptions(block_size=_BLOCK, use_threads=False)
    with csv.open_csv(path, read_options=options) as reader:
        return pa.schema([_known(field) for field in reader.schema])


def found_json(path: Path) -> pa.Schema:
    """Return the columns of a file of JSON lines with the types of their first values."""
    import pyarrow.json as pj

    if _blank(path):
        return pa.schema([])
    with pj.open_json(path, read_options=pj.ReadOptions(block_size=_BLOCK)) as reader:
        return pa.schema([_known(field) for field in reader.schema])


def _known(field: pa.Field) -> pa.Field:
    """Return a column that was found in text: times of day, and what had no value, stay text."""
    unsure = pa.types.is_null(field.type) or pa.types.is_time(field.type)
    return field.with_type(pa.string()) if unsure else field


def parse_csv(lines: bytes, columns: list[str], source: Source, step: str) -> pa.RecordBatch:
    """Parse whole lines of CSV, after the header; the columns are those of the file, in its order."""
    import pyarrow.csv as csv

    table = csv.read_csv(
        pa.BufferReader(lines),
        read_options=csv.ReadOptions(block_size=len(lines) + 1, use_threads=False, column_names=columns),
        convert_options=_csv_options(source),
    )
    return _one_batch(table, source, step)


def parse_json(lines: bytes, source: Source, step: str) -> pa.RecordBatch:
    """Parse whole lines of JSON."""
    import pyarrow.json as pj

    table = pj.read_json(
        pa.BufferReader(lines),
        read_options=pj.ReadOptions(block_size=len(lines) + 1, use_threads=False),
        parse_options=_json_options(source),
    )
    return _one_batch(table, source, step)


def csv_header(line: bytes, source: Source, step: str) -> list[str]:
    """Return the columns that the first line of a CSV file names; all that are needed must be there."""
    import pyarrow.csv as csv

    with csv.open_csv(pa.BufferReader(line), read_options=csv.ReadOptions(use_threads=False)) as reader:
        names = list(reader.schema.names)
    check_schema(pa.schema([pa.field(n, pa.null()) for n in names]), source.schema, source.reading, step=step)
    return names


def _one_batch(table: pa.Table, source: Source, step: str) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=source.schema.to_arrow())
    return _typed(batches[0], source, step, first_row=1)


def _csv_options(source: Source) -> Any:
    import pyarrow.csv as csv

    return csv.ConvertOptions(
        column_types=_written(source),
        include_columns=list(source.schema.names),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )


def _json_options(source: Source) -> Any:
    import pyarrow.json as pj

    return pj.ParseOptions(explicit_schema=pa.schema(_written(source)), unexpected_field_behavior="ignore")


def _written(source: Source) -> dict[str, pa.DataType]:
    """Return the types of the columns in the file."""
    kinds = {TIMESTAMP: pa.string(), DURATION: pa.int64()}
    return {
        name: pa.int64() if source.reading.unit(name) else kinds.get(kind, to_arrow(kind))
        for name, kind in source.schema
    }


def _header(path: Path) -> list[str]:
    import pyarrow.csv as csv

    with csv.open_csv(path, read_options=csv.ReadOptions(use_threads=False)) as reader:
        return list(reader.schema.names)


def _blank(path: Path) -> bool:
    with pa.input_stream(str(path)) as stream:
        while block := stream.read(1 << 16):
            if block.strip():
                return False
    return True


def _raw_chunks(reader: Any, source: Source, place: str, first_row: int) -> Iterator[RawChunk]:
    step = step_of(source, place)
    for batch in reader:
        yield RawChunk(_typed(batch, source, step, first_row), place)
        first_row += batch.num_rows


def _typed(batch: pa.RecordBatch, source: Source, step: str, first_row: int) -> pa.RecordBatch:
    """Return the columns of the source, with text of instants parsed."""
    columns = [
        _column(batch.column(name), name, kind, source.reading, step, first_row)
        for name, kind in source.schema
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(source.schema.names))


def _column(
    text: pa.Array, name: str, kind: DataType, reading: Reading, step: str, first_row: int
) -> pa.Array:
    if kind != TIMESTAMP or reading.unit(name):
        return text.cast(to_arrow(kind)) if kind == DURATION else text
    try:
        return instants(text, reading, name, step=step)
    except pa.ArrowInvalid as unread:
        at = _first_unread(text)
        raise UserError(
            step, expected=f"column {name!r} of ISO instants such as 2026-01-01T00:05:00Z",
            got=f"{text[at].as_py()!r} in row {first_row + at}",
            hint="if it holds numbers, declare their unit= or the column as int64",
        ) from unread  # fmt: skip


def _first_unread(text: pa.Array) -> int:
    """Return the position of the first text that is not an instant, found by bisection."""
    start, end = 0, len(text)
    while end - start > 1:
        middle = (start + end) // 2
        try:
            instants(text.slice(start, middle - start))  # the zone does not affect what can be parsed
            start = middle
        except pa.ArrowInvalid:
            end = middle
    return start


def _cast(text: pa.Array, kind: pa.DataType) -> pa.Array | None:
    try:
        return text.cast(kind)
    except pa.ArrowInvalid:
        return None


def instants(
    text: pa.Array, reading: Reading = PLAIN, column: str = "", *, step: str = "instants"
) -> pa.Array:
    """Parse ISO text; text without a zone is in the zone of `reading`. Finer digits are floored.

    >>> instants(pa.array(["1970-01-01T01:00:00+01:00", "1970-01-01"])).cast("int64").to_pylist()
    [0, 0]
    """
    want, naive = to_arrow(TIMESTAMP), pa.timestamp("us")
    if (all_zoned := _cast(text, want)) is not None:
        return all_zoned
    if (none_zoned := _cast(text, naive)) is not None:
        return reading.from_naive(none_zoned, column, step=step)
    import pyarrow.compute as pc

    text = pc.replace_substring_regex(text, _FINER, r"\1")
    zoned = pc.match_substring_regex(text, _ZONED)
    with_zone = pc.if_else(zoned, text, None).cast(want)
    without = reading.from_naive(pc.if_else(zoned, None, text).cast(naive), column, step=step)
    return pc.coalesce(with_zone, without)
