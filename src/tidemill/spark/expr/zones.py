"""Interpret ambiguous times of a DataFrame: numbers without a unit, text, times without a zone.

The rule is that of `core.time_reading`: numbers need the stream's unit, text its format, and times without a
zone (`timestamp_ntz` and dates) are UTC, or in the stream's `tz=`. Spark's own `timestamp` is an instant. If
Spark parsed it from text, times without a zone were read in the session's zone.
"""

from __future__ import annotations

import warnings

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemill.core.time_reading import NANOS, UNITS, Reading, inside
from tidemill.core.types import TIMESTAMP
from tidemill.core.zones import UTC, zone_name
from tidemill.plan.nodes import Source
from tidemill.spark.expr.values import integer, named
from tidemill.spark.private import files_read, is_connect
from tidemill.spark.workers import arrow_function

_NAIVE = (T.TimestampNTZType, T.DateType)
_TEXT = ("csv", "json", "text", "xml")
"""File formats whose times Spark reads in the session's zone."""


def as_declared(df: DataFrame, source: Source) -> DataFrame:
    """Convert the times of a stream's DataFrame to instants. Call it in ANSI mode."""
    reading, changed = source.reading, {}
    for field in df.schema.fields:
        if field.name not in source.schema:
            continue
        shown = field.dataType.simpleString()
        if reading.zoned and source.schema[field.name].of and "timestamp_ntz" in shown:
            raise inside(f"run {source.name}", field.name, shown)
        if source.schema[field.name] != TIMESTAMP:
            continue
        said = reading.formats_of(field.name) and isinstance(field.dataType, T.IntegralType)
        if isinstance(field.dataType, T.StringType) or said:
            changed[field.name] = _from_text(named(field.name).cast("string"), field.name, source)
        elif isinstance(field.dataType, T.FractionalType):
            changed[field.name] = _from_floats(named(field.name).cast("double"), reading.unit(field.name))
        elif isinstance(field.dataType, T.IntegralType):
            changed[field.name] = _from_ints(named(field.name), dict(reading.units)[field.name])
        elif isinstance(field.dataType, _NAIVE) and reading.zoned:
            changed[field.name] = _from_naive(named(field.name), field.name, reading)
    _warn_of_text(df, source)
    if not changed:
        return df
    return df.select(*(changed.get(n, named(n)).alias(n) for n in df.columns))


def _from_text(column: SparkColumn, name: str, source: Source) -> SparkColumn:
    """Read text in Python, by the formats of the stream, and raise an error for what does not fit."""
    reading, step = source.reading, f"run {source.name}"

    def read(texts: pa.Array) -> pa.Array:
        return reading.from_strings(texts.cast(pa.string()), name, step=step).cast(pa.int64())

    return F.timestamp_micros(arrow_function(read, T.LongType(), [column]))


def _from_floats(column: SparkColumn, unit: str | None) -> SparkColumn:
    assert unit is not None, "checked with the schema"
    ticks = column / F.lit(float(NANOS)) if unit == "ns" else column * F.lit(float(UNITS[unit]))
    return F.timestamp_micros(F.rint(ticks).cast("bigint"))


def _from_ints(column: SparkColumn, unit: str) -> SparkColumn:
    ticks = column.cast("bigint")
    if unit == "ns":  # floored, as everywhere
        whole = ticks - F.pmod(ticks, integer(NANOS))
        return F.timestamp_micros(F.call_function("div", whole, integer(NANOS)))
    return F.timestamp_micros(ticks * integer(UNITS[unit]))


def _from_naive(column: SparkColumn, name: str, reading: Reading) -> SparkColumn:
    naive, zone, utc = column.cast("timestamp_ntz"), F.lit(reading.tz), F.lit(UTC)
    instant = F.convert_timezone(zone, utc, naive)
    # Java shifts a time that the zone skips, so converting it back gives another time.
    skipped = F.raise_error(
        F.concat(
            F.lit(f"expected times that {reading.tz} has in column {name!r}, got "),
            naive.cast("string"),
        )
    ).cast("timestamp_ntz")
    same = F.convert_timezone(utc, zone, instant) == naive
    return F.when(naive.isNull() | same, instant).otherwise(skipped)


def _warn_of_text(df: DataFrame, source: Source) -> None:
    """Warn if Spark read naive times in the session's zone, and that is not the stream's."""
    times = {n for n, kind in source.schema if kind == TIMESTAMP}
    session = str(df.sparkSession.conf.get("spark.sql.session.timeZone"))
    if is_connect(df.sparkSession):  # a client cannot see which files a frame reads
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
