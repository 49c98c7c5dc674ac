"""Convert Tidemill's schemas to Spark schemas."""

from __future__ import annotations

from pyspark.sql import types as T

from tidemill.core.schema import Schema
from tidemill.core.types import DataType
from tidemill.spark.expr.values import spark_type


def user_schema(schema: Schema) -> T.StructType:
    """The Spark schema of a result, in user types."""
    return T.StructType([T.StructField(n, user_type(t)) for n, t in schema])


def user_type(kind: DataType) -> T.DataType:
    """The Spark type of a value in results."""
    return spark_type(kind, _USER)


_USER: dict[str, T.DataType] = {
    "null": T.NullType(), "bool": T.BooleanType(), "int64": T.LongType(),
    "float64": T.DoubleType(), "string": T.StringType(), "binary": T.BinaryType(),
    "timestamp": T.TimestampType(), "duration": T.DayTimeIntervalType(),
}  # fmt: skip
