"""Which rows of a DataFrame were late, by the order in which they arrived; the rule is that of live queries.

A row is late if its time is below the greatest time of all rows that arrived before it, less the slack. To
find that maximum, rows are divided into stretches of arrival. The maximum of each stretch is small data, on
which one task computes the maximum of all stretches before; inside a stretch, Spark's window functions do.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemill.core.errors import UnsupportedError, UserError
from tidemill.core.schema import internal
from tidemill.core.time import FARTHEST, Domain
from tidemill.core.types import TIMESTAMP
from tidemill.plan.disorder import FAR_TIME, NULL_TIME, REASON, Disorder
from tidemill.plan.nodes import Source
from tidemill.plan.usable_rows import Check
from tidemill.spark.expr.compile import SparkExpressions
from tidemill.spark.expr.values import integer, named, output, read

_TICKS, _ARRIVED, _STRETCH, _BEFORE, _LIMIT = (
    internal(name) for name in ("ticks", "arrived", "stretch", "before", "limit")
)
_ROWS = 1 << 16
"""The length of a stretch where rows are numbered."""
_HOUR = 3_600_000_000


def require_supported(disorder: Disorder) -> None:
    """Raise an error for policies that depend on when windows close."""
    if disorder.late == "raise" or (disorder.late == "drop" and not disorder.consistent):
        raise UnsupportedError(
            "spark", f"a policy of late={disorder.late!r} on a DataFrame",
            instead="Disorder(..., consistent=True) or late='adjust'; late(...) returns the late rows",
        )  # fmt: skip


def accepted(df: DataFrame, source: Source, disorder: Disorder, arrival: str) -> DataFrame:
    """Return the rows that the query sees."""
    found = _with_reasons(df, source, disorder, arrival)
    late = named(REASON) == F.lit("late")
    if disorder.late == "adjust":
        time = output(named(_LIMIT), source.declared[source.time])
        adjusted = F.when(late, time).otherwise(named(source.time))
        kept = named(REASON).isNull() | late
        columns = [adjusted.alias(n) if n == source.time else named(n) for n in df.columns]
    else:
        kept, columns = named(REASON).isNull(), [named(n) for n in df.columns]
    return found.where(kept).select(*columns)


def late_rows(
    df: DataFrame, source: Source, disorder: Disorder, arrival: str, checks: Sequence[Check] = ()
) -> DataFrame:
    """Return the rows that are late, or lack a time or an attribute to check, with the reason."""
    found = _with_reasons(df, source, disorder, arrival)
    expressions = SparkExpressions(source.declared, {f.name: f.dataType for f in df.schema})
    for check in checks:
        for reason, condition in check.unusable:
            lacking = F.when(expressions.column(condition), F.lit(reason))
            found = found.withColumn(REASON, F.coalesce(named(REASON), lacking))
    return found.where(named(REASON).isNotNull()).select(*(named(n) for n in df.columns), named(REASON))


def _with_reasons(df: DataFrame, source: Source, disorder: Disorder, arrival: str) -> DataFrame:
    """Add the reason for which a row is left out, and the time below which it would be late."""
    if REASON in df.columns:
        raise UserError(f"run {source.name}", expected=f"no column {REASON!r}", got="one")
    if source.time not in df.columns:
        raise UserError(f"run {source.name}", expected=f"a column {source.time!r}", got=f"{df.columns}")
    kind = source.declared[source.time]
    ticks = read(named(source.time), df.schema[source.time].dataType, kind, source.time)
    far = (ticks > integer(FARTHEST)) | (ticks < integer(-FARTHEST))
    rows = df.select("*", ticks.alias(_TICKS))
    missing = F.when(ticks.isNull(), F.lit(NULL_TIME)).when(far, F.lit(FAR_TIME))
    slack = disorder.slack_ticks(Domain.CLOCK if kind == TIMESTAMP else Domain.LOGICAL)
    if slack is None:
        return rows.select("*", F.lit(None).cast("bigint").alias(_LIMIT), missing.alias(REASON))
    arrived, width = _arrival(df, source, arrival)
    # A row without an arrival came before all others. `pmod` floors, also below zero.
    stretch = F.coalesce((arrived - F.pmod(arrived, integer(width))), integer(-FARTHEST))
    usable = F.when(missing.isNull(), named(_TICKS))
    rows = rows.select("*", arrived.alias(_ARRIVED), stretch.alias(_STRETCH))
    greatest = rows.groupBy(named(_STRETCH)).agg(F.max(usable).alias(_BEFORE))
    earlier = Window.orderBy(named(_STRETCH)).rowsBetween(Window.unboundedPreceding, -1)
    greatest = greatest.select(named(_STRETCH), F.max(named(_BEFORE)).over(earlier).alias(_BEFORE))
    here = Window.partitionBy(named(_STRETCH)).orderBy(named(_ARRIVED).asc_nulls_first(), named(_TICKS))
    before = F.max(usable).over(here.rowsBetween(Window.unboundedPreceding, -1))
    limit = F.greatest(before, named(_BEFORE)) - integer(slack)
    found = rows.join(F.broadcast(greatest), on=_STRETCH, how="left").select("*", limit.alias(_LIMIT))
    late = F.when(named(_TICKS) < named(_LIMIT), F.lit("late"))
    return found.select("*", F.coalesce(missing, late).alias(REASON))


def _arrival(df: DataFrame, source: Source, name: str) -> tuple[SparkColumn, int]:
    """Return the order of arrival as an int, and the length of a stretch."""
    step = f"run {source.name}"
    if name not in df.columns:
        raise UserError(step, expected=f"arrival= a column of {df.columns}", got=repr(name))
    kind = df.schema[name].dataType
    if isinstance(kind, T.TimestampType):
        return F.unix_micros(named(name)), _HOUR
    if isinstance(kind, T.IntegralType):
        return named(name).cast("bigint"), _ROWS
    raise UserError(step, expected=f"arrival {name!r} as a timestamp or a number", got=kind.simpleString())
