"""Open any input as a reader of chunks: Arrow data, data frames, iterables, files."""

from __future__ import annotations

import functools
import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.core.batch import check_schema
from tidemill.core.errors import UserError
from tidemill.core.threads import on_threads, threads
from tidemill.core.types import INT64, STRING, DataType
from tidemill.io.chunks import (
    BATCH_ROWS,
    SIZES,
    Chunk,
    ChunkSizes,
    RawChunk,
    Reader,
    earliest,
    promises,
    read_stream,
    step_of,
)
from tidemill.io.data import Data, is_spark, quoted
from tidemill.io.dicts import column_of, read_rows
from tidemill.io.files import Part, open_part, open_path
from tidemill.io.parquet import open_dataset
from tidemill.plan.nodes import Source

__all__ = ["BATCH_ROWS", "Chunk", "Reader", "open_source"]


def open_source(
    value: Any, source: Source, *, promises: bool = True, sizes: ChunkSizes = SIZES
) -> Reader:
    """Open an input to read the columns that `source` needs. The schema is checked now where possible.

    Data in memory and Parquet files with statistics provide watermarks; other inputs are complete only at
    their end. Pass `promises=False` if no operator needs watermarks: times are then not read in advance.
    Errors count batches and rows from 1.

    >>> from tidemill.core.schema import schema
    >>> clicks = Source("clicks", schema({"t": "int64", "user": "string"}), "t", ("t",))
    >>> [chunk] = open_source([{"t": 1, "user": "a"}, {"t": 2, "user": "b"}], clicks)
    >>> chunk.batch.to_pylist()
    [{'t': 1}, {'t': 2}]
    """
    if isinstance(value, Part):
        return open_part(value, source, sizes)
    if isinstance(value, Data):
        if value.system is not None:
            return open_path(value.value, source, sizes, value.system)
        value = value.value
        if is_spark(value):  # the user made the stream of it: its rows are fetched
            value = _from_spark(value, source)
    if isinstance(value, (str, os.PathLike)):
        return open_path(value, source, sizes)
    if is_instance(value, "pyarrow.dataset", "Dataset"):
        return open_dataset(value, source, sizes)
    if is_instance(value, "polars", "LazyFrame"):
        return _lazy(value, source, sizes)
    if (table := _table(value, source)) is not None:
        return _held([(table, "")], source, type(value).__name__, sizes, promised=promises)
    if isinstance(value, pa.RecordBatchReader):
        return _stream(value, source, "RecordBatchReader", sizes)
    if hasattr(value, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(value)
        return _stream(reader, source, type(value).__name__, sizes)
    if isinstance(value, Iterable) and not isinstance(value, (Mapping, bytes)):
        return _iterable(value, source, sizes)
    spark = is_spark(value)
    feed = hasattr(value, "stopped")  # as `io.feeds` has it
    raise UserError(
        step_of(source),
        expected="a pyarrow Table, RecordBatchReader or Dataset, a pandas or Polars frame, "
        "an iterable of batches or of dicts, or a path",
        got=f"{type(value).__module__}.{type(value).__name__}",
        hint="write .on_spark(spark).run(...)"
        if spark
        else "a source that goes on is for query.live(...).read(...)"
        if feed
        else "a dict of columns: pyarrow.table(...)",
    )


def is_instance(value: Any, module: str, name: str) -> bool:
    """Return whether a value is an instance of a class of an optional module, without importing it."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(value, getattr(loaded, name))


def _table(value: Any, source: Source, place: str = "") -> pa.Table | None:
    """Convert data in memory to a table; return None for anything else."""
    if isinstance(value, pa.Table):
        return value
    if isinstance(value, pa.RecordBatch):
        return pa.Table.from_batches([value])
    if is_instance(value, "pandas", "DataFrame"):
        return _from_pandas(value, source, place)
    if is_instance(value, "polars", "DataFrame"):
        return _from_polars(value, source, place)
    if hasattr(value, "__arrow_c_array__"):
        return pa.Table.from_batches([pa.record_batch(value)])
    return None


def _require(names: Iterable[Any], source: Source, place: str = "") -> None:
    """Raise an error if a frame lacks a column, before it is converted."""
    fields = [pa.field(str(name), pa.null()) for name in names]
    check_schema(pa.schema(fields), source.schema, source.reading, step=step_of(source, place))


def _from_pandas(frame: Any, source: Source, place: str) -> pa.Table:
    _require(frame.columns, source, place)
    if not all(isinstance(name, str) for name in frame.columns):
        frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
    columns = []
    for name, kind in source.schema:
        try:
            column = _python_column(frame[name], name, kind, source) if frame[name].dtype == object else (
                pa.array(frame[name], from_pandas=True)
            )
            if kind == INT64 and pa.types.is_floating(column.type):
                # Pandas converts integers to floats if some are missing.
                column = column.cast(pa.int64())
        except (pa.ArrowInvalid, pa.ArrowTypeError) as unfit:
            raise UserError(
                step_of(source, place), expected=f"column {name!r} of type {kind!r}",
                got=f"{frame[name].dtype}: {unfit}",
            ) from unfit  # fmt: skip
        columns.append(column)
    return pa.table(columns, names=list(source.schema.names))


def _python_column(values: Any, name: str, kind: DataType, source: Source) -> pa.Array:
    """Convert a column of Python objects by the rules for dicts: Arrow would infer the type itself."""
    if kind == STRING:
        return pa.array(values, from_pandas=True)
    listed = [None if v is None or (np.ndim(v) == 0 and v != v) else v for v in values]
    return column_of(listed, name, kind, source, first_row=1)


def _from_polars(frame: Any, source: Source, place: str = "") -> pa.Table:
    _require(frame.columns, source, place)
    needed = frame.select(_by_name(source))
    # Converted in slices, because Polars would copy a frame of several chunks into one chunk.
    parts = [needed.clear(), *needed.iter_slices(BATCH_ROWS)]
    return pa.concat_tables([pa.table(part) for part in parts])


def _by_name(source: Source) -> Any:
    """Select the columns by exact name; Polars would interpret some names as patterns."""
    import polars.selectors as selectors

    return selectors.by_name(*source.schema.names)


def _from_spark(frame: Any, source: Source) -> pa.Table:
    """Fetch the columns of a Spark frame that a query needs."""
    _require(frame.columns, source)
    found: pa.Table = frame.select(*map(quoted, source.schema.names)).toArrow()
    return found


def _held(
    tables: Sequence[tuple[pa.Table, str]], source: Source, about: str, sizes: ChunkSizes,
    *, promised: bool = True,
) -> Reader:  # fmt: skip
    """Open tables in memory. If `promised`, minimum times are computed on demand, for exact watermarks."""
    for table, place in tables:
        check_schema(table.schema, source.schema, source.reading, step=step_of(source, place))

    rows = sum(table.num_rows for table, _ in tables)
    workers = threads()
    if rows < 8 * sizes.held:  # enough chunks for all threads
        sizes, workers = replace(sizes, held=sizes.most), 1
    texts = any(not kind.is_fixed for _, kind in source.schema)
    checking = workers if texts else 1
    if not promised:
        whole = [raw for table, place in tables for raw in _raw_chunks(table, source, None, place)]
        sizes = replace(sizes, most=sizes.most_held)
        return Reader(source, about, lambda: whole, rows, sizes, workers=checking)

    def raw_chunks() -> Iterator[RawChunk]:
        cut = list(_cut(tables, source, sizes, rows, workers))

        @functools.cache
        def bounds() -> list[int]:
            return promises(list(on_threads(lambda r: earliest(r.batch, source, r.place), cut, workers)))

        def bound(number: int) -> int:
            return bounds()[number]

        for number, raw in enumerate(cut):
            yield RawChunk(raw.batch, raw.place, functools.partial(bound, number))

    return Reader(source, about, raw_chunks, rows, replace(sizes, most=sizes.held), workers=checking)


def _cut(
    tables: Sequence[tuple[pa.Table, str]], source: Source, sizes: ChunkSizes, rows: int, workers: int
) -> Iterator[RawChunk]:
    """Cut tables into chunks. The last ones are shorter, so that all threads finish together."""
    for table, place in tables:
        for raw in _raw_chunks(table, source, None, place):
            start, end = 0, raw.batch.num_rows
            while start < end:
                most = sizes.held if workers == 1 else min(sizes.held, max(sizes.most, rows // (2 * workers)))
                chunk = raw.batch.slice(start, most)
                yield RawChunk(chunk, place)
                start, rows = start + chunk.num_rows, rows - chunk.num_rows


def _raw_chunks(
    table: pa.Table, source: Source, most: int | None, place: str = ""
) -> Iterator[RawChunk]:
    for batch in table.select(list(source.schema.names)).to_batches(max_chunksize=most):
        if batch.num_rows:
            yield RawChunk(batch, place)


def _lazy(frame: Any, source: Source, sizes: ChunkSizes) -> Reader:
    """Open a Polars LazyFrame, computed in batches if this version of Polars supports it."""
    _require(frame.collect_schema().names(), source)
    needed = frame.select(_by_name(source))
    if not hasattr(needed, "collect_batches"):
        held = _from_polars(needed.collect(), source)
        return _held([(held, "")], source, "LazyFrame", sizes)
    found = pa.table(needed.clear().collect()).schema
    check_schema(found, source.schema, source.reading, step=step_of(source))

    def raw_chunks() -> Iterator[RawChunk]:
        for batch in needed.collect_batches(chunk_size=sizes.most, maintain_order=True):
            yield from _raw_chunks(pa.table(batch), source, sizes.most)

    return Reader(source, "LazyFrame", raw_chunks, sizes=sizes)


def _stream(reader: pa.RecordBatchReader, source: Source, about: str, sizes: ChunkSizes) -> Reader:
    check_schema(reader.schema, source.schema, source.reading, step=step_of(source))
    return Reader(source, about, lambda: read_stream(reader, source), sizes=sizes)


def _iterable(items: Iterable[Any], source: Source, sizes: ChunkSizes) -> Reader:
    if isinstance(items, Sequence):
        if all(isinstance(item, Mapping) for item in items):
            read = functools.partial(read_rows, items, source, sizes)
            return Reader(source, "list of dicts", read, len(items), sizes)
        if not isinstance(items[0], Mapping):
            tables = [_batch(item, source, n) for n, item in enumerate(items, 1)]
            return _held(tables, source, f"{len(items)} batches", sizes)
    return Reader(source, "iterable", lambda: _mixed(iter(items), source, sizes), sizes=sizes)


def _mixed(items: Iterator[Any], source: Source, sizes: ChunkSizes) -> Iterator[RawChunk]:
    """Read batches or dicts, depending on the first item."""
    for first in items:
        items = itertools.chain([first], items)
        if isinstance(first, Mapping):
            yield from read_rows(items, source, sizes)
        else:
            for number, item in enumerate(items, 1):
                table, place = _batch(item, source, number)
                check_schema(table.schema, source.schema, source.reading, step=step_of(source, place))
                yield from _raw_chunks(table, source, sizes.most, place)
        return


def _batch(item: Any, source: Source, number: int) -> tuple[pa.Table, str]:
    place = f"batch {number}"
    table = _table(item, source, place)
    if table is None:
        raise UserError(
            step_of(source, place), expected="a RecordBatch, a Table or a dict",
            got=f"{item!r:.60} ({type(item).__name__})",
        )  # fmt: skip
    return table, place
