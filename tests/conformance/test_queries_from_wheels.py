"""A windowed query gives the same from a wheel as from the rows that the wheel has seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tests.conformance.harness import Row, assert_same, by_reference, ran
from tests.conformance.wheels import AGGREGATES, SCHEMA, SLOW_SLOTS, tuned
from tests.examples import examples
from tidemill import col
from tidemill.core.errors import UserError

FEW_CELLS = {"batch_cells": 5, "call_cells": 2}
"""Windows in many small calls."""
EVENTS = tm.stream("events", time="t", schema=SCHEMA)
KEYS: dict[str, tuple[str, ...]] = {"no keys": (), "text": ("s",), "two": ("k", "s")}
# As few kinds of slots as there can be, and those of wheels.py where they do: each is compiled.
HELD: dict[str, dict[str, Any]] = {**AGGREGATES, "rows": {"a": tm.count()}}
ASKED: dict[str, dict[str, Any]] = {
    **{kind: {f"the_{n}": a for n, a in reversed(held.items())} for kind, held in HELD.items()},
    "mean and more": {"the_c": tm.var(col.x), "the_a": tm.mean(col.x), "the_b": tm.sum(col.x)},
    "sum": {"the_a": tm.sum(col.v)},
}
WINDOWS: dict[str, list[Any]] = {
    "side by side": [tm.tumbling(4)],
    "overlapping": [tm.hopping(12, every=4)],
    "with a remainder": [tm.hopping(10, every=4, origin=6)],
    "sampling": [tm.hopping(2, every=6)],
    "sampling, from an origin": [tm.hopping(4, every=10, origin=-2)],
    "as a slot": [tm.tumbling(2, origin=4)],
    "landmark": [tm.landmark(6, start=-4)],
    "several": [tm.tumbling(6), tm.hopping(8, every=2, origin=2), tm.landmark(24)],
}
values = st.tuples(
    st.integers(0, 2), st.sampled_from(["a", "b", None]), st.one_of(st.none(), st.integers(-5, 5)),
    st.one_of(st.none(), st.floats(-8, 8, width=16)),
)  # fmt: skip
scripts = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(-6, 20), values), max_size=6), st.sampled_from([0, 2, 5, 26])
    ),
    min_size=1, max_size=5,
)  # fmt: skip


def new_wheel(held: str, keys: str, start: int = 0, **options: Any) -> tm.Wheel:
    rings = {"granularities": [2, 4, 24], "retention": "keep", "write_ahead": 4, **options}
    return tm.Wheel(
        HELD[held], schema=SCHEMA, time="t", keys=KEYS[keys], start=start, **rings
    )


def play(wheel: tm.Wheel, script: list[Any]) -> list[Row]:
    """Rows, some of them late, and steps of time. The rows that count: in time, below the watermark."""
    kept = []
    for given_, step in script:
        now = wheel.watermark
        rows = [{"t": now + t, **dict(zip(("k", "s", "v", "x"), rest))} for t, rest in given_]
        kept += [row for row in rows if row["t"] >= now]
        wheel.insert(rows)
        wheel.advance_to(now + step)
    return [row for row in kept if row["t"] < wheel.watermark]


def asked(held: str, keys: str, windows: list[Any], stream: tm.Stream = EVENTS) -> tm.Stream:
    """The keys in another order than the wheel has them, the aggregates by other names."""
    return stream.group_by(*reversed(KEYS[keys])).window(*windows).agg(**ASKED[held])


def check(query: tm.Stream, wheel: Any, rows: list[Row], speed: str = "patient") -> list[Row]:
    got = ran(query, wheel, speed=speed)
    assert_same(got, by_reference(query, rows), query.schema)
    return got


# --- the same answer ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("held", "keys"),
    [("mean and more", "two"), ("rows", "text"),
     *(pytest.param(held, keys, marks=pytest.mark.soak) for held, keys in (
         ("mean and more", "no keys"), ("mean and more", "text"), ("sum", "two"), ("own", "no keys"),
         ("many", "no keys")))],
)  # fmt: skip
@given(script=scripts, windows=st.sampled_from(list(WINDOWS)), start=st.integers(-30, 30))
@examples(10)
def test_windows_are_those_of_the_rows(
    held: str, keys: str, script: list[Any], windows: str, start: int
) -> None:
    wheel = new_wheel(held, keys, start)
    check(asked(held, keys, WINDOWS[windows]), wheel, play(wheel, script))


@pytest.mark.parametrize("windows", WINDOWS)
def test_windows_in_many_calls(windows: str) -> None:
    wheel = tuned(new_wheel("sum", "two"), **FEW_CELLS)
    rows = play(wheel, [([(t, (t % 3, "ab"[t % 2], t, None)) for t in range(0, 90, 7)], 120)])
    assert check(asked("sum", "two", WINDOWS[windows]), wheel, rows)


@pytest.mark.soak
@given(script=scripts, windows=st.sampled_from(list(WINDOWS)))
@examples(10)
def test_with_prefixes(script: list[Any], windows: str) -> None:
    wheel = new_wheel("sum", "text", prefix=True)
    check(asked("sum", "text", WINDOWS[windows]), wheel, play(wheel, script))


def test_a_window_whose_rows_have_no_values_is_there_and_one_without_rows_is_not() -> None:
    wheel = new_wheel("sum", "text")
    rows = play(wheel, [([(0, (0, "a", None, None)), (9, (0, "a", 3, None))], 30)])
    got = check(asked("sum", "text", [tm.tumbling(4)]), wheel, rows)
    assert [(r["window_start"], r["the_a"]) for r in got] == [(0, None), (8, 3)]


def test_of_everything_less_what_is_outside_rows_are_still_known() -> None:
    """Where most of the time is asked for, values are subtracted from the total; marks are not."""
    wheel = tuned(new_wheel("rows", "text"), **SLOW_SLOTS)
    early, late = [(1, (0, "a", 7, None))], [(t, (0, "b", t, None)) for t in range(2, 96)]
    rows = play(wheel, [(early + late, 96)])
    assert wheel.explain(2, 94).plan == "inverse landmark"
    check(asked("rows", "text", [tm.hopping(92, every=94, origin=2)]), wheel, rows)


def test_rows_that_came_late_or_wait_do_not_count() -> None:
    wheel = new_wheel("sum", "text")
    for step, rows in ((7, [(3, 1), (9, 2)]), (0, [(2, 4)])):
        wheel.insert([{"t": t, "k": 0, "s": "a", "v": v, "x": None} for t, v in rows])
        wheel.advance_to(step)
    [row] = ran(asked("sum", "text", [tm.tumbling(4)]), wheel)
    assert row == {"s": "a", "window_start": 0, "window_end": 4, "the_a": 1}


# --- around the windows ---------------------------------------------------------------------------

SOME = [([(t, (t % 3, "abc"[t % 3], t, t / 4)) for t in range(0, 60, 3)], 60)]
BY_KEY = EVENTS.group_by("s").window(tm.hopping(12, every=4))
AROUND: dict[str, tm.Stream] = {
    "above": BY_KEY.agg(a=tm.sum(col.v)).where(col.a > 20).select(twice=col.a * 2),
    "keys above": BY_KEY.agg(a=tm.sum(col.v)).where(col.s != "b"),
    "keys below": asked("sum", "text", [tm.tumbling(4)], EVENTS.where(col.s.is_in(["a", "c"]))),
    "times below": asked(
        "sum", "text", [tm.hopping(12, every=4)],
        EVENTS.where((col.t >= 10) & (tm.lit(40) > col.t)).where(col.t > 5),
    ),
    "until an instant": asked("sum", "text", [tm.landmark(4)], EVENTS.where(col.t <= 21)),
    "other names": EVENTS.select(zone=col.s, w=col.v).group_by("zone").window(tm.tumbling(4)).agg(
        a=tm.sum(col.w)
    ),
    "windows of windows": BY_KEY.agg(a=tm.sum(col.v)).window(tm.tumbling(20)).agg(m=tm.max(col.a)),
}  # fmt: skip


@pytest.mark.parametrize("how", AROUND)
def test_what_stands_around_the_windows(how: str) -> None:
    wheel = tuned(new_wheel("sum", "text"), **FEW_CELLS)
    rows = play(wheel, SOME)
    assert check(AROUND[how], wheel, rows, "spilling")


def test_an_expression_is_found_however_it_is_written() -> None:
    wheel = tm.Wheel(
        tm.sum(col.v * (tm.lit(1) + 1)), schema=SCHEMA, time="t", start=0, granularities=[2]
    )
    query = EVENTS.with_columns(twice=col.v * 2).window(tm.tumbling(4)).agg(a=tm.sum(col.twice))
    assert "the wheel, no rows are read" in query.explain(events=wheel)


def test_wheels_that_were_saved_or_are_shared(tmp_path: Path) -> None:
    wheel = new_wheel("sum", "text")
    query = asked("sum", "text", [tm.hopping(12, every=4)])
    rows = play(wheel, SOME)
    wheel.save(tmp_path / "saved")
    check(query, tm.open_wheel(tmp_path / "saved"), rows)
    wheel.share(tmp_path / "shared")
    reader = tm.open_wheel(tmp_path / "shared")
    check(query, reader, rows)
    more = play(wheel, [([(1, (0, "new", 5, None))], 8)])
    assert "new" in reader.group_by(0, 68, 4)["s"].to_pylist()
    check(query, reader, rows + more)


def test_what_was_dropped_is_said_and_the_rest_can_be_asked_for() -> None:
    wheel = new_wheel("sum", "text", retention="drop")
    rows = play(wheel, SOME)
    with pytest.raises(UserError, match="a range that the rings still hold: 2 since 56"):
        ran(asked("sum", "text", [tm.tumbling(4)]), wheel)
    check(asked("sum", "text", [tm.tumbling(24)]), wheel, rows)
    check(asked("sum", "text", [tm.tumbling(4)], EVENTS.where(col.t >= 48)), wheel, rows)


# --- refused --------------------------------------------------------------------------------------

PLAIN, FOURS = EVENTS.group_by("s"), tm.tumbling(4)


def summed(window: tm.Window, *more: tm.Window, of: Any = PLAIN) -> tm.Stream:
    return of.window(window, *more).agg(a=tm.sum(col.v))


REFUSED: dict[str, tuple[tm.Stream, str]] = {
    "rows": (EVENTS.where(col.v > 1), "a wheel holds no rows, got where"),
    "a session": (summed(tm.session(4)), "expected tumbling, hopping or landmark"),
    "row numbers": (summed(tm.rows(4, every=2)), "hopping or landmark.* got window rows"),
    "filled up": (summed(tm.tumbling(4, fill_empty=True)), "not filled up"),
    "a range": (summed(tm.hopping(3, every=2)), "on the grid of 2, got window hopping"),
    "a slide": (summed(tm.hopping(4, every=1)), "on the grid of 2"),
    "an origin": (summed(tm.tumbling(4, origin=1)), "on the grid of 2"),
    "one of two": (summed(FOURS, tm.tumbling(3)), r"got window tumbling\(3"),
    "another time": (summed(tm.tumbling(4, on="v")), "windows over col.t, got .*col.v"),
    "no keys": (summed(FOURS, of=EVENTS), "the keys it has, col.s, got group_by none"),
    "other keys": (summed(FOURS, of=EVENTS.group_by("s", "k")), "got group_by col.s, col.k"),
    "a computed key": (summed(FOURS, of=EVENTS.group_by(s=col.s.upper())), "got group_by upper"),
    "another aggregate": (PLAIN.window(FOURS).agg(a=tm.max(col.v)), r"it has, .*, got a=max\(col.v"),
    "another argument": (PLAIN.window(FOURS).agg(a=tm.sum(col.k)), r"got a=sum\(col.k"),
    "a condition": (summed(FOURS, of=EVENTS.where(col.v > 1).group_by("s")), r"got where \(col.v > 1"),
    "a time off the grid": (
        summed(FOURS, of=EVENTS.where(col.t >= 3).group_by("s")), "bounds of 2, got where"
    ),
    "keys of a landmark": (
        summed(tm.landmark(4), of=EVENTS.where(col.s == "a").group_by("s")), "got where"
    ),
    "another type": (
        summed(FOURS, of=tm.stream("events", time="t", schema={**SCHEMA, "v": "float64"}).group_by("s")),
        "a column 'v' of int64, got float64",
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_what_a_wheel_cannot_answer_is_refused(why: str, capsys: Any) -> None:
    query, message = REFUSED[why]
    wheel = new_wheel("sum", "text")
    with pytest.raises(UserError, match=f"^run events, which is a wheel: .*{message}"):
        query.run(events=wheel)
    with pytest.raises(UserError):
        list(query.batches(events=wheel))
    text = query.explain(events=wheel)
    assert "== wheel ==\nnot from the wheel: run events, which is a wheel" in text
    assert "== spark ==" in text


# --- said before it runs --------------------------------------------------------------------------


def test_explain_says_what_comes_from_the_wheel(capsys: pytest.CaptureFixture[str]) -> None:
    wheel = new_wheel("sum", "text")
    wheel.advance_to(50)
    query = asked("sum", "text", [tm.hopping(12, every=4)], EVENTS.where((col.t >= 8) & (col.s != "b")))
    text = str(query.explain(events=wheel))
    assert capsys.readouterr().out == ""
    assert text[text.index("== optimised") :] == """
== optimised ==
where (col.s != 'b')
  wheel events: the_a=a by s over hopping(12, every=4) since=8

== wheel ==
windows hopping(12, every=4) from slots of the wheel, no rows are read:
  the_a: a=sum(col.v) of the wheel
  rings: 2 since 0, 4 since 0, 24 since 0
  watermark: 50, rows at or above it do not count yet

== local ==
wheel events: the_a=a by s over hopping(12, every=4) since=8
one generated loop:
  keep rows where (col.s != 'b')   [strings in Arrow]
""".strip()


def test_explain_of_rows_is_as_before() -> None:
    query = asked("sum", "text", [tm.tumbling(4)])
    assert query.explain(events=[]) == query.explain()
    with pytest.raises(UserError, match=r"explain: expected one input named 'events'.*explain\(events"):
        query.explain(other=[])
