"""Wheels agree with the definition: any ring set, retention, keys, aggregates and plan."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tests.conformance.harness import assert_same, by_reference, same
from tests.conformance.wheels import (
    AGGREGATES,
    KEYS,
    RINGS,
    SCHEMA,
    SLOW_SLOTS,
    check,
    check_ranges,
    pair,
    play,
    steps,
)
from tests.examples import examples, later
from tidemill import col
from tidemill.core.errors import UserError
from tidemill.wheels.loops.range_plan import PLAN_ROOM, plan
from tidemill.wheels.wheel import Wheel


@pytest.mark.parametrize("keys", KEYS)
@given(
    rings=st.sampled_from(list(RINGS)), script=steps, start=st.integers(-30, 30),
    pick=st.randoms(use_true_random=False),
)  # fmt: skip
@examples(12)
def test_any_ring_set_and_keys(
    rings: str, keys: str, script: list[Any], start: int, pick: random.Random
) -> None:
    wheel, reference = pair(rings, "mean and more", keys, start, write_ahead=4)
    play(wheel, reference, script)
    check_ranges(wheel, reference, pick)


@pytest.mark.parametrize(
    "aggregates", [pytest.param(a, marks=pytest.mark.soak) if a == "many" else a for a in AGGREGATES]
)
@given(script=steps, pick=st.randoms(use_true_random=False), rings=st.sampled_from(list(RINGS)))
@examples(6)
def test_any_aggregate(aggregates: str, script: list[Any], pick: random.Random, rings: str) -> None:
    wheel, reference = pair(rings, aggregates, "no keys", 0, write_ahead=8)
    play(wheel, reference, script)
    check_ranges(wheel, reference, pick)


@pytest.mark.parametrize("keys", ["no keys", "one"])
@given(
    rings=st.sampled_from(list(RINGS)), script=steps, start=st.integers(-30, 30),
    pick=st.randoms(use_true_random=False),
)  # fmt: skip
@examples(12)
def test_prefixes(rings: str, keys: str, script: list[Any], start: int, pick: random.Random) -> None:
    wheel, reference = pair(rings, "sum", keys, start, prefix=True)
    play(wheel, reference, script)
    check_ranges(wheel, reference, pick)


def test_every_plan_is_used() -> None:
    """One event a slot, so that nothing is absent, and every plan may be the best."""
    found = set()
    for options in ({}, {"prefix": True}, {"one_ring_below": 100}):
        wheel, reference = pair("kept", "sum", "no keys", 0, SLOW_SLOTS, **options)
        rows = [(t, (0, "a", t % 7, 0.5)) for t in range(203)]
        play(wheel, reference, [("insert", rows), ("advance", 203)])
        found |= check_ranges(wheel, reference, random.Random(5), 80)
    assert found >= {"prefix", "landmark", "one ring", "combined rings", "inverse landmark"}


@pytest.mark.parametrize("keys", ["no keys", "one"])
def test_every_plan_is_used_where_slots_are_empty(keys: str) -> None:
    """Slots without rows, rows without values, and a long stretch without any: marks say which."""
    found: set[str] = set()
    for options in ({}, {"prefix": True}):
        wheel, reference = pair("kept", "sum", keys, 0, SLOW_SLOTS, **options)
        some = [t for t in range(203) if t % 3 == 0 and not 60 <= t < 130]
        rows = [(t, (t % 2, "a", None if t % 9 == 0 else t % 7, 0.5)) for t in some]
        play(wheel, reference, [("insert", rows), ("advance", 203)])
        found |= check_ranges(wheel, reference, random.Random(5), 80)
        for a, b in ((1, 199), (0, 200), (61, 203), (63, 129), (0, 131)):
            found.add(check(wheel, reference, a, b))
    assert found >= {"prefix", "landmark", "one ring", "combined rings", "inverse landmark"}


def test_an_inverse_landmark_of_nothing_is_null() -> None:
    """All values lie outside of a range that is more than half of everything."""
    wheel, reference = pair("kept", "sum", "no keys", 0, SLOW_SLOTS)
    play(wheel, reference, [("insert", [(0, (0, "a", 5, 0.5)), (201, (0, "a", 7, 0.5))]), ("advance", 203)])
    assert wheel.explain(1, 200).plan == "inverse landmark"
    assert wheel.query(1, 200) is None and wheel.query(1, 203) == 7 and wheel.query(0, 200) == 5


@pytest.mark.compiled  # a quarter of a million slots
def test_a_plan_of_the_most_rings_there_are() -> None:
    rings: list[Any] = [(1 << r, "keep") for r in range(24)]
    wheel = Wheel(
        AGGREGATES["sum"], schema=SCHEMA, time="t", start=1, granularities=rings, compress=64
    )
    wheel.insert(5, {"v": 1})
    wheel.advance_to((1 << 17) - 1)
    wheel.insert((1 << 17) + 3, {"v": 2})
    wheel.advance_to((1 << 18) - 1)
    low, high = (1 << 9) - 1, (1 << 18) - (1 << 9) + 1
    assert wheel.query(low, high) == 2
    room = np.full((PLAN_ROOM + 9, 4), -7, dtype=np.int64)
    for start, end in ((low, high), (3, (1 << 18) - 2), ((1 << 16) + 1, (1 << 18) - 5)):
        plan(wheel._view.store.head, start, end, *wheel._view.store.choice, room[:PLAN_ROOM])
        assert (room[PLAN_ROOM:] == -7).all()


def test_explain_shows_the_costs_that_decide() -> None:
    """Fewer operations can cost more; the plan that is taken costs least of those that were tried."""
    wheel, pick = pair("kept", "sum", "no keys", 0, SLOW_SLOTS)[0], random.Random(0)
    wheel.insert([{"t": t, "k": 0, "s": None, "v": 1, "x": None} for t in range(200)])
    wheel.advance_to(200)
    plans = set()
    for _ in range(200):
        a = pick.randrange(200)
        explained = wheel.explain(a, pick.randint(a + 1, 200))
        assert all(explained.cost.total <= c.total for c in explained.alternatives.values())
        assert f"{explained.plan}: cost {explained.cost.total} (" in str(explained)
        plans.add(explained.plan)
    assert plans >= {"one ring", "combined rings", "inverse landmark"}
    wheel = pair("kept", "sum", "no keys", 0, SLOW_SLOTS, one_ring_below=100)[0]
    wheel.insert([{"t": 1, "k": 0, "s": None, "v": 1, "x": None}])
    wheel.advance_to(200)
    assert "one_ring_below prefers one ring" in str(wheel.explain(1, 99))
    assert str(wheel.explain(300, 400)) == str(wheel.explain(5, 5))


@pytest.mark.soak  # the slots of a day
def test_figure_3_combined_aggregation() -> None:
    """[10:15:23, 13:20:50): at most 152 operations (paper 001, section 3.4.4)."""
    day = 86_400
    wheel = Wheel(
        tm.max(col.v), schema={"t": "timestamp", "v": "float64"}, time="t", start="2023-10-01",
        retention="keep",
    )  # fmt: skip
    first = 1_696_118_400
    ts = (first + np.arange(day)) * 1_000_000
    wheel.insert(pa_table(ts))
    wheel.advance_to("2023-10-02")
    explained = wheel.explain("2023-10-01T10:15:23", "2023-10-01T13:20:50")
    assert (explained.plan, explained.operations) == ("combined rings", 152)
    assert [(s.slots, s.ring) for s in explained.steps] == [
        (37, "1s"), (44, "1m"), (2, "1h"), (20, "1m"), (50, "1s"),
    ]  # fmt: skip
    assert {n: c.slots for n, c in explained.alternatives.items()} == {"one ring": 11_127}
    assert explained.cost.total < explained.alternatives["one ring"].total
    assert wheel.query("2023-10-01T10:15:23", "2023-10-01T13:20:50") == 13 * 3600 + 20 * 60 + 49


def pa_table(ts: Any) -> Any:
    v = pa.array(np.arange(len(ts)))
    return pa.table({"t": pa.array(ts, pa.timestamp("us", "UTC")), "v": v})


def test_a_set_of_keys_is_asked_at_once() -> None:
    wheel, reference = pair("kept", "sum", "one", 0)
    play(wheel, reference, [("insert", [(t, (t % 3, "a", t, None)) for t in range(9)]), ("advance", 9)])
    listed = wheel.query(0, 9, key=[0, 2, 7])
    assert listed.to_pylist() == [{"k": 0, "a": 9}, {"k": 2, "a": 15}, {"k": 7, "a": None}]
    for keys in ({0, 2, 7}, frozenset((0, 2, 7)), np.array([0, 2, 7]), listed["k"]):
        assert wheel.query(0, 9, key=keys).sort_by("k").equals(listed)
    assert wheel.group_by(0, 9, 3, key={1})["a"].to_pylist() == [1, 4, 7]


@pytest.mark.parametrize("retention", ["drop", "keep"])
def test_a_wheel_that_begins_long_before_its_rows(retention: str) -> None:
    wheel = Wheel(
        AGGREGATES["sum"], schema=SCHEMA | {"t": "timestamp"}, time="t", start="1970-01-01",
        retention=retention,
    )  # fmt: skip
    wheel.insert("2026-01-01T00:00:05", {"v": 3})  # far ahead
    wheel.advance_to("2026-01-01T00:00:10")
    assert wheel.landmark() == 3 and wheel.query("2026-01-01T00:00:04", "2026-01-01T00:00:06") == 3
    assert wheel.query("1999-01-01", "2026-01-01") is None
    wheel.insert("2025-12-31T23:59:59", {"v": 9})
    assert wheel.stats()["left out"]["late"] == 1


def test_landmark_outlives_what_is_dropped() -> None:
    wheel, reference = pair("one, dropped", "mean and more", "no keys", 0)
    play(wheel, reference, [("insert", [(t, (0, "a", 1, t / 4)) for t in range(40)]), ("advance", 300)])
    expected = reference.query(0, 300)
    got = wheel.landmark()
    assert all(same(got[n], expected[n]) for n in got)
    with pytest.raises(UserError, match="a range that the rings still hold: 3 since"):
        wheel.query(0, 9)


# --- windows --------------------------------------------------------------------------------------

WINDOWS = {
    "tumbling": tm.tumbling(4),
    "pairs": tm.hopping(10, every=4),
    "no remainder": tm.hopping(12, every=4),
    "sampling": tm.hopping(2, every=6),
    "by one": tm.hopping(5, every=1, origin=2),
    "sessions": tm.session(7),
}


@pytest.mark.parametrize(
    ("window", "aggregates"),
    [(w, "sum") for w in WINDOWS] + later(*((w, "mean and more") for w in WINDOWS)),
)
@given(script=steps, start=st.integers(-30, 30), keyed=st.booleans())
@examples(4)
def test_windows_are_those_of_the_window_engine(
    window: str, aggregates: str, script: list[Any], start: int, keyed: bool
) -> None:
    check_windows(window, aggregates, script, start, keyed)


@pytest.mark.compiled  # the sample of sessions, in one shape; `tests/wheels` compiles windows that slide
@given(script=steps, start=st.integers(-30, 30))
@examples(4)
def test_compiled_windows_are_those_of_the_window_engine(script: list[Any], start: int) -> None:
    check_windows("sessions", "sum", script, start, keyed=True)


def check_windows(window: str, aggregates: str, script: list[Any], start: int, keyed: bool) -> None:
    wheel, reference = pair(
        "sixes", aggregates, "one" if keyed else "no keys", start, windows=[WINDOWS[window]]
    )
    closed = play(wheel, reference, script)
    stream = tm.stream("s", time="t", schema=SCHEMA)
    asked = (stream.group_by("k") if keyed else stream).window(WINDOWS[window])
    query = asked.agg(**AGGREGATES[aggregates])
    expected = [
        row for row in by_reference(query, reference.rows)
        if row["window_end"] <= reference.watermark
    ]  # fmt: skip
    assert_same(closed, expected, query.schema)


def test_several_windows_at_once() -> None:
    wheel, reference = pair("dropped", "sum", "no keys", 0)
    wheel.window(4, 2, name="short")
    wheel.window(tm.hopping(10, every=5), name="long")
    closed = play(wheel, reference, [("insert", [(3, (0, "a", 7, None))]), ("advance", 10)])
    assert sorted((r["window"], r["window_start"], r["window_end"], r["a"]) for r in closed) == [
        ("long", -5, 5, 7), ("long", 0, 10, 7), ("short", 0, 4, 7), ("short", 2, 6, 7),
    ]  # fmt: skip


# --- errors ---------------------------------------------------------------------------------------


# Partials that are a few numbers, and such that are Python values.
EITHER = pytest.mark.parametrize("more", [{}, {"b": tm.median(col.v)}], ids=["numbers", "values"])


@EITHER
def test_after_an_overflow_where_slots_roll_up_a_wheel_only_answers(
    more: dict[str, Any], tmp_path: Path
) -> None:
    held = {"a": tm.sum(col.v), **more}
    wheel, reference = pair("kept", held, "no keys", 0)
    play(wheel, reference, [("insert", [(1, (0, "a", 5, None))]), ("advance", 4)])
    wheel.insert(6, {"v": 1 << 62})
    with pytest.raises(UserError, match="overflow"):
        wheel.insert(6, {"v": 1 << 62})  # it does not go in
    wheel.insert(7, {"v": 1 << 62})
    with pytest.raises(UserError, match="overflow"):
        wheel.advance_to(30)
    for attempt in (
        lambda: wheel.insert(7, {"v": 1}), lambda: wheel.advance_to(8), lambda: wheel.save(tmp_path),
        lambda: wheel.merge(pair("kept", held, "no keys", 0)[0]),
    ):  # fmt: skip
        with pytest.raises(UserError, match="stopped by"):
            attempt()
    assert wheel.query(0, 4) == ({"a": 5, "b": 5.0} if more else 5)


@EITHER
def test_a_roll_up_that_overflows_is_an_error_and_finer_slots_still_answer(more: dict[str, Any]) -> None:
    wheel, _ = pair("kept", {"a": tm.sum(col.v), **more}, "no keys", 0)
    for t in (1, 2, 3):
        wheel.insert(t, {"v": 1 << 62})
    with pytest.raises(UserError, match="overflow"):
        wheel.advance_to(5)
    assert wheel.query(1, 2) == ({"a": 1 << 62, "b": float(1 << 62)} if more else 1 << 62)
