"""The internal form of Tidemill's values in Spark, and conversions from raw columns and to user types.

Internally, an int64 is a bigint and a float64 a double; timestamps and durations are bigint
microseconds, so that no rule depends on the session's time zone. `read` converts a raw column to
this form, and `output` converts back to Spark's own timestamps and intervals.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pyspark
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemill.core.errors import UnsupportedError, UserError
from tidemill.core.time import to_datetime
from tidemill.core.types import (
    FLOAT64,
    INT64,
    NULL,
    STRING,
    TIMESTAMP,
    DataType,
    list_of,
    struct_of,
)  # fmt: skip
from tidemill.expr.functions import DAY, SECOND
from tidemill.spark.expr.sql import quoted


def named(name: str) -> SparkColumn:
    """A column by its exact name, which may contain dots."""
    return F.col(quoted(name))


def canonical(value: SparkColumn) -> SparkColumn:
    """Doubles whose bits are equal if the values are, by the rule of `core.floats`."""
    return F.when(F.isnan(value), F.lit(float("nan"))).otherwise(value + F.lit(0.0))


def spark_type(kind: DataType, leaves: Mapping[str, T.DataType] | None = None) -> T.DataType:
    """The Spark type of the internal form, or with the scalar types in `leaves`."""
    if kind.kind == "list":
        return T.ArrayType(spark_type(kind.of[0], leaves))
    if kind.kind == "struct":
        fields = zip(kind.names, kind.of)
        return T.StructType([T.StructField(n, spark_type(t, leaves)) for n, t in fields])
    if kind.kind == "decimal":
        precision, scale = map(int, kind.names)
        if precision > 38:
            raise UnsupportedError("spark", f"decimals of {precision} digits", instead="cast them to float64")
        return T.DecimalType(precision, scale)
    return (leaves or _SPARK_TYPES)[kind.kind]


_SPARK_TYPES: dict[str, T.DataType] = {
    "null": T.NullType(), "bool": T.BooleanType(), "int64": T.LongType(),
    "float64": T.DoubleType(), "string": T.StringType(), "binary": T.BinaryType(),
    "timestamp": T.LongType(), "duration": T.LongType(),
}  # fmt: skip
_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)


def read(column: SparkColumn, raw: T.DataType, kind: DataType, name: str) -> SparkColumn:
    if raw == spark_type(kind):
        return column
    if isinstance(raw, T.NullType):
        return column.cast(spark_type(kind))
    if kind == INT64 and isinstance(raw, _INTEGERS):
        return column.cast("bigint")
    if kind == FLOAT64 and isinstance(raw, (*_INTEGERS, T.FloatType)):
        return column.cast("double")
    if kind.kind == "decimal" and isinstance(raw, T.DecimalType):
        return column.cast(spark_type(kind))  # in ANSI mode, an error where it does not fit
    if kind == STRING and isinstance(raw, T.StringType):
        return F.collate(column, "UTF8_BINARY")
    if kind == TIMESTAMP and isinstance(raw, T.TimestampType):
        return F.unix_micros(column)
    if kind == TIMESTAMP and isinstance(raw, T.TimestampNTZType):
        return ntz_micros(column)
    if kind == TIMESTAMP and isinstance(raw, T.DateType):
        return F.unix_date(column).cast("bigint") * integer(DAY)
    if kind.kind == "duration" and isinstance(raw, T.DayTimeIntervalType):
        return interval_micros(column)
    if kind.kind == "list" and isinstance(raw, T.ArrayType):
        inner = raw.elementType
        return F.transform(column, lambda item: read(item, inner, kind.of[0], name))
    has_fields = isinstance(raw, T.StructType) and set(kind.names) <= set(raw.names)
    if kind.kind == "struct" and isinstance(raw, T.StructType) and has_fields:
        fields = [
            read(column.getField(n), raw[n].dataType, t, name).alias(n)
            for n, t in zip(kind.names, kind.of)
        ]
        return F.when(column.isNotNull(), F.struct(*fields))
    raise UserError(
        "spark", expected=f"column {name!r} of type {kind!r}", got=raw.simpleString(),
        hint="fix the schema of the stream, or cast the column",
    )  # fmt: skip


def ntz_micros(column: SparkColumn) -> SparkColumn:
    """Convert a timestamp without time zone to microseconds, in UTC whatever the session's zone is."""
    if _UNIX_MICROS_READS_NTZ:
        return F.unix_micros(column)
    return interval_micros(column - F.lit("1970-01-01").cast("timestamp_ntz"))


# Before 4.3 `unix_micros` casts to a timestamp first, in the session's zone.
_UNIX_MICROS_READS_NTZ = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 3)


def interval_micros(column: SparkColumn) -> SparkColumn:
    """Convert a day-time interval to microseconds."""
    seconds = column.cast("interval second").cast("decimal(19,6)")
    return (seconds * F.lit(SECOND)).cast("bigint")


def instant(ticks: int, kind: T.DataType) -> SparkColumn | None:
    """A constant instant in a raw type; None if the type cannot represent it."""
    if isinstance(kind, T.TimestampType):
        return F.timestamp_micros(integer(ticks))
    try:
        text = to_datetime(ticks).strftime("%Y-%m-%d %H:%M:%S.%f").rjust(26, "0")
    except OverflowError:
        return None
    if isinstance(kind, T.TimestampNTZType):
        return F.lit(text).cast("timestamp_ntz")
    if isinstance(kind, T.DateType) and ticks % DAY == 0:
        return F.lit(text[:10]).cast("date")
    return None


def literal(value: Any, kind: DataType) -> SparkColumn:
    """A constant in the internal form."""
    if value is None:
        return F.lit(None) if kind == NULL else F.lit(None).cast(spark_type(kind))
    if kind.kind == "list":
        items = F.array(*(literal(v, kind.of[0]) for v in value))
        return items.cast(spark_type(kind))
    if spark_type(kind) == T.LongType():
        return integer(value)
    return F.lit(float(value) if kind == FLOAT64 else value)


def integer(value: int) -> SparkColumn:
    return F.lit(value).cast("bigint")


def null(kind: DataType) -> SparkColumn:
    return literal(None, kind)


def _holds_ticks(kind: DataType) -> bool:
    return kind.kind in ("timestamp", "duration") or any(_holds_ticks(t) for t in kind.of)


def without_ticks(kind: DataType) -> DataType:
    """The type with int64 in place of timestamps and durations."""
    if kind.kind == "list":
        return list_of(without_ticks(kind.of[0]))
    if kind.kind == "struct":
        return struct_of({n: without_ticks(t) for n, t in zip(kind.names, kind.of)})
    return INT64 if _holds_ticks(kind) else kind


def output(column: SparkColumn, kind: DataType) -> SparkColumn:
    """Convert the internal form to user types: timestamps and day-time intervals."""
    if kind == TIMESTAMP:
        return F.timestamp_micros(column)
    if kind.kind == "duration":
        return F.lit(timedelta(microseconds=1)) * column
    if kind.kind == "list" and _holds_ticks(kind):
        return F.transform(column, lambda item: output(item, kind.of[0]))
    if kind.kind == "struct" and _holds_ticks(kind):
        fields = [output(column[n], t).alias(n) for n, t in zip(kind.names, kind.of)]
        return F.when(column.isNotNull(), F.struct(*fields))
    return column
