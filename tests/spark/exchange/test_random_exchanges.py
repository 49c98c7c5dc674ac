"""Random tables in random places: exchanges that detect have the answers of Spark's own operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import tidemill as tm
from tests.examples import examples
from tidemill import col

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill.spark import private
from tidemill.spark.exchange import group_by_key, join, reduce_by_key
from tidemill.spark.exchange.join import LEAVES
from tidemill.spark.exchange.route import LISTED
from tidemill.spark.settings import setting

# Few keys, so that they meet; one that half of all rows have; some that are null.
keys = st.one_of(st.none(), st.just(7), st.integers(0, 12), st.integers(-(2**63), 2**63 - 1))
tables = st.tuples(
    st.integers(1, 5), st.lists(st.tuples(keys, st.sampled_from("ab"), st.integers(0, 4)), max_size=60)
)
some = examples(1, of=4, suppress_health_check=list(HealthCheck))


def frame(spark: Any, table: tuple[int, list[tuple[Any, str, int]]], value: str) -> DataFrame:
    """Rows in the partitions that they name, of which some are empty; some values are null."""
    parts, rows = table
    columns = {
        "k": pa.array([r[0] for r in rows], pa.int64()),
        "s": pa.array([r[1] for r in rows], pa.string()),
        value: pa.array([None if i % 3 == 0 else i for i in range(len(rows))], pa.int64()),
        "part": pa.array([r[2] % parts for r in rows], pa.int32()),
    }
    df = spark.createDataFrame(pa.table(columns)).repartitionById(parts, F.col("part")).drop("part").cache()
    df.count()
    return df


def bag(df: DataFrame) -> list[str]:
    return sorted(map(repr, df.collect()))


@pytest.fixture(params=[2, pytest.param(1, marks=pytest.mark.soak), pytest.param(3, marks=pytest.mark.soak)])
def hosts(request: Any, spark: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Of how many hosts Spark says that they have the partitions; of one it says nothing."""
    count = int(request.param)
    if count > 1:
        monkeypatch.setattr(
            private, "partition_hosts",
            lambda df: [f"host{i * i % count}" for i in range(private.partition_count(df))],
        )
    with setting(spark, LISTED, "5" if count > 1 else "200"):  # so that some are looked up
        yield count


def grouped(df: DataFrame, on: list[str]) -> tuple[DataFrame, DataFrame]:
    """Groups that detect, and Spark's own."""
    values = F.sort_array(F.collect_list("v")).alias("vs")
    return group_by_key(df, on, values, detect="on"), df.groupBy(*on).agg(values)


def reduced(df: DataFrame, on: list[str]) -> tuple[DataFrame, DataFrame]:
    """Sums that detect, and Spark's own."""
    sums = {"n": tm.count(), "t": tm.sum(col.v), "most": tm.max(col.v)}
    plain = df.groupBy(*on).agg(F.count("*").alias("n"), F.sum("v").alias("t"), F.max("v").alias("most"))
    return reduce_by_key(df, on, sums, detect="on"), plain


@some
@given(
    left=tables, right=tables, how=st.sampled_from(list(LEAVES)), on=st.sampled_from([["k"], ["k", "s"]])
)
def test_joins(spark: Any, hosts: int, left: Any, right: Any, how: str, on: list[str]) -> None:
    one, two = frame(spark, left, "v"), frame(spark, right, "w")
    two = two if "s" in on else two.drop("s")
    assert bag(join(one, two, on, how, detect="on")) == bag(one.join(two, on, how))


@some
@given(table=tables, on=st.sampled_from([["k"], ["s"], ["s", "k"]]))
@pytest.mark.soak
def test_groups(spark: Any, hosts: int, table: Any, on: list[str]) -> None:
    df = frame(spark, table, "v")
    for ours, plain in (grouped(df, on), reduced(df, on)):
        assert bag(ours) == bag(plain)
