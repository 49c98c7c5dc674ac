"""A state that is put together from a snapshot and changes is the state itself, for every kind of window."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.cases import ARRIVAL, WINDOWS, Row, ask, seeded
from tests.conformance.harness import assert_same, locally, table_of
from tidemill.core.batch import to_rows
from tidemill.core.time import FOREVER
from tidemill.local.changes import becomes, folded
from tidemill.local.graph import Graph
from tidemill.local.operator import Snapshot
from tidemill.local.tuning import Tuning
from tidemill.local.window_operator import WindowOperator
from tidemill.stream import Stream

TUNING = {
    "planes": Tuning(few_keys=8),
    "list": Tuning(few_keys=8, plane_bytes=0),
    "dense": Tuning(few_keys=8, dense_rows=1, loop_rows=1, keys_by_row=2),
}
"""Ways in which partials are stored. Few keys: they are evicted, and their ids change."""
UNLIKE = ("landmark",)
"""Windows whose panes are merged when they close, of keys that changed and of others, at their own time."""


def partials(graph: Graph) -> list[Any]:
    """All partials of a graph with one aggregate, by the values of their keys."""
    operator = graph.steps[0].operator
    assert isinstance(operator, WindowOperator)
    state = operator.snapshot()
    keys = [tuple(row.values()) for row in state["keys"].to_pylist()]
    return sorted(
        repr((keys[row["kid"]], {n: v for n, v in row.items() if n != "kid"}))
        for row in state["elements"].to_pylist()
    )


def restored(query: Stream, state: Snapshot, threads: int, tuning: Tuning) -> Graph:
    graph = Graph(query.optimized, threads, tuning)
    graph.restore(state)
    return graph


def names(state: Snapshot) -> list[str]:
    return list(dict.fromkeys(becomes(name) for name in state))


def check(query: Stream, rows: list[Row], pick: random.Random, tuning: Tuning, *, alike: bool) -> int:
    """Push rows in order of time, save changes between them, and compare; return how often it was changes."""
    threads = pick.choice([1, 2])
    graph, found, changed = Graph(query.optimized, threads, tuning), [], 0
    segments = [graph.snapshot()]
    graph.track()
    cuts = sorted(pick.sample(range(1, len(rows)), 24))
    given = [rows[a:b] for a, b in itertools.pairwise([0, *cuts, len(rows)])]
    for at, some in enumerate(given):
        for batch in table_of(query, some).to_batches():
            found += graph.push("s", batch)
        rest = [row["t"] for later in given[at + 1 :] for row in later]
        if pick.random() < 0.7 and rest:
            found += graph.advance("s", min(rest), prompt=True)
        if pick.random() < 0.6:
            changes = graph.changes()
            changed += any(name.endswith("~") for name in changes)
            segments.append(changes)
            graph.track()
            now = folded(segments, names(changes))
            if pick.random() < 0.3:
                graph = restored(query, now, pick.choice([1, 2]), tuning)
                graph.track()  # and goes on from there
            elif alike and pick.random() < 0.5:
                mine = partials(restored(query, now, 1, tuning))
                assert mine == partials(graph), f"after {len(segments)} segments"
                segments = [graph.snapshot()]
                graph.track()
    found += graph.advance("s", FOREVER, prompt=True)
    assert_same(to_rows(found, query.schema), locally(query, rows), query.schema)
    return changed


def moving(size: int, seed: int) -> list[Row]:
    """Rows roughly in the order of time, whose keys come and go."""
    pick = random.Random(seed)
    rows = sorted(seeded(size, seed, span=160, keys=5), key=lambda row: row["t"] + pick.randint(0, 4))
    for row in rows:
        if row["k"] is not None and row["k"] < 4:
            row["k"] += 4 * (row["t"] // 12)
    return rows


def cases() -> Iterator[Any]:
    """Every window in one way of storing, and in all of them in a soak."""
    for number, window in enumerate([*WINDOWS, *(f"{name}, by arrival" for name in ARRIVAL)]):
        for at, stored in enumerate(TUNING):
            for seed in range(1, 12):
                now = seed == 1 and at == number % len(TUNING)
                yield pytest.param(window, stored, seed, marks=() if now else pytest.mark.soak)


@pytest.mark.parametrize(("window", "stored", "seed"), cases())
def test_changes_make_the_same_state(window: str, stored: str, seed: int) -> None:
    spec = WINDOWS.get(window) or ARRIVAL[window.removesuffix(", by arrival")]
    pick = random.Random(f"{window} {stored} {seed}")
    rows = moving(120, seed)
    query = ask(spec, "few", "k")
    assert check(query, rows, pick, TUNING[stored], alike=window not in UNLIKE) > 0
