"""Queries Q1 to Q5 and Figures 2 and 4 of paper 003, whole, on every engine.

Traffic readings: a detector's segment, its speed and the time. Q2 and Q4 count ten rows instead of
the paper's thousand.
"""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import tidemill as tm
from tests.conformance.harness import (
    Row,
    arrivals,
    assert_same,
    by_reference,
    in_batches,
    locally,
    on_spark,
    split,
)  # fmt: skip
from tests.examples import later
from tidemill import col
from tidemill.core.time import instant
from tidemill.local.live import Live
from tidemill.stream import Stream

START = "2005-06-14T12:00:00Z"
SECOND = 1_000_000
TRAFFIC = tm.stream(
    "traffic", time="ts",
    schema={"ts": "timestamp", "seg": "int64", "speed": "float64", "reading": "int64"},
)  # fmt: skip


def readings(size: int = 90) -> list[Row]:
    pick = random.Random(2005)
    return [
        {
            "ts": instant(START) + pick.randint(0, 1200) * SECOND, "seg": pick.choice([6, 6, 6, 7]),
            "speed": pick.choice([None, 31.5, 44.0, 55.25, 61.0]), "reading": n,
        }
        for n in range(size)
    ]  # fmt: skip


def asked(window: tm.Window, *keys: str) -> Stream:
    grouped = TRAFFIC.group_by(*keys) if keys else TRAFFIC
    return grouped.window(window).agg(n=tm.count(), fastest=tm.max(col.speed), slowest=tm.min(col.speed))


QUERIES: dict[str, Stream] = {
    "Q1": asked(tm.hopping("300 seconds", every="60 seconds", origin=START, start=START), "seg"),
    "Q2": asked(tm.rows(10, every=2, partition_by=[], order_by="reading"), "seg"),
    "Q3": asked(tm.per_event("300 seconds")),
    "Q4": asked(tm.rows(10, every=2, order_by="reading"), "seg"),
    "Q5": asked(tm.per_event("300 seconds", every=10, by="rank")),
}


@pytest.mark.parametrize("name", QUERIES)
def test_locally(name: str) -> None:
    query, given, pick = QUERIES[name], readings(), random.Random(3)
    expected = by_reference(query, given)
    assert_same(locally(query, given), expected, query.schema)
    for order, arrived in arrivals(given, "ts", pick).items():
        got = in_batches(query, split(arrived, pick), promises=True, speed="eager")
        assert_same(got, expected, query.schema, order)


@pytest.mark.parametrize("name", ["Q1", *later("Q2", "Q3", "Q4", "Q5")])
def test_on_spark(spark: Any, name: str) -> None:
    query = QUERIES[name]
    assert_same(on_spark(spark, query, readings()), by_reference(query, readings()), query.schema)


def test_q2_and_q4_differ() -> None:
    q2, q4 = (locally(QUERIES[name], readings()) for name in ("Q2", "Q4"))
    # Q2 cuts ten rows of the whole stream and groups them: the groups of a window make up ten.
    full = {w["window_end"] for w in q2 if 10 <= w["window_end"] <= 90}
    assert all(sum(w["n"] for w in q2 if w["window_end"] == end) == 10 for end in full)
    assert any(w["n"] < 10 for w in q2 if w["window_end"] in full)
    # Q4 splits by segment first: once full, every window of a segment has ten rows of its own.
    for seg in (6, 7):
        count = sum(row["seg"] == seg for row in readings())
        assert {w["n"] for w in q4 if w["seg"] == seg and 10 <= w["window_end"] <= count} == {10}


def test_figure_2_max_and_min_by_window_id() -> None:
    # The tuples of the figure's minute, 12:10 to 12:11, are in windows 10 to 14 and in no other.
    base = instant(START)
    given = [
        {"ts": base + (600 + 20 * i) * SECOND, "seg": 6, "speed": s, "reading": i}
        for i, s in enumerate([51.0, 43.0, 57.0])
    ]
    found = locally(QUERIES["Q1"], given)
    ends = [(row["window_end"] - base) // (60 * SECOND) - 1 for row in found]
    assert sorted(ends) == [10, 11, 12, 13, 14]
    assert {(row["n"], row["fastest"], row["slowest"]) for row in found} == {(3, 57.0, 43.0)}


# --- slide by tuple, live (6.1) -------------------------------------------------------------------

TUPLES = tm.stream("s", time="a", schema={"a": "int64"})


def pushed(window: tm.Window, times: list[int], below: int) -> tuple[Live, list[tuple[int, int]]]:
    live = TUPLES.window(window).agg(n=tm.count()).live()
    for a in times:
        assert live.push(s={"a": a}).num_rows == 0
    return live, counted(live.punctuate(below))


def counted(found: pa.Table) -> list[tuple[int, int]]:
    return sorted(zip(found["window_end"].to_pylist(), found["n"].to_pylist()))


def test_figure_4_slide_by_tuple() -> None:
    # As drawn: s1 < s5 < s2 < s3 < s1+i < s5+i < s4 < s2+i, with RANGE i = 10; t5 arrives last.
    s1, s5, s2, s3, s4 = 0, 2, 4, 6, 13
    live, closed = pushed(tm.per_event(10), [s1, s2, s3, s4, s5], below=s2 + 1)
    assert closed == [(s1, 1), (s5, 2), (s2, 3)]
    assert counted(live.flush()) == [(s3, 4), (s4, 3)]


def test_figure_4_ties_end_one_window() -> None:
    _, closed = pushed(tm.per_event(10), [5, 5, 15, 5], below=16)
    assert closed == [(5, 3), (15, 1)]


def test_section_6_1_3_each_n_th_by_row_num_and_by_rank() -> None:
    _, by_row_num = pushed(tm.per_event(10, every=2), [4, 1, 3, 2], below=10)
    assert by_row_num == [(1, 1), (2, 2)]
    live, by_rank = pushed(tm.per_event(10, every=2, by="rank"), [4, 1, 3, 2], below=10)
    assert by_rank == [(2, 2), (4, 4)]
    for a in (11, 10):
        live.push(s={"a": a})
    assert counted(live.punctuate(20)) == [(11, 5)], "2, 3, 4, 10, 11: the count goes on over what is gone"
