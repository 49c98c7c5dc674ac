"""Partials by key and pane: planes and spills hold the same, and what is gone stays gone."""

from __future__ import annotations

import functools
import random
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

import tidemill as tm
from tests.conformance.harness import HASTE
from tidemill import col
from tidemill.core.time import FOREVER
from tidemill.local.graph import Graph
from tidemill.local.tuning import DEFAULT, Tuning
from tidemill.local.window_operator import WindowOperator
from tidemill.plan.nodes import WindowAggregate
from tidemill.windows.spec import GridWindow

STREAM = tm.stream("s", time="t", schema={"t": "int64", "k": "int64", "x": "int64"})
Pairs = list[tuple[int, int]]


def operator(tuning: Tuning = DEFAULT) -> WindowOperator:
    query = STREAM.group_by("k").window(tm.hopping(40, every=10)).agg(total=tm.sum(col.x))
    assert isinstance(query.optimized, WindowAggregate)
    return WindowOperator(query.optimized, tuning=tuning)


def push(op: WindowOperator, pairs: Pairs) -> None:
    times, keys = zip(*pairs)
    op.push(0, pa.record_batch({"t": times, "k": keys, "x": [1] * len(pairs)}))


def totals(op: WindowOperator) -> dict[tuple[int, int], int]:
    elements = op.store.elements()
    (keys,) = op.keys.decode(elements.kid)
    values = elements.records["s0_0"].tolist()
    return dict(zip(zip(keys.to_pylist(), elements.pane.tolist()), values))


def counted(pairs: Pairs) -> dict[tuple[int, int], int]:
    expected: dict[tuple[int, int], int] = {}
    for t, k in pairs:
        expected[k, t // 10] = expected.get((k, t // 10), 0) + 1
    return expected


@pytest.mark.parametrize("speed", ["patient", "spilling"])
@pytest.mark.parametrize("span", [30, 5000])
def test_partials_are_by_key_and_pane_whatever_the_order(speed: str, span: int) -> None:
    pick = random.Random(span)
    op, seen = operator(HASTE[speed]), Pairs()
    for _ in range(6):
        some = [(pick.randint(-span, span), pick.randint(0, 40)) for _ in range(200)]
        push(op, some)
        seen += some
        assert totals(op) == counted(seen)


def test_elements_come_in_order_of_key_and_pane_each_once() -> None:
    op = operator()
    push(op, [(55, 1), (5, 0), (15, 0), (5, 1), (5, 0)])
    elements = op.store.elements()
    pairs = list(zip(elements.kid.tolist(), elements.pane.tolist()))
    assert pairs == sorted(set(pairs)) and len(pairs) == 4


def test_a_pane_that_no_window_needs_is_forgotten() -> None:
    op = operator()
    push(op, [(5, 0), (15, 0), (95, 0)])
    assert [b.num_rows for b in op.advance(0, 60, prompt=True)] == [5]  # those that end at 10 … 50
    assert set(totals(op)) == {(0, 9)}


def test_a_pane_goes_on_after_windows_were_closed() -> None:
    op = operator()
    push(op, [(5, 0), (31, 0)])
    list(op.advance(0, 20, prompt=True))
    push(op, [(32, 0), (39, 1)])
    assert totals(op)[0, 3] == 2 and totals(op)[1, 3] == 1
    rest = pa.Table.from_batches(op.advance(0, FOREVER)).to_pylist()
    assert {(r["k"], r["window_end"]): r["total"] for r in rest} == {
        (0, 30): 1, (0, 40): 3, (0, 50): 2, (0, 60): 2, (0, 70): 2,
        (1, 40): 1, (1, 50): 1, (1, 60): 1, (1, 70): 1,
    }  # fmt: skip


@pytest.mark.parametrize("how", ["eager", "spilling"])
def test_strings_that_no_window_needs_are_forgotten(how: str) -> None:
    stream = tm.stream("s", time="t", schema={"t": "int64", "k": "int64", "x": "string"})
    query = stream.group_by("k").window(tm.hopping(4, every=2)).agg(
        low=tm.min(col.x), last=tm.last(col.x), most=tm.top_k(col.x, 2)
    )
    rows = [{"t": t, "k": t % 3, "x": f"{(t * 7919) % 1000:03d} at {t}"} for t in range(400)]
    op = WindowOperator(query.optimized, tuning=replace(HASTE[how], few_strings=8))
    found, held = [], []
    for t in range(0, 400, 20):
        batch = pa.RecordBatch.from_pylist(rows[t : t + 20])
        op.push(0, batch)
        found += op.advance(0, t + 20, prompt=True)
        held.append(op.store.texts.pool.count)
    found += op.advance(0, FOREVER)
    assert max(held) < 60
    got = pa.Table.from_batches(found).sort_by([("k", "ascending"), ("window_end", "ascending")])
    expected = query.run(s=rows).sort_by([("k", "ascending"), ("window_end", "ascending")])
    assert got.equals(expected)


def full_of_records(
    pane: int | None, shape: int | tuple[int, ...], dtype: Any = np.int64
) -> npt.NDArray[Any]:
    """Memory as another query may have left it: records that look valid, of one pane, or of their planes."""
    found = np.ones(shape, dtype)
    if found.dtype.names and found.ndim == 2:
        found["pane"] = np.arange(len(found))[:, None] if pane is None else pane
    return found


@pytest.mark.parametrize("last_pane", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("spec", [tm.tumbling(10), tm.hopping(40, every=10), tm.hopping(5, every=1)], ids=str)
def test_memory_that_was_used_before_is_not_read(
    spec: GridWindow, threads: int, last_pane: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pick = random.Random(7)
    times = sorted(pick.randint(0, 30) + 90 * pick.randint(0, 2) for _ in range(400))  # with gaps
    rows = pa.record_batch({"t": times, "k": [pick.randint(0, 40) for _ in times], "x": times})
    query = STREAM.group_by("k").window(spec).agg(n=tm.count(), most=tm.max(col.x))
    expected = query.run(s=rows).sort_by([("k", "ascending"), ("window_end", "ascending")])
    pane = max(times) // spec.slide if last_pane else None
    monkeypatch.setattr("tidemill.local.pane_store.empty", functools.partial(full_of_records, pane))
    late = pa.record_batch({"t": [-500], "k": [1], "x": [0]})
    for tuning in (DEFAULT, replace(DEFAULT, dense_rows=0), *HASTE.values()):
        graph, found = Graph(query.optimized, threads, tuning), []
        for at in range(0, 400, 40):
            some = rows.slice(at, 40)
            if at == 280:  # far below the panes that are open: in no window any more
                found += graph.advance("s", times[at], prompt=True)
                some = pa.Table.from_batches([late, some]).combine_chunks().to_batches()[0]
            list(graph.push("s", some))
            found += graph.advance("s", times[at], prompt=at % 80 == 0)
        found += graph.advance("s", FOREVER)
        graph.close()
        assert sum(map(len, graph.late().values())) == 1
        got = pa.Table.from_batches(found).sort_by([("k", "ascending"), ("window_end", "ascending")])
        assert got.equals(expected)


def test_panes_between_a_late_row_and_the_others_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.local.pane_store.empty", functools.partial(full_of_records, 103))
    query = STREAM.group_by("k").window(tm.tumbling(10)).agg(n=tm.count())
    graph, found = Graph(query.optimized, 2), []
    for below, times in ((1010, [1000, 1001]), (1030, [1020]), (1030, [900, 1031]), (FOREVER, [900, 1032])):
        list(graph.push("s", pa.record_batch({"t": times, "k": [1] * len(times), "x": times})))
        found += graph.advance("s", below, prompt=below != 1030)
    graph.close()
    assert pa.Table.from_batches(found).to_pydict()["n"] == [2, 1, 2]


def test_positions_grow_wider_with_the_list_of_records() -> None:
    op = operator(Tuning(plane_bytes=0, small_planes=0))
    op.store._newest = op.store._newest.astype(np.int8)  # full at 128 records, as int32 at two billion
    pairs = [(t, key) for t in (5, 15, 5) for key in range(100)]
    for at in range(0, len(pairs), 50):
        push(op, pairs[at : at + 50])
    assert op.store._newest.dtype == np.int64
    assert totals(op) == counted(pairs)


def test_planes_take_memory_when_their_panes_come() -> None:
    op = operator()
    push(op, [(5, key) for key in range(1000)])
    assert op.store._started.sum() == 1 < len(op.store._started)
    push(op, [(35, 1)])
    assert op.store._started.sum() == 4, "and those in between, which windows read"


@pytest.mark.parametrize("room", [0, 20_000, 40_000, 80_000, 1 << 28])
def test_keys_may_outgrow_the_planes(room: int) -> None:
    query = STREAM.group_by("k").window(tm.hopping(60, every=10)).agg(n=tm.sum(col.x))
    assert isinstance(query.optimized, WindowAggregate)
    tuning, pick = Tuning(plane_bytes=room, small_planes=0), random.Random(4)
    op = WindowOperator(query.optimized, tuning=tuning)
    expected: dict[tuple[int, int], int] = {}
    found, planes = [], set()
    for at in range(60):
        pairs = [(3 * at + pick.randint(0, 9), pick.randint(0, 4 * at)) for _ in range(30)]
        for time, key in pairs:
            for end in range(time // 10 * 10 + 10, time // 10 * 10 + 70, 10):
                expected[key, end] = expected.get((key, end), 0) + 1
        push(op, pairs)
        found += op.advance(0, 3 * at, prompt=at % 7 == 0)
        planes.add(len(op.store._planes) if op.store._by_plane else 0)
    found += op.advance(0, FOREVER)
    rows = [row for batch in found for row in batch.to_pylist()]
    assert {(r["k"], r["window_end"]): r["n"] for r in rows} == expected
    assert len(rows) == len(expected)
    assert (len(planes) > 1) == (0 < room < 1 << 28)
