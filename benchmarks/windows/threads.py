"""Two threads against one. A plain loop on the same rows shows what the machine gives to a second thread."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from benchmarks.answers import Mismatch, same_rows
from benchmarks.data import MINUTE, START, Shape, Tables, events
from benchmarks.harness import Answers, Case
from benchmarks.threads import ONE, gain, on_threads
from benchmarks.windows import questions
from benchmarks.windows.questions import Question

LOOP = "plain loop"
LOOP_ONE = "plain loop, one thread"

PANE, PANES = 10 * MINUTE, 2 * 24 * 6
"""Panes of two days."""


def cases(quick: bool) -> list[Case]:
    return compared(200_000 if quick else 8_000_000)


def compared(rows: int) -> list[Case]:
    """The cases over so many rows."""
    hop = functools.partial(questions.windows, ("sum", "count"), "1h", "10m")
    gaps = questions.sessions(("sum", "count"), "5m")
    few_hours = 2.0  # a million keys with some rows in each window
    return [
        _case("10 keys", Shape(rows, 10), hop()),
        _case("100 keys", Shape(rows, 100), hop()),
        _case("Zipf 1.3 keys", Shape(rows, 10_007, zipf=1.3), hop()),
        _case("10 000 keys", Shape(rows, 10_000), hop()),
        _case("1 000 000 keys", Shape(rows, 1_000_000, few_hours), hop()),
        _case("sessions, Zipf 1.3 keys", Shape(rows, 10_007, zipf=1.3), gaps),
        _case("no key", Shape(rows, 100), hop(key=None), key=None),
    ]  # fmt: skip


def _case(name: str, shape: Shape, question: Question, key: str | None = "k") -> Case:
    query = question.query(shape.streams)
    loop = functools.partial(_summed, keys=0 if key is None else shape.keys)

    def run(threads: int, data: Tables) -> Any:
        with on_threads(threads):
            return query.run(**data.arrow)

    return Case(
        f"threads/{name}",
        {"rows": shape.rows, "hours": shape.hours},
        {
            "tidemill": functools.partial(run, 2), ONE: functools.partial(run, 1),
            LOOP: lambda data: loop(data, threads=2), LOOP_ONE: lambda data: loop(data, threads=1),
        },
        _same(same_rows(*question.by)),
        lambda: events(shape),
        derive=functools.partial(gain, plain_loop=(LOOP_ONE, LOOP)),
    )  # fmt: skip


def _same(check: Callable[[Answers], None]) -> Callable[[Answers], None]:
    """Tidemill's answers are one another's, and so are the loop's."""

    def both(answers: Answers) -> None:
        check({name: answers[name] for name in ("tidemill", ONE)})
        if not np.allclose(answers[LOOP], answers[LOOP_ONE]):
            raise Mismatch("the plain loop gives other sums on two threads than on one")

    return both


@functools.cache
def _compiled() -> Callable[..., None]:
    import numba

    def add(ts: Any, k: Any, v: Any, keys: int, sums: Any) -> None:
        for i in range(len(k)):
            sums[keys + (ts[i] - START) // PANE] += v[i]
            if keys:
                sums[k[i]] += v[i]

    compiled: Callable[..., None] = numba.njit(nogil=True)(add)
    return compiled


def _summed(data: Tables, *, keys: int, threads: int) -> Any:
    """Sums by key, if any, and by pane; each thread has rows as they come, and sums of its own."""
    ts, k, v = (np.asarray(data.arrow["events"][c]) for c in ("ts", "k", "v"))
    ts = ts.view(np.int64)
    add = _compiled()

    def part(bounds: tuple[int, int]) -> Any:
        some, sums = slice(*bounds), np.zeros(keys + PANES)
        add(ts[some], k[some], v[some], keys, sums)
        return sums

    edges = [len(v) * i // threads for i in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(part, itertools.pairwise(edges)))
