"""Processes that are forked while something goes on: an error there, never a wait without end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidemill as tm
from tidemill import col
from tidemill.aggregates.layout import layout
from tidemill.core.schema import schema
from tidemill.intervals.team import Team, TeamIndex

pytestmark = pytest.mark.compiled  # on many rows

ROWS = 400_000
EVENTS = tm.stream("s", time="t", schema={"t": "int64", "k": "int64", "x": "int64"})
TABLE = pa.table({"t": np.arange(ROWS), "k": np.arange(ROWS) % 50, "x": np.arange(ROWS)})
QUERIES = {
    "stage": EVENTS.where(col.x % 7 == 3),
    "windows": EVENTS.group_by("k").window(tm.tumbling(1000)).agg(a=tm.sum(col.x)),
}


def in_child(call: Callable[[], Any]) -> str:
    """What a forked process has to say after a call. One that waits for ever is ended by an alarm."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)
        try:
            said = str(call())
        except BaseException as failed:
            said = f"{type(failed).__name__}: {failed}"
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    status = os.waitpid(child, 0)[1]
    assert status == 0, f"ended by signal {status}, after {said!r}"
    return said


@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize("name", QUERIES)
def test_a_child_that_goes_on_with_a_parent_s_iterator_gets_an_error(
    name: str, threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMILL_THREADS", threads)
    expected = QUERIES[name].run(s=TABLE).num_rows
    batches = QUERIES[name].batches(s=TABLE)
    begun = next(batches).num_rows
    said = in_child(lambda: sum(b.num_rows for b in batches))
    assert said.startswith("UserError: run") and "forked" in said
    assert in_child(lambda: QUERIES[name].run(s=TABLE).num_rows) == str(expected)  # one of its own
    assert begun + sum(b.num_rows for b in batches) == expected


def test_a_child_that_goes_on_with_a_parent_s_file_gets_an_error(tmp_path: Path) -> None:
    """Both would read from one position, and each would miss rows."""
    with open(tmp_path / "x.csv", "w") as file:
        file.write("t,k,x\n")
        file.writelines(f"{i},{i % 50},{i}\n" for i in range(ROWS))
    batches = QUERIES["stage"].batches(s=tmp_path / "x.csv")
    begun = next(batches).num_rows
    assert "forked" in in_child(lambda: sum(b.num_rows for b in batches))
    assert begun + sum(b.num_rows for b in batches) == QUERIES["stage"].run(s=TABLE).num_rows


@pytest.mark.parametrize("made", [{"a": tm.sum(col.x)}, {"a": tm.median(col.x)}], ids=["numbers", "values"])
def test_a_wheel_whose_locks_another_thread_had_can_be_asked_in_a_child(made: dict[str, Any]) -> None:
    wheel = tm.Wheel(
        made, schema={"t": "int64", "k": "int64", "x": "int64"}, time="t", start=0, keys="k",
        granularities=[1000],
    )  # fmt: skip
    wheel.insert(TABLE.slice(0, 1000))
    wheel.advance_to(1000)
    expected = str(wheel.query(0, 1000, 3))
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with wheel._view.lock, getattr(wheel._view.store, "_changing", threading.Lock()):
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        assert in_child(lambda: wheel.query(0, 1000, 3)) == expected
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("given", [False, True], ids=["its threads", "a pool"])
def test_a_child_that_goes_on_with_a_live_query_on_threads_gets_an_error(given: bool) -> None:
    query, batch = QUERIES["windows"], TABLE.slice(0, 3000)
    with ThreadPoolExecutor(2) if given else nullcontext() as pool:
        live = query.live(tm.Disorder(slack=0), threads=2, pool=pool)
        found = [live.push(s=batch)]

        def pushed_and_closed() -> str:
            try:
                return str(live.push(s=TABLE.slice(3000, 3000)).num_rows)
            finally:
                live.close()

        said = in_child(pushed_and_closed)
        assert said.startswith("UserError: query") and "forked" in said
        found += [live.push(s=TABLE.slice(3000, 3000)), live.flush()]
    assert sum(t.num_rows for t in found) == query.run(s=TABLE.slice(0, 6000)).num_rows


def test_a_child_of_a_process_in_which_another_thread_pushed_gets_an_error() -> None:
    """On one thread a child has a copy that goes on, unless it is half of a push."""
    live = QUERIES["windows"].live(tm.Disorder(slack=0))
    live.push(s=TABLE.slice(0, 1500))
    expected = str(QUERIES["windows"].run(s=TABLE.slice(1000, 500)).num_rows)
    assert in_child(lambda: live.flush().num_rows) == expected
    inside, done = threading.Event(), threading.Event()
    live.subscribe(lambda table: (inside.set(), done.wait()))
    thread = threading.Thread(target=lambda: live.push(s=TABLE.slice(1500, 1500)))
    thread.start()
    inside.wait()
    try:
        said = in_child(lambda: live.flush().num_rows)
    finally:
        done.set()
        thread.join()
    assert said.startswith("UserError: flush") and "fork of the process" in said
    assert live.stats().events == 3000


@pytest.mark.parametrize("given", [False, True], ids=["its threads", "a pool"])
def test_a_child_goes_on_with_joiners_of_its_own(given: bool) -> None:
    kept = layout((("n", tm.count()),), schema({"x": "int64"}))
    keys, low = np.zeros(4, dtype=np.int64), np.arange(4)
    with ThreadPoolExecutor(2) if given else nullcontext() as pool:
        index = TeamIndex(kept, Team(2, few=1, pool=pool))
        index.insert(keys, low, [])

        def answered() -> str:
            return str([index.answers(keys, low, low + 1)[0].to_pylist() for _ in range(3)])

        expected = answered()
        assert in_child(answered) == expected == answered()
        index.team.close()
