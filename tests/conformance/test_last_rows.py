"""Range and slide over two attributes: the last rows, at each multiple of a duration (paper 003, 3.2)."""

from __future__ import annotations

import random
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tests.conformance.cases import ROWS, STREAM, TYPICAL, Row
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
from tests.conformance.test_live import going_on, late_rows, pushed, rows_of
from tests.conformance.test_revisions import Consumer
from tests.examples import examples, later
from tidemill import col
from tidemill.local.window_operator import WindowOperator

WINDOWS: dict[str, tm.Window] = {
    "by key": tm.rows(4, every=3, slide_on="t"),
    "whole stream": tm.rows(7, every=5, slide_on="t", partition_by=[]),
    "another partition": tm.rows(3, every=4, slide_on="t", partition_by="s"),
    "another attribute": tm.rows(4, every=3, slide_on="u"),
    "an expression": tm.rows(4, every=6, slide_on=col.t + col.u),
}
AGGREGATES = {"n": tm.count(), "total": tm.sum(col.v), "some": tm.collect(col.n), "last": tm.last(col.n)}


def ask(window: str) -> Any:
    return STREAM.group_by("k").window(WINDOWS[window]).agg(**AGGREGATES)


@pytest.mark.parametrize("window", WINDOWS)
@given(
    rows=ROWS, order=st.sampled_from(["sorted", "jittered", "shuffled"]), promises=st.booleans(),
    speed=st.sampled_from(["patient", "eager"]), pick=st.randoms(use_true_random=False),
)  # fmt: skip
@examples(4)
def test_any_rows_in_any_order(
    window: str, rows: list[Row], order: str, promises: bool, speed: str, pick: random.Random
) -> None:
    query = ask(window)
    batches = split(arrivals(rows, "t", pick)[order], pick)
    got = in_batches(query, batches, promises=promises, speed=speed)
    assert_same(got, by_reference(query, rows), query.schema)


@pytest.mark.parametrize("seed", [1, *later(*range(2, 20))])
@pytest.mark.parametrize("window", WINDOWS)
def test_live(window: str, seed: int, tmp_path: Path) -> None:
    query, pick = ask(window), random.Random(seed)
    arrived = pick.choice(list(arrivals(TYPICAL, "t", pick).values()))
    _, got = going_on(query, arrived, pick, tmp_path)
    assert_same(got, by_reference(query, TYPICAL), query.schema)


@pytest.mark.parametrize("window", ["by key", *later("whole stream", "an expression")])
def test_spark(spark: Any, window: str) -> None:
    query = ask(window)
    assert_same(on_spark(spark, query, TYPICAL), by_reference(query, TYPICAL), query.schema)


def test_windows_come_when_the_watermark_passes_their_end() -> None:
    query = ask("by key")
    arrived = arrivals(TYPICAL, "t", random.Random(1))["jittered"]
    live, found, came = query.live(), [], []
    for at in range(0, len(arrived), 10):
        found.append(live.push(s=arrived[at : at + 10]))
        came += arrived[at : at + 10]
        below = min((row["t"] for row in arrived[at + 10 :]), default=21)
        found.append(live.punctuate(below))
        complete = [r for r in by_reference(query, came) if r["window_end"] <= below]
        known = [r for r in came if r["t"] < below]
        last = max((r["t"] for r in known), default=-100)  # rows to come say whether windows go on
        assert_same(rows_of(query, found), [r for r in complete if r["window_end"] <= last + 3], query.schema)


@pytest.mark.parametrize("window", ["by key", "whole stream"])
def test_late_rows_are_in_no_window(window: str) -> None:
    query, pick = ask(window), random.Random(window)
    for _ in range(3):
        arrived = arrivals(TYPICAL, "t", pick)["shuffled"]
        live, got = pushed(query, arrived, tm.Disorder(slack=8), pick)
        late = [row["n"] for row in late_rows(live)]
        assert late and len(late) == live.stats().late
        assert_same(got, by_reference(query, [r for r in arrived if r["n"] not in late]), query.schema)


@pytest.mark.parametrize("emit", [tm.Emit(early=3), tm.Emit(correct=40), tm.Emit(early=3, correct=40)])
def test_revisions(emit: tm.Emit) -> None:
    """A late row moves the start of a window; its end says which one it is."""
    query, pick = ask("by key"), random.Random(8)
    slack = 4 if emit.correct is None else 1
    live, consumer = query.live(tm.Disorder(slack=slack), emit=emit), Consumer(query)
    for batch in split(arrivals(TYPICAL, "t", pick)["jittered"], pick):
        consumer.take(live.push(s=table_of(query, batch)))
    consumer.take(live.flush())
    assert_same(consumer.answer, by_reference(query, TYPICAL), query.schema)


def test_memory_does_not_grow_with_what_was_given() -> None:
    stream = tm.stream("s", time="t", schema={"t": "int64", "k": "int64"})
    query = stream.group_by("k").window(tm.rows(10, every=20, slide_on="t")).agg(n=tm.count())
    live, sizes, out = query.live(tm.Disorder(slack=3)), [], 0
    for at in range(30):
        numbers = np.arange(50 * at, 50 * at + 50)
        out += live.push(s=pa.table({"t": numbers, "k": numbers % 3})).num_rows
        sizes.append(live.stats().open_partials)
    assert out > 200 and max(sizes[15:]) <= max(sizes[:15]) < 100


@pytest.mark.compiled
@pytest.mark.parametrize(
    "window",
    [
        tm.rows(3, every=20, slide_on="t"),
        tm.rows(3, every=20, slide_on="t", partition_by=["k", "j"]),
        tm.per_event(30, partition_by=["k", "j"]),
        tm.session(gap=15, partition_by=["k", "j"]),
    ],
    ids=["by key", "by partition", "per event", "session"],
)
def test_no_step_is_taken_for_each_key_in_python(window: tm.Window) -> None:
    stream = tm.stream("s", time="t", schema={"t": "int64", "k": "int64", "j": "int64"})
    query = stream.group_by("k").window(window).agg(n=tm.count())

    def steps(keys: int) -> int:
        live = query.live()
        for start in (0, 20, 40):
            at = start + np.arange(2 * keys) * 20 // (2 * keys)
            live.push(s=pa.table({"t": at, "k": np.arange(2 * keys) % keys, "j": np.arange(2 * keys) % 2}))
            live.punctuate(start)
        counted = 0

        def count(frame: Any, event: str, arg: Any) -> None:
            nonlocal counted
            counted += 1

        before = sys.getprofile()
        sys.setprofile(count)
        try:
            closed = live.punctuate(100)
        finally:
            sys.setprofile(before)
        assert closed.num_rows >= keys
        return counted

    steps(40)  # compiles
    assert steps(400) < steps(40) + 300


def test_rows_that_wait_are_not_searched_at_each_push() -> None:
    """Between two ends of windows an advance only notes the watermark, however many rows wait."""
    query = STREAM.group_by("k").window(tm.rows(3, every=1000, slide_on="t")).agg(n=tm.count())
    live = query.live(tm.Disorder(slack=300))
    row = dict(TYPICAL[0])
    for t in range(1100):
        live.push(s={**row, "t": t})
    [step] = [s for s in live._emission.steps if isinstance(s.operator, WindowOperator)]
    operator = step.operator
    assert len(operator._waiting) < 15, "small batches are joined"
    waiting = [id(batch) for batch in operator._waiting[:1]]
    live.punctuate(900)
    assert [id(batch) for batch in operator._waiting[:1]] == waiting, "no window ends there"
    live.push(s={**row, "t": 850})
    assert live.late()["late_reason"].to_pylist() == ["late"]
    [closed] = live.punctuate(1000).to_pylist()
    assert (closed["window_end"], closed["n"]) == (1000, 3)
    assert sum(batch.num_rows for batch in operator._waiting) == 100


def test_several_in_one_query() -> None:
    query = STREAM.group_by("k").window(
        few=tm.rows(2, every=4, slide_on="t"), many=tm.rows(9, every=6, slide_on="t")
    ).agg(**AGGREGATES)  # fmt: skip
    assert_same(locally(query, TYPICAL), by_reference(query, TYPICAL), query.schema)
    batches = split(arrivals(TYPICAL, "t", random.Random(2))["jittered"], random.Random(2))
    got = in_batches(query, batches, promises=True, speed="eager")
    assert_same(got, by_reference(query, TYPICAL), query.schema)


def test_on_clock_time() -> None:
    stream = tm.stream("s", time="at", schema={"at": "timestamp", "v": "int64"})
    query = stream.window(tm.rows(2, every="1m")).agg(total=tm.sum(col.v))
    times = [datetime(2026, 1, 1, 0, *at) for at in ((0, 10), (0, 50), (1, 30), (4, 0))]
    found = query.run(s=[{"at": t, "v": 10**i} for i, t in enumerate(times)])
    minutes = [(r["window_start"].minute, r["window_end"].minute, r["total"]) for r in found.to_pylist()]
    assert minutes == [(0, 1, 11), (0, 2, 110), (0, 3, 110), (0, 4, 110), (1, 5, 1100)]


# --- the definition -------------------------------------------------------------------------------

TIMES = st.lists(st.tuples(st.integers(-12, 12), st.integers(0, 2)), max_size=14)


@given(rows=TIMES, count=st.integers(1, 4), every=st.integers(1, 6), partitioned=st.booleans())
@examples(25)
def test_wids_and_extent_are_inverse(
    rows: list[tuple[int, int]], count: int, every: int, partitioned: bool
) -> None:
    T = {"t": pa.array([t for t, _ in rows], pa.int64()), "k": pa.array([k for _, k in rows], pa.int64())}
    spec = tm.rows(count, every=every, slide_on="t", partition_by="k" if partitioned else [])
    ids = list(tm.windows(T, spec))
    pairs = {(row, w) for row in range(len(rows)) for w in tm.wids(row, T, spec).tolist()}
    assert pairs == {(int(row), w) for w in ids for row in tm.extent(w, T, spec)}
    for w in ids:  # from the rule itself: the last rows below the end of the window
        number, label = w if partitioned else (w, None)
        below = [(t, k) for t, k in rows if t < (number + 1) * every and (label is None or k == label)]
        assert sorted(rows[int(r)] for r in tm.extent(w, T, spec)) == sorted(below)[-count:]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tm.rows(5, every="1m", order_by="t"), "neither order_by nor fill_empty"),
        (lambda: tm.rows(5, every="1m", fill_empty=True), "neither order_by nor fill_empty"),
        (lambda: tm.rows(0, every="1m"), "range greater than zero"),
        (lambda: tm.rows(5, every="0s"), "every greater than zero"),
        (lambda: STREAM.window(tm.rows(5, every="1m")), "durations in logical time"),
        (lambda: STREAM.window(tm.rows(5, every=3, slide_on="s")), "an int64, float64, timestamp or"),
        (lambda: STREAM.window(tm.rows(5, every=3, slide_on="x")), "windows on a grid"),
        (
            lambda: STREAM.window(a=tm.rows(5, every=3, slide_on="t"), b=tm.tumbling(3, on="t")),
            "windows over one attribute",
        ),
    ],
)
def test_what_is_refused(make: Any, message: str) -> None:
    with pytest.raises(tm.UserError, match=message):
        make().agg(n=tm.count())


def test_a_null_or_far_attribute_is_an_error() -> None:
    query = ask("another attribute")
    for u, message in ((None, "no null in the windowing column 'u'"), (1 << 62, "within 2\\*\\*61 ticks")):
        rows = [{**TYPICAL[0], "u": u}]
        for run in (locally, by_reference):
            with pytest.raises(tm.UserError, match=message):
                run(query, rows)
