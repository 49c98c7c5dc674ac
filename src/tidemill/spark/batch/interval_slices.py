"""Interval joins in which several tasks share the rows of a key, each in a slice of time.

A base row is in one slice. A probe row is copied to all slices with base rows that it may belong to: those
within reach of the interval. Where only the nearest rows count (`max_rows`, the as-of join) or the last one
before the interval (`prevailing`), the first or last rows of each slice go on to all others besides, so a row
is found however old it is. A sample of both inputs says which keys have so many rows, and where to cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill.core.time import FOREVER
from tidemill.expr.nodes import Node
from tidemill.plan.intervals import Interval, IntervalJoin
from tidemill.spark.batch.hot_keys import (
    HASH,
    copied_to,
    key_hash,
    moved,
    near,
    of_one_slice,
    place_of,
)
from tidemill.spark.batch.lifetimes import start_of
from tidemill.spark.batch.slice_choice import Slices
from tidemill.spark.expr.values import integer

_AT, _IN, _LOW, _HIGH, _LAST, _FIRST = "at", "in_slice", "low", "high", "last", "first"


@dataclass(frozen=True)
class Margins:
    """Which slices need a probe row, besides that of its own instant."""

    before: int
    """Those of base rows that are up to so many ticks later …"""
    after: int
    """… and earlier."""
    last: int = 0
    """So many rows of a slice, the last ones, are needed in later slices, if these are not too far."""
    first: int = 0
    """So many, the first ones, in earlier slices."""
    shift: int = 0
    """Rows are the last ones of the slice of so many ticks after them."""
    last_reach: int = 0
    """How much later base rows may be that need one of the last rows."""
    first_reach: int = 0

    @staticmethod
    def of(plan: IntervalJoin) -> Margins | str:
        """Return the margins of an interval join, or why it has none."""
        asked = plan.interval
        if asked.since_previous:
            return "an interval that begins with the base row before may be of any length"
        before, after = (FOREVER if isinstance(b, Node) else b for b in asked.bounds)
        if plan.match.where is None and asked.max_rows is not None:
            far = FOREVER if asked.prevailing else before
            most = asked.max_rows
            return Margins(0, 0, most if far else 0, most if after else 0, 0, far, after)
        if plan.match.where is None and asked.prevailing and before < FOREVER:
            return Margins(before, after, 1, 0, before, FOREVER)
        if asked.computed or FOREVER in asked.bounds or asked.prevailing:
            return f"rows of any age may belong to {_named(asked)}"
        return Margins(before, after)

    @property
    def carries(self) -> bool:
        return bool(self.last or self.first)


def _named(asked: Interval) -> str:
    return "intervals of computed bounds" if asked.computed else "the interval"


def interval_rows(
    plan: IntervalJoin, frames: Sequence[DataFrame], keys: Sequence[Sequence[str]], slices: Slices
) -> list[DataFrame]:
    """Return the rows of both sides, in the internal form, with the task that each of them goes to."""
    margins = Margins.of(plan)
    assert isinstance(margins, Margins)
    base, probe = (rows.withColumn(HASH, key_hash(rows, own)) for rows, own in zip(frames, keys))
    rows = of_one_slice(base, frames[0].columns, slices, start_of(plan.base))
    return [rows, _copied(plan, margins, probe, frames[1].columns, keys[1], slices)]


def _copied(
    plan: IntervalJoin, margins: Margins, probe: DataFrame, columns: Sequence[str], keys: Sequence[str],
    slices: Slices,
) -> DataFrame:  # fmt: skip
    own = near(start_of(plan.probe))
    if plan.interval.offset:
        own = near(own + integer(plan.interval.offset))
    rows = probe.select("*", own.alias(_AT))

    def place(ticks: int) -> SparkColumn:
        return place_of(slices, moved(F.col(_AT), ticks))

    beside = {_LOW: -margins.after, _HIGH: margins.before, _IN: margins.shift}
    rows = rows.select("*", *(place(ticks).alias(name) for name, ticks in beside.items()))
    low, high, found = F.col(_LOW), F.col(_HIGH), rows
    if margins.last:
        found = _with_bounds(found, rows, keys, margins.last, last=True)
        reach = F.greatest(high, place(margins.last_reach))
        high = F.when(F.col(_AT) >= F.col(_LAST), reach).otherwise(high)
    if margins.first:
        found = _with_bounds(found, rows, keys, margins.first, last=False)
        reach = F.least(low, place(-margins.first_reach))
        low = F.when(F.col(_AT) <= F.col(_FIRST), reach).otherwise(low)
    return copied_to(found, columns, slices, F.sequence(low, high))


def _with_bounds(
    rows: DataFrame, source: DataFrame, keys: Sequence[str], count: int, *, last: bool
) -> DataFrame:
    """Add the instant from which on rows are the last ones of their key and slice (or are the first ones).

    Rows of one instant are not told apart, so more rows may go on than count.
    """
    mark = _LAST if last else _FIRST
    each = source.filter(F.col(_IN).isNotNull()).groupBy(*keys, HASH, _IN)
    if count == 1:
        bound = (F.max if last else F.min)(_AT)
    elif last:
        bound = F.array_min(F.max_by(_AT, _AT, count))
    else:
        bound = F.array_max(F.min_by(_AT, _AT, count))
    # Keys of one hash are looked up together: the bound of all of them is the widest one.
    by_hash = each.agg(bound.alias(mark)).groupBy(F.col(HASH).alias("of"), F.col(_IN).alias("within"))
    widest = by_hash.agg((F.min if last else F.max)(mark).alias(mark))
    same = (F.col(HASH) == F.col("of")) & (F.col(_IN) == F.col("within"))
    return rows.join(F.broadcast(widest), same, "left").drop("of", "within")
