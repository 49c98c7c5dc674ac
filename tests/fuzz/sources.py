"""The same rows as everything that `run` reads, in random splits."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Row = dict[str, Any]
Schema = dict[str, str]

_ARROW = {
    "int": pa.int64(), "float": pa.float64(), "str": pa.string(), "bool": pa.bool_(),
    "ts": pa.timestamp("us"), "dur": pa.duration("us"), "strs": pa.list_(pa.string()),
}  # fmt: skip
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


_LAST: list[Any] = [None, None, None]


def table(rows: list[Row], schema: Schema) -> pa.Table:
    """Rows as a table; the last one is kept, because many cases have the same rows."""
    if _LAST[0] is not rows or _LAST[1] != schema:
        _LAST[:] = [rows, dict(schema), _table(rows, schema)]
    return _LAST[2]


def _table(rows: list[Row], schema: Schema) -> pa.Table:
    arrays = [pa.array([r[n] for r in rows], _ARROW[k]) for n, k in schema.items()]
    return pa.Table.from_arrays(arrays, names=list(schema))


def zoned(whole: pa.Table) -> pa.Table:
    """The same instants with a zone, UTC."""
    kinds = [
        pa.timestamp("us", "UTC") if pa.types.is_timestamp(f.type) else f.type for f in whole.schema
    ]
    return whole.cast(pa.schema([pa.field(n, k) for n, k in zip(whole.column_names, kinds)]))


def split(pick: Random, size: int) -> list[tuple[int, int]]:
    """Where batches begin and end; some are empty."""
    cuts = sorted(pick.choices(range(size + 1), k=pick.randint(0, 5)))
    return list(zip([0, *cuts], [*cuts, size]))


def _batches(pick: Random, whole: pa.Table) -> list[pa.RecordBatch]:
    made = []
    for a, b in split(pick, whole.num_rows):
        part = whole.slice(a, b - a).combine_chunks()
        made += part.to_batches() or [pa.RecordBatch.from_pylist([], schema=whole.schema)]
    return made


def _chunked(pick: Random, whole: pa.Table, folder: Path) -> Any:
    return pa.Table.from_batches(_batches(pick, whole), schema=whole.schema)


def _sliced(pick: Random, whole: pa.Table, folder: Path) -> Any:
    """Rows cut out of a longer table: every array has an offset."""
    before, after = pick.randint(1, 9), pick.randint(0, 3)
    if whole.num_rows == 0:
        return whole.slice(0, 0)
    padding = [whole.slice(0, 1)] * before + [whole] + [whole.slice(0, 1)] * after
    return pa.concat_tables(padding).combine_chunks().slice(before, whole.num_rows)


def _cast(change: Callable[[pa.DataType], pa.DataType]) -> Callable[..., Any]:
    def make(pick: Random, whole: pa.Table, folder: Path) -> Any:
        fields = [pa.field(f.name, change(f.type)) for f in whole.schema]
        cast = whole.cast(pa.schema(fields))
        return _sliced(pick, cast, folder) if pick.random() < 0.5 else cast

    return make


def _large(kind: pa.DataType) -> pa.DataType:
    return pa.large_string() if pa.types.is_string(kind) else kind


def _view(kind: pa.DataType) -> pa.DataType:
    return pa.string_view() if pa.types.is_string(kind) else kind


def _zoned(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp("us", "Europe/Berlin") if pa.types.is_timestamp(kind) else kind


def _dictionary(pick: Random, whole: pa.Table, folder: Path) -> Any:
    columns = [c.dictionary_encode() if pa.types.is_string(c.type) else c for c in whole.columns]
    return pa.Table.from_arrays(columns, names=whole.column_names)


def _python(value: Any) -> Any:
    """Instants as Python writes them: aware datetimes."""
    return value.replace(tzinfo=timezone.utc) if isinstance(value, datetime) else value


def _dicts(pick: Random, whole: pa.Table, folder: Path) -> Any:
    rows = [{n: _python(v) for n, v in row.items()} for row in whole.to_pylist()]
    return rows if pick.random() < 0.5 else iter(rows)


def _generator(pick: Random, whole: pa.Table, folder: Path) -> Any:
    batches = _batches(pick, whole)

    def give() -> Iterator[pa.RecordBatch]:
        yield from batches

    return give()


def _reader(pick: Random, whole: pa.Table, folder: Path) -> Any:
    return pa.RecordBatchReader.from_batches(whole.schema, _batches(pick, whole))


def _list(pick: Random, whole: pa.Table, folder: Path) -> Any:
    return _batches(pick, whole)


def _polars(pick: Random, whole: pa.Table, folder: Path) -> Any:
    import polars

    frame = polars.from_arrow(whole)
    draw = pick.random()
    if draw < 0.3 and len(frame):
        cut = pick.randint(0, len(frame))
        frame = polars.concat([frame[:cut], frame[cut:]], rechunk=False)
    return frame.lazy() if draw > 0.8 else frame


def _pandas(pick: Random, whole: pa.Table, folder: Path) -> Any:
    import pandas

    if pick.random() < 0.5:
        return whole.to_pandas(types_mapper=pandas.ArrowDtype)
    kept = {pa.int64(): pandas.Int64Dtype(), pa.bool_(): pandas.BooleanDtype()}
    return whole.to_pandas(types_mapper=kept.get)


def _parquet(pick: Random, whole: pa.Table, folder: Path) -> Any:
    if pick.random() < 0.3:
        for i, (a, b) in enumerate(split(pick, whole.num_rows)):
            pq.write_table(whole.slice(a, b - a), folder / f"{i:03}.parquet")
        return folder
    path = folder / "rows.parquet"
    pq.write_table(
        whole, path, row_group_size=pick.choice((1, 3, 7, 1000)),
        use_dictionary=pick.random() < 0.5, write_statistics=pick.random() < 0.7,
    )  # fmt: skip
    return str(path)


def _ipc(pick: Random, whole: pa.Table, folder: Path) -> Any:
    path = folder / "rows.arrow"
    open_ = pa.ipc.new_file if pick.random() < 0.5 else pa.ipc.new_stream
    with open_(str(path), whole.schema) as sink:
        for batch in _batches(pick, whole):
            sink.write_batch(batch)
    return path


def _text(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.replace(tzinfo=timezone.utc).isoformat().replace("+00:00", "Z")
    return value // timedelta(microseconds=1) if isinstance(value, timedelta) else value


def _csv(pick: Random, whole: pa.Table, folder: Path) -> Any:
    path = folder / "rows.csv"
    rows = [{n: n for n in whole.column_names}, *whole.to_pylist()]
    lines = [",".join(map(_field, row.values())) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _field(value: Any) -> str:
    """An empty field that is not quoted is null, and nothing else is."""
    if value is None:
        return ""
    text = str(value).lower() if isinstance(value, bool) else str(_text(value))
    return '"' + text.replace('"', '""') + '"' if isinstance(value, str) else text


def _json(pick: Random, whole: pa.Table, folder: Path) -> Any:
    path = folder / "rows.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for row in whole.to_pylist():
            ascii_ = pick.random() < 0.5
            file.write(
                json.dumps({n: _text(v) for n, v in row.items()}, ensure_ascii=ascii_) + "\n"
            )
    return path


SOURCES: dict[str, Callable[[Random, pa.Table, Path], Any]] = {
    "table": lambda pick, whole, folder: whole,
    "chunked": _chunked,
    "sliced": _sliced,
    "large_string": _cast(_large),
    "string_view": _cast(_view),
    "zoned": _cast(_zoned),
    "dictionary": _dictionary,
    "dicts": _dicts,
    "batches": _list,
    "generator": _generator,
    "reader": _reader,
    "polars": _polars,
    "pandas": _pandas,
    "parquet": _parquet,
    "ipc": _ipc,
    "csv": _csv,
    "json": _json,
}


def fitting(rows: list[Row], schema: Schema) -> list[str]:
    """The sources that hold these rows without changing them."""
    values = [(schema[n], v) for row in rows for n, v in row.items()]
    names = list(SOURCES)
    nan = any(isinstance(v, float) and v != v for _, v in values)
    if nan or any(isinstance(v, float) and not math.isfinite(v) for _, v in values):
        names.remove("json")
    if nan:  # null, in pandas
        names.remove("pandas")
    lines = any(k == "str" and v is not None and not {"\n", "\r"}.isdisjoint(v) for k, v in values)
    if lines or len(schema) == 1:
        names.remove("csv")  # a line is a row, and one that is empty is none
    far = any(k == "ts" and v is not None and not -(1 << 55) < v < 1 << 57 for k, v in values)
    if far or not rows:
        names = [n for n in names if n not in ("csv", "json", "pandas", "dicts")]
    return names
