"""Joins and cuts without keys, in slices of time, so that several tasks share them.

Rows of one side, the one whose parts without a match are in the result, are divided by their start. So each
of them is in one slice, and meets all its matches there: rows of the other side are copied to the slices in
which some row holds while they do. Those are several only where lifetimes are long.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemill.core.time import FOREVER
from tidemill.plan.temporal import Cut, Join
from tidemill.spark.batch.lifetimes import end_of, start_of
from tidemill.spark.expr.values import integer
from tidemill.spark.private import is_connect

SLICE = "slice"
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
