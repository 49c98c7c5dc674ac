"""Operators: state that can be saved, rows that come late, keys that are promised apart or forgotten."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tests.conformance.cases import FAMILIES, ROWS, STREAM, VARIANTS, WHOLE, WINDOWS, ask, seeded
from tests.conformance.harness import HASTE, Row, arrivals, assert_same, by_reference, split
from tests.examples import examples
from tidemill import col
from tidemill.core.batch import conform, from_rows, to_rows
from tidemill.core.time import BEGINNING, FOREVER
from tidemill.io.chunks import Chunk
from tidemill.local.graph import Graph
from tidemill.local.snapshot import from_bytes, nbytes, to_bytes
from tidemill.local.tuning import Tuning
from tidemill.local.window_operator import WindowOperator
from tidemill.plan.nodes import Source, WindowAggregate

TYPICAL = seeded(60, seed=11)


def chunks_of(query: Any, batches: list[list[Row]]) -> list[Chunk]:
    """Batches, each with the truth about the rows that follow."""
    source = query.optimized
    while not isinstance(source, Source):
        [source] = source.children()
    found, below = [], BEGINNING
    for at, rows in enumerate(batches):
        rest = [row["t"] for later in batches[at + 1 :] for row in later]
        below = min(rest, default=below)
        [batch] = from_rows(rows, source.declared).combine_chunks().to_batches() or [None]
        if batch is not None:
            found.append(Chunk(conform(batch, source.schema, step="test"), below))
    return found


def resumed(query: Any, batches: list[list[Row]], speed: str, pick: random.Random) -> list[Row]:
    """The answer where, after every batch, a fresh graph goes on from the bytes of a snapshot."""
    graph, out = Graph(query.optimized, pick.choice((1, 2, 4)), HASTE[speed]), []
    for chunk in chunks_of(query, batches):
        out += graph.push("s", chunk.batch)
        out += graph.advance("s", chunk.complete_below, prompt=pick.random() < 0.5)
        data = to_bytes(graph.snapshot())
        if pick.random() < 0.3:  # the one that was saved can go on, too
            continue
        graph.close()
        graph = Graph(query.optimized, pick.choice((1, 2, 4)), HASTE[speed])
        graph.restore(from_bytes(data))
    out += graph.advance("s", FOREVER)
    graph.close()
    return to_rows(out, query.schema)


CASES = [(w, "one of each") for w in WINDOWS] + [
    (w, f) for w in WHOLE for f in FAMILIES if f not in ("one of each", "few")
]
LATER = [case for case in CASES if case[0] in VARIANTS or (case[0] in WHOLE[:2] and case[1] != "one of each")]
"""Others have the same state, of the same windows or of the same aggregates: these are for the soak."""


@pytest.mark.parametrize(
    ("window", "family"),
    [pytest.param(*case, marks=pytest.mark.soak if case in LATER else ()) for case in CASES],
)
def test_a_snapshot_after_any_batch_goes_on_to_the_same_answer(window: str, family: str) -> None:
    query, pick = ask(WINDOWS[window], family), random.Random(f"{window} {family}")
    expected = by_reference(query, TYPICAL)
    for order, arrived in arrivals(TYPICAL, "t", pick).items():
        speed = pick.choice(list(HASTE))
        got = resumed(query, split(arrived, pick), speed, pick)
        assert_same(got, expected, query.schema, f"{order}, {speed}")


@pytest.mark.parametrize("window", ["hopping, filled", "rows, partitioned", "per_event", "session"])
@given(rows=ROWS, speed=st.sampled_from(list(HASTE)), pick=st.randoms(use_true_random=False))
@examples(8)
def test_any_rows_can_be_resumed(window: str, rows: list[Row], speed: str, pick: random.Random) -> None:
    query = ask(WINDOWS[window], "few")
    got = resumed(query, split(rows, pick), speed, pick)
    assert_same(got, by_reference(query, rows), query.schema)


NESTED = (
    STREAM.where(col.v > 0).group_by("k").window(tm.tumbling(4)).agg(n=tm.count())
    .group_by("k").window(tm.hopping(12, every=4)).agg(most=tm.max(col.n), n=tm.count())
    .where(col.n > 1)
)  # fmt: skip


def test_a_graph_of_several_operators_is_saved_as_one() -> None:
    pick = random.Random(4)
    for order, arrived in arrivals(TYPICAL, "t", pick).items():
        got = resumed(NESTED, split(arrived, pick), "eager", pick)
        assert_same(got, by_reference(NESTED, TYPICAL), NESTED.schema, order)


CHILD = """
import sys
from pathlib import Path
import pyarrow as pa
from tests import interpreter
from tests.conformance.cases import WINDOWS, ask
from tidemill.core.time import FOREVER
from tidemill.local.graph import Graph
from tidemill.local.snapshot import from_bytes

interpreter.in_child()
for window in sys.argv[2:]:
    folder = Path(sys.argv[1]) / window
    query = ask(WINDOWS[window], "few")
    graph = Graph(query.optimized, 2)
    graph.restore(from_bytes((folder / "snapshot").read_bytes()))
    out = []
    for batch in pa.ipc.open_stream(folder / "rest"):
        out += graph.push("s", batch)
    out += graph.advance("s", FOREVER)
    graph.close()
    with pa.ipc.new_stream(folder / "out", query.schema.to_arrow()) as writer:
        for batch in out:
            writer.write_batch(batch)
"""


def test_another_process_goes_on(tmp_path: Path) -> None:
    pick, before = random.Random(8), {}
    for window in WINDOWS:
        query, folder = ask(WINDOWS[window], "few"), tmp_path / window
        folder.mkdir()
        chunks = chunks_of(query, split(sorted(TYPICAL, key=lambda r: r["t"]), pick))
        graph, before[window] = Graph(query.optimized), []
        half = len(chunks) // 2
        for chunk in chunks[:half]:
            before[window] += graph.push("s", chunk.batch)
            before[window] += graph.advance("s", chunk.complete_below, prompt=True)
        (folder / "snapshot").write_bytes(to_bytes(graph.snapshot()))
        with pa.ipc.new_stream(folder / "rest", chunks[0].batch.schema) as writer:
            for chunk in chunks[half:]:
                writer.write_batch(chunk.batch)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", CHILD, str(tmp_path), *WINDOWS]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for window in WINDOWS:
        query = ask(WINDOWS[window], "few")
        after = list(pa.ipc.open_stream(tmp_path / window / "out"))
        got = to_rows([*before[window], *after], query.schema)
        assert_same(got, by_reference(query, TYPICAL), query.schema, window)


# --- what is gone -----------------------------------------------------------------------------------

KEYED = tm.stream("s", time="t", schema={"t": "int64", "a": "int64", "b": "string", "x": "int64"})
FORGETFUL = {
    "tumbling by int": KEYED.group_by("a").window(tm.tumbling(10)),
    "hopping by text": KEYED.group_by("b").window(tm.hopping(20, every=5)),
    "session by both": KEYED.group_by("a", "b").window(tm.session(3)),
    "per_event by both": KEYED.group_by("b", "a").window(tm.per_event(7)),
}


SHORT = (("hopping by text", False, 1), ("per_event by both", True, 2))
"""With planes and without, in one thread and in two. Other combinations are for the soak."""


@pytest.mark.compiled  # on thousands of rows
@pytest.mark.parametrize(
    ("name", "planes", "threads"),
    [
        pytest.param(*case, marks=() if case in SHORT else pytest.mark.soak)
        for case in product(FORGETFUL, (True, False), (1, 2))
    ],
)
def test_keys_whose_state_is_gone_are_forgotten(name: str, planes: bool, threads: int) -> None:
    query = FORGETFUL[name].agg(n=tm.count(), x=tm.sum(col.x), q=tm.median(col.x))
    tuning = replace(Tuning(few_partials=0, few_keys=16), **({} if planes else {"plane_bytes": 0}))
    graph, out, known, sizes = Graph(query.optimized, threads, tuning), [], [], []
    operator = graph.steps[0].operator
    assert isinstance(operator, WindowOperator)
    rows = [
        {"t": t, "a": None if i == 3 else t // 5 * 10 + i, "b": None if i == 4 else f"{t // 7}-{i}", "x": i}
        for t in range(300) for i in range(6)
    ]  # fmt: skip
    for at in range(0, len(rows), 60):
        out += graph.push("s", pa.RecordBatch.from_pylist(rows[at : at + 60], KEYED.schema.to_arrow()))
        out += graph.advance("s", rows[at + 59]["t"], prompt=True)
        known.append(operator.keys.count)
        if at % 300 == 0:
            sizes.append(nbytes(graph.snapshot()))
    out += graph.advance("s", FOREVER)
    graph.close()
    got = to_rows(out, query.schema)
    assert_same(got, by_reference(query, rows), query.schema)
    assert max(known) < 400 < len({(r["a"], r["b"]) for r in rows})
    assert max(sizes[1:]) < 1.5 * min(sizes[1:])


# --- what is late -----------------------------------------------------------------------------------


def advanced(operator: WindowOperator, below: int) -> list[Row]:
    return [r for b in operator.advance(0, below, prompt=True) for r in b.to_pylist()]


def small(window: Any, **more: Any) -> WindowOperator:
    query = KEYED.group_by("a").window(window).agg(n=tm.count(), x=tm.sum(col.x))
    return WindowOperator(query.optimized, **more)


def rows_at(*times: int, key: int = 1) -> pa.RecordBatch:
    rows = [{"t": t, "a": key, "x": t} for t in times]
    return pa.RecordBatch.from_pylist(rows, pa.schema([("t", "int64"), ("a", "int64"), ("x", "int64")]))


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("prompt", [True, False])
def test_late_rows_are_kept_and_count_in_windows_that_are_not_complete(lanes: int, prompt: bool) -> None:
    operator = small(tm.hopping(10, every=5), lanes=lanes)
    operator.push(0, rows_at(3, 8, 12))
    got = [r for b in operator.advance(0, 10, prompt=prompt) for r in b.to_pylist()]
    operator.push(0, rows_at(2, 7, 13))  # 2 and 7 are late: of [0, 10) nothing changes
    got += advanced(operator, FOREVER)
    operator.close()
    assert sorted((r["window_end"], r["n"]) for r in got) == [(5, 1), (10, 2), (15, 4), (20, 2)]
    assert operator.late().to_pydict() == {"t": [2, 7], "a": [1, 1], "x": [2, 7]}


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (tm.session(3), [(3, 6, 1), (8, 13, 2)]),  # no late row is in a session
        (tm.per_event(5), [(-2, 3, 1), (3, 8, 1), (5, 10, 3)]),  # no window ends at a late row
    ],
    ids=str,
)
def test_late_rows_of_windows_that_follow_them(window: Any, expected: list[tuple[int, int, int]]) -> None:
    operator = small(window)
    operator.push(0, rows_at(3, 8, 10))
    got = advanced(operator, 10)
    operator.push(0, rows_at(4, 9))
    got += advanced(operator, FOREVER)
    assert [(r["window_start"], r["window_end"], r["n"]) for r in got] == expected
    assert operator.late()["t"].to_pylist() == [4, 9]


def test_a_late_row_that_a_filter_drops_is_not_late() -> None:
    query = KEYED.where(col.x > 5).window(tm.tumbling(5)).agg(n=tm.count())
    operator = WindowOperator(query.optimized)
    list(operator.advance(0, 20))
    operator.push(0, rows_at(3, 7, 30).select(["t", "x"]))
    assert operator.late()["t"].to_pylist() == [7]


def test_late_rows_are_in_the_snapshot() -> None:
    operator = small(tm.tumbling(5))
    list(operator.advance(0, 20))
    operator.push(0, rows_at(3, 30))
    other = small(tm.tumbling(5))
    other.restore(from_bytes(to_bytes(operator.snapshot())))
    assert other.late()["t"].to_pylist() == [3]
    other.push(0, rows_at(4))
    assert other.late()["t"].to_pylist() == [3, 4]


# --- keys that are promised apart -------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize(
    "window", [tm.tumbling(5), tm.hopping(10, every=5), tm.per_event(6), tm.session(3)], ids=str
)
def test_a_key_can_be_promised_apart(window: Any, lanes: int) -> None:
    operator, pick = small(window, lanes=lanes), random.Random(3)
    rows = [{"t": t, "a": pick.randint(0, 3), "x": t} for t in range(60)]
    got: list[Row] = []
    ahead = 0
    for at in range(0, 60, 6):
        key = pick.randint(0, 3)
        # One key comes before its time, and is complete that far.
        now = [r for r in rows if at <= r["t"] < at + 6 and not (r["a"] == 1 and r["t"] < ahead)]
        if key == 1:
            now += [r for r in rows if r["a"] == 1 and max(ahead, at + 6) <= r["t"] < at + 18]
            ahead = max(ahead, at + 18)
        if now:
            batch = pa.RecordBatch.from_pylist(now, pa.schema([(n, "int64") for n in ("t", "a", "x")]))
            operator.push(0, batch)
        if key == 1:
            closed = operator.advance_keys(0, {"a": pa.array([1])}, ahead, prompt=True)
            got += [r for b in closed for r in b.to_pylist()]
            assert operator.promise.common <= at + 6
        got += advanced(operator, at + 6)
        if pick.random() < 0.3:
            other = small(window, lanes=pick.choice((1, 2)))
            other.restore(from_bytes(to_bytes(operator.snapshot())))
            operator.close()
            operator = other
    got += advanced(operator, FOREVER)
    operator.close()
    assert operator.late().num_rows == 0
    query = KEYED.group_by("a").window(window).agg(n=tm.count(), x=tm.sum(col.x))
    full = [{**r, "b": None} for r in rows]
    assert_same(got, by_reference(query, full), query.schema)


def test_windows_of_a_promised_key_close_before_those_of_others() -> None:
    operator = small(tm.tumbling(5))
    operator.push(0, rows_at(1, 2, key=7))
    operator.push(0, rows_at(1, 3, 4, key=8))
    [row] = [r for b in operator.advance_keys(0, {"a": pa.array([7])}, 5, prompt=True) for r in b.to_pylist()]
    assert (row["a"], row["n"]) == (7, 2)
    operator.push(0, rows_at(2, key=7))
    operator.push(0, rows_at(2, key=8))
    operator.push(0, rows_at(2, key=9))  # a key that came after the promise, and is not in it
    assert {(r["a"], r["n"]) for r in advanced(operator, FOREVER)} == {(8, 4), (9, 1)}
    assert operator.late().to_pydict() == {"t": [2], "a": [7], "x": [2]}


# --- what is refused --------------------------------------------------------------------------------


def test_a_snapshot_of_another_query_is_refused() -> None:
    graph = Graph(NESTED.optimized)
    other = Graph(ask(WINDOWS["hopping"], "few").optimized)
    with pytest.raises(tm.UserError, match="a snapshot of"):
        other.restore(graph.snapshot())
    with pytest.raises(tm.UserError, match="a snapshot of"):
        small(tm.tumbling(5)).restore(small(tm.tumbling(6)).snapshot())


def test_damaged_snapshots_are_refused() -> None:
    operator = small(tm.tumbling(5))
    operator.push(0, rows_at(1, 2, 3))
    state = operator.snapshot()
    data = to_bytes(state).to_pybytes()
    for cut in (0, 7, len(data) // 2, len(data) - 9):
        with pytest.raises(tm.UserError, match="restore"):
            from_bytes(data[:cut])
    elements = state["elements"]
    for name, column in (
        ("kid", pa.array([5])), ("kid", pa.array([-1])), ("kid", pa.array([None], pa.int64())),
        ("pane", pa.array(["0"])), (elements.column_names[-1], pa.array(["0"])),
    ):  # fmt: skip
        at = elements.column_names.index(name)
        bad = {**state, "elements": elements.slice(0, 1).set_column(at, name, column)}
        with pytest.raises(tm.UserError, match="restore"):
            small(tm.tumbling(5)).restore(bad)


def test_a_promise_for_all_keys_counts_where_each_key_is_further_already() -> None:
    """Nothing closes, but keys that come later are complete, too."""
    stream = tm.stream("s", time="t", schema={"t": "int64", "k": "int64"})
    plan = stream.group_by("k").window(tm.tumbling(10)).agg(n=tm.count()).optimized
    assert isinstance(plan, WindowAggregate)
    operator = WindowOperator(plan)
    operator.push(0, pa.record_batch({"t": [5], "k": [1]}))
    assert list(operator.advance_keys(0, {"k": pa.array([1])}, 100, prompt=True))
    assert list(operator.advance(0, 50, prompt=True)) == []
    assert operator.promise.common == 50


@pytest.mark.parametrize("end", [4, -(1 << 63)])
def test_a_session_of_a_snapshot_that_ends_before_it_starts_is_refused(end: int) -> None:
    stream = tm.stream("s", time="t", schema={"t": "int64", "k": "int64"})
    plan = stream.group_by("k").window(tm.session(10)).agg(n=tm.count()).optimized
    assert isinstance(plan, WindowAggregate)
    operator = WindowOperator(plan)
    operator.push(0, pa.record_batch({"t": [5, 6], "k": [1, 1]}))
    state = operator.snapshot()
    WindowOperator(plan).restore(state)
    at = state["elements"].column_names.index("end")
    state["elements"] = state["elements"].set_column(at, "end", pa.array([end]))
    with pytest.raises(tm.UserError, match="sessions that end after they start"):
        WindowOperator(plan).restore(state)


@pytest.mark.parametrize("tuning", [Tuning(), Tuning(plane_bytes=0, few_partials=0)], ids=["planes", "list"])
def test_a_late_row_of_complete_windows_only_fills_no_windows(tuning: Tuning) -> None:
    stream = tm.stream("s", time="t", schema={"t": "int64", "k": "int64"})
    plan = stream.group_by("k").window(tm.tumbling(4, fill_empty=True)).agg(n=tm.count()).optimized
    assert isinstance(plan, WindowAggregate)
    operator = WindowOperator(plan, tuning=tuning)
    operator.push(0, pa.record_batch({"t": [1], "k": [0]}))
    list(operator.advance(0, -23))
    operator.push(0, pa.record_batch({"t": [-26], "k": [9]}))
    [batch] = operator.advance(0, FOREVER)
    assert batch.to_pylist() == [{"k": 0, "window_start": 0, "window_end": 4, "n": 1}]
    assert operator.late()["t"].to_pylist() == [-26]
