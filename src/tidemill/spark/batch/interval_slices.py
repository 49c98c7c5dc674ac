"""Interval joins in which several tasks share the rows of a key, each in a slice of time.

A base row is in one slice. A probe row is copied to all slices with base rows that it may belong to: those
within reach of the interval. Where only the nearest rows count (`max_rows`, the as-of join) or the last one
before the interval (`prevailing`), the first or last rows of each slice go on to all others besides, so a row
is found however old it is. A sample of both inputs says which keys have so many rows, and where to cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill.core.schema import Schema
from tidemill.core.time import FARTHEST, FOREVER
from tidemill.expr.nodes import Node, Udf
from tidemill.plan.intervals import Bound, IntervalJoin
from tidemill.spark.batch.hot_keys import (
    HASH,
    copied_to,
    key_hash,
    moved,
    near,
    of_one_slice,
    place_of,
)
from tidemill.spark.batch.lifetimes import places, start_of
from tidemill.spark.batch.previous_rows import latest_turn, next_turn, turns_of, with_turns
from tidemill.spark.batch.slice_choice import Slices
from tidemill.spark.expr.compile import SparkExpressions
from tidemill.spark.expr.functions import outside_java
from tidemill.spark.expr.values import integer, spark_type

_AT, _IN, _LOW, _HIGH, _LAST, _FIRST = "at", "in_slice", "low", "high", "last", "first"
_BOUND = "bound"


@dataclass(frozen=True)
class Margins:
    """Which slices need a probe row, besides that of its own instant."""

    before: int | Node
    """Those of base rows that are up to so many ticks later; an expression is the greatest of base rows."""
    after: int | Node
    """Those of base rows that are so many ticks earlier."""
    last: int = 0
    """So many rows of a slice, the last ones, are needed in later slices, if these are not too far."""
    first: int = 0
    """So many, the first ones, in earlier slices."""
    shift: int = 0
    """Rows are the last ones of the slice of so many ticks after them."""
    last_reach: int = 0
    """How much later base rows may be that need one of the last rows."""
    first_reach: int = 0
    since_previous: bool = False
    """Rows after the last base row of a slice are needed in the next one that has base rows of the key."""

    @staticmethod
    def of(plan: IntervalJoin) -> Margins | str:
        """Return the margins of an interval join, or why it has none."""
        asked = plan.interval
        before, after = asked.bounds
        if plan.match.where is None and asked.max_rows is not None:
            most, far = asked.max_rows, FOREVER if asked.prevailing else _at_most(before)
            return Margins(0, 0, most if far else 0, most if after != 0 else 0, 0, far, _at_most(after))
        if any(isinstance(n, Udf) or outside_java(n) for bound in asked.computed for n in bound.walk()):
            return "Python computes bounds"
        endless = FOREVER in (before, after)
        if asked.since_previous and asked.prevailing:
            return "rows of any age may prevail"
        if plan.match.where is None and asked.prevailing and isinstance(before, int) and not endless:
            return Margins(before, after, 1, 0, before, FOREVER)
        if asked.since_previous and after != FOREVER and not asked.prevailing and not asked.offset:
            return Margins(0, after, since_previous=True)
        if endless or asked.prevailing:
            return "rows of any age may belong to the interval"
        return Margins(before, after)

    @property
    def carries(self) -> bool:
        return bool(self.last or self.first or self.since_previous)


def _at_most(bound: Bound) -> int:
    return FOREVER if isinstance(bound, Node) else bound


def bound_column(schema: Schema, names: Mapping[str, str], bound: Node) -> SparkColumn:
    """Compile a bound over base rows in the internal form, whose columns have other names; 0 for bad ones."""
    raw = {name: spark_type(schema[name]) for name in names}
    ticks = SparkExpressions(schema, raw, names).column(bound)
    return F.when(ticks >= 0, F.least(ticks, integer(FARTHEST))).otherwise(integer(0))


def interval_rows(
    plan: IntervalJoin, frames: Sequence[DataFrame], keys: Sequence[Sequence[str]], slices: Slices
) -> list[DataFrame]:
    """Return the rows of both sides, in the internal form, with the task that each of them goes to."""
    margins = Margins.of(plan)
    assert isinstance(margins, Margins)
    base, probe = (rows.withColumn(HASH, key_hash(rows, own)) for rows, own in zip(frames, keys))
    rows, turns = of_one_slice(base, frames[0].columns, slices, start_of(plan.base)), None
    if plan.interval.since_previous:
        at = near(start_of(plan.base))
        turns = turns_of(base, keys[0], at, place_of(slices, at))
        rows = _with_previous(base.withColumn(_AT, at), frames[0].columns, keys[0], slices, turns)
    if computed := [b for b in (margins.before, margins.after) if isinstance(b, Node)]:
        own = places(plan.base, "c")
        greatest = [F.max(bound_column(plan.base.schema, own, b)) for b in computed]
        named = [F.coalesce(g, integer(0)).alias(f"{_BOUND}{at}") for at, g in enumerate(greatest)]
        probe = probe.crossJoin(F.broadcast(frames[0].agg(*named)))
    return [rows, _copied(plan, margins, probe, frames[1].columns, keys[1], slices, turns)]


def _with_previous(
    base: DataFrame, columns: Sequence[str], keys: Sequence[str], slices: Slices, turns: DataFrame
) -> DataFrame:
    """Return base rows with their task and whether it is that of their own slice; the last ones go on."""
    rows = with_turns(base.withColumn(_IN, place_of(slices, F.col(_AT))), keys, turns)
    own, following = F.col(_IN), next_turn(F.col(_IN))
    goes_on = (F.col(_AT) == latest_turn(own)) & following.isNotNull()
    to = F.when(goes_on, F.array(own, following)).otherwise(F.when(own.isNotNull(), F.array(own)))
    return copied_to(rows, columns, slices, to, home=own)


def _copied(
    plan: IntervalJoin, margins: Margins, probe: DataFrame, columns: Sequence[str], keys: Sequence[str],
    slices: Slices, turns: DataFrame | None,
) -> DataFrame:  # fmt: skip
    own = near(start_of(plan.probe))
    if plan.interval.offset:
        own = near(own + integer(plan.interval.offset))
    rows = probe.select("*", own.alias(_AT))

    def place(ticks: int) -> SparkColumn:
        return place_of(slices, moved(F.col(_AT), ticks))

    computed = (F.col(f"{_BOUND}{at}") for at in range(2))
    high = place_of(slices, F.col(_AT) + next(computed)) if isinstance(margins.before, Node) else (
        place(margins.before))  # fmt: skip
    low = place_of(slices, F.col(_AT) - next(computed)) if isinstance(margins.after, Node) else (
        place(-margins.after))  # fmt: skip
    rows = rows.select("*", low.alias(_LOW), high.alias(_HIGH), place(margins.shift).alias(_IN))
    low, high, found = F.col(_LOW), F.col(_HIGH), rows
    if margins.last:
        found = _with_bounds(found, rows, keys, margins.last, last=True)
        reach = F.greatest(high, place(margins.last_reach))
        high = F.when(F.col(_AT) >= F.col(_LAST), reach).otherwise(high)
    if margins.first:
        found = _with_bounds(found, rows, keys, margins.first, last=False)
        reach = F.least(low, place(-margins.first_reach))
        low = F.when(F.col(_AT) <= F.col(_FIRST), reach).otherwise(low)
    to = F.sequence(low, high)
    if margins.since_previous:
        assert turns is not None
        found = with_turns(found, keys, turns)
        following, latest = next_turn(F.col(_IN)), latest_turn(F.col(_IN))
        goes_on = (latest.isNull() | (F.col(_AT) > latest)) & following.isNotNull()
        to = F.when(goes_on, F.array_append(to, following)).otherwise(to)
    return copied_to(found, columns, slices, to)


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
