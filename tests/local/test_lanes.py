"""Keys divided among threads: the answer is the same, errors arrive, nothing is left running."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidemill as tm
from tests.conformance.harness import HASTE
from tidemill import col
from tidemill.core import threads
from tidemill.core.time import BEGINNING, FOREVER
from tidemill.io.chunks import Chunk
from tidemill.local.graph import Graph
from tidemill.local.lanes import Share
from tidemill.local.run_graph import run_graph
from tidemill.local.tuning import Tuning
from tidemill.local.window_operator import WindowOperator
from tidemill.stream import Stream

SCHEMA = {"t": "int64", "k": "int64", "x": "int64", "f": "float64"}
STREAM = tm.stream("s", time="t", schema=SCHEMA)


def rows(n: int, *, keys: int = 37, batches: int = 9, seed: int = 1) -> list[Chunk]:
    """Rows about in order, in batches that each say how far the next ones may go back."""
    pick = np.random.default_rng(seed)
    t = np.sort(pick.integers(0, 400, n)) + pick.integers(0, 5, n)
    table = {"t": t, "k": pick.integers(0, keys, n), "x": pick.integers(-9, 9, n)}
    table["f"] = pick.integers(0, 64, n) / 8  # any sum of them is exact
    cuts = np.array_split(np.arange(n), batches)
    chunks = []
    for at, cut in enumerate(cuts):
        later = np.concatenate([t[c] for c in cuts[at + 1 :]] or [np.empty(0, dtype=np.int64)])
        below = int(later.min()) if len(later) else BEGINNING
        chunks.append(Chunk(pa.record_batch({n: pa.array(c[cut]) for n, c in table.items()}), below))
    return chunks


def run(
    query: Stream, threads: int, chunks: list[Chunk], tuning: Tuning = HASTE["eager"]
) -> Iterator[pa.RecordBatch]:
    return run_graph(Graph(query.optimized, threads, tuning), {"s": chunks}, threads)


def ordered(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    found = [row for batch in batches for row in batch.to_pylist()]
    return sorted(found, key=lambda r: tuple(map(str, r.values())))


QUERIES = {
    "hopping": STREAM.group_by("k").window(tm.hopping(20, every=5)).agg(f=tm.sum(col.f)),
    "filtered": (
        STREAM.where(col.x > 0).group_by("k").window(tm.tumbling(10)).agg(n=tm.count(), m=tm.max(col.x))
    ),
    "per_event": STREAM.group_by("k").window(tm.per_event(7)).agg(m=tm.max(col.x)),
    "session": STREAM.group_by("k").window(tm.session(3)).agg(q=tm.quantile(col.f, 0.5)),
    "nested": (
        STREAM.group_by("k").window(tm.tumbling(5)).agg(x=tm.sum(col.x))
        .group_by("k").window(tm.hopping(20, every=10)).agg(m=tm.max(col.x))
    ),
    "no windows": STREAM.where(col.x % 3 == 0).select("t", y=col.x * 2),
}  # fmt: skip


@pytest.mark.parametrize("by_row", [0, 20, 1000], ids=["by key", "by row, then by key", "by row"])
@pytest.mark.parametrize("name", QUERIES)
def test_the_number_of_threads_does_not_show(name: str, by_row: int) -> None:
    tuning = replace(HASTE["eager"], keys_by_row=by_row)
    alone, *others = [ordered(run(QUERIES[name], n, rows(600), tuning)) for n in (1, 2, 4)]
    assert alone
    assert all(found == alone for found in others)


@pytest.mark.parametrize(
    ("query", "collectors", "lanes"),
    [
        (QUERIES["hopping"], 4, 4),
        (QUERIES["session"], 1, 4),  # its rows are kept, and sorted by each thread for its keys
        (STREAM.window(tm.tumbling(10)).agg(n=tm.sum(col.x)), 4, 1),
        (STREAM.window(tm.tumbling(10)).agg(n=tm.count()), 1, 1),  # reads times only, as fast as memory
        (STREAM.group_by("k").window(tm.landmark(every=10)).agg(n=tm.count()), 4, 1),
        (STREAM.group_by("k").window(tm.rows(4, every=2)).agg(n=tm.count()), 1, 1),
    ],
)
def test_work_is_divided_by_rows_and_with_many_keys_by_key(
    query: Stream, collectors: int, lanes: int
) -> None:
    graph = Graph(query.optimized, 4, Tuning(keys_by_row=5))
    [step] = graph.steps
    operator = step.operator
    assert isinstance(operator, WindowOperator)
    first, *others = rows(100)
    list(graph.push("s", first.batch.slice(0, 2)))  # two rows do not have many keys
    assert len(operator.collectors) == collectors
    for chunk in others:
        list(graph.push("s", chunk.batch))
    operator.snapshot()  # waits for the threads
    assert len(operator.lanes) == lanes
    graph.close()


def assert_no_thread_is_busy() -> None:
    """All threads were returned, to be used again."""
    ours = [t for t in threading.enumerate() if t.name.startswith("tidemill_")]
    assert len(ours) <= sum(pool.workers for pools in threads._idle.values() for pool in pools)


def test_threads_are_used_again() -> None:
    list(run(QUERIES["hopping"], 2, rows(2_000)))
    before = {t.ident for t in threading.enumerate()}
    for _ in range(3):
        list(run(QUERIES["hopping"], 2, rows(2_000)))
    assert {t.ident for t in threading.enumerate()} == before


def test_a_thread_does_not_wait_for_itself() -> None:
    """As when it collects garbage, among which is a result that was not read to its end."""
    pool = threads.borrowed(1)
    began, returned = threading.Event(), threading.Event()
    calls: list[Any] = []

    def call() -> None:
        began.wait()
        threads.returned(pool, calls)
        returned.set()

    calls.append(pool.submit(call))
    began.set()
    assert returned.wait(10)
    assert threads.borrowed(1) is not pool


def test_what_fails_in_a_thread_fails_the_query_and_leaves_no_thread() -> None:
    most = (1 << 63) - 1
    batch = pa.record_batch({"t": [1, 2], "k": [0, 0], "x": [most, most], "f": [0.0, 0.0]})
    query = STREAM.group_by("k").window(tm.tumbling(10)).agg(x=tm.sum(col.x))
    with pytest.raises(tm.UserError, match="int64"):
        list(run(query, 2, [Chunk(batch, BEGINNING)]))
    assert_no_thread_is_busy()


@pytest.mark.parametrize("name", ["hopping", "no windows"])
def test_a_result_that_is_not_read_to_its_end_leaves_no_thread(name: str) -> None:
    found = run(QUERIES[name], 2, rows(2_000))
    assert next(found).num_rows
    found.close()  # type: ignore[attr-defined]
    assert_no_thread_is_busy()


@pytest.mark.parametrize("pushes", range(1, 8))
def test_results_that_wait_while_more_rows_come_are_returned_at_the_end(pushes: int) -> None:
    query = STREAM.group_by("k").window(tm.tumbling(10)).agg(m=tm.median(col.x))  # by key from the start
    graph = Graph(query.optimized, 2, Tuning(few_partials=0))

    def push(t: int) -> None:
        rows = {"t": [t, t], "k": [0, 1], "x": [1, 2], "f": [0.0, 0.0]}
        assert not list(graph.push("s", pa.record_batch(rows)))

    push(0), push(25)
    found = list(graph.advance("s", 20))
    for at in range(pushes):
        push(30 + at)
    found += graph.advance("s", FOREVER)
    graph.close()
    assert sorted({row["window_start"] for row in ordered(found)}) == [0, 20, 30]


def test_threads_keep_no_results_that_were_returned() -> None:
    graph = Graph(QUERIES["hopping"].optimized, 2, replace(HASTE["eager"], keys_by_row=0))
    for chunk in rows(600, batches=60):
        list(graph.push("s", chunk.batch))
        list(graph.advance("s", chunk.complete_below))
    operator = graph.steps[0].operator
    assert isinstance(operator, WindowOperator)
    assert operator._threads.waiting <= HASTE["eager"].backlog
    graph.close()


def test_shares_count_their_own_keys() -> None:
    shares = [Share(n, 4) for n in range(4)]
    assert [s.keys(6) for s in shares] == [2, 2, 1, 1]
    assert sum(s.keys(0) for s in shares) == 0
    every = np.concatenate([s.ids(np.arange(s.keys(6))) for s in shares])
    assert sorted(every.tolist()) == list(range(6))


def test_the_environment_sets_how_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    from tidemill.core.threads import threads

    monkeypatch.setenv("TIDEMILL_THREADS", "3")
    assert threads() == 3
    for wrong in ("0", "-1", "many"):
        monkeypatch.setenv("TIDEMILL_THREADS", wrong)
        with pytest.raises(tm.UserError, match="TIDEMILL_THREADS"):
            threads()


@pytest.mark.compiled  # on many rows
def test_string_keys_may_be_read_while_more_of_them_come() -> None:
    stream = tm.stream("s", time="t", schema={"t": "int64", "k": "string"})
    query = stream.group_by("k").window(tm.tumbling(100)).agg(n=tm.count())
    chunks = [
        Chunk(pa.record_batch({"t": range(a, a + 500), "k": [f"key {i}" for i in range(a, a + 500)]}), a)
        for a in range(0, 60_000, 500)
    ]
    found = pa.Table.from_batches(run(query, 2, chunks))
    assert found["k"].combine_chunks().sort().equals(
        pa.array([f"key {i}" for i in range(60_000)]).sort()
    )


def test_only_one_thread_calls_a_python_function() -> None:
    threads: set[str] = set()

    def seen(x: int) -> int:  # which Numba does not compile
        threads.add(threading.current_thread().name)
        return x

    call = tm.udf(seen, returns="int64")
    windows = tm.tumbling(10)
    queries = [
        STREAM.where(call(col.x) > 0).group_by("k").window(windows).agg(n=tm.count()),
        STREAM.group_by("k").window(windows).agg(n=tm.sum(call(col.x))),
        STREAM.select("t", k=call(col.k)).group_by("k").window(windows).agg(n=tm.count()),
        STREAM.window(windows).agg(n=tm.sum(call(col.x))),
    ]
    for query in queries:
        alone, others = (ordered(run(query, n, rows(300))) for n in (1, 4))
        assert alone == others
    assert threads == {threading.current_thread().name}
