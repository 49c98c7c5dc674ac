"""Columns and aggregates may be named anything, on every way that a query takes on Spark."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import types as T

import tidemill as tm
from tests.conformance.harness import assert_same, by_reference, on_spark
from tests.examples import later
from tidemill import col
from tidemill.spark.dia import from_frame
from tidemill.spark.exchange import reduce_by_key

ODD = [
    "a.b", "`", "*", "#", " ", "", "A", "a", "ä", "\n", "'\"", "${x}", "$row", "$rows", "$ends2", "pane",
    "tick", "place", "places", "k0", "a0", "c0", "s0_0", "last_pane0", "__key", "__tidemill_hash",
]  # fmt: skip
SCHEMA = {"t.t": "int64", **dict.fromkeys(ODD, "int64")}
ROWS = [{n: i * (j + 1) % 17 for j, n in enumerate(SCHEMA)} for i in range(12)]
WAYS: dict[str, tm.Window] = {
    "jvm": tm.tumbling(10), "panes": tm.hopping(10, every=5), "partials": tm.hopping(10, every=5),
    "colocated": tm.session(3),
}  # fmt: skip


@pytest.mark.parametrize("way", ["jvm", "colocated", *later("partials", "panes")])
def test_a_query_over_columns_with_odd_names(spark: Any, way: str) -> None:
    stream = tm.stream("s", time="t.t", schema=SCHEMA)
    keys = ["a.b", "A", "k0", "*"]
    # Spark has no product of ints, so that kernels must make its partials.
    how = tm.product if way == "partials" else tm.sum
    aggregates = {n: tm.count() for n in ODD if n not in keys} | {"a": how(col["s0_0"] % 3 + col["#"])}
    grouped = stream.where(col["`"] >= 0).group_by(*keys).window(WAYS[way]).agg(**aggregates)
    query = grouped.where(col["a"] > -1)  # above the windows, where `a` is an aggregate and `A` a key
    assert way in query.on_spark(spark).explain()
    assert_same(on_spark(spark, query, ROWS), by_reference(query, ROWS), query.schema)


def test_a_projection_of_columns_that_differ_in_case(spark: Any) -> None:
    stream = tm.stream("s", time="t", schema={"t": "int64", "a": "int64", "A": "int64"})
    query = stream.where(col.a < col.A).select(A=col.a, a=col.A, both=col.a + col.A)
    rows = [{"t": i, "a": i % 3, "A": i % 5} for i in range(9)]
    assert_same(on_spark(spark, query, rows), by_reference(query, rows), query.schema)


def test_a_frame_that_has_a_column_twice(spark: Any) -> None:
    stream = tm.stream("s", time="t", schema={"t": "int64", "v": "int64"})
    query = stream.window(tm.tumbling(5)).agg(n=tm.sum(col.v))
    with pytest.raises(tm.UserError, match=r"each column once, got \['v'\]"):
        query.on_spark(spark).run(s=spark.sql("select 1L t, 2L v, 3L v"))


@pytest.mark.parametrize("detect", [*later("on"), "off"])
def test_keys_of_a_reduce_that_are_named_as_our_columns(spark: Any, detect: str) -> None:
    df = frame(spark, "s0_0", "v")
    keys = ["s0_0", "S1_0", "a0", "partition", "target", "a.b", "`"]
    for key in keys[1:]:
        df = df.withColumn(key, df["s0_0"])
    aggregates = {"n": tm.count(), "s": tm.sum(col.v), "m": tm.mean(col.v)}
    got = reduce_by_key(df, keys, aggregates, detect=detect).collect()
    found = sorted((*set(r[: len(keys)]), *r[len(keys) :]) for r in map(tuple, got))
    assert found == [(0, 4, 18, 4.5), (1, 3, 12, 4.0), (2, 3, 15, 5.0)]


def test_a_reduce_by_a_name_that_spark_cannot_tell_apart(spark: Any) -> None:
    with pytest.raises(tm.UserError, match="cannot tell apart"):
        reduce_by_key(frame(spark, "a", "A"), ["a"], {"n": tm.count()})
    with pytest.raises(tm.UserError, match="'__tidemill_'"):
        reduce_by_key(frame(spark, "__TIDEMILL_hash", "v"), ["v"], {"n": tm.count()})


def test_elements_with_fields_that_are_named_as_our_columns(spark: Any) -> None:
    names = ("dia part", "f0", "w0.v")
    elements = from_frame(frame(spark, *names)).window(2, lambda w: w[0]["f0"] + w[1]["f0"])
    assert elements.size() == 9
    for name in ("f0::f1", "__dia_part", "__Tidemill_x"):
        with pytest.raises(tm.UserError, match="from_frame: expected fields without '::'"):
            from_frame(frame(spark, name, "v"))


def frame(spark: Any, *names: str) -> Any:
    schema = T.StructType([T.StructField(n, T.LongType()) for n in names])
    rows = [(i % 3, *(i for _ in names[1:])) for i in range(10)]
    return spark.createDataFrame(rows, schema).repartition(2)
