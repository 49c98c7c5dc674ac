"""Find the columns of data and their types: of files, frames, tables, and schemas of other libraries."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.core.schema import schema as read_schema
from tidemill.core.text_form import TextForm
from tidemill.core.types import from_arrow
from tidemill.io.chunks import readable_at
from tidemill.io.data import is_spark
from tidemill.io.files import files_at
from tidemill.io.found_text import find_csv, find_json, type_of_text
from tidemill.io.sources import is_instance
from tidemill.io.stored_files import StoredFile
from tidemill.io.text import csv_columns
from tidemill.io.text_files import delimiter_of, is_blank


def declared(value: Any, *, step: str) -> Any:
    """Return what `core.schema.schema` reads, for `schema=` of a stream: also of data, by its columns.

    >>> declared(pa.table({"t": [1], "v": ["a"]}), step="stream")
    t: int64
    v: string
    """
    if isinstance(value, (str, os.PathLike)):
        return schema_of_path(os.fspath(value), step=step)
    if (found := schema_of_frame(value)) is not None:
        return found
    if is_instance(value, "pandas", "Series"):  # `frame.dtypes`
        return _from_dtypes(dict(value), step)
    if is_instance(value, "polars", "Schema"):
        import polars

        return polars.DataFrame(schema=value).to_arrow().schema
    return value


def schema_of_frame(value: Any) -> Any:
    """Return the Arrow schema of data in memory, the schema of a Spark frame, or None for anything else."""
    if isinstance(value, (pa.Table, pa.RecordBatch, pa.RecordBatchReader)):
        return value.schema
    if is_instance(value, "pyarrow.dataset", "Dataset"):
        return value.schema
    if is_instance(value, "pandas", "DataFrame"):
        return _of_pandas(value)
    if is_instance(value, "polars", "DataFrame"):
        return value.clear().to_arrow().schema
    if is_instance(value, "polars", "LazyFrame"):
        return value.clear().collect().to_arrow().schema
    if is_spark(value):
        return value.schema
    if hasattr(value, "__arrow_c_schema__") and not isinstance(value, pa.Schema):
        return pa.schema(value)
    return None


def schema_of_path(path: str, *, step: str) -> pa.Schema:
    """Return the Arrow schema of the first file at a path; text is looked at to find its types."""
    files, kind = files_at(path, step)
    with readable_at(f"{step}, file {files[0]}"):
        return with_key_columns(file_schema(files[0], kind), files)


def with_key_columns(found: pa.Schema, files: Sequence[StoredFile]) -> pa.Schema:
    """Return the schema of files with the columns that their directories give; their types are found."""
    values: dict[str, list[str | None]] = {}
    for file in files:
        for name, value in file.keys.items():
            values.setdefault(name, []).append(value)
    for name, texts in values.items():
        if name not in found.names:
            found = found.append(pa.field(name, type_of_text(pa.array(texts, pa.string()))))
    return found


def columns_of_file(file: StoredFile, kind: str, form: TextForm) -> list[str]:
    """Return the columns that a file names, not those that its rows name, as in JSON."""
    if kind == "JSON lines" or (kind == "CSV" and is_blank(file)):
        return []
    if kind == "CSV":
        return csv_columns(file, delimiter_of(file, form), form)
    return list(file_schema(file, kind).names)


def file_schema(file: StoredFile, kind: str) -> pa.Schema:
    """Return the Arrow schema of a file of a format; the types of text are those of its first values."""
    return _OF_KIND[kind](file)


def _parquet(file: StoredFile) -> pa.Schema:
    import pyarrow.parquet as pq

    with file.open() as opened:
        return pq.read_schema(opened).remove_metadata()


def _ipc(file: StoredFile) -> pa.Schema:
    with file.open() as opened:
        try:
            return pa.ipc.open_file(opened).schema.remove_metadata()
        except pa.ArrowInvalid:
            opened.seek(0)
            return pa.ipc.open_stream(opened).schema.remove_metadata()


_OF_KIND: dict[str, Callable[[StoredFile], pa.Schema]] = {
    "Parquet": _parquet, "Arrow": _ipc,
    "CSV": lambda file: find_csv(file).schema, "JSON lines": lambda file: find_json(file).schema,
}  # fmt: skip


_SHOWN = b"tidemill.shown"
"""What to show as the type of a field."""
_INDEX = re.compile(r"__index_level_[0-9]+__")
"""What pandas calls an index without a name in files."""


def usable(found: Any, *, step: str) -> tuple[Schema, dict[str, str]]:
    """Return the columns that a stream can have, and the others with their types.

    >>> usable(pa.schema({"t": pa.int64(), "at": pa.time32("s")}), step="read")
    (Schema(t: int64), {'at': 'time32[s]'})
    """
    if not isinstance(found, pa.Schema):  # of Spark
        fields = [(f.name, type(found)([f]), f.dataType.simpleString()) for f in found.fields]
        read: Callable[[Any], Any] = functools.partial(_one, step=step)
    else:
        fields = [(f.name, f.type, _shown(f)) for f in found]
        read = functools.partial(from_arrow, step=step)
    kept, others = [], {}
    for name, kind, shown in fields:
        if _INDEX.fullmatch(name):
            others[name] = f"{shown}, an index of pandas"
            continue
        try:
            kept.append((name, read(kind)))
        except UserError:
            others[name] = shown
    return read_schema(Schema(tuple(_once(kept, step))), step=step), others


def _shown(field: pa.Field) -> str:
    known: bytes | None = (field.metadata or {}).get(_SHOWN)
    return str(field.type) if known is None else known.decode()


def _one(one: Any, step: str) -> Any:
    ((_, kind),) = read_schema(one, step=step)
    return kind


def _once(fields: Iterable[tuple[str, Any]], step: str) -> list[tuple[str, Any]]:
    listed = list(fields)
    names = [name for name, _ in listed]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UserError(
            step,
            expected="each column once",
            got=f"{twice} more than once",
            hint="rename columns first",
        )
    return listed


def _of_pandas(frame: Any) -> pa.Schema:
    """Return the schema of a frame. Columns that Arrow cannot hold have a type that no stream has."""
    try:
        return pa.Schema.from_pandas(frame, preserve_index=False).remove_metadata()
    except (pa.ArrowException, TypeError, ValueError):
        fields = []
        for at, name in enumerate(frame.columns):
            try:
                one = frame.iloc[:, at].to_frame("of a name of its own")
                [field] = pa.Schema.from_pandas(one, preserve_index=False).remove_metadata()
                field = field.with_name(str(name))
            except (pa.ArrowException, TypeError, ValueError):
                shown = {_SHOWN: str(frame.dtypes.iloc[at])}
                field = pa.field(str(name), pa.month_day_nano_interval(), metadata=shown)  # no stream has it
            fields.append(field)
        return pa.schema(fields)


def _from_dtypes(dtypes: Mapping[Any, Any], step: str) -> pa.Schema:
    """Read `frame.dtypes` of pandas. Of objects, pandas does not know the type."""
    import pandas

    unknown = [str(name) for name, dtype in dtypes.items() if pandas.api.types.is_object_dtype(dtype)]
    if unknown:
        raise UserError(
            step, expected="dtypes that say what a column holds", got=f"object for {unknown}",
            hint="give the frame itself as schema=, or a dict of names to types",
        )  # fmt: skip
    empty = {str(name): pandas.Series(dtype=dtype) for name, dtype in dtypes.items()}
    return pa.Schema.from_pandas(pandas.DataFrame(empty), preserve_index=False).remove_metadata()
