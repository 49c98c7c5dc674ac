"""Windows over other attributes than a column of ints: expressions, durations and floats, on every engine.

Over floats a row is in a window if and only if `window_start <= x < window_end`, for floats of the result.
"""

from __future__ import annotations

import math
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tests.conformance.cases import Row
from tests.conformance.harness import (
    arrivals,
    assert_same,
    by_reference,
    in_batches,
    locally,
    on_spark,
    split,
    table_of,
)  # fmt: skip
from tests.conformance.test_live import going_on
from tests.conformance.test_revisions import Consumer
from tests.examples import examples, later
from tidemill import col
from tidemill.core.batch import from_rows, to_rows
from tidemill.windows.semantics import bounds

STREAM = tm.stream(
    "s", time="t",
    schema={"t": "int64", "k": "int64", "u": "int64", "x": "float64", "d": "duration", "at": "timestamp"},
)  # fmt: skip

WINDOWS: dict[str, tm.Window] = {
    "expression": tm.hopping(6, every=2, on=col.t + col.u),
    "expression, sampled": tm.hopping(2, every=6, on=lambda e: e.u * 3 - e.t),
    "expression, sessions": tm.session(3, on=col.t * 2),
    "expression, each event": tm.per_event(5, on=col.u - col.t),
    "expression, instants": tm.tumbling("5s", on=col.at + col.d),
    "durations": tm.hopping("3s", every="1s", on="d", origin="500ms", start="-2s"),
    "durations, sessions": tm.session("2s", on="d"),
    "difference of instants": tm.tumbling("4s", on=col.at - (col.at - col.d)),
    "floats": tm.tumbling(0.1, on="x"),
    "floats, hopping": tm.hopping(0.75, every=0.3, origin=0.05, on="x"),
    "floats, sampled": tm.hopping(0.1, every=0.25, start=-0.4, on=col.x * 3),
    "floats, landmark": tm.landmark(0.5, start=-1.5, on="x"),
    "floats, filled": tm.tumbling(1.5, on="x", fill_empty=True),
    "floats, whole steps": tm.tumbling(2, on="x"),
    "floats of an expression": tm.hopping(0.5, every=0.25, on=lambda e: e.x / e.u),
}
FLOATS = [name for name in WINDOWS if name.startswith("floats")]
AGGREGATES = {"n": tm.count(), "total": tm.sum(col.u), "last": tm.last(col.t)}


def ask(window: str) -> Any:
    return STREAM.group_by("k").window(WINDOWS[window]).agg(**AGGREGATES)


EDGES = (0.1, 0.2, 0.3, 0.6, 0.7, -0.1, -0.3, 0.05, 0.35, 0.1 + 0.2, 1.1, -0.0, 1e300, 2.0**53, 5e-324)
NO_PLACE = (None, math.nan, math.inf, -math.inf)


def seeded(size: int, seed: int) -> list[Row]:
    pick = random.Random(seed)

    def x() -> float | None:
        edge = pick.choice(EDGES)
        near = [edge, math.nextafter(edge, math.inf), math.nextafter(edge, -math.inf), pick.uniform(-2, 2)]
        return pick.choice([*near, *near, pick.choice(NO_PLACE)])

    return [
        {
            "t": pick.randint(-20, 20), "k": pick.randint(0, 2), "u": pick.randint(-9, 9), "x": x(),
            "d": pick.randint(-9, 9) * 500_000, "at": pick.randint(-30, 30) * 700_000,
        }
        for _ in range(size)
    ]  # fmt: skip


TYPICAL = seeded(90, seed=4)


@pytest.mark.parametrize("window", WINDOWS)
def test_in_process(window: str) -> None:
    query, expected = ask(window), by_reference(ask(window), TYPICAL)
    assert_same(locally(query, TYPICAL), expected, query.schema)
    batches = split(TYPICAL, random.Random(window))
    assert_same(in_batches(query, batches, promises=True, speed="eager"), expected, query.schema)


@pytest.mark.parametrize("window", ["expression", "durations", "floats", "floats, hopping", "floats, filled"])
def test_live(window: str, tmp_path: Path) -> None:
    query = ask(window)
    _, got = going_on(query, TYPICAL, random.Random(window), tmp_path)
    assert_same(got, by_reference(query, TYPICAL), query.schema)


@pytest.mark.parametrize(
    "window",
    ["expression, instants", "floats, filled",
     *later("durations", "floats", "expression", "durations, sessions", "floats, hopping")],
)  # fmt: skip
def test_spark(spark: Any, window: str) -> None:
    query = ask(window)
    assert_same(on_spark(spark, query, TYPICAL), by_reference(query, TYPICAL), query.schema)


def test_rows_that_floats_leave_out_on_spark(spark: Any) -> None:
    query = ask("floats").left_out()
    assert_same(on_spark(spark, query, TYPICAL), by_reference(query, TYPICAL), query.schema)


@pytest.mark.parametrize("window", FLOATS)
def test_a_row_is_in_the_windows_whose_bounds_say_so(window: str) -> None:
    """The definition once more, by the floats of the result alone."""
    spec, query = WINDOWS[window], STREAM.window(WINDOWS[window]).agg(n=tm.count())
    x = [row["x"] for row in TYPICAL]
    if window in ("floats, sampled", "floats of an expression"):
        x = [_computed(window, row) for row in TYPICAL]
    found = {(r["window_start"], r["window_end"]): r["n"] for r in by_reference(query, TYPICAL)}
    start = getattr(spec, "start", None)
    first = -math.inf if start is None else float(start * spec.step)  # type: ignore[attr-defined]
    inside = [v for v in x if v is not None and first <= v < 1e12]
    assert found
    for (low, high), n in found.items():
        assert n == sum(low <= v < high for v in inside), (low, high)


def _computed(window: str, row: Row) -> float | None:
    x, u = row["x"], row["u"]
    if x is None or (window != "floats, sampled" and u == 0):
        return None
    return float(x * 3 if window == "floats, sampled" else x / u)


@pytest.mark.parametrize("window", FLOATS)
def test_no_row_is_lost(window: str) -> None:
    """Rows without a place are counted and can be read."""
    query = ask(window)
    table = from_rows(TYPICAL, STREAM.schema)
    left_out = to_rows(query.left_out().run(s=table).to_batches(), STREAM.schema)
    assert int(query.run(s=table).schema.metadata[b"tidemill.before_start"]) == len(left_out)
    assert_same(left_out, by_reference(query.left_out(), TYPICAL), STREAM.schema)
    if not window.startswith("floats of"):
        bad = [r for r in TYPICAL if r["x"] is None or not math.isfinite(r["x"]) or abs(r["x"]) > 1e16]
        assert all(any(r is b or _same(r, b) for r in left_out) for b in bad)


def _same(a: Row, b: Row) -> bool:
    return all(a[n] == b[n] or (a[n] != a[n] and b[n] != b[n]) for n in a)


@pytest.mark.parametrize("emit", [tm.Emit(early=4), tm.Emit(correct=60), tm.Emit(early=4, correct=60)])
@pytest.mark.parametrize("window", ["floats, hopping", "expression"])
def test_revisions(window: str, emit: tm.Emit) -> None:
    """Windows over a float have their bounds as the identity of their rows, too."""
    query, pick = ask(window), random.Random(5)
    live, consumer = query.live(tm.Disorder(slack=2), emit=emit), Consumer(query)
    for batch in split(arrivals(TYPICAL, "t", pick)["jittered"], pick):
        consumer.take(live.push(s=table_of(query, batch)))
    consumer.take(live.flush())
    assert_same(consumer.answer, by_reference(query, TYPICAL), query.schema)


# --- the grid of floats ---------------------------------------------------------------------------

LENGTHS = st.sampled_from([0.1, 0.3, 0.7, 0.25, 1.0, 1.1, 2.5, 0.001, 1e-6, 3, 1000.5, 12345.678])


@given(size=LENGTHS, number=st.integers(-10_000, 10_000), ulps=st.integers(-2, 2))
@examples(200)
def test_the_window_of_a_float_next_to_a_bound(size: float, number: int, ulps: int) -> None:
    edge = float(Fraction(repr(size)) * number)
    x = edge
    for _ in range(abs(ulps)):
        x = math.nextafter(x, math.copysign(math.inf, ulps))
    spec = tm.tumbling(size) if isinstance(size, float) else tm.tumbling(float(size))
    [w] = tm.windows([x], spec)
    (low,), (high,) = bounds([w], spec)
    assert low <= x < high
    assert w == (number if ulps >= 0 else number - 1) or size < 2 * abs(ulps) * math.ulp(edge)


@given(
    x=st.lists(st.none() | st.floats(-30, 30) | st.sampled_from(EDGES), max_size=12),
    size=LENGTHS, every=LENGTHS, origin=st.sampled_from([None, 0.05, -3, 0.5]),
)  # fmt: skip
@examples(25)
def test_wids_and_extent_are_inverse(x: list[Any], size: float, every: float, origin: Any) -> None:
    if max(size, every) / min(size, every) > 300 or every < 0.01:
        return
    spec = tm.hopping(float(size), every=float(every), origin=origin)
    T = pa.array(x, pa.float64())
    ids = tm.windows(T, spec)
    if len(ids) > 3000:
        return
    pairs = {(int(r), int(w)) for r, w in zip(*tm.wids(list(range(len(x))), T, spec))} if x else set()
    assert pairs == {(int(r), int(w)) for w in ids for r in tm.extent(w, T, spec)}


# --- what is refused ------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Any, str]] = {
    "a bool": (lambda: STREAM.window(tm.tumbling(5, on=col.t == 3)), "an int64, float64, timestamp or"),
    "no column": (lambda: tm.tumbling(5, on=tm.lit(3)), "on as a column name or an expression"),
    "an unknown column": (lambda: STREAM.window(tm.tumbling(5, on=col.nope + 1)), "a column of"),
    "floats on ints": (lambda: STREAM.window(tm.tumbling(0.5, on="u")), r"in logical time \(ints\)"),
    "durations on floats": (lambda: STREAM.window(tm.tumbling("1s", on="x")), r"real numbers \(numbers\)"),
    "sessions on floats": (lambda: STREAM.window(tm.session(2, on="x")), "windows on a grid"),
    "a length with too many digits": (lambda: tm.tumbling(1 / 3, on="x"), "nine digits after the point"),
    "a length of nothing": (lambda: tm.tumbling(0.0, on="x"), "size greater than zero"),
    "an infinite length": (lambda: tm.tumbling(math.inf, on="x"), "numbers only"),
    "floats and text": (lambda: tm.hopping(0.5, every="1s", on="x"), "numbers only, as one of them"),
    "an instant on durations": (
        lambda: STREAM.window(tm.tumbling("1s", on="d", origin="2026-01-01")),
        "origin and start as durations",
    ),
    "a duration on instants": (
        lambda: STREAM.window(tm.tumbling("1s", on="at", origin="5s")), "origin and start as instants",
    ),
    "a duration and an instant": (
        lambda: tm.tumbling("1s", origin="5s", start="2026-01-01"), "origin and start of one kind",
    ),
    "two attributes": (
        lambda: STREAM.window(a=tm.tumbling(4, on=col.t + 1), b=tm.tumbling(4, on=col.t + 2)),
        "windows over one attribute",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(what: str) -> None:
    make, message = REFUSED[what]
    with pytest.raises(tm.UserError, match=message):
        make().agg(n=tm.count())


def test_a_null_of_an_expression_is_an_error_that_names_it() -> None:
    query = STREAM.window(tm.tumbling(5, on=col.t // col.u)).agg(n=tm.count())
    rows = [{**TYPICAL[0], "u": 0}]
    with pytest.raises(tm.UserError, match=r"no null in the windowing attribute '\(col.t // col.u\)'"):
        locally(query, rows)
    with pytest.raises(tm.UserError, match=r"no null in the windowing attribute"):
        by_reference(query, rows)


def test_several_windows_over_one_float_share_a_grid() -> None:
    query = STREAM.group_by("k").window(
        short=tm.tumbling(0.25, on="x"), long=tm.hopping(0.9, every=0.3, origin=0.05, on="x"),
        all=tm.landmark(1, start=-2, on="x"),
    ).agg(**AGGREGATES)  # fmt: skip
    assert_same(locally(query, TYPICAL), by_reference(query, TYPICAL), query.schema)
    for label, spec in (("short", tm.tumbling(0.25, on="x")), ("all", tm.landmark(1, start=-2, on="x"))):
        one = STREAM.group_by("k").window(spec).agg(**AGGREGATES)
        mine = [r for r in locally(query, TYPICAL) if r["window"] == label]
        own = [{n: v for n, v in r.items() if n != "window"} for r in mine]
        assert_same(own, locally(one, TYPICAL), one.schema)
