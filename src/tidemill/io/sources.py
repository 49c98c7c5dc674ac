"""Anything with rows as a reader of chunks: Arrow data, data frames, iterables, files."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.core.batch import check_schema
from tidemill.core.errors import UserError
from tidemill.core.types import INT64, STRING, DataType
from tidemill.io.chunks import (
    BATCH_ROWS,
    WIDE_ROWS,
    Chunk,
    Piece,
    Reader,
    earliest,
    promises,
    read_stream,
    step_of,
)
from tidemill.io.dicts import column_of, read_rows
from tidemill.io.files import open_path
from tidemill.io.parquet import open_dataset
from tidemill.plan.nodes import Source

__all__ = ["BATCH_ROWS", "Chunk", "Reader", "open_source"]


def open_source(value: Any, source: Source, *, promises: bool = True) -> Reader:
    """A reader of the columns that `source` needs. What can be checked before reading is checked.

    What lies in memory, and Parquet by its statistics, promises how far its rows are complete;
    other sources learn that only at their end. Where no operator waits for `promises`, times are not
    looked at. Errors count batches and rows from 1.

    >>> from tidemill.core.schema import schema
    >>> clicks = Source("clicks", schema({"t": "int64", "user": "string"}), "t", ("t",))
    >>> [chunk] = open_source([{"t": 1, "user": "a"}, {"t": 2, "user": "b"}], clicks)
    >>> chunk.batch.to_pylist()
    [{'t': 1}, {'t': 2}]
    """
    if isinstance(value, (str, os.PathLike)):
        return open_path(value, source)
    if _is(value, "pyarrow.dataset", "Dataset"):
        return open_dataset(value, source)
    if _is(value, "polars", "LazyFrame"):
        return _lazy(value, source)
    if (table := _table(value, source)) is not None:
        return _held([(table, "")], source, type(value).__name__, promised=promises)
    if isinstance(value, pa.RecordBatchReader):
        return _stream(value, source, "RecordBatchReader")
    if hasattr(value, "__arrow_c_stream__"):
        return _stream(pa.RecordBatchReader.from_stream(value), source, type(value).__name__)
    if isinstance(value, Iterable) and not isinstance(value, (Mapping, bytes)):
        return _iterable(value, source)
    spark = type(value).__module__.startswith("pyspark")
    raise UserError(
        step_of(source),
        expected="a pyarrow Table, RecordBatchReader or Dataset, a pandas or Polars frame, "
        "an iterable of batches or of dicts, or a path",
        got=f"{type(value).__module__}.{type(value).__name__}",
        hint="write .on_spark(spark).run(...)"
        if spark
        else "a dict of columns: pyarrow.table(...)",
    )


def _is(value: Any, module: str, name: str) -> bool:
    """Whether this is of a class that lives in a module which may not be imported at all."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(value, getattr(loaded, name))


def _table(value: Any, source: Source, place: str = "") -> pa.Table | None:
    """What lies in memory, as a table; None for anything else."""
    if isinstance(value, pa.Table):
        return value
    if isinstance(value, pa.RecordBatch):
        return pa.Table.from_batches([value])
    if _is(value, "pandas", "DataFrame"):
        return _from_pandas(value, source, place)
    if _is(value, "polars", "DataFrame"):
        return _from_polars(value, source, place)
    if hasattr(value, "__arrow_c_array__"):
        return pa.Table.from_batches([pa.record_batch(value)])
    return None


def _require(names: Iterable[Any], source: Source, place: str = "") -> None:
    """Refuse a frame that lacks a column, before anything of it is converted."""
    fields = [pa.field(str(name), pa.null()) for name in names]
    check_schema(pa.schema(fields), source.schema, source.reading, step=step_of(source, place))


def _from_pandas(frame: Any, source: Source, place: str) -> pa.Table:
    _require(frame.columns, source, place)
    columns = []
    for name, kind in source.schema:
        try:
            column = _python_column(frame[name], name, kind, source) if frame[name].dtype == object else (
                pa.array(frame[name], from_pandas=True)
            )
            if kind == INT64 and pa.types.is_floating(column.type):
                # Pandas has made floats of integers where some are missing.
                column = column.cast(pa.int64())
        except (pa.ArrowInvalid, pa.ArrowTypeError) as unfit:
            raise UserError(
                step_of(source, place), expected=f"column {name!r} of type {kind!r}",
                got=f"{frame[name].dtype}: {unfit}",
            ) from unfit  # fmt: skip
        columns.append(column)
    return pa.table(columns, names=list(source.schema.names))


def _python_column(values: Any, name: str, kind: DataType, source: Source) -> pa.Array:
    """A column of Python objects, by the rules of dicts: Arrow would take all for what the first one is."""
    if kind == STRING:
        return pa.array(values, from_pandas=True)
    listed = [None if v is None or (np.ndim(v) == 0 and v != v) else v for v in values]
    return column_of(listed, name, kind, source, first_row=1)


def _from_polars(frame: Any, source: Source, place: str) -> pa.Table:
    _require(frame.columns, source, place)
    needed = frame.select(_by_name(source))
    # Given whole, Polars would first copy a frame of several chunks into one.
    parts = [needed.clear(), *needed.iter_slices(BATCH_ROWS)]
    return pa.concat_tables([pa.table(part) for part in parts])


def _by_name(source: Source) -> Any:
    """The columns by their very names, some of which Polars would read as patterns."""
    import polars.selectors as selectors

    return selectors.by_name(*source.schema.names)


def _held(
    tables: Sequence[tuple[pa.Table, str]], source: Source, about: str, *, promised: bool = True
) -> Reader:
    """Tables in memory: their least times are looked up first, so that promises are exact."""
    for table, place in tables:
        check_schema(table.schema, source.schema, source.reading, step=step_of(source, place))

    if not promised:
        whole = [
            part for table, place in tables for part in _pieces(table, source, place, whole=True)
        ]
        rows = sum(table.num_rows for table, _ in tables)
        return Reader(source, about, lambda: whole, rows, WIDE_ROWS)

    def pieces() -> Iterator[Piece]:
        parts = [part for table, place in tables for part in _pieces(table, source, place)]
        lows = [earliest(part.batch, source, part.place) for part in parts]
        for part, bound in zip(parts, promises(lows)):
            yield Piece(part.batch, part.place, bound)

    return Reader(source, about, pieces, sum(table.num_rows for table, _ in tables))


def _pieces(
    table: pa.Table, source: Source, place: str, *, whole: bool = False
) -> Iterator[Piece]:
    most = None if whole else BATCH_ROWS
    for batch in table.select(list(source.schema.names)).to_batches(max_chunksize=most):
        if batch.num_rows:
            yield Piece(batch, place)


def _lazy(frame: Any, source: Source) -> Reader:
    """A Polars LazyFrame, computed in batches where this Polars can do so."""
    _require(frame.collect_schema().names(), source)
    needed = frame.select(_by_name(source))
    if not hasattr(needed, "collect_batches"):
        return _held([(_from_polars(needed.collect(), source, ""), "")], source, "LazyFrame")
    found = pa.table(needed.clear().collect()).schema
    check_schema(found, source.schema, source.reading, step=step_of(source))

    def pieces() -> Iterator[Piece]:
        for part in needed.collect_batches(chunk_size=BATCH_ROWS, maintain_order=True):
            yield from _pieces(pa.table(part), source, "")

    return Reader(source, "LazyFrame", pieces)


def _stream(reader: pa.RecordBatchReader, source: Source, about: str) -> Reader:
    check_schema(reader.schema, source.schema, source.reading, step=step_of(source))
    return Reader(source, about, lambda: read_stream(reader, source))


def _iterable(items: Iterable[Any], source: Source) -> Reader:
    if isinstance(items, Sequence):
        if all(isinstance(item, Mapping) for item in items):
            return Reader(source, "list of dicts", lambda: read_rows(items, source), len(items))
        if not isinstance(items[0], Mapping):
            tables = [_batch(item, source, n) for n, item in enumerate(items, 1)]
            return _held(tables, source, f"{len(items)} batches")
    return Reader(source, "iterable", lambda: _mixed(iter(items), source))


def _mixed(items: Iterator[Any], source: Source) -> Iterator[Piece]:
    """Batches or dicts; the first item says which."""
    for first in items:
        items = itertools.chain([first], items)
        if isinstance(first, Mapping):
            yield from read_rows(items, source)
        else:
            for number, item in enumerate(items, 1):
                yield from _pieces_checked(*_batch(item, source, number), source)
        return


def _pieces_checked(table: pa.Table, place: str, source: Source) -> Iterator[Piece]:
    check_schema(table.schema, source.schema, source.reading, step=step_of(source, place))
    yield from _pieces(table, source, place)


def _batch(item: Any, source: Source, number: int) -> tuple[pa.Table, str]:
    place = f"batch {number}"
    table = _table(item, source, place)
    if table is None:
        raise UserError(
            step_of(source, place), expected="a RecordBatch, a Table or a dict",
            got=f"{item!r:.60} ({type(item).__name__})",
        )  # fmt: skip
    return table, place
