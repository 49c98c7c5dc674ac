"""Windows that end at each event: moving ranges of partials against the bins of paper 003 (6.1, Figures 4-6).

A tuple at `s` opens two bins: *S* at `s`, the first window that contains it, and *E* at `s + range`, the
first later window that does not. It is added to each bin in `[s, s + range)`. So a row costs as much as
there are rows in a range, while the ends of a moving range only move forward. Here bins have their best
case: a compiled loop of one sum, without keys, over rows in order. Moving ranges are there twice: as such a
loop, to compare the two ways alone, and in Tidemill, where every push and advance of an operator has its
price, whatever the way.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import tidemill as tm
from benchmarks.answers import same_rows
from benchmarks.harness import Case, Measured
from tidemill import col
from tidemill.core.time import FOREVER
from tidemill.jit.kernel import kernel
from tidemill.local.graph import Graph

EACH = 1_000
"""Events between two punctuations."""
RANGES = (4, 16, 64, 256, 1_024)
"""Rows in a window."""

Ints = npt.NDArray[np.int64]


def cases(quick: bool) -> list[Case]:
    return sliding(20_000 if quick else 200_000)


def sliding(rows: int, ranges: tuple[int, ...] = RANGES) -> list[Case]:
    return [_case(rows, length) for length in ranges]


def _case(rows: int, length: int) -> Case:
    stream = tm.stream("events", time="t", schema={"t": "int64", "v": "int64"})
    query = stream.window(tm.per_event(length)).agg(total=tm.sum(col.v))
    return Case(
        f"slide by tuple/{length} rows in a window",
        {"rows": rows, "rows in a window": length, "events a punctuation": EACH},
        {"tidemill": lambda given: _pushed(Graph(query.optimized), given),
         "ranges, alone": lambda given: _alone(Ranges(length), given),
         "bins": lambda given: _alone(Bins(length), given)},
        same_rows("window_end"),
        lambda: _given(rows),
    )  # fmt: skip


@dataclass(frozen=True)
class _Given:
    batches: list[pa.RecordBatch]

    @property
    def with_promises(self) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Each batch, and the time of the row after it."""
        at = 0
        for batch in self.batches:
            at += batch.num_rows
            yield batch, at


def _given(rows: int) -> _Given:
    values = np.random.default_rng(3).integers(0, 100, rows)
    table = pa.table({"t": np.arange(rows), "v": values})
    return _Given(table.to_batches(max_chunksize=EACH))


def _pushed(graph: Graph, given: _Given) -> Measured:
    found: list[Any] = []
    begin = time.perf_counter()
    for batch, below in given.with_promises:
        found += graph.push("events", batch)
        found += graph.advance("events", below, prompt=True)
    found += graph.advance("events", FOREVER)
    return _measured(pa.Table.from_batches(found).select(["window_end", "total"]), begin, given)


def _alone(way: Bins | Ranges, given: _Given) -> Measured:
    found: list[pa.Table] = []
    begin = time.perf_counter()
    for batch, below in given.with_promises:
        way.insert(*(column.to_numpy() for column in batch.columns))
        found.append(way.punctuate(below))
    return _measured(pa.concat_tables(found), begin, given)


def _measured(answer: pa.Table, begin: float, given: _Given) -> Measured:
    seconds = time.perf_counter() - begin
    rows = sum(batch.num_rows for batch in given.batches)
    return Measured(answer, seconds, {"ns a row": seconds / rows * 1e9})


class Bins:
    """Sums of the windows `(w - range, w]` that end at tuples. The tuples themselves are not kept.

    >>> bins = Bins(10)
    >>> bins.insert(np.array([7, 0, 12]), np.array([3, 5, 1]))
    >>> bins.punctuate(8).to_pydict()
    {'window_end': [0, 7], 'total': [5, 8]}
    >>> bins.punctuate(100).to_pydict()
    {'window_end': [12], 'total': [4]}
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._wid, self._value, self._ends = _room(0)
        self._count = 0

    def insert(self, times: Ints, values: Ints) -> None:
        """Add tuples, in any order."""
        room = _room(self._count + 2 * len(times))
        for old, new in zip((self._wid, self._value, self._ends), room):
            new[: self._count] = old[: self._count]
        self._wid, self._value, self._ends = room
        self._count = _insert(times, values, self._length, *room, self._count)

    def punctuate(self, below: int) -> pa.Table:
        """Return the windows that end below an instant, and purge bins that nothing needs any more."""
        done = int(np.searchsorted(self._wid[: self._count], below))
        ends = np.flatnonzero(self._ends[:done])
        found = pa.table({"window_end": self._wid[ends], "total": self._value[ends]})
        self._ends[:done] = False
        kept = max(done - 1, 0)  # the next new bin may be split off the last one
        self._wid, self._value, self._ends = (a[kept:] for a in (self._wid, self._value, self._ends))
        self._count -= kept
        return found


def _room(bins: int) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
    """Return room for so many bins: ids, sums, and which of them end at a tuple."""
    return np.zeros(bins, np.int64), np.zeros(bins, np.int64), np.zeros(bins, np.bool_)


@kernel
def _insert(
    times: Ints, values: Ints, length: int, wid: Ints, value: Ints, ends: npt.NDArray[np.bool_], count: int
) -> int:
    for i in range(times.size):
        first = 0
        for at in (times[i], times[i] + length):
            place = count
            while place > 0 and wid[place - 1] >= at:
                place -= 1
            if place == count or wid[place] != at:
                for j in range(count, place, -1):
                    wid[j], value[j], ends[j] = wid[j - 1], value[j - 1], ends[j - 1]
                wid[place], ends[place] = at, False
                value[place] = value[place - 1] if place > 0 else 0
                count += 1
            if at == times[i]:
                first = place
        ends[first] = True
        for j in range(first, place):
            value[j] += values[i]
    return count


class Ranges:
    """The same windows as ranges of tuples, which are kept while a window may need them.

    >>> ranges = Ranges(10)
    >>> ranges.insert(np.array([7, 0, 12]), np.array([3, 5, 1]))
    >>> ranges.punctuate(8).to_pydict()
    {'window_end': [0, 7], 'total': [5, 8]}
    >>> ranges.punctuate(100).to_pydict()
    {'window_end': [12], 'total': [4]}
    """

    def __init__(self, length: int) -> None:
        self._length, self._given = length, -(1 << 62)
        self._times, self._values = np.zeros(0, np.int64), np.zeros(0, np.int64)

    def insert(self, times: Ints, values: Ints) -> None:
        """Add tuples, in any order."""
        self._times = np.concatenate((self._times, times))
        self._values = np.concatenate((self._values, values))

    def punctuate(self, below: int) -> pa.Table:
        """Return the windows that end below an instant, and forget tuples that nothing needs any more."""
        if (self._times[1:] < self._times[:-1]).any():
            order = np.argsort(self._times, kind="stable")
            self._times, self._values = self._times[order], self._values[order]
        ends, totals = np.empty((2, len(self._times)), np.int64)
        found = _slide(self._times, self._values, self._length, self._given, below, ends, totals)
        self._given = below
        kept = self._times > below - self._length
        self._times, self._values = self._times[kept], self._values[kept]
        return pa.table({"window_end": ends[:found], "total": totals[:found]})


@kernel
def _slide(
    times: Ints, values: Ints, length: int, given: int, below: int, ends: Ints, totals: Ints
) -> int:
    total, low, found = 0, 0, 0
    for i in range(times.size):
        if times[i] >= below:
            break
        total += values[i]
        while times[low] <= times[i] - length:
            total -= values[low]
            low += 1
        if times[i] >= given and (i + 1 == times.size or times[i + 1] != times[i]):
            ends[found], totals[found] = times[i], total
            found += 1
    return found
