"""Sources: numbers and frames (Table 3.1). Files are in `file_sources`."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidemill.core.errors import UserError
from tidemill.core.schema import schema as read_schema
from tidemill.core.types import INT64
from tidemill.spark.dia.elements import VALUE, type_of_columns
from tidemill.spark.dia.local import map_
from tidemill.spark.dia.operation import NOWHERE, Operation
from tidemill.spark.dia.partitions import parallelism
from tidemill.spark.dia.tracing import Function
from tidemill.spark.expr.compile import SparkExpressions
from tidemill.spark.expr.schemas import user_type
from tidemill.spark.expr.values import named, output
from tidemill.spark.frames import require_classic_batch
from tidemill.spark.private import require_classic


def generate(
    session: SparkSession, n: int, g: Function | None = None, *, returns: Any = None,
    parts: int | None = None,
) -> Operation:  # fmt: skip
    """Make the indexes 0 … n-1, or the results of a function of each."""
    require_classic("generate", session)
    if not isinstance(n, int) or isinstance(n, bool) or n < 0:
        raise UserError("generate", expected="a number of elements, 0 or more", got=repr(n))
    if parts is not None and parts < 1:
        raise UserError("generate", expected="at least one partition", got=repr(parts))

    count = parts or max(1, min(n, parallelism(session)))
    build = lambda: session.range(0, n, 1, count).toDF(VALUE)
    indexes = Operation("generate", (), INT64, session, build, f"0 … {n - 1}" if n else "nothing")
    return indexes if g is None else map_(indexes, g, returns)


def from_frame(df: DataFrame) -> Operation:
    """Make elements from the rows of a DataFrame, in Spark's order.

    A single column `value` gives scalars, columns `f0, f1, …` tuples, others records. Types are read as
    everywhere in Tidemill: one integer type, one float type, dates as instants.
    """
    require_classic_batch("from_frame", df)
    schema = read_schema(df.schema, step="from_frame")
    if not len(schema):
        raise UserError("from_frame", expected="a DataFrame with columns", got="none")
    raw = {f.name: f.dataType for f in df.schema}
    read = SparkExpressions(schema, raw)
    columns = [
        named(n) if raw[n] == user_type(t) else output(read.leaf(n), t).alias(n) for n, t in schema
    ]
    session = df.sparkSession
    shown = ", ".join(schema.names)
    # The plan of a frame is unknown: the order of its rows may differ in each run.
    return Operation(
        "from_frame", (), type_of_columns(schema), session, lambda: df.select(*columns), shown,
        runs=NOWHERE, settled=False,
    )  # fmt: skip
