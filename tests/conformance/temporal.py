"""Rows with lifetimes for tests, a graph driven by hand, and streams compared by what holds when."""

from __future__ import annotations

import math
import os
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

from hypothesis import strategies as st

import tidemill as tm
from tidemill.core.batch import conform, from_rows, to_rows
from tidemill.core.time import FOREVER
from tidemill.io.chunks import ChunkSizes
from tidemill.local.graph import Graph
from tidemill.local.run import run as run_local
from tidemill.local.snapshot import from_bytes, to_bytes
from tidemill.local.tuning import Tuning
from tidemill.plan.build_temporal import shown
from tidemill.plan.nodes import Plan, Source, sources
from tidemill.reference.run import run as run_reference
from tidemill.stream import Stream

Row = dict[str, Any]
Inputs = dict[str, list[Row]]

COLUMNS = {"k": "int64", "v": "int64", "s": "string", "x": "float64"}
S = tm.stream("s", time="t", end="u", schema={"t": "int64", "u": "int64", **COLUMNS})
"""Intervals, of which some never end."""
P = tm.stream("p", time="t", schema={"t": "int64", **COLUMNS})
"""Points."""
D = tm.table("d", schema={"k": "int64", "label": "string"})

EAGER = Tuning(
    few_rows=0, few_waiting=0, few_partials=0, output_rows=3, few_keys=3, few_lookups=0, held_text=0,
    many_pairs=2, few_sprayed=0, few_kept=0, many_due=0, many_touched=0,
    few_joined=0, few_sought=0,
)  # fmt: skip
WAYS = (
    EAGER, replace(EAGER, few_kept=1 << 30), Tuning(), replace(EAGER, snapshots=("moving", "copies")),
    replace(EAGER, snapshots=("copies",)),
)  # fmt: skip
"""Every way to compute snapshots is forced on each query, with the others to choose from or without."""

# --- data -------------------------------------------------------------------------------------------

_PAYLOAD = st.fixed_dictionaries(
    {
        "k": st.none() | st.integers(0, 2),
        "v": st.none() | st.integers(-4, 6),
        "s": st.sampled_from(["", "a", "b", "ab", "é", None]),
        "x": st.sampled_from([0.0, -0.0, 0.5, 1.5, -2.25, math.nan, None]),
    }
)
_START = st.integers(-10, 25) | st.sampled_from([-(10**12), 10**12])
_LENGTH = st.integers(1, 12) | st.sampled_from([None, 1, 10**9])


def _interval(payload: Row, t: int, length: int | None) -> Row:
    return {"t": t, "u": None if length is None else t + length, **payload}


def _twice(rows: list[Row]) -> list[Row]:
    """Every fifth row comes again."""
    return rows + rows[::5]


INTERVALS = st.lists(st.builds(_interval, _PAYLOAD, _START, _LENGTH), max_size=10).map(_twice)
POINTS = st.lists(st.builds(lambda row, t: {"t": t, **row}, _PAYLOAD, _START), max_size=10).map(_twice)
TABLE = st.lists(
    st.fixed_dictionaries({"k": st.none() | st.integers(0, 2), "label": st.sampled_from(["x", "y", None])}),
    max_size=3,
)
INPUTS = st.fixed_dictionaries({"s": INTERVALS, "p": POINTS, "d": TABLE})
SEEDS = st.integers(0, 2**32 - 1)


def inputs_of(query: Stream, given: Mapping[str, list[Row]]) -> Inputs:
    """The rows of the streams that a query reads."""
    return {one.name: given[one.name] for one in sources(query.plan)}


# --- engines ----------------------------------------------------------------------------------------


def by_reference(query: Stream, inputs: Inputs) -> list[Row]:
    """The definition, of the plan as the user wrote it."""
    return run_reference(shown(query.plan), inputs)


SHORT = ChunkSizes(most=4, held=4, most_held=4, small=1)
"""Rows come in chunks of four."""


def in_process(query: Stream, inputs: Inputs, tuning: Tuning = EAGER) -> list[Row]:
    """What `run` gives, on two threads where the plan can be divided."""
    tables = {s.name: from_rows(inputs[s.name], s.declared) for s in sources(query.plan)}
    with mock.patch.dict(os.environ, TIDEMILL_THREADS="2"):
        return to_rows(list(run_local(query.optimized, tables, tuning=tuning, sizes=SHORT)), query.schema)


class Driven:
    """A graph whose inputs come in random pieces, with random promises that are kept, and restarts between.

    Each result must start no earlier than what the graph promised before.
    """

    def __init__(self, query: Stream, inputs: Inputs, pick: random.Random) -> None:
        self.query, self.pick = query, pick
        self.tuning, self.threads = pick.choice(WAYS), pick.choice([1, 2])
        self.few = pick.random() < 0.5
        self.graph = Graph(query.optimized, self.threads, self.tuning, few=self.few)
        self.left = {name: self._arriving(name, rows) for name, rows in inputs.items()}
        self.pushed: Inputs = {name: [] for name in inputs}
        self.rows: list[Row] = []
        self.ended: set[str] = set()

    def _source(self, name: str) -> Source:
        found = self.graph.sources[name]
        assert isinstance(found, Source)
        return found

    def _arriving(self, name: str, rows: Sequence[Row]) -> list[Row]:
        slack, time = self.pick.choice([0, 4, 10**13]), self._source(name).time
        place = {id(row): row.get(time, 0) + self.pick.randint(0, slack) for row in rows}
        return sorted(self.pick.sample(list(rows), len(rows)), key=lambda row: place[id(row)])

    def run(self) -> list[Row]:
        """All rows of the result, after the end of all inputs."""
        while len(self.ended) < len(self.left):
            self.step()
        for name in self.left:  # an end that was not prompt may have left something
            self._took(self.graph.advance(name, FOREVER, prompt=True))
        assert not self.graph.late()
        return self.rows

    def step(self) -> None:
        """Rows of one input, a promise, a restart, or the end of an input."""
        name = self.pick.choice([n for n in self.left if n not in self.ended])
        action = self.pick.random()
        if action < 0.45:
            self._push(name)
        elif action < 0.8:
            self._advance(name)
        elif action < 0.9:
            self._restart()
        elif not self.left[name]:
            self.ended.add(name)
            self._took(self.graph.advance(name, FOREVER, prompt=self.pick.random() < 0.5))

    def _push(self, name: str) -> None:
        count = self.pick.randint(0, 4)
        rows, self.left[name] = self.left[name][:count], self.left[name][count:]
        self.pushed[name] += rows
        source = self._source(name)
        for batch in from_rows(rows, source.declared).to_batches():
            self._took(self.graph.push(name, conform(batch, source.schema, step="test")))

    def _advance(self, name: str) -> None:
        if self._source(name).table:
            return  # nothing is known of a table before its end
        time = self._source(name).time
        starts = [row.get(time, 0) for row in self.left[name]] or [
            max([0, *(row.get(time, 0) for row in self.pushed[name])])
        ]
        below = min(starts) - self.pick.choice([0, 0, 1, 3])
        self._took(self.graph.advance(name, below, prompt=self.pick.random() < 0.6))

    def _restart(self) -> None:
        state = from_bytes(to_bytes(self.graph.snapshot()))
        if self.pick.random() < 0.7:
            self.graph.close()
            self.graph = Graph(self.query.optimized, self.threads, self.tuning, few=self.few)
            self.graph.restore(state)

    def _took(self, batches: Any) -> None:
        plan = self.query.optimized
        last = self.graph.steps[-1].operator
        before = last.promise.common
        for row in to_rows(list(batches), self.query.schema):
            if plan.time in row and len(self.ended) < len(self.left):
                assert row[plan.time] >= before, f"promised {before}, gave {row}"
            self.rows.append(row)

    def so_far(self) -> list[Row]:
        """What there is, and what the end of all inputs would add now."""
        return self.rows + to_rows(self.graph.so_far(), self.query.schema)


# --- comparing --------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A value that is equal to that of an equal value: NaN, zeros, and floats but for their last bits."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else float(f"{value + 0.0:.9g}")
    if isinstance(value, Mapping):
        return tuple((n, plain(v)) for n, v in value.items())
    return tuple(map(plain, value)) if isinstance(value, (list, tuple)) else value


def as_rows(rows: Sequence[Row]) -> Counter[Any]:
    """Rows as a multiset."""
    return Counter(tuple((n, plain(row[n])) for n in sorted(row)) for row in rows)


def as_snapshots(plan: Plan, rows: Sequence[Row]) -> dict[Any, int]:
    """What changes at each instant: the same for streams of which the same holds at every instant."""
    net: Counter[Any] = Counter()
    for row in rows:
        payload = tuple((n, plain(row[n])) for n in sorted(row) if n not in (plan.time, plan.end))
        start = row.get(plan.time, 0)
        end = start + 1 if plan.end is None else row.get(plan.end)
        net[payload, start] += 1
        if end is not None:
            net[payload, end] -= 1
    return {change: count for change, count in net.items() if count}


def assert_rows(got: Sequence[Row], expected: Sequence[Row], what: str) -> None:
    """The same rows, in any order."""
    mine, theirs = as_rows(got), as_rows(expected)
    assert mine == theirs, _shown(what, mine - theirs, theirs - mine)


def assert_snapshots(plan: Plan, got: Sequence[Row], expected: Sequence[Row], what: str) -> None:
    """The same rows hold at every instant."""
    mine, theirs = as_snapshots(plan, got), as_snapshots(plan, expected)
    more = {c: n for c, n in mine.items() if theirs.get(c) != n}
    less = {c: n for c, n in theirs.items() if mine.get(c) != n}
    assert mine == theirs, _shown(what, more, less)


def _shown(what: str, more: Mapping[Any, int], less: Mapping[Any, int]) -> str:
    lines = [f"  + {n} × {row}" for row, n in list(more.items())[:5]]
    lines += [f"  - {n} × {row}" for row, n in list(less.items())[:5]]
    return "\n".join([what, *lines, "  (+ came, - was expected)"])
