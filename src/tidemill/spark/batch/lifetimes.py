"""Lifetimes as columns of a DataFrame, in the internal form, and their checks in the JVM."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill.core.time import FARTHEST, Domain, shown_instant
from tidemill.plan.faults import no_lifetime, null_start
from tidemill.plan.nodes import Plan
from tidemill.plan.properties import properties
from tidemill.spark.expr.compile import SparkExpressions
from tidemill.spark.expr.values import integer, output
from tidemill.spark.names import apart

_SAMPLE = (-(1 << 40), -(1 << 41))
"""Instants whose text stands in a message in place of those of a row."""


def places(plan: Plan, prefix: str) -> dict[str, str]:
    """Name the columns of a plan by their positions: users' names may be alike, or hold anything."""
    return {name: f"{prefix}{at}" for at, name in enumerate(plan.schema.names)}


def internal_rows(plan: Plan, frame: DataFrame, prefix: str = "c", *, checked: bool = True) -> DataFrame:
    """Return the rows of a plan in the internal form, with the names of `places`.

    A row that has no lifetime fails the query, if `checked`.
    """
    raw = {f.name: f.dataType for f in frame.schema}
    df, names = apart(frame)
    expressions = SparkExpressions(plan.schema, raw, names)
    own = places(plan, prefix)
    columns = {name: expressions.leaf(name) for name in own}
    if checked and not properties(plan).everlasting:
        end = columns[plan.end] if plan.end else None
        columns[plan.time] = checked_start(plan, columns[plan.time], end)
    return df.select(*(columns[name].alias(place) for name, place in own.items()))


def start_of(plan: Plan, prefix: str = "c") -> SparkColumn:
    return F.col(places(plan, prefix)[plan.time])


def end_of(plan: Plan, prefix: str = "c") -> SparkColumn:
    """Return where lifetimes end: null never comes, and a point ends after one tick."""
    return F.col(places(plan, prefix)[plan.end]) if plan.end else start_of(plan, prefix) + integer(1)


def checked_start(
    plan: Plan, start: SparkColumn, end: SparkColumn | None = None, value: SparkColumn | None = None
) -> SparkColumn:
    """Return the start of rows, or another value of them; a row without a lifetime fails the query."""
    far = (start < integer(-FARTHEST)) | (start >= integer(FARTHEST))
    found = F.when(start.isNull(), no_start(plan))
    if end is not None:
        found = found.when(end <= start, _fails(plan, start, end))
        far = far | (end > integer(FARTHEST))
    outside = F.raise_error(F.lit(str(no_lifetime(plan, FARTHEST, FARTHEST + 1)))).cast("bigint")
    return found.when(far, outside).otherwise(start if value is None else value)


def no_start(plan: Plan) -> SparkColumn:
    """Raise the error for a row without a start."""
    return F.raise_error(F.lit(str(null_start(plan)))).cast("bigint")


def _fails(plan: Plan, start: SparkColumn, end: SparkColumn) -> SparkColumn:
    """Raise the error for a row that ends before it starts, with its instants."""
    first, last = _SAMPLE
    before, _, rest = str(no_lifetime(plan, first, last)).partition(shown_instant(last, plan.domain))
    between, _, after = rest.partition(shown_instant(first, plan.domain))
    texts = (F.lit(before), _shown(plan, end), F.lit(between), _shown(plan, start), F.lit(after))
    return F.raise_error(F.concat(*texts)).cast("bigint")


def _shown(plan: Plan, ticks: SparkColumn) -> SparkColumn:
    """Return an instant for people, in UTC whatever the zone of the session."""
    if plan.domain is Domain.LOGICAL:
        return ticks.cast("string")
    at = F.lit("1970-01-01").cast("timestamp_ntz") + F.lit(timedelta(microseconds=1)) * ticks
    return F.concat(F.replace(at.cast("string"), F.lit(" "), F.lit("T")), F.lit("+00:00"))


def shown(plan: Plan, columns: dict[str, SparkColumn]) -> list[SparkColumn]:
    """Return columns of a result, in user types."""
    return [output(columns[name], kind).alias(name) for name, kind in plan.schema]
