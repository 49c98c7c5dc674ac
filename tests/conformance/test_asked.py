"""Aggregates without a name, arithmetic between aggregates, rates and means of durations: on every engine."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

import tidemill as tm
from tests.conformance.harness import Row, agree, table_of
from tests.examples import later
from tidemill import col

HOUR = 3_600_000_000
SCHEMA = {
    "t": "timestamp", "k": "int64", "v": "int64", "x": "float64", "d": "duration", "b": "bool",
}  # fmt: skip
STREAM = tm.stream("s", time="t", schema=SCHEMA)
ROWS: list[Row] = [
    {
        "t": i * HOUR // 3, "k": i % 3, "v": None if i % 4 == 0 else i - 6,
        "x": i / 4, "d": None if i % 5 == 0 else (i - 7) * HOUR + i, "b": None if i % 7 == 0 else i % 2 == 0,
    }
    for i in range(24)
]  # fmt: skip
ASKED: dict[str, Any] = {
    "ratio": tm.sum(col.v) / tm.count(),
    "spread": (tm.max(col.x) - tm.min(col.x)).round(1),
    "of a holistic one": tm.count() / tm.distinct_count(col.v) - tm.median(col.x),
    "a choice": tm.when(tm.count(col.v) > 1).then(tm.mean(col.v)).otherwise(-1.0),
    "or nothing": tm.sum(col.v).fill_null(0) * 2 + 1,
}
SHAPES = {
    "tumbling": STREAM.group_by("k").window(tm.tumbling("2h")),
    "hopping": STREAM.group_by("k").window(tm.hopping("3h", every="1h", fill_empty=True)),
    "session": STREAM.window(tm.session("1h")),
}


@pytest.mark.parametrize("shape", ["tumbling", *later("hopping", "session")])
def test_arithmetic_between_aggregates(spark: Any, shape: str) -> None:
    query = SHAPES[shape].agg(tm.count(), **{name.replace(" ", "_"): one for name, one in ASKED.items()})
    rows = agree(query, ROWS, spark)
    apart = SHAPES[shape].agg(n=tm.count(), total=tm.sum(col.v)).with_columns(ratio=col.total / col.n)
    assert sorted(map(str, ([r["count"], r["ratio"]] for r in rows))) == sorted(
        map(str, ([r["n"], r["ratio"]] for r in agree(apart, ROWS)))
    )


def test_arithmetic_between_aggregates_at_each_instant(spark: Any) -> None:
    long = STREAM.lasting("1h")
    query = long.group_by("k").agg(share=tm.sum(col.v) / tm.count(), one=tm.count() / tm.count())
    assert {row["one"] for row in agree(query, ROWS, spark)} == {1.0}
    same = long.agg(one=tm.count() / tm.count())
    assert len(agree(same, ROWS)) == 1, "an interval is as long as its value stays the same"


def test_arithmetic_between_aggregates_of_intervals() -> None:
    query = STREAM.interval_join(STREAM, on="k", preceding=["1h", "3h"]).agg(
        tm.count(), mean=tm.sum(col.x) / tm.count(col.x)
    )
    assert query.schema.names[-4:] == ("count_1h", "mean_1h", "count_3h", "mean_3h")
    agree(query, ROWS)


def test_rates_and_means_of_durations(spark: Any) -> None:
    query = STREAM.group_by("k").window(tm.tumbling("4h")).agg(
        rate=tm.mean(col.v > 0), flags=tm.sum(col.b), wait=tm.mean(col.d), by=tm.mean_by(col.b, col.k),
        spread=tm.std(col.b),
    )  # fmt: skip
    assert [repr(query.schema[n]) for n in ("rate", "flags", "wait")] == ["float64", "int64", "duration"]
    for row in agree(query, ROWS, spark):
        inside = [r for r in ROWS if r["k"] == row["k"] and row["window_start"] <= r["t"] < row["window_end"]]
        flags = [r["b"] for r in inside if r["b"] is not None]
        waits = [r["d"] for r in inside if r["d"] is not None]
        assert row["flags"] == sum(flags)
        assert row["wait"] == int(abs(sum(waits)) / len(waits) + 0.5) * (1 if sum(waits) >= 0 else -1)


def test_a_mean_of_durations_is_rounded_half_away_from_zero() -> None:
    rows = [{**ROWS[0], "t": t, "d": d, "k": k} for t, d, k in ((1, 2, 0), (2, 3, 0), (1, -2, 1), (2, -3, 1))]
    query = STREAM.group_by("k").window(tm.tumbling("1h")).agg(tm.mean(col.d))
    assert sorted((row["k"], row["mean_d"]) for row in agree(query, rows)) == [(0, 3), (1, -3)]


def test_dates_in_conditions(spark: Any) -> None:
    query = STREAM.where((col.t >= date(1970, 1, 1)) & (col.t < date(1970, 1, 2)))
    rows = [{**ROWS[0], "t": t} for t in (-1, 0, 24 * HOUR - 1, 24 * HOUR)]
    assert [row["t"] for row in agree(query, rows, spark)] == [0, 24 * HOUR - 1]


def test_a_wheel_answers_arithmetic_between_aggregates() -> None:
    asked = STREAM.window(tm.tumbling("1h")).agg(mean=tm.sum(col.v) / tm.count(col.v), n=tm.count(col.v))
    wheel = tm.Wheel({"total": tm.sum(col.v), "n": tm.count(col.v)}, schema=SCHEMA, time="t", start=0)
    expected = agree(asked, ROWS)


    wheel.insert(table_of(asked, ROWS))
    wheel.advance_to(24 * HOUR)
    assert asked.run(wheel)["mean"].to_pylist() == [row["mean"] for row in expected]
