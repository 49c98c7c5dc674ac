"""Times of a DataFrame that do not say what they mean: ints without a unit, times without a zone.

The rule is that of `core.reading`: ints need the stream's unit, and times without a zone (`timestamp_ntz`
and dates) are UTC, or of the stream's `tz=`. Spark's own `timestamp` is an instant. It was made before
Tidemill sees it, and where Spark made it of text, times without a zone were read in the session's.
"""

from __future__ import annotations

import warnings

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemill.core.time_reading import NANOS, UNITS, UTC, Reading, inside, zone_name
from tidemill.core.types import TIMESTAMP
from tidemill.plan.nodes import Source
from tidemill.spark.expr.values import integer, named
from tidemill.spark.private import files_read, is_connect

_NAIVE = (T.TimestampNTZType, T.DateType)
_TEXT = ("csv", "json", "text", "xml")
"""The formats of files whose times Spark reads in the session's zone."""


def as_declared(df: DataFrame, source: Source) -> DataFrame:
    """The DataFrame with the instants of a stream as instants. Build it in ANSI mode."""
    reading, changed = source.reading, {}
    for field in df.schema.fields:
        if field.name not in source.schema:
            continue
        shown = field.dataType.simpleString()
        if reading.zoned and source.schema[field.name].of and "timestamp_ntz" in shown:
            raise inside(f"run {source.name}", field.name, shown)
        if source.schema[field.name] != TIMESTAMP:
            continue
        if isinstance(field.dataType, T.IntegralType):
            changed[field.name] = _from_ints(named(field.name), dict(reading.units)[field.name])
        elif isinstance(field.dataType, _NAIVE) and reading.zoned:
            changed[field.name] = _from_naive(named(field.name), field.name, reading)
    _warn_of_text(df, source)
    if not changed:
        return df
    return df.select(*(changed.get(n, named(n)).alias(n) for n in df.columns))


def _from_ints(column: SparkColumn, unit: str) -> SparkColumn:
    ticks = column.cast("bigint")
    if unit == "ns":  # floored, as everywhere
        whole = ticks - F.pmod(ticks, integer(NANOS))
        return F.timestamp_micros(F.call_function("div", whole, integer(NANOS)))
    return F.timestamp_micros(ticks * integer(UNITS[unit]))


def _from_naive(column: SparkColumn, name: str, reading: Reading) -> SparkColumn:
    naive, zone, utc = column.cast("timestamp_ntz"), F.lit(reading.tz), F.lit(UTC)
    instant = F.convert_timezone(zone, utc, naive)
    # Java moves a time that the zone skips; there and back it is another one.
    skipped = F.raise_error(
        F.concat(
            F.lit(f"expected times that {reading.tz} has in column {name!r}, got "),
            naive.cast("string"),
        )
    ).cast("timestamp_ntz")
    same = F.convert_timezone(utc, zone, instant) == naive
    return F.when(naive.isNull() | same, instant).otherwise(skipped)


def _warn_of_text(df: DataFrame, source: Source) -> None:
    """Say where naive times were read in the session's zone, if that is not the stream's."""
    times = {n for n, kind in source.schema if kind == TIMESTAMP}
    session = str(df.sparkSession.conf.get("spark.sql.session.timeZone"))
    if is_connect(df.sparkSession):  # a client does not know which files a frame reads
        return
    for kind, given, read in files_read(df):
        zone = zone_name(given or session)
        found = sorted(f.name for f in read if isinstance(f.dataType, T.TimestampType) and f.name in times)
        if kind in _TEXT and found and zone != source.reading.tz:
            warnings.warn(
                f"run {source.name}: Spark read {', '.join(found)} from {kind} files, where times "
                f"without a zone are of {zone}; Tidemill's are of {source.reading.tz} — declare the stream "
                f"with tz={zone!r}, or read the files with .option('timeZone', {source.reading.tz!r})",
                stacklevel=4,
            )
