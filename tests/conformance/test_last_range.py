"""Range and slide over two attributes: the last range of one, at each slide of another (paper 003, 3.2)."""

from __future__ import annotations

import random
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
from tidemill.core.time import BEGINNING

WINDOWS: dict[str, tm.Window] = {
    "by key": tm.hopping(6, every=3, on="u", slide_on="t"),
    "an origin": tm.hopping(6, every=5, on="u", slide_on="t", origin=-2),
    "sampled": tm.hopping(2, every=6, on="u", slide_on="t"),
    "whole stream": tm.hopping(5, every=4, on="u", slide_on="t", partition_by=[]),
    "another partition": tm.hopping(5, every=4, on="u", slide_on="t", partition_by="s"),
    "range over the time": tm.hopping(6, every=3, slide_on="u"),
    "expressions": tm.hopping(8, every=3, on=col.u * 2, slide_on=col.t + col.u),
}
AGGREGATES = {
    "n": tm.count(), "total": tm.sum(col.v), "some": tm.collect(col.n), "last": tm.last(col.n),
    "weighted": tm.ewma(col.x, half_life=4), "middle": tm.median(col.v),
}  # fmt: skip


def ask(window: str) -> Any:
    return STREAM.group_by("k").window(WINDOWS[window], window_id=True).agg(**AGGREGATES)


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


@pytest.mark.parametrize("window", ["by key", *later("whole stream", "expressions")])
def test_spark(spark: Any, window: str) -> None:
    query = ask(window)
    assert_same(on_spark(spark, query, TYPICAL), by_reference(query, TYPICAL), query.schema)


@pytest.mark.compiled
def test_compiled() -> None:
    stream = tm.stream("s", time="t", schema={"t": "int64", "k": "int64", "u": "int64"})
    query = stream.group_by("k").window(WINDOWS["by key"]).agg(n=tm.count(), most=tm.max(col.u))
    rows = [{"t": r["t"], "k": r["k"], "u": r["u"]} for r in TYPICAL]
    assert_same(locally(query, rows), by_reference(query, rows), query.schema)


def test_windows_come_when_the_watermark_passes_their_end() -> None:
    query = ask("by key")
    arrived = arrivals(TYPICAL, "t", random.Random(1))["jittered"]
    live, found, came = query.live(), [], []
    for at in range(0, len(arrived), 10):
        found.append(live.push(s=arrived[at : at + 10]))
        came += arrived[at : at + 10]
        below = min((row["t"] for row in arrived[at + 10 :]), default=21)
        found.append(live.punctuate(below))
        last = max(r["t"] for r in came)  # rows to come say whether windows go on
        complete = [r for r in by_reference(query, came) if r["window_end"] <= min(below, last + 3)]
        assert_same(rows_of(query, found), complete, query.schema)


def test_windows_come_when_the_input_promises_what_they_slide_over() -> None:
    query = ask("range over the time")
    arrived = sorted(TYPICAL, key=lambda r: r["u"])
    live = query.live()
    live.push(s=table_of(query, arrived[:40]))
    got = rows_of(query, [live.punctuate(arrived[40]["u"], on="u")])
    complete = [r for r in by_reference(query, arrived) if r["window_end"] <= arrived[40]["u"]]
    assert complete
    assert_same(got, complete, query.schema)
    live.push(s=table_of(query, arrived[40:]))
    assert live.stats().late == 0
    assert live.stats().inputs["s"].watermark == BEGINNING


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
    stream = tm.stream("s", time="t", schema={"t": "int64", "k": "int64", "u": "int64"})
    query = stream.group_by("k").window(tm.hopping(40, every=20, on="u", slide_on="t")).agg(n=tm.count())
    live, sizes, out = query.live(tm.Disorder(slack=3)), [], 0
    for at in range(30):
        numbers = np.arange(50 * at, 50 * at + 50)
        out += live.push(s=pa.table({"t": numbers, "k": numbers % 3, "u": numbers - numbers % 7})).num_rows
        sizes.append(live.stats().open_partials)
    assert out > 200 and max(sizes[15:]) <= max(sizes[:15]) < 150


def test_several_in_one_query() -> None:
    query = STREAM.group_by("k").window(
        short=tm.hopping(3, every=4, on="u", slide_on="t"), long=tm.hopping(9, every=6, on="u", slide_on="t")
    ).agg(**AGGREGATES)  # fmt: skip
    assert_same(locally(query, TYPICAL), by_reference(query, TYPICAL), query.schema)
    batches = split(arrivals(TYPICAL, "t", random.Random(2))["jittered"], random.Random(2))
    got = in_batches(query, batches, promises=True, speed="eager")
    assert_same(got, by_reference(query, TYPICAL), query.schema)


def test_on_clock_time() -> None:
    """Events by when they happened, at each minute of arrival; the third happened long before the second."""
    stream = tm.stream(
        "s", time="arrived", schema={"arrived": "timestamp", "happened": "timestamp", "v": "int64"}
    )
    window = tm.hopping("10m", every="1m", on="happened", slide_on="arrived")
    query = stream.window(window).agg(total=tm.sum(col.v))
    minutes = [(0, 0), (1, 20), (2, 5), (4, 12)]
    rows = [
        {"arrived": datetime(2026, 1, 1, 0, a), "happened": datetime(2026, 1, 1, 0, h), "v": 10**i}
        for i, (a, h) in enumerate(minutes)
    ]
    found = query.run(s=rows).to_pylist()
    shown = [(r["window_start"].minute, r["window_end"].minute, r["total"]) for r in found]
    assert shown == [(0, 1, 1), (1, 2, 10), (1, 3, 10), (1, 4, 10), (1, 5, 1010)]
    assert "copy rows to each of their windows" in str(query.explain())


# --- the definition -------------------------------------------------------------------------------

PAIRS = st.lists(
    st.tuples(st.integers(-12, 12), st.integers(-12, 12), st.integers(0, 2)), max_size=14
)


@given(rows=PAIRS, length=st.integers(1, 9), every=st.integers(1, 6), partitioned=st.booleans())
@examples(25)
def test_wids_and_extent_are_inverse(
    rows: list[tuple[int, int, int]], length: int, every: int, partitioned: bool
) -> None:
    names = ("x", "s", "k")
    T = {name: pa.array([row[i] for row in rows], pa.int64()) for i, name in enumerate(names)}
    spec = tm.hopping(
        length, every=every, on="x", slide_on="s", origin=-1, partition_by="k" if partitioned else []
    )
    ids = list(tm.windows(T, spec))
    pairs = {(row, w) for row in range(len(rows)) for w in tm.wids(row, T, spec).tolist()}
    assert pairs == {(int(row), w) for w in ids for row in tm.extent(w, T, spec)}
    for w in ids:  # from the rule itself: the last range of the rows that are there
        number, label = w if partitioned else (w, None)
        there = [r for r in rows if r[1] < -1 + (number + 1) * every and (label is None or r[2] == label)]
        most = max(x for x, _, _ in there)
        extent = sorted(rows[int(r)] for r in tm.extent(w, T, spec))
        assert extent == sorted(r for r in there if most - length < r[0] <= most)
    if rows and not partitioned:
        first, last = (f(s for _, s, _ in rows) for f in (min, max))
        assert ids == list(range((first + 1) // every, (last + 1) // every + 1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tm.hopping(5, every=3, on="u", slide_on="t", fill_empty=True), "neither start nor"),
        (lambda: tm.hopping(5, every=3, on="u", slide_on="t", start=3), "neither start nor fill_empty"),
        (lambda: tm.hopping(5, every=3, on="u", partition_by="k"), "partition_by with slide_on only"),
        (lambda: tm.hopping(5, every=3, on="u", slide_on=col.u), "another attribute than on="),
        (lambda: STREAM.window(tm.hopping(5, every=3, slide_on="t")), "another attribute than on="),
        (lambda: STREAM.window(tm.hopping("5s", every=3, on="u", slide_on="t")), "durations in logical time"),
        (lambda: STREAM.window(tm.hopping(5, every="3s", on="u", slide_on="t")), "durations in logical time"),
        (lambda: STREAM.window(tm.hopping(5, every=3, on="x", slide_on="t")), "ints, instants or durations"),
        (lambda: STREAM.window(tm.hopping(5, every=3, on="u", slide_on="s")), "an int64, float64, timestamp"),
        (
            lambda: STREAM.window(
                a=tm.hopping(5, every=3, on="u", slide_on="t"), b=tm.hopping(5, every=3, on="u")
            ),
            "windows over one attribute",
        ),
    ],
)
def test_what_is_refused(make: Any, message: str) -> None:
    with pytest.raises(tm.UserError, match=message):
        make().agg(n=tm.count())


@pytest.mark.parametrize("name", ["t", "u"])
def test_a_null_or_far_attribute_is_an_error(name: str) -> None:
    query = STREAM.window(WINDOWS["by key"]).agg(n=tm.count())
    for value, message in ((None, f"no null in the windowing column '{name}'"), (1 << 62, "2\\*\\*61 ticks")):
        rows = [{**TYPICAL[0], name: value}]
        for run in (locally, by_reference):
            with pytest.raises(tm.UserError, match=message):
                run(query, rows)
