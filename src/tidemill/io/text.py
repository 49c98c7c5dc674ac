"""Read CSV and JSON in blocks, in the types that the stream declares.

Instants are ISO text, or text in a format or numbers of a unit that the stream declares. Text without a zone
is in the zone of the stream, UTC by default. Durations are whole microseconds. In CSV, an empty field without
quotes is null in any column; the stream may declare other spellings. In JSON, a missing field is null.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tidemill.core.batch import check_schema
from tidemill.core.errors import UserError
from tidemill.core.text_form import PLAIN_TEXT, TextForm
from tidemill.core.types import DURATION, TIMESTAMP, DataType, to_arrow
from tidemill.io.chunks import RawChunk, readable, step_of
from tidemill.io.stored_files import StoredFile
from tidemill.io.text_columns import is_converted, typed
from tidemill.io.text_errors import with_options
from tidemill.io.text_files import delimiter_of, found_delimiter, is_blank, open_text
from tidemill.plan.nodes import Source

_BLOCK = 4 << 20
_ROWS = 1 << 14


def read_csv(path: StoredFile, source: Source) -> Iterator[RawChunk]:
    """Read a CSV file with a header, on one thread so that errors can name the row.

    Arrow converts what it can. From the first block with a value that it cannot convert, all columns are
    converted as text: the value is null, or an error names it.
    """
    place = f"file {path}"
    step, done = step_of(source, place), 0
    with readable(source, place), with_options(path, source.text):
        if is_blank(path):
            return
        delimiter = delimiter_of(path, source.text, source.schema.names)
        names = csv_columns(path, delimiter, source.text)
        header = pa.schema([pa.field(name, pa.null()) for name in names])
        check_schema(header, source.schema, source.reading, step=step)
        try:
            for batch in _csv_batches(path, delimiter, source.text, _csv_options(source)):
                yield RawChunk(_typed(batch, source, step, done + source.text.first_row), place)
                done += batch.num_rows
        except pa.ArrowInvalid:
            read = 0
            for batch in _csv_batches(
                path, delimiter, source.text, _csv_options(source, texts=True)
            ):
                rest = batch.slice(max(0, min(done - read, batch.num_rows)))
                read += batch.num_rows
                if rest.num_rows:
                    first_row = read - rest.num_rows + source.text.first_row
                    yield RawChunk(_typed(rest, source, step, first_row, texts=True), place)


def _csv_batches(
    path: StoredFile, delimiter: str, form: TextForm, options: Any
) -> Iterator[pa.RecordBatch]:
    import pyarrow.csv as csv

    with open_text(path, form.encoding) as file, csv.open_csv(
        file, read_options=csv.ReadOptions(
            block_size=_BLOCK, use_threads=False, column_names=form.columns, skip_rows=form.skip
        ), parse_options=csv.ParseOptions(delimiter=delimiter), convert_options=options,
    ) as reader:  # fmt: skip
        yield from reader


def csv_columns(path: StoredFile, delimiter: str, form: TextForm = PLAIN_TEXT) -> list[str]:
    """Return the columns that are named, or that the header of a CSV file names."""
    import pyarrow.csv as csv

    if form.columns is not None:
        return list(form.columns)
    read = csv.ReadOptions(use_threads=False, skip_rows=form.skip)
    split = csv.ParseOptions(delimiter=delimiter)
    with (
        open_text(path, form.encoding) as file,
        csv.open_csv(file, read_options=read, parse_options=split) as reader,
    ):
        return list(reader.schema.names)


def read_json(path: StoredFile, source: Source) -> Iterator[RawChunk]:
    """Read a file with one JSON object on each line, or one array of objects.

    An array is loaded whole; lines are read in blocks.
    """
    import pyarrow.json as pj

    place, done = f"file {path}", 0
    step = step_of(source, place)
    with readable(source, place):
        if is_blank(path):
            return
        if is_array(path):
            for lines, first_row in array_lines(path):
                yield RawChunk(_lines_read(lines, source, step, first_row), place)
            return
        try:
            with (
                open_text(path) as file,
                pj.open_json(
                    file,
                    read_options=pj.ReadOptions(block_size=_BLOCK),
                    parse_options=_json_options(source),
                ) as reader,
            ):
                for batch in reader:
                    yield RawChunk(_typed(batch, source, step, done + 1), place)
                    done += batch.num_rows
        except pa.ArrowInvalid:
            for lines, first_row in _blocks_of_lines(path):
                if first_row + lines.count(b"\n") > done + 1:
                    _lines_read(lines, source, step, first_row)
            raise


def is_array(path: StoredFile) -> bool:
    """Return whether a file of JSON holds an array, not lines of objects."""
    with open_text(path) as file:
        while block := file.read(1 << 12):
            if begin := block.lstrip(b"\xef\xbb\xbf \t\r\n"):
                return bool(begin.startswith(b"["))
    return False


def array_lines(path: StoredFile) -> Iterator[tuple[bytes, int]]:
    """Yield the items of a JSON array as lines, each piece with the number of its first item."""
    with open_text(path) as file:
        items = json.loads(file.read())
    for start in range(0, len(items), _ROWS):
        block = items[start : start + _ROWS]
        for at, item in enumerate(block):
            if not isinstance(item, dict):
                raise ValueError(
                    f"an array of objects was expected, and item {start + at + 1} is {item!r:.60}"
                )
        yield b"".join(json.dumps(item).encode() + b"\n" for item in block), start + 1


def _blocks_of_lines(path: StoredFile) -> Iterator[tuple[bytes, int]]:
    first_row = 1
    with open_text(path) as file:
        rest = b""
        while block := file.read(_BLOCK):
            whole, end, rest = (rest + block).rpartition(b"\n")
            if end:
                yield whole + end, first_row
                first_row += whole.count(b"\n") + 1
        if rest:
            yield rest, first_row


def _lines_read(lines: bytes, source: Source, step: str, first_row: int) -> pa.RecordBatch:
    """Parse lines of JSON; an error names the first line that cannot be read."""
    try:
        return parse_json(lines, source, step, first_row)
    except pa.ArrowInvalid as broken:
        several = lines.splitlines(keepends=True)
        if len(several) == 1:
            raise _unread_line(lines, source, step, first_row, broken) from broken
        half = len(several) // 2
        _lines_read(b"".join(several[:half]), source, step, first_row)
        _lines_read(b"".join(several[half:]), source, step, first_row + half)
        raise


def _unread_line(line: bytes, source: Source, step: str, row: int, broken: Exception) -> UserError:
    shown = line.strip()[:200].decode(errors="replace")
    try:
        values = json.loads(line)
    except ValueError as wrong:
        return UserError(
            step, expected="an object of JSON on each line", got=f"{shown!r} in row {row}: {wrong}"
        )
    for name, kind in source.schema:
        value = values.get(name) if isinstance(values, dict) else None
        if value is not None and not _fits(name, value, source):
            wanted = "text" if kind == TIMESTAMP and not source.reading.unit(name) else repr(kind)
            number = isinstance(value, (int, float)) and kind == TIMESTAMP
            return UserError(
                step, expected=f"column {name!r} of {wanted}", got=f"{value!r} in row {row}",
                hint="unit='s' (or 'ms', 'us', 'ns') reads numbers" if number
                else f"schema={{{name!r}: {_said(value)!r}}} reads it",
            )  # fmt: skip
    return UserError(step, f"cannot be read: {broken}, in row {row}: {shown}")


def _fits(name: str, value: Any, source: Source) -> bool:
    import pyarrow.json as pj

    one = json.dumps({name: value}).encode()
    try:
        pj.read_json(pa.BufferReader(one), parse_options=_json_options(source))
    except pa.ArrowInvalid:
        return False
    return True


def _said(value: Any) -> str:
    found = {bool: "bool", int: "int64", float: "float64"}
    return found.get(type(value), "string")


def parse_csv(
    lines: bytes, columns: list[str], source: Source, step: str, delimiter: str = ","
) -> pa.RecordBatch:
    """Parse whole lines of CSV, after the header; the columns are those of the file, in its order."""
    import pyarrow.csv as csv

    def read(texts: bool) -> pa.RecordBatch:
        table = csv.read_csv(
            pa.BufferReader(lines),
            read_options=csv.ReadOptions(
                block_size=len(lines) + 1, use_threads=False, column_names=columns
            ),
            parse_options=csv.ParseOptions(delimiter=delimiter),
            convert_options=_csv_options(source, texts=texts),
        )
        return _one_batch(table, source, step, texts=texts)

    try:
        return read(texts=False)
    except pa.ArrowInvalid:
        return read(texts=True)


def parse_json(lines: bytes, source: Source, step: str, first_row: int = 1) -> pa.RecordBatch:
    """Parse whole lines of JSON."""
    import pyarrow.json as pj

    table = pj.read_json(
        pa.BufferReader(lines),
        read_options=pj.ReadOptions(block_size=len(lines) + 1, use_threads=False),
        parse_options=_json_options(source),
    )
    return _one_batch(table, source, step, first_row=first_row)


def csv_header(line: bytes, source: Source, step: str) -> tuple[list[str], str]:
    """Return the columns that the first line of a CSV file names, and what separates them.

    All columns that are needed must be there.
    """
    import pyarrow.csv as csv

    delimiter = source.text.delimiter or found_delimiter(line, source.schema.names)
    read, split = csv.ReadOptions(use_threads=False), csv.ParseOptions(delimiter=delimiter)
    with csv.open_csv(pa.BufferReader(line), read_options=read, parse_options=split) as reader:
        names = list(reader.schema.names)
    check_schema(
        pa.schema([pa.field(n, pa.null()) for n in names]), source.schema, source.reading, step=step
    )
    return names, delimiter


def _one_batch(
    table: pa.Table, source: Source, step: str, *, first_row: int = 1, texts: bool = False
) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=source.schema.to_arrow())
    return _typed(batches[0], source, step, first_row, texts=texts)


def _csv_options(source: Source, *, texts: bool = False) -> Any:
    import pyarrow.csv as csv

    def read_as(name: str, kind: DataType) -> pa.DataType:
        if texts or is_converted(name, kind, source):
            return pa.string()
        return pa.int64() if kind == DURATION else to_arrow(kind)

    return csv.ConvertOptions(
        column_types={name: read_as(name, kind) for name, kind in source.schema},
        include_columns=list(source.schema.names),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        decimal_point=source.text.decimal,
    )


def _json_options(source: Source) -> Any:
    import pyarrow.json as pj

    kinds = {TIMESTAMP: pa.string(), DURATION: pa.int64()}
    types = {
        name: kinds.get(kind, to_arrow(kind))
        for name, kind in source.schema
        if not source.reading.unit(name)  # ints or floats, as they are
    }
    # A column without a type is ignored unless types of others are inferred; then only those needed are kept.
    unexpected = "ignore" if len(types) == len(source.schema) else "infer"
    return pj.ParseOptions(explicit_schema=pa.schema(types), unexpected_field_behavior=unexpected)


def _typed(
    batch: pa.RecordBatch, source: Source, step: str, first_row: int, *, texts: bool = False
) -> pa.RecordBatch:
    """Return the columns of the source, with text converted."""
    columns = [
        _column(batch, name, kind, source, step, first_row, texts) for name, kind in source.schema
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(source.schema.names))


def _column(
    batch: pa.RecordBatch,
    name: str,
    kind: DataType,
    source: Source,
    step: str,
    first_row: int,
    texts: bool,
) -> pa.Array:
    at = batch.schema.get_field_index(name)
    if at < 0:  # a column without a value in any of these lines
        return pa.nulls(batch.num_rows, to_arrow(kind))
    column = batch.column(at)
    if pa.types.is_string(column.type) and (texts or is_converted(name, kind, source)):
        return typed(column, name, kind, source, step, first_row)
    return column.cast(to_arrow(kind)) if kind == DURATION else column


def found_types(
    path: StoredFile, delimiter: str, form: TextForm = PLAIN_TEXT
) -> pa.RecordBatch | None:
    """Return the first rows of a CSV file, all as text, to find out what they are."""
    import pyarrow.csv as csv

    names = csv_columns(path, delimiter, form)
    options = csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), null_values=[""], strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )  # fmt: skip
    nothing = pa.RecordBatch.from_pylist(
        [], pa.schema([pa.field(name, pa.string()) for name in names])
    )
    return next(itertools.chain(_csv_batches(path, delimiter, form, options), [nothing]))


def found_json(path: StoredFile) -> pa.Schema:
    """Return the columns of a file of JSON with the types of their first values."""
    import pyarrow.json as pj

    if is_blank(path):
        return pa.schema([])
    if is_array(path):
        lines, _ = next(array_lines(path), (b"", 1))
        return pj.read_json(pa.BufferReader(lines)).schema if lines else pa.schema([])
    with (
        open_text(path) as file,
        pj.open_json(file, read_options=pj.ReadOptions(block_size=_BLOCK)) as reader,
    ):
        return reader.schema
