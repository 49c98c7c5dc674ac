"""Batches through the pipeline: windows come out as soon as they can, and nothing is kept longer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidemill as tm
from tests.conformance.harness import HASTE
from tests.examples import later
from tidemill import col
from tidemill.core.time import BEGINNING, FOREVER
from tidemill.io.chunks import SIZES, Chunk
from tidemill.local.graph import Graph
from tidemill.local.run import run as run_local
from tidemill.local.run_graph import run_graph
from tidemill.local.tuning import DEFAULT, Tuning
from tidemill.local.window_operator import WindowOperator
from tidemill.plan.nodes import WindowAggregate
from tidemill.reference.run import run as run_reference
from tidemill.windows.spec import Window

STREAM = tm.stream("s", time="t", schema={"t": "int64", "k": "int64", "x": "int64"})


def batch(*times: int, key: int = 0) -> pa.RecordBatch:
    return pa.record_batch({"t": times, "k": [key] * len(times), "x": [1] * len(times)})


def large(*times: int) -> pa.RecordBatch:
    """Each time so often that the source does not join this batch with others."""
    ts = np.repeat(times, SIZES.small)
    return pa.record_batch({"t": ts, "k": np.zeros_like(ts), "x": np.ones_like(ts)})


def operator(window: Window, tuning: Tuning = DEFAULT, **aggregates: Any) -> WindowOperator:
    query = STREAM.group_by("k").window(window).agg(**(aggregates or {"n": tm.sum(col.x)}))
    assert isinstance(query.optimized, WindowAggregate)
    return WindowOperator(query.optimized, tuning=tuning)


def ends(op: WindowOperator, below: int) -> list[int]:
    found = [b.column("window_end").to_pylist() for b in op.advance(0, below, prompt=True)]
    return sorted(end for part in found for end in part)


def test_a_window_closes_when_no_row_can_come_to_it() -> None:
    op = operator(tm.tumbling(10))
    op.push(0, batch(3, 12, 27))
    assert ends(op, 9) == []
    assert ends(op, 10) == [10]
    assert ends(op, 25) == [20]
    assert ends(op, FOREVER) == [30]


def test_hopping_windows_close_one_by_one() -> None:
    op = operator(tm.hopping(20, every=10))
    op.push(0, batch(3))
    assert ends(op, 15) == [10]
    op.push(0, batch(16))
    assert ends(op, 30) == [20, 30]
    assert ends(op, FOREVER) == []


def test_a_session_closes_when_the_gap_has_passed() -> None:
    op = operator(tm.session(5))
    op.push(0, batch(1, 3))
    assert ends(op, 7) == []
    assert ends(op, 8) == [8]
    op.push(0, batch(8))
    assert ends(op, FOREVER) == [13]


def test_row_windows_close_as_rows_come() -> None:
    op = operator(tm.rows(3, every=2))
    op.push(0, batch(9, 4))
    assert ends(op, BEGINNING + 1) == [2]
    op.push(0, batch(5, 5, 5))
    assert ends(op, BEGINNING + 1) == [4]
    assert ends(op, FOREVER) == [6]


OPEN = [
    tm.hopping(30, every=10), tm.per_event(20), tm.tumbling(10), tm.session(4), tm.rows(4, every=2),
    tm.hopping(5, every=20),
]  # fmt: skip


@pytest.mark.parametrize(
    ("window", "kept"),
    [
        *((window, "partials") for window in OPEN),
        *((window, kept) for kept in ("rows", "objects") for window in OPEN[:2]),
        *later(*((window, kept) for kept in ("rows", "objects") for window in OPEN[2:])),
    ],
    ids=str,
)
def test_memory_follows_open_windows_not_input(window: Window, kept: str) -> None:
    aggregates = {
        "partials": {"n": tm.sum(col.x)},
        "rows": {"n": tm.median(col.x)},
        "objects": {"n": tm.quantile(col.x, 0.5, method="kll")},
    }[kept]
    op = operator(window, replace(DEFAULT, few_unneeded=4), **aggregates)
    waiting = []
    for start in range(0, 4000, 10):
        op.push(0, batch(start, start + 9))
        list(op.advance(0, start + 10, prompt=True))
        waiting.append(op.store.spilled)
    assert max(waiting[200:]) <= max(waiting[:20])


def test_a_landmark_keeps_what_is_behind_it_as_one() -> None:
    op = operator(tm.landmark(10))
    for start in range(0, 2000, 10):
        op.push(0, batch(start, start + 9))
        list(op.advance(0, start + 10, prompt=True))
    assert op.store.spilled < 20


def test_results_stream_before_the_input_ends() -> None:
    query = STREAM.window(tm.tumbling(10)).agg(n=tm.count())
    graph, early = Graph(query.optimized, tuning=HASTE["eager"]), []
    for t in range(0, 400, 10):
        assert list(graph.push("s", batch(t, t + 9))) == []
        early += [b.num_rows for b in graph.advance("s", t + 10)]
    late = [b.num_rows for b in graph.advance("s", FOREVER)]
    assert sum(early) + sum(late) == 40
    assert sum(early) >= 24


@pytest.mark.parametrize("threads", [1, 2])
def test_a_watermark_is_computed_only_where_windows_should_close(threads: int) -> None:
    def chunks(panes: int) -> Iterator[Chunk]:
        for t in range(0, 10 * panes, 10):
            yield Chunk(batch(t, t + 9), lambda t=t: asked.append(t) or t + 10)

    for spec in (tm.tumbling(10), tm.hopping(30, every=10)):
        query = STREAM.group_by("k").window(spec).agg(n=tm.count())
        for panes, few in ((8, True), (200, False)):
            asked: list[int] = []
            graph = Graph(query.optimized, threads, watch=False, tuning=HASTE["eager"])
            found = pa.Table.from_batches(run_graph(graph, {"s": chunks(panes)}))
            assert found.num_rows == panes + (spec.length or 0) // 10 - 1
            assert (asked == []) == few


def test_a_batch_of_results_has_a_bounded_size() -> None:
    query = STREAM.group_by("k").window(tm.tumbling(1)).agg(n=tm.count())
    batches = list(run_local(query.optimized, {"s": batch(*range(10))}, tuning=HASTE["eager"]))
    assert [b.num_rows for b in batches] == [3, 3, 3, 1]


def test_nothing_in_gives_a_table_of_the_right_shape() -> None:
    query = STREAM.group_by("k").window(tm.tumbling(1)).agg(n=tm.count(), m=tm.mean(col.x))
    table = query.run(s=[])
    assert table.num_rows == 0 and table.schema == query.schema.to_arrow()


@pytest.mark.parametrize("inputs", [{}, {"other": []}, {"s": [], "other": []}])
def test_inputs_are_those_that_the_query_names(inputs: dict[str, Any]) -> None:
    with pytest.raises(tm.UserError, match="expected one input named 's'"):
        STREAM.run(**inputs)


ORDERED = tm.stream("s", time="t", schema={"t": "int64", "k": "int64", "x": "int64"}, ordered=True)


@pytest.mark.compiled
def test_an_ordered_stream_closes_windows_as_it_is_read() -> None:
    read = []

    def source() -> Any:
        for at in range(0, 400, 10):
            read.append(at)
            yield large(*range(at, at + 10))

    query = ORDERED.window(tm.tumbling(5)).agg(n=tm.count())
    found = run_local(query.optimized, {"s": source()}, tuning=HASTE["eager"])
    first = next(found)
    assert first.column("window_end").to_pylist()[0] == 5
    assert read[-1] < 200
    assert [row["n"] for row in query.run(s=source()).to_pylist()] == [5 * SIZES.small] * 80


@pytest.mark.parametrize("batches", [[(1, 3, 2)], [(1, 3), (2, 4)]], ids=["within", "between"])
def test_an_ordered_stream_that_goes_back_is_an_error(batches: list[tuple[int, ...]]) -> None:
    query = ORDERED.window(tm.tumbling(5)).agg(n=tm.count())
    rows = [{"t": t, "k": 0, "x": 0} for times in batches for t in times]
    for run in (
        lambda: query.run(s=[batch(*times) for times in batches]),
        lambda: query.run(s=[large(*times) for times in batches]),
        lambda: run_reference(query.plan, {"s": rows}),
    ):
        with pytest.raises(tm.UserError, match=r"'t'.*2 after 3"):
            run()
    plain = STREAM.window(tm.tumbling(5)).agg(n=tm.count())
    assert plain.run(s=[batch(*times) for times in batches]).num_rows == 1


def test_rows_before_the_start_are_counted_and_can_be_read() -> None:
    query = STREAM.window(tm.tumbling(10, start=20)).agg(n=tm.count())
    table = query.run(s=[batch(3, 12, 27)])
    assert table.num_rows == 1
    assert table.schema.metadata == {b"tidemill.before_start": b"2"}
    assert query.left_out().run(s=[batch(3, 12, 27)])["t"].to_pylist() == [3, 12]
    assert query.run(s=[batch(27)]).schema.metadata is None


@pytest.mark.parametrize("window", [tm.tumbling(1), tm.session(3), tm.per_event(30)], ids=str)
@pytest.mark.parametrize("time", [(1 << 62) + 5, (1 << 63) - 1, -(1 << 63) + 10])
def test_times_that_windows_cannot_be_counted_around(window: Window, time: int) -> None:
    query = STREAM.group_by("k").window(window).agg(n=tm.count())
    rows = [{"t": t, "k": 0, "x": 0} for t in (1, time)]
    with pytest.raises(tm.UserError, match=r"2\*\*61"):
        query.run(s=rows)
    with pytest.raises(tm.UserError, match=r"2\*\*61"):
        run_reference(query.plan, {"s": rows})


def test_partials_are_combined_while_no_window_closes() -> None:
    op = operator(tm.session(2), Tuning(many_partials=50))
    for at in range(40):
        op.push(0, batch(*[5 * (at % 3)] * 20, key=at % 4))
        op.push(0, batch(*[5 * (at % 3) + 100] * 20, key=at % 4))
        op.settle()
    assert op.store.spilled <= 50 + 24


def test_an_input_that_breaks_its_promise_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows were closed by what it said: without an error rows would be lost."""

    class Liar:
        total_rows, exact = 4, False

        def __iter__(self) -> Iterator[Chunk]:
            yield Chunk(batch(1, 2), 10)
            yield Chunk(batch(3, 12), FOREVER)

    monkeypatch.setattr("tidemill.local.run.open_source", lambda *given, **more: Liar())
    query = STREAM.window(tm.tumbling(5)).agg(n=tm.count())
    with pytest.raises(tm.UserError, match="1 rows below it"):
        query.run(s=[])
