"""Sliding windows of k consecutive elements (Table 3.3).

The first pass collects the first k-1 elements of each partition on the driver: they complete the last
windows of earlier partitions. In the second pass, each task cuts its rows into windows. For a traced
function, it slices Arrow columns, and the function runs in the JVM on k elements per row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.core.types import DataType
from tidemill.spark.dia.capture import captured
from tidemill.spark.dia.elements import columns_of, decode, infer, parse_element
from tidemill.spark.dia.local import exploded
from tidemill.spark.dia.opaque_batches import called, encoded, in_arrow, mapped
from tidemill.spark.dia.operation import HEAD, Operation, described, is_steady
from tidemill.spark.dia.partitions import PART, offsets, pinned, sizes
from tidemill.spark.dia.task_errors import clear_errors
from tidemill.spark.dia.traced_columns import ElementColumns
from tidemill.spark.dia.tracing import Function, Opaque, Traced, trace, trace_list
from tidemill.spark.expr.schemas import user_schema
from tidemill.spark.private import partition_count
from tidemill.spark.workers import Batches, Task

WIDEST_TRACED = 32
"""The most elements of a window in one Spark row; functions of longer windows run in Python."""


def window(
    parent: Operation, k: int, function: Function, returns: Any = None, *, every: int = 1,
    flat: bool = False,
) -> Operation:  # fmt: skip
    """Apply a function to each list of k consecutive elements."""
    step = "flat_window" if flat else "window"
    for name, value in (("k", k), ("every", every)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UserError(step, expected=f"{name} of at least 1", got=repr(value))
    declared = None if returns is None else parse_element(returns, step=step)
    prefixes = [f"w{i}." for i in range(k)]
    found: Any = Opaque(function, f"a window of more than {WIDEST_TRACED} elements is a list")
    if k <= WIDEST_TRACED:
        follow = trace_list if flat else trace
        found = follow(lambda *e: function(list(e)), [parent.kind] * k, prefixes, declared)
        found = Opaque(function, found.why) if isinstance(found, Opaque) else found
    if isinstance(found, Opaque):
        kind = declared or _inferred(parent, k, function, flat, every, step)
        run = _in_python(parent.kind, kind, k, captured(function), flat, step)
    else:
        kind = found.type.of[0] if flat and isinstance(found, Traced) else found.type

    def build() -> DataFrame:
        cut = _Cut(parent, k, every, step)
        if isinstance(found, Opaque):
            return in_arrow(cut.rows, cut.task(run), kind)
        names = columns_of(parent.kind)
        wide = Schema(tuple((p + n, t) for p in prefixes for n, t in names))
        rows = mapped(cut.rows, cut.task(_sliced(names.names, prefixes)), user_schema(wide))
        columns = ElementColumns.of(*[parent.kind] * k, prefixes=prefixes)
        return exploded(rows, found, columns) if flat else rows.select(*columns.element(found))

    what = f"k={k}{f', every={every}' if every > 1 else ''}"
    said = described(found)
    return Operation(
        step, (parent,), kind, parent.session, build, settled=is_steady(found),
        **{**said, "function": f"{what}, {said['function']}"},
    )  # fmt: skip


def _inferred(
    parent: Operation, k: int, function: Function, flat: bool, every: int, step: str
) -> DataType:
    head = parent.head if k <= HEAD else parent.first(k)
    windows = [head[i : i + k] for i in range(0, max(0, len(head) - k + 1), every)]
    made = called(function, windows, step=step)
    return infer([x for items in made for x in items] if flat else made, step=step)


Windows = Callable[[pa.Table, range], Iterator[pa.RecordBatch]]
"""A function of rows and the positions at which windows start; yields batches of results."""


class _Cut:
    """The first pass over a node: collects what tasks need for the windows that start in their partition."""

    def __init__(self, parent: Operation, k: int, every: int, step: str) -> None:
        self.k, self.every = k, every
        df = pinned(parent)
        self.rows = df.select("*", F.spark_partition_id().alias(PART))
        self.skip: dict[int, int] = {}
        if every > 1:
            starts = offsets(sizes(df, step=step))
            self.skip = {p: -start % every for p, start in enumerate(starts[:-1])}
        self.tails = self._tails(parent, step) if k > 1 else {}

    def _tails(self, parent: Operation, step: str) -> dict[int, pa.Table]:
        """The k-1 elements after each partition, or fewer at the end."""
        wanted = self.k - 1

        def heads(batches: Batches) -> Iterator[pa.RecordBatch]:
            left = wanted
            for batch in batches:
                if left > 0:  # the rest must be read, too, or Spark logs an error
                    yield batch.slice(0, left)
                    left -= min(left, batch.num_rows)

        own = user_schema(columns_of(parent.kind)).fields
        shape = T.StructType([*own, T.StructField(PART, T.IntegerType())])
        with clear_errors(step):
            table = mapped(self.rows, heads, shape).toArrow()
        tails: dict[int, pa.Table] = {}
        parts = table.column(PART).to_numpy()
        for part in range(partition_count(parent.frame)):
            first = int(parts.searchsorted(part, side="right"))
            tails[part] = table.slice(first, wanted).combine_chunks()
        return tails

    def task(self, windows: Windows) -> Task:
        """A task that passes its rows, in order, and the rows after its partition to `windows`."""
        k, every, skip, tails = self.k, self.every, self.skip, self.tails

        def task(batches: Batches) -> Iterator[pa.RecordBatch]:
            held: pa.Table | None = None
            start = part = 0
            for batch in batches:
                if not batch.num_rows:
                    continue
                rows = pa.Table.from_batches([batch])
                if held is None:
                    part = int(batch.column(batch.schema.get_field_index(PART))[0].as_py())
                    start, held = skip.get(part, 0), rows
                else:
                    held = pa.concat_tables([held, rows])
                starts = range(start, held.num_rows - k + 1, every)
                yield from windows(held, starts)
                # Keep the rows that later windows need; a start beyond the rows waits for more rows.
                start = starts[-1] + every if starts else start
                done = min(start, held.num_rows)
                held, start = held.slice(done).combine_chunks(), start - done
            if held is not None and held.num_rows and k > 1:
                inside = held.num_rows
                tail = tails[part].cast(held.schema)
                held = pa.concat_tables([held, tail])
                last = min(inside, held.num_rows - k + 1)
                yield from windows(held, range(start, last, every))

        return task


def _in_python(
    kind: DataType, result: DataType, k: int, function: Function, flat: bool, step: str
) -> Windows:
    """Windows as lists of elements, with one function call each."""

    def windows(rows: pa.Table, starts: range) -> Iterator[pa.RecordBatch]:
        if not starts:
            return
        elements = decode(rows, kind)
        made = called(function, [elements[i : i + k] for i in starts], step=step)
        flattened = [x for items in made for x in items] if flat else made
        yield from encoded(flattened, result, step=step)

    return windows


def _sliced(names: Sequence[str], prefixes: Sequence[str]) -> Windows:
    """Windows as rows: the columns are repeated for each position in the window, shifted by one row."""

    def windows(rows: pa.Table, starts: range) -> Iterator[pa.RecordBatch]:
        if not starts:
            return
        columns, labels = [], []
        for shift, prefix in enumerate(prefixes):
            for name in names:
                column = rows.column(name)
                if starts.step == 1:
                    columns.append(column.slice(starts.start + shift, len(starts)))
                else:
                    places = pa.array([i + shift for i in starts], pa.int64())
                    columns.append(column.take(places))
                labels.append(prefix + name)
        yield from pa.table(columns, labels).combine_chunks().to_batches()

    return windows
