"""Expressions over rows of hot keys: the place of the slice that they are in, and the task that has it."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill.core.time import FARTHEST
from tidemill.spark.batch.slice_choice import HotKey, Slices
from tidemill.spark.exchange.keys import hash_of
from tidemill.spark.expr.values import integer

TASK, HASH = "task", "h"
"""Columns of rows: the task that gets it, and the hash of its keys."""
_PLACE, _HOME = "place", "home"


def key_hash(rows: DataFrame, keys: Sequence[str]) -> SparkColumn:
    """Return a hash of keys, the same for equal ones; without keys, one for all rows."""
    return hash_of(keys, [rows.schema[k].dataType for k in keys]) if keys else integer(0)


def near(ticks: SparkColumn) -> SparkColumn:
    """Return instants that arithmetic can be done with; rows that are further away fail in their task."""
    return F.least(F.greatest(ticks, integer(-FARTHEST)), integer(FARTHEST))


def moved(at: SparkColumn, ticks: int) -> SparkColumn:
    """Return instants so many ticks later."""
    return at + integer(max(-FARTHEST, min(ticks, FARTHEST)))


def task_of_key(slices: Slices) -> SparkColumn:
    """Return the task of rows whose key is not hot."""
    return F.pmod(F.col(HASH), integer(slices.tasks)).cast("int")


def task_of(slices: Slices, place: SparkColumn) -> SparkColumn:
    """Return the task of a place."""
    if slices.places == tuple(range(len(slices.places))):
        return place
    return F.get(F.array(*map(F.lit, slices.places)), place)


def of_one_slice(
    rows: DataFrame, columns: Sequence[str], slices: Slices, at: SparkColumn
) -> DataFrame:
    """Return columns of rows with their task: that of the slice of an instant."""
    task = F.coalesce(task_of(slices, place_of(slices, near(at))), task_of_key(slices))
    return rows.select(*columns, task.alias(TASK))


def copied_to(
    rows: DataFrame, columns: Sequence[str], slices: Slices, places: SparkColumn, *,
    home: SparkColumn | None = None,
) -> DataFrame:  # fmt: skip
    """Return columns of rows with their task, once for each of their places; a key without has null.

    With the place that is the `home` of a row, a column before the task says whether a copy is there.
    """
    one, kept = F.array(-F.lit(1) - task_of_key(slices)), [*columns]
    place = F.col(_PLACE)
    beside = [] if home is None else [home.alias(_HOME)]
    rows = rows.select(*columns, *beside, F.explode(F.coalesce(places, one)).alias(_PLACE))
    if home is not None:
        there = (place < 0) | (place == F.col(_HOME))
        rows, kept = rows.withColumn(f"c{len(columns)}", there), [*columns, f"c{len(columns)}"]
    by_key = F.when(place < 0, -F.lit(1) - place)
    return rows.select(*kept, by_key.otherwise(task_of(slices, place)).alias(TASK))


def place_of(slices: Slices, at: SparkColumn) -> SparkColumn:
    """Return the place of the slice of an instant of a row's key; null if the key is not hot."""
    return _of_key(sorted(slices.hot, key=lambda key: key.hash), at)


def _of_key(hot: Sequence[HotKey], at: SparkColumn) -> SparkColumn:
    if len(hot) == 1:
        [key] = hot
        return F.when(F.col(HASH) == integer(key.hash), _of_bounds(key.bounds, key.first, at))
    half = len(hot) // 2
    below = F.col(HASH) < integer(hot[half].hash)
    return F.when(below, _of_key(hot[:half], at)).otherwise(_of_key(hot[half:], at))


def _of_bounds(bounds: Sequence[int], first: int, at: SparkColumn) -> SparkColumn:
    if not bounds:
        return F.lit(first)
    half = len(bounds) // 2
    below = at < integer(bounds[half])
    left = _of_bounds(bounds[:half], first, at)
    return F.when(below, left).otherwise(_of_bounds(bounds[half + 1 :], first + half + 1, at))
