"""Results in an order (`plan.order`), sorted by Spark, whose comparisons follow the same rule."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill.core.schema import Schema
from tidemill.plan.order import Order
from tidemill.spark.expr.sql import quoted
from tidemill.spark.names import apart


def ordered(df: DataFrame, orders: Iterable[Order], schema: Schema) -> DataFrame:
    """Return the rows that are asked for, in order."""
    names = df.columns
    for order in orders:
        rows, plain = apart(df)
        keys = []
        for name, down in order.columns(schema):
            column = F.col(quoted(plain[name]))
            keys.append(column.desc_nulls_last() if down else column.asc_nulls_first())
        rows = rows.orderBy(*keys) if keys else rows
        rows = rows if order.limit is None else rows.limit(order.limit)
        df = rows.toDF(*names) if rows.columns != names else rows
    return df
