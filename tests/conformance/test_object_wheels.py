"""Wheels of aggregates whose partials are not a few numbers agree with the definition, too."""

from __future__ import annotations

import random
import tempfile
import threading
import tracemalloc
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import datasketches
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tests.conformance.harness import assert_same, by_reference, ran, same
from tests.conformance.user_states import distinct_pairs, middle, mode
from tests.conformance.wheels import SCHEMA, check_ranges, pair, play, separately, steps
from tests.examples import examples
from tidemill import col
from tidemill.aggregates.algebra import Aggregate
from tidemill.core.errors import UnsupportedError, UserError
from tidemill.core.time import FARTHEST
from tidemill.wheels.open_wheel import open_wheel

longest = tm.aggregate(
    "longest", identity=lambda: "", lift=lambda s: s * 2, lower=lambda s: s[:1] + str(len(s)),
    combine=lambda a, b: max(a, b, key=lambda s: (len(s), s)), returns="string",
)  # fmt: skip
by_digits = tm.aggregate(
    "by_digits", identity=lambda: 0, lift=lambda x: int(str(x)), combine=lambda a, b: int(str(a + b)),
    lower=lambda a: a, returns="int64",
)  # fmt: skip
# Few kinds of slots, each with its keys: every one is compiled.
FAMILIES: dict[str, dict[str, Any]] = {
    "text": {"a": tm.min(col.s), "b": tm.arg_max(col.s, col.x), "c": tm.last(col.s), "d": tm.count(col.s)},
    "mixed": {
        "a": tm.median(col.v), "b": tm.sum(col.v), "c": tm.distinct_count(col.v, method="hll"),
        "d": tm.quantile(col.v, 0.4, method="kll"), "e": tm.distinct_count(col.v),
    },
    "lists and own": {
        "a": tm.collect(col.s), "b": tm.top_k(col.v, 2), "c": longest(col.s), "d": by_digits(col.v),
        "e": mode()(col.v), "f": distinct_pairs(col.v, col.s), "g": middle(col.v),
    },
    "one list": {"a": tm.collect(col.v)},
}  # fmt: skip
KEYS = {"text": "one", "mixed": "no keys", "lists and own": "two", "one list": "no keys"}
RINGS = ["dropped", "some kept", "one, dropped", "sixes"]
randoms = st.randoms(use_true_random=False)


def with_nulls(script: list[Any]) -> list[Any]:
    """A row without values in every batch: whether there is any null is compiled, too."""
    nothing = (0, (0, "a", None, None))
    return [(what, [*rows, nothing] if what == "insert" else rows) for what, rows in script]


scripts = steps.map(with_nulls)


@pytest.mark.parametrize(
    "family", [pytest.param(f, marks=pytest.mark.soak if f == "one list" else ()) for f in FAMILIES]
)
@given(
    script=scripts, pick=randoms, rings=st.sampled_from(RINGS), start=st.integers(-30, 30),
    below=st.sampled_from([0, 20]),
)  # fmt: skip
@examples(6)
def test_any_ring_set(
    family: str, script: list[Any], pick: random.Random, rings: str, start: int, below: int
) -> None:
    ahead = 4 if family == "one list" else 64  # rows that waited come without nulls
    wheel, reference = pair(
        rings, FAMILIES[family], KEYS[family], start, write_ahead=ahead, one_ring_below=below
    )
    assert wheel._view.spec.objects
    play(wheel, reference, script)
    check_ranges(wheel, reference, pick, 6)


@pytest.mark.parametrize("family", ["text", "mixed", "lists and own"])
@given(
    given_=st.lists(scripts, min_size=3, max_size=3), pick=randoms,
    starts=st.lists(st.integers(-30, 30), min_size=3, max_size=3),
)  # fmt: skip
@examples(4)
def test_merged_wheels_are_one(
    family: str, given_: list[Any], starts: list[int], pick: random.Random
) -> None:
    wheels, whole = separately("some kept", FAMILIES[family], KEYS[family], given_, starts)
    a, b, c = pick.sample(wheels, 3)
    assert b.merge(c) and a.merge(b) if pick.random() < 0.5 else a.merge(b) and a.merge(c)
    assert not a.merge(c) and a.watermark == whole.watermark
    check_ranges(a, whole, pick, 6)


@pytest.mark.parametrize("family", FAMILIES)
@given(script=scripts, more=scripts, pick=randoms)
@examples(4)
def test_a_saved_wheel_opens_and_goes_on(
    family: str, script: list[Any], more: list[Any], pick: random.Random
) -> None:
    wheel, reference = pair("some kept", FAMILIES[family], KEYS[family], -7)
    play(wheel, reference, script)
    with tempfile.TemporaryDirectory() as path:
        wheel.save(path)
        again = open_wheel(path, aggregates=FAMILIES[family] if "own" in family else None)
        assert again.stats() | {"bytes": 0, "rings": 0} == wheel.stats() | {"bytes": 0, "rings": 0}
        check_ranges(again, reference, pick, 5)
        play(again, reference, more)
        check_ranges(again, reference, pick, 5)


@pytest.mark.parametrize("window", [tm.hopping(10, every=4), tm.landmark(6)], ids=str)
@given(script=scripts)
@examples(4)
def test_queries_from_such_wheels(window: Any, script: list[Any]) -> None:
    wheel, reference = pair("kept", FAMILIES["text"], "one", 0)
    play(wheel, reference, script)
    stream = tm.stream("events", time="t", schema=SCHEMA)
    query = stream.group_by("k").window(window).agg(**FAMILIES["text"])
    below = [r for r in reference.rows if r["t"] < reference.watermark]
    assert_same(ran(query, wheel), by_reference(query, below), query.schema)


# --- other ways to ask ----------------------------------------------------------------------------


def clock(aggregates: Any, **options: Any) -> tm.Wheel:
    schema = {"ts": "timestamp", "k": "string", "v": "int64"}
    return tm.Wheel(
        aggregates, schema=schema, time="ts", keys="k", start="2023-10-01", granularities=["1s", "1m", "1h"],
        **options,
    )  # fmt: skip


def test_series_sets_of_keys_and_instants() -> None:
    first = datetime(2023, 10, 1, tzinfo=timezone.utc)
    wheel = clock({"all": tm.collect(col.ts), "mid": tm.median(col.v), "last": tm.max(col.ts)})
    for n, key in enumerate("abca"):
        wheel.insert(first + timedelta(seconds=n), {"v": n}, key)
    wheel.advance_to(first + timedelta(seconds=5))
    third = first + timedelta(seconds=3)
    assert wheel.landmark("a") == {"all": [first, third], "mid": 1.5, "last": third}
    assert wheel.landmark("never") == {"all": [], "mid": None, "last": None}
    assert wheel.latest("2s").to_pylist()[0] == {"k": "a", "all": [third], "mid": 3.0, "last": third}
    table = wheel.query(first, third, key=["c", "a", "never"])
    assert table["k"].to_pylist() == ["c", "a", "never"] and table["mid"].to_pylist() == [2.0, 0.0, None]
    series = wheel.group_by(first, third, "2s", key="b")
    assert series["mid"].to_pylist() == [1.0, None] and series["all"].type == table["all"].type
    assert wheel.stats()["bytes"]["rings"] > 0 and wheel.stats()["rings"]["1s"]["slots"] == 5


def test_bytes_of_sketches() -> None:
    given_ = {"hll": tm.distinct_sketch(col.v), "kll": tm.quantile_sketch(col.v)}
    wheel, reference = pair("dropped", given_, "no keys", 0)
    rows = [(t % 40, (0, "a", t % 300, 0.5)) for t in range(900)]
    play(wheel, reference, [("insert", rows), ("advance", 40)])
    found, expected = wheel.landmark(), reference.query(0, 40)
    hll = [datasketches.hll_sketch.deserialize(x["hll"]).get_estimate() for x in (found, expected)]
    kll = [datasketches.kll_doubles_sketch.deserialize(x["kll"]) for x in (found, expected)]
    assert hll[0] == pytest.approx(hll[1], rel=0.02)
    assert kll[0].n == kll[1].n == 900 and kll[0].get_quantile(0.5) == pytest.approx(150, abs=10)


def test_every_row_is_accounted_for() -> None:
    wheel, _ = pair("kept", FAMILIES["one list"], "no keys", 0, write_ahead=4)
    times = [2, None, -1, 90, FARTHEST + 1, -FARTHEST - 1, 3]
    rows = {"t": times, "k": [0] * 7, "s": ["a"] * 7, "v": list(range(7)), "x": [0.5] * 7}
    wheel.insert(pa.table(rows))
    assert wheel.stats()["left out"] == {"late": 1, "null time": 1, "time out of range": 2}
    assert (wheel.stats()["rows"], wheel.stats()["rows ahead"]) == (2, 1)
    wheel.advance_to(95)
    assert wheel.landmark() == [0, 6, 3]


def test_ten_years_without_rows_take_nothing() -> None:
    wheel, _ = pair("kept", FAMILIES["one list"], "no keys", 0)
    wheel.insert(3, {"v": 7})
    wheel.advance_to(10**15)
    assert wheel.landmark() == wheel.query(0, 20) == [7] and wheel.query(20, 10**15) == []


def test_readers_see_all_of_a_step_or_nothing() -> None:
    wheel, _ = pair("dropped", FAMILIES["one list"], "no keys", 0)
    seen: list[Any] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.append(wheel.landmark())

    reader = threading.Thread(target=read)
    reader.start()
    for t in range(0, 150, 3):
        wheel.insert([{"t": t + i, "k": 0, "s": "a", "v": t + i, "x": None} for i in range(3)])
        wheel.advance_to(t + 3)
    done.set()
    reader.join()
    assert wheel.landmark() == list(range(150))
    assert seen and all(x == list(range(len(x))) and len(x) % 3 == 0 for x in seen)


# --- errors ---------------------------------------------------------------------------------------

MIXED = {"a": tm.sum(col.v), "b": tm.median(col.v)}


@pytest.mark.parametrize("rows", [10, 150])
def test_a_total_may_leave_int64_on_the_way_and_not_in_the_end(rows: int) -> None:
    wheel, _ = pair("one", MIXED, "no keys", 0)
    for t in range(rows):
        wheel.insert(3 * t, {"v": (1 << 61) * (1 if t % 10 < 5 else -1)})
        wheel.advance_to(3 * t + 3)
    assert wheel.query(3, 9)["a"] == 1 << 62
    assert wheel.landmark()["a"] == 0
    with pytest.raises(UserError, match="overflow"):
        wheel.query(0, 15)
    assert wheel.query(0, 9)["b"] == float(1 << 61)


def fails_at(limit: int) -> Aggregate:
    def combine(a: int, b: int) -> int:
        if int(str(a + b)) > limit:
            raise ArithmeticError("too much")
        return a + b

    made = tm.aggregate("fails", identity=lambda: 0, lift=lambda x: x, combine=combine, lower=lambda a: a)
    return made(col.v)


def test_a_user_s_function_that_fails_stops_the_wheel() -> None:
    wheel, _ = pair("dropped", {"a": fails_at(9)}, "no keys", 0)
    wheel.insert(1, {"v": 7})
    wheel.insert(2, {"v": 7})
    with pytest.raises(UserError, match="ArithmeticError: too much"):
        wheel.advance_to(20)
    with pytest.raises(UserError, match="stopped by"):
        wheel.insert(21, {"v": 1})
    wheel, _ = pair("dropped", {"a": fails_at(9)}, "no keys", 0)
    with pytest.raises(UserError, match="ArithmeticError: too much"):
        wheel.insert([{"t": 1, "k": 0, "s": "a", "v": v, "x": None} for v in (5, 6)])


def test_a_merge_that_fails_leaves_both_as_they_were() -> None:
    held = {"a": fails_at(9)}
    wheels = [pair("kept", held, "no keys", start, write_ahead=4)[0] for start in (90, 0)]
    wheels[1].insert([{"t": 92, "k": 0, "s": "a", "v": v, "x": None} for v in (5, 6)])  # they wait
    wheels[1].insert(1, {"v": 3})
    with pytest.raises(UserError, match="too much"):
        wheels[0].merge(wheels[1])
    for wheel in wheels:
        wheel.insert(92 if wheel is wheels[0] else 2, {"v": 4})
    wheels[0].advance_to(94)
    wheels[1].advance_to(4)
    assert [w.landmark() for w in wheels] == [4, 7]


def test_partials_that_no_file_can_hold_are_refused(tmp_path: Path) -> None:
    halves = tm.aggregate(
        "halves", identity=lambda: 0, lift=lambda x: float(str(x)) / 2, combine=lambda a, b: a + b,
        lower=lambda a: float(a), returns="float64",
    )  # fmt: skip
    wheel, reference = pair("kept", {"a": halves(col.v)}, "no keys", 0)
    play(wheel, reference, [("insert", [(1, (0, "a", 5, None)), (2, (0, "a", 2, None))]), ("advance", 4)])
    assert same(wheel.landmark(), 3.5)
    with pytest.raises(UserError, match=r"identity\(\)"):
        wheel.save(tmp_path)


@pytest.mark.parametrize(
    ("act", "parts"),
    [
        (lambda: pair("kept", MIXED, "one", 0, prefix=True), ["prefix=True", "quantile"]),
        (lambda: pair("kept", MIXED, "one", 0, compress=True), ["compress", "quantile"]),
        (lambda: pair("kept", MIXED, "one", 0, windows=[tm.tumbling(4)]), ["use the query engine"]),
        (lambda: pair("kept", MIXED, "one", 0, windows=[tm.session(7)]), ["use the query engine"]),
        (lambda: pair("kept", MIXED, "one", 0)[0].window(4, 2), ["windows", "use the query engine"]),
        (lambda: pair("kept", MIXED, "one", 0)[0].share("/dev/shm/x"), ["share", "save it"]),
        (lambda: pair("kept", {"a": tm.drawdown(col.x)}, "one", 0), ["drawdown", "order of time"]),
        (lambda: pair("kept", {**MIXED, "c": tm.drawdown(col.x)}, "one", 0), ["drawdown"]),
    ],
)  # fmt: skip
def test_what_there_is_not(act: Any, parts: list[str]) -> None:
    with pytest.raises(UnsupportedError) as refused:
        act()
    assert all(p in str(refused.value) for p in parts), str(refused.value)


def test_bytes_are_about_what_is_allocated() -> None:
    """Beside what Python says that it has allocated meanwhile."""
    wheel = pair("kept", {"a": tm.collect(col.x)}, "one", 0)[0]
    rows = [{"t": t % 200, "k": t % 3, "s": None, "v": None, "x": t + 0.5} for t in range(6000)]
    wheel.insert(rows[:1])  # what is compiled stays out of it
    wheel.advance_to(1)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    wheel.insert([{**r, "t": r["t"] + 1} for r in rows])
    wheel.advance_to(201)
    measured = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    said = sum(wheel.stats()["bytes"].values())
    assert measured / 2.5 < said < measured * 2.5, (said, measured)
    rings = wheel.stats()["rings"]
    assert all(ring["bytes"] > 6000 * 24 for ring in rings.values())  # each ring has the floats once


def test_bytes_of_sketches_follow_their_size() -> None:
    def said(size: int) -> int:
        wheel = pair("one", {"a": tm.distinct_sketch(col.v, size=size)}, "no keys", 0)[0]
        wheel.insert([{"t": 1, "k": 0, "s": None, "v": v, "x": None} for v in range(5000)])
        wheel.advance_to(3)
        return int(wheel.stats()["bytes"]["rings"])

    few, many = said(8), said(14)
    assert many > 8 * few and 1 << 12 < many < 1 << 16
