"""Intervals that begin with the base row before (`since_previous`), in slices of time.

A base row needs the time of the one before it, which may be in an earlier slice. So the last base rows of a
slice go on to the next slice in which their key has base rows. They are marked, and get no answer there.
Probe rows after them go along.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill.core.schema import Schema, internal
from tidemill.core.types import BOOL
from tidemill.plan.faults import kind_of
from tidemill.plan.intervals import IntervalJoin
from tidemill.plan.nodes import Source

if TYPE_CHECKING:
    from tidemill.spark.workers import Batches, Task

_OWN = internal("own")
"""Whether a base row is in its own slice."""
_TURNS, _PLACE, _LATEST = "turns", "place", "latest"


def marked(plan: IntervalJoin) -> IntervalJoin:
    """Return the join over base rows that say whether they are in their own slice."""
    base = plan.base
    schema = Schema((*base.schema.fields, (_OWN, BOOL)))
    return replace(plan, base=Source("rows", schema, base.time, step=kind_of(base), end_column=base.end))


def own_only(task: Task) -> Task:
    """Return a task of a marked join that gives answers to the rows of its own slice, without the mark."""

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        for found in task(batches):
            own = found.column(_OWN)
            yield found.drop_columns([_OWN]).filter(own)

    return run


def turns_of(base: DataFrame, keys: Sequence[str], at: SparkColumn, place: SparkColumn) -> DataFrame:
    """Return for each hot key its slices with base rows, each with the time of the last one."""
    names = [_named(n) for n in range(len(keys))]
    columns = [F.col(key).alias(name) for key, name in zip(keys, names)]
    rows = base.select(*columns, at.alias("at"), place.alias(_PLACE))
    each = rows.filter(F.col(_PLACE).isNotNull()).groupBy(*names, _PLACE).agg(F.max("at").alias(_LATEST))
    return each.groupBy(*names).agg(F.collect_list(F.struct(_PLACE, _LATEST)).alias(_TURNS))


def _named(number: int) -> str:
    return f"key{number}"


def with_turns(rows: DataFrame, keys: Sequence[str], turns: DataFrame) -> DataFrame:
    """Add the slices in which the key of each row has base rows."""
    same = [F.col(k).eqNullSafe(F.col(_named(n))) for n, k in enumerate(keys)]
    joined = rows.join(F.broadcast(turns), reduce(lambda a, b: a & b, same, F.lit(True)), "left")
    return joined.drop(*(_named(n) for n in range(len(keys))))


def next_turn(place: SparkColumn) -> SparkColumn:
    """Return the first slice after a place in which the key has base rows; null if there is none."""
    later = F.filter(_TURNS, lambda turn: turn[_PLACE] > place)
    return F.array_min(F.transform(later, lambda turn: turn[_PLACE]))


def latest_turn(place: SparkColumn) -> SparkColumn:
    """Return the time of the last base row of the key in a slice; null if it has none there."""
    here = F.filter(_TURNS, lambda turn: turn[_PLACE] == place)
    return F.array_max(F.transform(here, lambda turn: turn[_LATEST]))
