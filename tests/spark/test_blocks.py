"""The rows in which partials travel."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import tidemill as tm
from tidemill import col
from tidemill.plan.nodes import WindowAggregate
from tidemill.spark.batch.blocks import Blocks

STREAM = tm.stream("s", time="t", schema={"t": "int64", "k": "int64", "v": "int64", "x": "float64"})


def blocks(range: int, **aggregates: Any) -> Blocks:
    plan = STREAM.group_by("k").window(tm.hopping(range, every=1)).agg(**aggregates).optimized
    assert isinstance(plan, WindowAggregate)
    return Blocks(plan)


@pytest.mark.parametrize(
    ("aggregates", "counts"),
    [
        ({"a": tm.sum(col.v)}, ["s0_0"]),  # a null sum says it
        ({"a": tm.max(col.t)}, [None]),  # times are never null
        ({"a": tm.mean(col.x)}, []),  # a mean needs to know how many
        ({"a": tm.sum(col.v), "n": tm.count(col.v)}, []),
        ({"a": tm.var(col.x)}, []),
    ],
)
def test_counts_that_only_say_whether_there_was_a_value_stay_at_home(
    aggregates: dict[str, Any], counts: list[str | None]
) -> None:
    assert list(blocks(4, **aggregates).at_home.values()) == counts


def test_rows_of_several_panes_come_apart() -> None:
    few = blocks(40, a=tm.sum(col.v))  # two words to a sum
    sums = {f"s0_0_{i}": pa.array([i, None, None], pa.int64()) for i in range(16)}
    sums["s0_0_3"] = pa.array([3, 30, None], pa.int64())
    sums |= {n.replace("s0_0", "s0_1"): pa.array([0, None, None], pa.int64()) for n in sums}
    sums["s0_1_3"] = pa.array([0, -1, None], pa.int64())
    places = pa.array([0xFFFF, 1 << 3, 1 << 5], pa.int32())
    row = {"k0": [7, 8, 9], "pane": [-1, 0, 2], "places": places, **sums}
    parts = pa.Table.from_batches(few.partials(pa.record_batch(row))).sort_by("pane").to_pylist()
    own = [{"k0": 7, "pane": i - 16, "s0_0": i, "s0_1": 0, "s1_0": 1} for i in range(16)]
    assert parts == [
        *own, {"k0": 8, "pane": 3, "s0_0": 30, "s0_1": -1, "s1_0": 1},
        {"k0": 9, "pane": 37, "s0_0": 0, "s0_1": 0, "s1_0": 0},
    ]  # fmt: skip


@pytest.mark.parametrize("window", [tm.tumbling(2), tm.hopping(3, every=1)], ids=str)
def test_what_quotes_mean_does_not_matter(spark: Any, window: tm.Window) -> None:
    setting = "spark.sql.parser.quotedRegexColumnNames"
    spark.conf.set(setting, "true")
    try:
        df = spark.createDataFrame([(1, 0, 5, 0.5)], "t bigint, k bigint, v bigint, x double")
        query = STREAM.group_by("k").window(window).agg(a=tm.sum(col.v), n=tm.var(col.x))
        found = query.on_spark(spark).run(s=df).collect()
    finally:
        spark.conf.unset(setting)
    assert {row["a"] for row in found} == {5}


def test_two_columns_of_one_name_are_not_passed_on(spark: Any) -> None:
    df = spark.sql("SELECT 1L AS t, 2L AS k, 3L AS v, 3L AS v, 0.5D AS x")
    with pytest.raises(tm.UserError, match="each column once"):
        STREAM.on_spark(spark).run(s=df)


def test_an_expression_that_is_too_deep_for_spark_is_refused_by_name(spark: Any) -> None:
    df = spark.createDataFrame([(1, 0, 5, 0.5)], "t bigint, k bigint, v bigint, x double")
    total = col.v
    for _ in range(98):
        total = total + 1
    assert STREAM.select(z=total).on_spark(spark).run(s=df).collect()[0]["z"] == 103
    with pytest.raises(tm.UnsupportedError, match="of 100 levels; Spark supports 99"):
        STREAM.select(z=total + 1).on_spark(spark).run(s=df)
