"""Durations on Spark: day-time intervals as columns, keys, constants, arguments and results."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import tidemill as tm
from tests.conformance.harness import Row, assert_same, by_reference, on_spark
from tests.examples import later
from tidemill import col

HOUR = 3_600_000_000
STREAM = tm.stream(
    "s", time="t", schema={"t": "timestamp", "k": "duration", "d": "duration", "v": "int64"}
)
ROWS: list[Row] = [
    {"t": i * HOUR // 7 + 5, "k": (i % 3) * 1_500_000, "d": (i * i % 11 - 3) * HOUR + i, "v": i * 7 % 5}
    for i in range(14)
] + [{"t": 0, "k": None, "d": None, "v": 1}, {"t": 9, "k": 0, "d": 2**62, "v": 1}]

WINDOWS = {"jvm": tm.tumbling("1h"), "panes": tm.hopping("2h", every="1h"), "colocated": tm.session("20m")}


@pytest.mark.parametrize("way", ["panes", "colocated", *later("jvm")])
def test_a_query_over_durations(spark: Any, way: str) -> None:
    query = STREAM.group_by("k").window(WINDOWS[way]).agg(
        low=tm.min(col.d), high=tm.max(col.d), n=tm.count(col.d), at=tm.arg_max(col.v, col.d),
        total=tm.sum(tm.when(col.d < timedelta(days=1)).then(col.d)),
    )  # fmt: skip
    assert way in query.on_spark(spark).explain()
    assert_same(on_spark(spark, query, ROWS), by_reference(query, ROWS), query.schema)


def test_arithmetic_of_times_and_durations(spark: Any) -> None:
    query = STREAM.where(col.d < timedelta(hours=9)).select(
        later=col.t + col.d, twice=col.d * 2, back=-col.d, since=col.t - (col.t - col.d),
        constant=tm.lit(timedelta(days=3, microseconds=7)), some=tm.coalesce(col.d, timedelta(seconds=1)),
        equal=col.d == timedelta(hours=1, microseconds=2), day=(col.t + timedelta(days=1)).day(),
    )  # fmt: skip
    assert_same(on_spark(spark, query, ROWS), by_reference(query, ROWS), query.schema)


@pytest.mark.parametrize(
    "kind", ["day to second", *later("hour", "day", "minute to second", "second")]
)
def test_every_day_time_interval_is_a_duration(spark: Any, kind: str) -> None:
    df = spark.sql(f"select timestamp'2020-01-01' t, cast(interval '3' day as interval {kind}) d")
    stream = tm.stream("s", time="t", schema=df.schema)
    assert repr(stream.schema["d"]) == "duration"
    found = stream.window(tm.tumbling("1h")).agg(d=tm.max(col.d)).on_spark(spark).run(s=df).collect()
    assert [r.d for r in found] == [timedelta(days=3)]


def test_months_have_no_one_length(spark: Any) -> None:
    with pytest.raises(tm.UserError, match="interval month"):
        found = spark.sql("select timestamp'2020-01-01' t, interval '3' month d").schema
        tm.stream("s", time="t", schema=found)
