"""Wheels agree with the definition: any ring set, retention, keys, aggregates and plan."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidemill as tm
from tests.conformance.harness import assert_same, by_reference, same
from tidemill import col
from tidemill.codegen.wheel_plan import PLAN_ROOM, plan
from tidemill.core.errors import UserError
from tidemill.local.wheel import Wheel
from tidemill.local.wheel_files import open_wheel
from tidemill.reference.wheels import RowWheel

SCHEMA = {"t": "int64", "k": "int64", "s": "string", "v": "int64", "x": "float64"}
RINGS: dict[str, list[Any]] = {
    "dropped": [1, 5, 20],
    "kept": [(1, "keep"), (5, "keep"), (20, "keep")],
    "some kept": [(2, 7), (4, "keep"), (24, 6)],
    "one": [(3, "keep")],
    "one, dropped": [(3, 4)],
    "sixes": [1, 6, (36, 2)],
}
AGGREGATES: dict[str, dict[str, Any]] = {
    "sum": {"a": tm.sum(col.v)},
    "mean and more": {"a": tm.mean(col.x), "b": tm.sum(col.x), "c": tm.var(col.x)},
    "many": {
        "a": tm.count(col.x), "b": tm.min(col.x), "c": tm.max(col.t), "d": tm.all(col.v > 2),
        "e": tm.count_if(col.v > 1), "f": tm.arg_max(col.v, col.x),
    },
    "own": {
        "a": tm.aggregate(
            "own", identity=lambda: 0, lift=lambda x: x * x, combine=lambda a, b: a + b,
            lower=lambda a: a,
        )(col.v)
    },
}
KEYS = {"no keys": (), "one": ("k",), "two": ("k", "s")}

values = st.tuples(
    st.integers(0, 3), st.sampled_from(["a", "b", None]), st.one_of(st.none(), st.integers(-5, 5)),
    st.one_of(st.none(), st.floats(-8, 8, width=16)),
)  # fmt: skip
steps = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.lists(st.tuples(st.integers(-4, 40), values), max_size=8)),
        st.tuples(st.just("advance"), st.integers(0, 30)),
    ),
    min_size=1,
    max_size=10,
)


def pair(
    rings: str, aggregates: str | dict[str, Any], keys: str, start: int, **options: Any
) -> tuple[Wheel, RowWheel]:
    given_ = AGGREGATES[aggregates] if isinstance(aggregates, str) else aggregates
    wheel = Wheel.create(
        given_, schema=SCHEMA, time="t", start=start, keys=KEYS[keys], granularities=RINGS[rings], **options
    )
    grain = RINGS[rings][0]
    grain = grain[0] if isinstance(grain, tuple) else grain
    return wheel, RowWheel(wheel._plan, grain, start // grain * grain)


def play(wheel: Wheel, reference: RowWheel, script: list[Any]) -> list[dict[str, Any]]:
    """The same to both. The windows that closed."""
    closed: list[dict[str, Any]] = []
    # Whether a column has nulls is compiled, too: for larger kinds of slots, it always has.
    nothing = [(0, (0, "a", None, None))] if len(wheel._plan.aggregates) > 1 else []
    for what, given_ in script:
        if what == "advance":
            reference.advance_to(reference.watermark + given_)
            found = wheel.advance_to(reference.watermark)
            closed += found.to_pylist() if found is not None else []
            assert wheel.watermark == reference.watermark
            continue
        rows = [
            {"t": reference.watermark + t, **dict(zip(("k", "s", "v", "x"), rest))}
            for t, rest in [*given_, *nothing]
        ]
        for row in rows:
            reference.insert(row)
        wheel.insert(rows)
    assert wheel.stats()["left out"]["late"] == len(reference.late)
    assert sorted(wheel.late()["t"].to_pylist()) == sorted(r["t"] for r in reference.late)
    return closed


def can_be_cut(wheel: Wheel, start: int, end: int) -> bool:
    """Whether slots that are held make up a range, in finest slots."""
    store = wheel._store
    start, end = max(start, store.first), min(end, store.now)
    reached = {start}
    for p in range(start, end):
        if p in reached:
            for r in range(len(store.rings)):
                unit, _, _, _, low, stop = (int(x) for x in store.ring(r)[:6])
                if p % unit == 0 and low <= p // unit < stop:
                    reached.add(p + unit)
    return start >= end or end in reached


def check(wheel: Wheel, reference: RowWheel, a: int, b: int) -> str:
    """Every key of a range. How it was answered."""
    grain = reference.grain
    keys = {tuple(r[k] for k in wheel._plan.group_keys) for r in reference.rows} or {(9,)}
    keyed = bool(wheel._plan.group_keys)
    names = [r.name for r in wheel._plan.layout.results]
    for key in keys if keyed else {()}:
        asked = {"key": key if len(key) > 1 else key[0]} if keyed else {}
        if keyed and len(key) != len(wheel._plan.group_keys):
            continue
        try:
            got = wheel.query(a * grain, b * grain, **asked)
        except UserError as refused:
            assert "still hold" in str(refused) and not can_be_cut(wheel, a, b)
            return "refused"
        expected = reference.query(a * grain, b * grain, key)
        shown = got if isinstance(got, dict) else {names[0]: got}
        assert all(same(shown[n], expected[n]) for n in names), (a, b, key, shown, expected)
        [many] = [wheel.query([a * grain], [b * grain], **({"key": [asked["key"]]} if keyed else {}))]
        row = many.to_pylist()[0]
        row = row if isinstance(row, dict) else {names[0]: row}
        assert all(same(row[n], expected[n]) for n in names), (a, b, key, row, expected)
    return wheel.explain(a * grain, b * grain).plan


def check_ranges(wheel: Wheel, reference: RowWheel, pick: random.Random, count: int = 12) -> set[str]:
    store = wheel._store
    found = set()
    for _ in range(count):
        a = pick.randint(store.first - 2, store.now + 2)
        b = pick.randint(a, store.now + 4)
        if pick.random() < 0.3:  # on coarse bounds
            unit = int(store.ring(len(store.rings) - 1)[0])
            a, b = a // unit * unit, b // unit * unit
        found.add(check(wheel, reference, a, b))
    found.add(check(wheel, reference, store.first, store.now))
    return found


@pytest.mark.parametrize("keys", KEYS)
@given(
    rings=st.sampled_from(list(RINGS)), script=steps, start=st.integers(-30, 30),
    pick=st.randoms(use_true_random=False),
)  # fmt: skip
@settings(max_examples=30)
def test_any_ring_set_and_keys(
    rings: str, keys: str, script: list[Any], start: int, pick: random.Random
) -> None:
    wheel, reference = pair(rings, "mean and more", keys, start, write_ahead=4)
    play(wheel, reference, script)
    check_ranges(wheel, reference, pick)


@pytest.mark.parametrize("aggregates", AGGREGATES)
@given(script=steps, pick=st.randoms(use_true_random=False), rings=st.sampled_from(list(RINGS)))
@settings(max_examples=15)
def test_any_aggregate(aggregates: str, script: list[Any], pick: random.Random, rings: str) -> None:
    wheel, reference = pair(rings, aggregates, "no keys", 0, write_ahead=8)
    play(wheel, reference, script)
    check_ranges(wheel, reference, pick)


@pytest.mark.parametrize("keys", ["no keys", "one"])
@given(
    rings=st.sampled_from(list(RINGS)), script=steps, start=st.integers(-30, 30),
    pick=st.randoms(use_true_random=False),
)  # fmt: skip
@settings(max_examples=30)
def test_prefixes(rings: str, keys: str, script: list[Any], start: int, pick: random.Random) -> None:
    wheel, reference = pair(rings, "sum", keys, start, prefix=True)
    play(wheel, reference, script)
    check_ranges(wheel, reference, pick)


def test_every_plan_is_used() -> None:
    """One event a slot, so that nothing is absent, and every plan may be the best."""
    found = set()
    for options in ({}, {"prefix": True}, {"one_ring_below": 100}):
        wheel, reference = pair("kept", "sum", "no keys", 0, **options)
        rows = [(t, (0, "a", t % 7, 0.5)) for t in range(203)]
        play(wheel, reference, [("insert", rows), ("advance", 203)])
        found |= check_ranges(wheel, reference, random.Random(5), 80)
    assert found >= {"prefix", "landmark", "one ring", "combined rings", "inverse landmark"}


def test_a_plan_of_the_most_rings_there_are() -> None:
    rings: list[Any] = [(1 << r, "keep") for r in range(24)]
    wheel = Wheel.create(
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
        plan(wheel._store.head, start, end, True, 0, room[:PLAN_ROOM])
        assert (room[PLAN_ROOM:] == -7).all()


def test_figure_3_combined_aggregation() -> None:
    """[10:15:23, 13:20:50): at most 152 operations (paper 001, section 3.4.4)."""
    day = 86_400
    wheel = Wheel.create(
        tm.max(col.v), schema={"t": "timestamp", "v": "int64"}, time="t", start="2023-10-01",
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
    assert explained.alternatives == {"one ring": 11_126}
    assert wheel.query("2023-10-01T10:15:23", "2023-10-01T13:20:50") == 13 * 3600 + 20 * 60 + 49


def pa_table(ts: Any) -> Any:
    import pyarrow as pa

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
    wheel = Wheel.create(
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
    [(w, a) for w in WINDOWS for a in ("sum", "mean and more") if a == "sum" or w != "tumbling"],
)
@given(script=steps, start=st.integers(-30, 30), keyed=st.booleans())
@settings(max_examples=8)
def test_windows_are_those_of_the_window_engine(
    window: str, aggregates: str, script: list[Any], start: int, keyed: bool
) -> None:
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


# --- merging --------------------------------------------------------------------------------------


def separately(
    rings: str, aggregates: str | dict[str, Any], keys: str, scripts: list[list[Any]], starts: list[int],
    **options: Any,
) -> tuple[list[Wheel], RowWheel]:
    """A wheel for each script, and one reference of all their rows."""
    wheels, whole = [], None
    for script, start in zip(scripts, starts):
        wheel, reference = pair(rings, aggregates, keys, start, **options)
        play(wheel, reference, script)
        wheels.append(wheel)
        if whole is None:
            whole = reference
        else:
            whole.rows += reference.rows
            whole.watermark = max(whole.watermark, reference.watermark)
    assert whole is not None
    return wheels, whole


@pytest.mark.parametrize("keys", KEYS)
@given(
    rings=st.sampled_from(["dropped", "kept", "some kept"]),
    scripts=st.lists(steps, min_size=3, max_size=3),
    starts=st.lists(st.integers(-30, 30), min_size=3, max_size=3),
    pick=st.randoms(use_true_random=False), prefix=st.booleans(),
)  # fmt: skip
@settings(max_examples=10)
def test_merged_wheels_are_one_in_any_order_and_grouping(
    rings: str, keys: str, scripts: list[Any], starts: list[int], pick: random.Random, prefix: bool
) -> None:
    wheels, whole = separately(rings, "sum", keys, scripts, starts, prefix=prefix)
    order = pick.sample(wheels, 3)
    if pick.random() < 0.5:
        assert order[1].merge(order[2])
        assert order[0].merge(order[1])
    else:
        assert order[0].merge(order[1])
        assert order[0].merge(order[2])
    assert not order[0].merge(order[2])  # again: nothing happens
    assert order[0].watermark == whole.watermark
    check_ranges(order[0], whole, pick)


def test_two_that_go_on_from_one_save_are_not_taken_for_one(tmp_path: Path) -> None:
    wheel, _ = pair("kept", "sum", "no keys", 0)
    wheel.save(tmp_path)
    one, other = open_wheel(tmp_path), open_wheel(tmp_path)
    assert one.id == other.id == wheel.id
    for w, v in ((one, 10), (other, 100)):
        w.insert(5, {"v": v})
    with pytest.raises(UserError, match="nothing was merged before"):
        one.merge(other)


def test_windows_of_a_merged_wheel_are_of_all_its_rows() -> None:
    (a, b), _ = separately("kept", "sum", "no keys", [[], []], [0, 0])
    assert a.merge(b)
    a.window(5)
    a.insert(3, {"v": 4})
    assert a.advance_to(5).to_pylist() == [{"window_start": 0, "window_end": 5, "a": 4}]


def test_a_part_that_changed_since_it_was_merged_is_refused() -> None:
    (a, b), _ = separately("kept", "sum", "no keys", [[], []], [0, 0])
    assert a.merge(b)
    b.insert(3, {"v": 1})
    with pytest.raises(UserError, match="nothing was merged before"):
        a.merge(b)


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", KEYS)
@given(
    rings=st.sampled_from(["dropped", "some kept"]), script=steps, more=steps,
    start=st.integers(-30, 30), pick=st.randoms(use_true_random=False),
)  # fmt: skip
@settings(max_examples=10)
def test_a_saved_wheel_opens_and_goes_on(
    rings: str, keys: str, script: list[Any], more: list[Any], start: int, pick: random.Random
) -> None:
    wheel, reference = pair(rings, "sum", keys, start, prefix=pick.random() < 0.5, write_ahead=4)
    play(wheel, reference, script)
    with tempfile.TemporaryDirectory() as path:
        wheel.save(path)
        again = open_wheel(path)
        assert again.stats() | {"bytes": 0} == wheel.stats() | {"bytes": 0}
        check_ranges(again, reference, pick)
        play(again, reference, more)
        check_ranges(again, reference, pick)


@pytest.mark.parametrize("null_at", range(4))
def test_keys_keep_their_places_wherever_null_comes(tmp_path: Path, null_at: int) -> None:
    wheel, reference = pair("kept", "sum", "one", 0)
    keys: list[int | None] = [7, 8, 9]
    keys.insert(null_at, None)
    for number, key in enumerate(keys):
        play(wheel, reference, [("insert", [(0, (key, "a", number, None))])])
    play(wheel, reference, [("advance", 3)])
    wheel.save(tmp_path)
    again = open_wheel(tmp_path)
    assert [again.query(0, 3, key=k) for k in keys] == [0, 1, 2, 3]
    again.insert(4, {"s": "a", "v": 5, "x": None}, 7)
    again.advance_to(5)
    assert again.query(0, 5, key=7) == keys.index(7) + 5


def test_a_file_that_is_not_as_it_was_written_is_named(tmp_path: Path) -> None:
    wheel, reference = pair("kept", "sum", "no keys", 0)
    play(wheel, reference, [("insert", [(1, (0, "a", 5, None))]), ("advance", 4)])
    wheel.save(tmp_path)
    wheel.insert(6, {"v": 7})
    wheel.advance_to(8)
    wheel.save(tmp_path)
    [file] = tmp_path.glob("cells-000002-*.arrow")
    good = file.read_bytes()
    for torn in (good[:-40], good[:-60] + b"x" + good[-59:]):
        file.write_bytes(torn)
        with pytest.raises(UserError, match=r"cells-000002-\w+.arrow.*open_wheel\(path, save=1\)"):
            open_wheel(tmp_path)
    assert open_wheel(tmp_path, save=1).landmark() == 5
    file.write_bytes(good)
    assert open_wheel(tmp_path).landmark() == 12


def test_a_crash_while_saving_leaves_the_last_save(tmp_path: Path, monkeypatch: Any) -> None:
    wheel, reference = pair("kept", "sum", "no keys", 0)
    play(wheel, reference, [("insert", [(1, (0, "a", 5, None))]), ("advance", 4)])
    wheel.save(tmp_path)
    wheel.insert(6, {"v": 7})
    wheel.advance_to(8)
    replace = os.replace
    for good in range(8):  # seven files, and the manifest, which counts

        def crashing(a: Any, b: Any, left: Any = iter(range(good))) -> None:  # noqa: B008
            if next(left, None) is None:
                raise KeyboardInterrupt
            replace(a, b)

        monkeypatch.setattr(os, "replace", crashing)
        with pytest.raises(KeyboardInterrupt):
            wheel.save(tmp_path)
        monkeypatch.undo()
        assert open_wheel(tmp_path).landmark() == 5


def test_other_aggregates_than_those_that_were_saved_are_refused(tmp_path: Path) -> None:
    pair("kept", "sum", "no keys", 0)[0].save(tmp_path)
    open_wheel(tmp_path, aggregates={"a": tm.sum(col.v)})
    with pytest.raises(UserError, match="as it was saved"):
        open_wheel(tmp_path, aggregates={"a": tm.max(col.v)})


def test_a_user_s_own_aggregate_is_given_again(tmp_path: Path) -> None:
    wheel, reference = pair("kept", "own", "no keys", 0)
    play(wheel, reference, [("insert", [(1, (0, "a", 5, None))]), ("advance", 4)])
    wheel.save(tmp_path)
    with pytest.raises(UserError, match="aggregates="):
        open_wheel(tmp_path)
    assert open_wheel(tmp_path, aggregates=AGGREGATES["own"]).landmark() == 25


# --- compression ----------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", ["no keys", "two"])
@given(
    rings=st.sampled_from(list(RINGS)), script=steps, more=steps, start=st.integers(-30, 30),
    pick=st.randoms(use_true_random=False), slots=st.integers(1, 5),
)  # fmt: skip
@settings(max_examples=30)
def test_compressed_rings(
    rings: str, keys: str, script: list[Any], more: list[Any], start: int, pick: random.Random, slots: int
) -> None:
    held = "sum" if keys == "no keys" else "mean and more"
    wheel, reference = pair(rings, held, keys, start, write_ahead=4, compress=slots)
    play(wheel, reference, script)
    with tempfile.TemporaryDirectory() as path:
        wheel.save(path)
        check_ranges(wheel, reference, pick)
        play(wheel, reference, more)
        wheel.save(path)  # only what is new
        check_ranges(wheel, reference, pick)
        again = open_wheel(path)
        assert again.stats() | {"bytes": 0} == wheel.stats() | {"bytes": 0}
        check_ranges(again, reference, pick)
        play(again, reference, script)
        check_ranges(again, reference, pick)


@given(
    scripts=st.lists(steps, min_size=2, max_size=2), pick=st.randoms(use_true_random=False),
    starts=st.lists(st.integers(-30, 30), min_size=2, max_size=2),
)  # fmt: skip
@settings(max_examples=10)
def test_compressed_wheels_are_merged(scripts: list[Any], starts: list[int], pick: random.Random) -> None:
    wheels, whole = separately("some kept", "mean and more", "two", scripts, starts, compress=2)
    assert wheels[0].merge(wheels[1])
    check_ranges(wheels[0], whole, pick)


def test_windows_of_a_compressed_wheel_whose_finest_ring_is_short() -> None:
    found = []
    for compress in (False, True):
        wheel, _ = pair("dropped", "sum", "no keys", 0, compress=compress)
        wheel.window(20, 10)
        closed = []
        for start in range(0, 600, 50):
            wheel.insert([{"t": start + t, "k": 0, "s": "a", "v": t, "x": None} for t in range(9)])
            closed += wheel.advance_to(start + 50).to_pylist()
        found.append(closed)
    assert found[0] == found[1] and len(found[0]) > 20


def test_a_compressed_wheel_without_rows_jumps_far() -> None:
    wheel, _ = pair("kept", "sum", "no keys", 0, compress=4)
    for far in (10_000, 200_000_000):
        wheel.advance_to(far)
    wheel.insert(200_000_003, {"v": 6})
    wheel.advance_to(200_010_000)
    assert wheel.landmark() == wheel.query(200_000_000, 200_000_005) == 6


def test_a_save_of_a_compressed_wheel_writes_only_what_is_new(tmp_path: Path) -> None:
    wheel, _ = pair("kept", "sum", "no keys", 0, compress=8)
    days = 40
    for day in range(days):
        ts = range(200 * day, 200 * (day + 1))
        wheel.insert([{"t": t, "k": 0, "s": "a", "v": t * t % 97, "x": None} for t in ts])
        wheel.advance_to(200 * (day + 1))
        before = {f.name for f in tmp_path.glob("cold*")}
        wheel.save(tmp_path)
        new = {f.name for f in tmp_path.glob("cold*")} - before
        assert len(new) == 1, "one piece for what is new, or one for all"
    assert len(list(tmp_path.glob("cold*"))) < days
    again = open_wheel(tmp_path)
    assert again.landmark() == wheel.landmark() and again.query(37, 6001) == wheel.query(37, 6001)


# --- errors ---------------------------------------------------------------------------------------


def test_rows_that_wait_count_as_a_change_since_a_merge() -> None:
    (a, b), _ = separately("kept", "sum", "no keys", [[], []], [0, 0])
    assert a.merge(b)
    b.insert(500, {"v": 1})  # far ahead
    with pytest.raises(UserError, match="nothing was merged before"):
        a.merge(b)


def test_after_an_overflow_a_wheel_only_answers(tmp_path: Path) -> None:
    wheel, reference = pair("kept", "sum", "no keys", 0)
    play(wheel, reference, [("insert", [(1, (0, "a", 5, None))]), ("advance", 4)])
    wheel.insert(6, {"v": 1 << 62})
    with pytest.raises(UserError, match="overflow"):
        wheel.insert(6, {"v": 1 << 62})
    for attempt in (
        lambda: wheel.insert(7, {"v": 1}), lambda: wheel.advance_to(8), lambda: wheel.save(tmp_path),
        lambda: wheel.merge(pair("kept", "sum", "no keys", 0)[0]),
    ):  # fmt: skip
        with pytest.raises(UserError, match="stopped by"):
            attempt()
    assert wheel.landmark() == 5


def test_a_roll_up_that_overflows_is_an_error_and_finer_slots_still_answer() -> None:
    wheel, _ = pair("kept", "sum", "no keys", 0)
    for t in (1, 2, 3):
        wheel.insert(t, {"v": 1 << 62})
    with pytest.raises(UserError, match="overflow"):
        wheel.advance_to(5)
    assert wheel.query(1, 2) == 1 << 62
