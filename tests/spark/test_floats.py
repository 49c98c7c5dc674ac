"""Spark's columns follow the rule of `core.floats` for NaN and zero."""

from __future__ import annotations

import math
from typing import Any

from pyspark.sql import functions as F

from tests.conformance.harness import by_reference, locally, on_spark
from tests.core.test_floats import GROUPED, ROWS, SHOWN, STREAM, VALUES, rank
from tidemill import col
from tidemill.spark.exchange.keys import hash_of
from tidemill.spark.expr.values import canonical


def test_spark_groups_compares_and_hashes_by_the_rule(spark: Any) -> None:
    assert sorted((repr(row["x"]), row["n"]) for row in on_spark(spark, GROUPED, ROWS)) == SHOWN
    frame = spark.createDataFrame([(x, i) for i, x in enumerate(VALUES)], "x double, i int")
    a, b = frame.toDF("a", "i"), frame.toDF("b", "j")
    kind = frame.schema["x"].dataType
    rows = a.crossJoin(b).select(
        "i", "j", (F.col("a") < F.col("b")).alias("less"), (F.col("a") == F.col("b")).alias("same"),
        (hash_of(["a"], [kind]) == hash_of(["b"], [kind])).alias("hashes"),
        (F.xxhash64(canonical(F.col("a"))) == F.xxhash64(canonical(F.col("b")))).alias("shown"),
    ).collect()  # fmt: skip
    for row in rows:
        left, right = rank(VALUES[row.i]), rank(VALUES[row.j])
        assert row.less == (left < right)
        assert row.same == row.hashes == row.shown == (left == right)
    picked = STREAM.select("x", p=col.x.is_in([-0.0, math.nan]))
    for answer in (on_spark(spark, picked, ROWS), locally(picked, ROWS), by_reference(picked, ROWS)):
        assert {repr(row["x"] + 0.0) for row in answer if row["p"]} == {"0.0", "nan"}
