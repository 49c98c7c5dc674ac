"""Joins and cuts in slices of time, so that several tasks share all rows, or those of hot keys.

Rows of one side, the one whose parts without a match are in the result, are divided by their start. So each
of them is in one slice, and meets all its matches there: rows of the other side are copied to the slices in
which some row holds while they do. Those are several only where lifetimes are long.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemill.core.time import FOREVER
from tidemill.plan.nodes import Plan
from tidemill.plan.properties import properties
from tidemill.plan.temporal import Cut, Join
from tidemill.spark.batch.hot_keys import (
    HASH,
    copied_to,
    key_hash,
    moved,
    near,
    of_one_slice,
    place_of,
)
from tidemill.spark.batch.lifetimes import end_of, start_of
from tidemill.spark.batch.slice_choice import Slices
from tidemill.spark.expr.values import integer
from tidemill.spark.private import is_connect

SLICE, _REACH = "slice", "reach"
_MOST = 64
_UNKNOWN = 16
"""Slices where nobody knows how many cores there are."""
_EACH = 4
"""Slices for each core: they take different time."""


def slices(spark: SparkSession) -> int:
    """Return into how many slices time is divided."""
    if is_connect(spark):
        return _UNKNOWN
    return min(_MOST, max(2, _EACH * spark.sparkContext.defaultParallelism))


def divided_side(plan: Join | Cut) -> int | None:
    """Return the side whose rows are in one slice each; None if that must be so for both."""
    if plan.kind == "outer":
        return None
    return 1 if plan.kind == "right" else 0


def sliced(plan: Join | Cut, frames: Sequence[DataFrame], count: int) -> list[DataFrame]:
    """Return the rows of both sides, in the internal form, with the slices to which they belong."""
    port = divided_side(plan)
    assert port is not None
    own, other = plan.children()[port], plan.children()[1 - port]
    rows, others = frames[port], frames[1 - port]
    shares = [at / count for at in range(1, count)]
    bounds = rows.agg(F.percentile_approx(start_of(own), shares).alias("bounds"))
    before = F.filter("bounds", lambda bound: bound <= start_of(own))
    divided = rows.crossJoin(F.broadcast(bounds)).select(*rows.columns, F.size(before).alias(SLICE))
    end = F.coalesce(end_of(own), integer(FOREVER))
    reach = divided.groupBy(SLICE).agg(F.min(start_of(own)).alias("first"), F.max(end).alias("last"))
    reach = reach.agg(F.collect_list(F.struct(SLICE, "first", "last")).alias("reach"))
    until = F.coalesce(end_of(other), integer(FOREVER))
    meeting = F.filter("reach", lambda s: (s["first"] < until) & (s["last"] > start_of(other)))
    found = F.explode(F.transform(meeting, lambda s: s[SLICE])).alias(SLICE)
    copied = others.crossJoin(F.broadcast(reach)).select(*others.columns, found)
    return [divided, copied] if port == 0 else [copied, divided]


# --- rows of hot keys -------------------------------------------------------------------------------


def joined_rows(
    plan: Join | Cut, frames: Sequence[DataFrame], keys: Sequence[Sequence[str]], chosen: Slices
) -> list[DataFrame]:
    """Return the rows of both sides, in the internal form, with the task that each of them goes to."""
    port = divided_side(plan)
    assert port is not None
    own, other = plan.children()[port], plan.children()[1 - port]
    rows, others = (
        frames[at].withColumn(HASH, key_hash(frames[at], keys[at])) for at in (port, 1 - port)
    )
    divided = of_one_slice(rows, frames[port].columns, chosen, start_of(own))
    start, until = near(start_of(other)), F.coalesce(end_of(other), integer(FOREVER))
    longest = properties(own).duration
    columns = frames[1 - port].columns
    last = place_of(chosen, F.greatest(near(until) - integer(1), start))
    if longest is not None:
        first = place_of(chosen, moved(start, 1 - longest))
        copied = copied_to(others, columns, chosen, F.sequence(first, last))
    else:
        reached = others.join(F.broadcast(_reach(own, rows, chosen)), HASH, "left")
        meets = F.filter(_REACH, lambda s: (s["first"] < until) & (s["last"] > start))
        # A row goes to the slice of its start in any case: a task looks whether it can be used.
        home = F.array(place_of(chosen, start))
        found = F.coalesce(F.array_union(home, F.transform(meets, lambda s: s["at"])), home)
        copied = copied_to(reached, columns, chosen, F.when(last.isNotNull(), found))
    return [divided, copied] if port == 0 else [copied, divided]


def _reach(own: Plan, rows: DataFrame, chosen: Slices) -> DataFrame:
    """Return for each hot key when the rows of each of its slices hold."""
    start, end = near(start_of(own)), F.coalesce(end_of(own), integer(FOREVER))
    rows = rows.select(HASH, place_of(chosen, start).alias("at"), start.alias("first"), end.alias("last"))
    hot = rows.filter(F.col("at").isNotNull()).groupBy(HASH, "at")
    each = hot.agg(F.min("first").alias("first"), F.max("last").alias("last"))
    found = F.collect_list(F.struct("at", "first", "last")).alias(_REACH)
    return each.groupBy(HASH).agg(found)
