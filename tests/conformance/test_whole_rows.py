"""The best rows of a window with all of their columns, ties and nulls included: on every engine."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

import tidemill as tm
from tests.conformance.harness import Row, agree, assert_same, by_reference, in_batches, live
from tests.examples import later
from tidemill import col

SCHEMA = {
    "t": "timestamp", "k": "int64", "v": "int64", "x": "float64", "s": "string", "b": "bool", "d": "duration",
}  # fmt: skip
STREAM = tm.stream("s", time="t", schema=SCHEMA)
PICK = random.Random(7)
ROWS: list[Row] = [
    {
        "t": PICK.randrange(40), "k": PICK.randrange(2), "v": PICK.choice([1, 2, 3, None]),
        "x": PICK.choice([0.0, -0.0, 1.5, math.nan, -math.inf, None]),
        "s": PICK.choice(["a", "bc", "", None]), "b": PICK.choice([True, False, None]),
        "d": PICK.choice([5, -5, None]),
    }
    for _ in range(60)
]  # fmt: skip
GROUPS = STREAM.group_by("k")
TENS = GROUPS.window(tm.tumbling("10us"))
QUERIES: dict[str, Any] = {
    "all at the maximum": TENS.top(1, by="v", ties=True),
    "the last row": TENS.top(1, by="t"),
    "the least, with ties": TENS.top(2, by="x", least=True, ties=True),
    "hopping": GROUPS.window(tm.hopping("20us", every="5us")).top(3, by=lambda e: -e.v),
    "the whole stream": STREAM.window(tm.tumbling("10us"), window_id=True).top(4, by="x"),
    "sessions": GROUPS.window(tm.session("3us")).top(2, by="s"),
    "each event": GROUPS.window(tm.per_event("5us")).top(1, by="v", ties=True).select("k", "s", at=col.t),
    "as lists": TENS.agg(best=tm.top_rows("v", "s", "x", k=2, ties=True), n=tm.count()).select_many("best"),
    "two windows": GROUPS.window(a=tm.tumbling("10us"), b=tm.tumbling("20us")).top(1, by="v"),
}


@pytest.mark.parametrize("name", QUERIES)
def test_in_process_and_live(name: str) -> None:
    query = QUERIES[name]
    assert agree(query, ROWS)
    halves = [ROWS[::2], ROWS[1::2]]
    assert_same(in_batches(query, halves, promises=True), by_reference(query, ROWS), query.schema)
    assert live(query, ROWS, random.Random(1))


@pytest.mark.parametrize("name", ["all at the maximum", *later("hopping", "as lists", "each event")])
def test_on_spark(spark: Any, name: str) -> None:
    agree(QUERIES[name], ROWS, spark)


def test_all_rows_at_the_maximum_are_those_that_have_it() -> None:
    for row in agree(QUERIES["all at the maximum"], ROWS):
        inside = [r for r in ROWS if r["k"] == row["k"] and row["window_start"] <= r["t"] < row["window_end"]]
        best = max((r["v"] for r in inside if r["v"] is not None), default=None)
        assert row["v"] == best
        wanted = sum(r["v"] == best for r in inside)
        same = [r for r in by_reference(QUERIES["all at the maximum"], ROWS) if r["k"] == row["k"]]
        assert sum(r["window_start"] == row["window_start"] for r in same) == wanted


def test_the_last_row_has_columns_of_one_row() -> None:
    everything = [tuple(row[n] for n in SCHEMA) for row in ROWS]
    for row in agree(QUERIES["the last row"], ROWS):
        assert str(tuple(row[n] for n in SCHEMA)) in map(str, everything)


def test_a_histogram_as_rows(spark: Any) -> None:
    query = TENS.agg(h=tm.count_by("s")).select_many("h")
    assert query.schema.names == ("k", "window_start", "window_end", "key", "value")
    agree(query, ROWS, spark)


def test_a_wheel_keeps_whole_rows() -> None:
    wheel = tm.Wheel(
        tm.top_rows("v", "s", k=2), schema={"t": "int64", "v": "int64", "s": "string"}, time="t",
        granularities=[1, 10], start=0,
    )  # fmt: skip
    wheel.insert([{"t": 1, "v": 5, "s": "a"}, {"t": 2, "v": 5, "s": None}, {"t": 12, "v": 9, "s": "b"}])
    wheel.advance_to(20)
    assert wheel.query(0, 20) == [{"s": "b"}, {"s": "a"}]
    assert wheel.query(0, 10) == [{"s": "a"}, {"s": None}]
