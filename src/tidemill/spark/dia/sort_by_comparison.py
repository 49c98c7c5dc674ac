"""Sort by an opaque comparison: a sample sort in Python on Arrow batches."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import cmp_to_key
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemill.spark.dia.elements import columns_of, decode
from tidemill.spark.dia.opaque_batches import encoded, in_arrow, mapped, raised
from tidemill.spark.dia.operation import Operation
from tidemill.spark.dia.partitions import BLOCK, INDEX, parallelism
from tidemill.spark.dia.task_errors import clear_errors
from tidemill.spark.dia.tracing import Function
from tidemill.spark.expr.schemas import user_schema
from tidemill.spark.expr.values import named
from tidemill.spark.workers import Batches

SAMPLE = 40
"""Sampled elements per range, so that ranges are about even."""


def sorted_by(parent: Operation, less: Function, descending: bool) -> DataFrame:
    """Sort elements by a less-than comparison; the sort is stable."""
    kind, names = parent.kind, columns_of(parent.kind).names
    ranges = 2 * parallelism(parent.session)
    splitters = _splitters(parent, _order(less, descending), ranges)

    def place(batches: Batches) -> Iterator[pa.RecordBatch]:
        key = _order(less, descending)  # made in the task: it cannot be pickled
        bounds = [key(s) for s in splitters]
        for batch in batches:
            blocks = [bisect_right(bounds, key(e)) for e in decode(batch, kind)]
            columns = [*batch.columns, pa.array(blocks, pa.int32())]
            yield pa.RecordBatch.from_arrays(columns, [*batch.schema.names, BLOCK])

    def order(batches: Batches) -> Iterator[pa.RecordBatch]:
        key = _order(less, descending)
        elements = [e for batch in batches for e in decode(batch, kind)]
        yield from encoded(sorted(elements, key=key), kind, step="sort")

    own = user_schema(columns_of(kind)).fields
    where = [T.StructField(INDEX, T.LongType()), T.StructField(BLOCK, T.IntegerType())]
    rows = parent.frame.select("*", F.monotonically_increasing_id().alias(INDEX))
    placed = mapped(rows, place, T.StructType([*own, *where]))
    together = placed.repartitionById(ranges, F.col(BLOCK)).sortWithinPartitions(BLOCK, INDEX)
    return in_arrow(together.select(*map(named, names)), order, kind)


def _splitters(parent: Operation, key: Any, ranges: int) -> list[Any]:
    some = parent.frame.orderBy(F.rand(7)).limit(SAMPLE * ranges)
    with clear_errors("sort", parent):
        sample = sorted(decode(some.toArrow(), parent.kind), key=key)
    return [sample[len(sample) * i // ranges] for i in range(1, ranges)] if sample else []


def _order(less: Function, descending: bool) -> Any:
    def compare(a: Any, b: Any) -> int:
        try:
            below, above = bool(less(a, b)), bool(less(b, a))
        except Exception as failed:
            raise raised(less, failed, (a, b), step="sort") from failed
        # A comparison written with <= reports equal elements as below each other.
        return (above - below) * (-1 if descending else 1)

    return cmp_to_key(compare)
