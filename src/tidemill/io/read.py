"""`tm.read`: find out what data holds, so that a stream can be declared for it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.core.schema import Schema, schema
from tidemill.io.chunks import readable_at
from tidemill.io.data import Data, is_spark
from tidemill.io.files import described, files_at
from tidemill.io.schemas import file_schema, schema_of_frame, usable
from tidemill.io.sources import is_instance


@dataclass(frozen=True)
class Found:
    """What data holds."""

    name: str
    """A name for the stream: that of a file."""
    schema: Schema
    data: Data
    unread: Mapping[str, str]
    """Columns of types that no stream has."""


def find(value: Any, given: Any, *, step: str) -> Found:
    """Find the columns of data. `given` are types that are known: a whole schema, or those of some columns.

    >>> found = find([{"t": 1, "v": "a"}], None, step="read")
    >>> found.schema, found.data
    (Schema(t: int64, v: string), list of 1 dict)
    """
    name = "rows"
    if isinstance(value, (str, os.PathLike)):
        path = os.fspath(value)
        files, kind = files_at(path, step)
        name, data = _name_of(files[0] if len(files) == 1 else Path(path)), Data(path, described(files, kind))
        with readable_at(f"{step}, file {files[0]}"):
            held = file_schema(files[0], kind)
    else:
        about = _about(value)
        value = _kept(value, step)
        data, held = Data(value, about), schema_of_frame(value)
    found, others = usable(held, step=step)
    return Found(name, _with_given(found, given, step), data, others)


def _with_given(found: Schema, given: Any, step: str) -> Schema:
    if given is None:
        return found
    if not isinstance(given, Mapping):
        return schema(given, step=step)
    known = dict(schema(given, step=step))
    for column in known:
        found.type_of(column, step=f"{step} schema=")
    return Schema(tuple((name, known.get(name, kind)) for name, kind in found))


def _about(value: Any) -> str:
    kind = type(value)
    library = kind.__module__.split(".")[0]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"list of {len(value)} dict{'s' * (len(value) != 1)}"
    rows = "" if not hasattr(value, "__len__") else f", {len(value):,} rows"
    return f"{library} {kind.__name__}{rows}"


def _kept(value: Any, step: str) -> Any:
    """Return data that can be read again and again: what can be read once is read now."""
    if is_instance(value, "pandas", "DataFrame"):
        return _with_index(value)
    libraries = (("polars", "DataFrame"), ("polars", "LazyFrame"), ("pyarrow.dataset", "Dataset"))
    if isinstance(value, pa.Table) or is_spark(value) or any(is_instance(value, *one) for one in libraries):
        return value
    if isinstance(value, pa.RecordBatch) or hasattr(value, "__arrow_c_array__"):
        return pa.Table.from_batches([pa.record_batch(value)])
    if hasattr(value, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(value).read_all()
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping)):
        items = list(value)
        if items and all(isinstance(item, Mapping) for item in items):
            return pa.Table.from_pylist([dict(item) for item in items])
        if items and all(isinstance(item, (pa.RecordBatch, pa.Table)) for item in items):
            return pa.concat_tables([pa.table(item) for item in items])
    raise UserError(
        step, expected="a path, a pandas, Polars or Spark frame, Arrow data, or a list of dicts",
        got=f"{value!r:.80} ({type(value).__name__})",
        hint="pyarrow.table(...) makes a table of a dict of columns" if isinstance(value, Mapping) else "",
    )  # fmt: skip


def _with_index(frame: Any) -> Any:
    """Return a frame of pandas with the parts of its index that have names as columns."""
    named = [name for name in frame.index.names if name is not None and name not in frame.columns]
    return frame.reset_index(named) if named else frame


def _name_of(path: Path) -> str:
    """Return a name for a stream that is like that of its file.

    >>> _name_of(Path("data/Flights 2013.csv.gz")), _name_of(Path("2013/*.parquet"))
    ('Flights_2013', 'rows')
    """
    stem = path.name.split(".")[0]
    name = "".join(letter if letter.isalnum() else "_" for letter in stem).strip("_")
    return name if name.isidentifier() else "rows"
