"""Joins and cuts that are Spark's own joins: pairs are found by equal keys, and need no look at lifetimes.

So it is where all rows of a side hold for ever, and where both sides are points, which hold together if their
times are equal.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill.core.schema import Schema
from tidemill.core.types import BOOL
from tidemill.expr.nodes import Node, Udf
from tidemill.plan.properties import properties
from tidemill.plan.temporal import LEFT, RIGHT, Cut, Join, sided
from tidemill.spark.batch.lifetimes import end_of, internal_rows, places, shown, start_of
from tidemill.spark.expr.compile import SparkExpressions
from tidemill.spark.expr.functions import outside_java
from tidemill.spark.expr.values import literal, spark_type

_HOW = {"inner": "inner", "left": "left", "right": "right", "outer": "full"}
_CUTS = {"exists": "left_semi", "not_exists": "left_anti"}


def why_spark(plan: Join | Cut) -> str | None:
    """Return why a join is one of Spark's; None if it is not."""
    kind = plan.kind
    if kind == "clip":
        if properties(plan.left).duration == 1:
            return "nothing ends a point sooner"
        return "a table does not start" if properties(plan.right).everlasting else None
    if _in_python(plan.match.where) and kind != "inner":
        return None
    sides = properties(plan.left).everlasting, properties(plan.right).everlasting
    if all(sides):
        return "both sides hold for ever"
    if sides[1] and kind in ("inner", "left", "exists", "not_exists"):
        return "the right side holds for ever"
    if sides[0] and kind in ("inner", "right"):
        return "the left side holds for ever"
    return "points hold together at equal times" if _points(plan) else None


def _points(plan: Join | Cut) -> bool:
    return properties(plan.left).duration == properties(plan.right).duration == 1


def _in_python(where: Node | None) -> bool:
    return where is not None and any(isinstance(n, Udf) or outside_java(n) for n in where.walk())


def spark_join(plan: Join | Cut, left: DataFrame, right: DataFrame) -> DataFrame:
    """Compile a join that is one of Spark's (`why_spark`)."""
    a = internal_rows(plan.left, left, "l")
    names = places(plan.left, "l")
    if plan.kind == "clip":
        return a.select(*shown(plan, {n: F.col(p) for n, p in names.items()}))
    b = internal_rows(plan.right, right, "r")
    how = _CUTS[plan.kind] if isinstance(plan, Cut) else _HOW[plan.kind]
    joined = a.join(b, _condition(plan), how)
    if isinstance(plan, Cut):
        return joined.select(*shown(plan, {n: F.col(p) for n, p in names.items()}))
    return joined.select(*shown(plan, _columns(plan)))


def _condition(plan: Join | Cut) -> SparkColumn:
    own, other = places(plan.left, "l"), places(plan.right, "r")
    match = plan.match
    parts = [F.col(own[n]).eqNullSafe(F.col(other[n])) for n in match.scope]
    parts += [F.col(own[a]) == F.col(other[b]) for a, b in match.keys]
    if _points(plan):
        parts.append(start_of(plan.left, "l") == start_of(plan.right, "r"))
    if match.where is not None:
        parts.append(pair_condition(plan, match.where))
    return reduce(lambda a, b: a & b, parts) if parts else literal(True, BOOL)


def pair_condition(plan: Join | Cut, where: Node) -> SparkColumn:
    """Compile a condition on pairs, over rows of the sides in the internal form."""
    both = Schema(sided(plan.left, plan.right))
    raw = {name: spark_type(kind) for name, kind in both}
    names = {LEFT + n: p for n, p in places(plan.left, "l").items()}
    names |= {RIGHT + n: p for n, p in places(plan.right, "r").items()}
    return SparkExpressions(both, raw, names).column(where)


def _columns(plan: Join) -> dict[str, SparkColumn]:
    own, other = places(plan.left, "l"), places(plan.right, "r")
    found, of_right = {}, {}
    if plan.kind in ("right", "outer"):
        of_right = dict(zip(plan.match.left_keys, plan.match.right_keys))
    for name, of in plan.columns:
        if of.startswith(RIGHT):
            found[name] = F.col(other[of.removeprefix(RIGHT)])
            continue
        key = of.removeprefix(LEFT)
        column = F.col(own[key])
        # A row of the right side alone has its own keys.
        found[name] = F.coalesce(column, F.col(other[of_right[key]])) if key in of_right else column
    lives = [(start_of(p, prefix), end_of(p, prefix), properties(p).everlasting) for p, prefix in (
        (plan.left, "l"), (plan.right, "r"))]  # fmt: skip
    lasting = [life for life in lives if not life[2]] or lives
    found[plan.time] = F.coalesce(*(start for start, _, _ in lasting))
    found[plan.end] = F.coalesce(*(end for _, end, _ in lasting))
    return found
