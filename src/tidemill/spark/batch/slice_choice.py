"""Choose which keys are divided by time among tasks, and where, from a sample of rows.

Keys with many rows are *hot*. The rows of hot keys, key after key and each in order of time, are a line,
which is cut so that all tasks have as much to do. A task has one stretch of a hot key at most, so it never
gets a row twice.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tidemill.core.time import FARTHEST

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
_MOST_HOT = 64
"""So many hot keys at most: Spark looks them up row by row."""
_PARTS = 4
"""A key is hot from this part of a fair share on."""
_FEWER = 1.05
"""Fewer tasks must be better by so much, as samples are not exact."""
_AHEAD = 4
"""Tasks that a core gets one after another, for which a fair share is computed at most."""


@dataclass(frozen=True)
class SliceTuning:
    """When rows are sampled, and what tasks should be like. It never changes a result."""

    few_rows: int = 500_000
    """Inputs that Spark estimates to have fewer rows are not looked at: a look takes a tenth of a second."""
    sample: int = 30_000
    """So many rows are sampled, by Spark's estimate; there may be several times as many in compact files."""
    task_rows: int = 1 << 21
    """A task gets no more rows, where they can be divided."""
    gain: float = 1.3
    """Keys are divided if tasks take so many times as long otherwise, …"""
    costly_gain: float = 1.7
    """… and so many where the last rows of each slice must be found first."""


DEFAULT = SliceTuning()


@dataclass(frozen=True)
class Sample:
    """Sampled rows of one side, in no order."""

    hashes: Ints
    """Of their keys."""
    own: Ints
    """The instant that decides in which slice a row is."""
    low: Ints
    """The row is needed in all slices from that of this instant …"""
    high: Ints
    """… to that of this one."""
    each: float
    """So many rows does a sampled one stand for."""


@dataclass(frozen=True)
class HotKey:
    """A key that several tasks share, or that was put beside others."""

    hash: int
    first: int
    """The place of its first slice; the others follow."""
    bounds: tuple[int, ...]
    """The first instants of its other slices."""

    @property
    def last(self) -> int:
        return self.first + len(self.bounds)


@dataclass(frozen=True)
class Slices:
    """The tasks, and the slices of hot keys that some of them have."""

    tasks: int
    hot: tuple[HotKey, ...]
    places: tuple[int, ...]
    """The task of each place; a slice has a place. A key that is not hot goes to a task by its hash."""
    rows: float
    """About so many rows there are."""
    copied: float
    """About so many are copied."""
    largest: float
    """The rows of the largest task; …"""
    undivided: float
    """… and if keys were not divided."""

    @property
    def divided(self) -> int:
        return sum(bool(key.bounds) for key in self.hot)


def choose(
    sides: Sequence[Sample], tasks: int, cores: int, tuning: SliceTuning, *, costly: bool = False
) -> Slices | None:
    """Return the slices with which all tasks end soonest; None if it does not pay to divide a key.

    It is `costly` if the last rows of each slice must be found first.
    """
    rows = sum(len(one.hashes) * one.each for one in sides)
    if not rows:
        return None
    tasks = max(tasks, -(-int(rows) // tuning.task_rows))
    line = _Line.of(sides, tasks, min(tasks, _AHEAD * cores), tuning.task_rows)
    plain = _summed(line.residues, line.by_key, tasks)
    before = _makespan(plain, cores)
    best: Slices | None = None
    shortest, over, among = np.inf, True, tasks
    while among > 1 and len(line.hot):
        found, loads = line.cut(sides, among, plain)
        took, too_large = _makespan(loads, cores), bool(loads.max() > 2 * tuning.task_rows)
        if (too_large, took * _FEWER) < (over, shortest):
            best, shortest, over = found, took, too_large
        among //= 2
    if best is None or not best.divided:
        return None
    relieved = plain.max() > 2 * tuning.task_rows and best.largest * 2 <= plain.max()
    gain = tuning.costly_gain if costly else tuning.gain
    return best if relieved or before > gain * shortest else None


def _makespan(loads: Floats, cores: int) -> float:
    """Return when the last task ends, if each core takes the next one when it is free."""
    free = [0.0] * max(1, cores)
    for load in loads:
        heapq.heapreplace(free, free[0] + float(load))
    return max(free)


@dataclass(frozen=True)
class _Line:
    """The sampled rows of hot keys, key after key, and what the others weigh."""

    tasks: int
    keys: Ints
    """All hashes there are, in order."""
    by_key: Floats
    """The rows of each."""
    residues: Ints
    """The task of each, if it is not hot."""
    hot: Ints
    """The places of hot keys in `keys`, in order."""
    instants: tuple[tuple[Ints, Floats], ...] = field(repr=False)
    """For each hot key, the instants of its rows in order, and how many rows there are up to each."""

    @staticmethod
    def of(sides: Sequence[Sample], tasks: int, fair: int, task_rows: int) -> _Line:
        hashes = np.concatenate([one.hashes for one in sides])
        own = np.concatenate([one.own for one in sides])
        weights = np.concatenate([np.full(len(one.hashes), one.each) for one in sides])
        keys, key = np.unique(hashes, return_inverse=True)
        by_key = _summed(key, weights, len(keys))
        least = min(weights.sum() / fair / _PARTS, task_rows / 2)
        hot = np.argsort(-by_key, kind="stable")[:_MOST_HOT]
        hot = np.sort(hot[by_key[hot] >= least])
        order = np.lexsort((own, key))
        heads = np.searchsorted(key[order], np.arange(len(keys) + 1))
        found = []
        for one in hot:
            rows = order[heads[one] : heads[one + 1]]
            found.append((own[rows], np.cumsum(weights[rows])))
        return _Line(tasks, keys, by_key, keys % tasks, hot, tuple(found))

    def cut(self, sides: Sequence[Sample], among: int, plain: Floats) -> tuple[Slices, Floats]:
        """Cut the line for so many tasks; return also how many rows each task has."""
        cold = plain - _summed(self.residues[self.hot], self.by_key[self.hot], self.tasks)
        free = np.sort(np.argsort(cold, kind="stable")[:among])
        room = _room(cold[free], float(self.by_key[self.hot].sum()))
        places = free[room > 0]
        until = np.cumsum(room[room > 0])
        hot, passed = [], 0.0
        for at, (instants, rows) in zip(self.hot, self.instants):
            first = min(int(np.searchsorted(until, passed * (1 + 1e-9), side="right")), len(places) - 1)
            end = passed + rows[-1]
            last = min(int(np.searchsorted(until, end * (1 - 1e-9))), len(places) - 1)
            cuts = np.searchsorted(rows, until[first : max(first, last)] - passed, side="right")
            bounds = instants[np.minimum(cuts, len(instants) - 1)]
            hot.append(HotKey(int(self.keys[at]), first, tuple(int(b) for b in bounds)))
            passed = end
        loads, copied = cold.copy(), 0.0
        for one in sides:
            for key in hot:
                mine = one.hashes == key.hash
                low, high = (_place(key, ticks[mine]) for ticks in (one.low, one.high))
                begun, ended = (np.bincount(at, minlength=len(places) + 1) for at in (low, high + 1))
                loads[places] += one.each * np.cumsum(begun - ended)[: len(places)]
                copied += one.each * float((high - low).sum())
        total = float(self.by_key.sum())
        found = Slices(
            self.tasks, tuple(hot), tuple(int(p) for p in places), total, copied, float(loads.max()),
            float(plain.max()),
        )  # fmt: skip
        return found, loads


def _summed(places: Ints, weights: Floats, count: int) -> Floats:
    found: Floats = np.bincount(places, weights, count).astype(np.float64)
    return found


def _room(cold: Floats, rows: float) -> Floats:
    """Return how many more rows each task gets, so that all are as full as can be alike."""
    order = np.sort(cold)
    levels = (rows + np.cumsum(order)) / np.arange(1, len(order) + 1)
    above = np.append(order[1:], np.inf)
    level = levels[np.argmax(levels <= above)]
    found: Floats = np.maximum(level - cold, 0.0)
    return found


def _place(key: HotKey, ticks: Ints) -> Ints:
    found: Ints = key.first + np.searchsorted(np.array(key.bounds, dtype=np.int64), ticks, side="right")
    return found


def within(ticks: Ints) -> Ints:
    """Return instants that are not further away than any row's can be."""
    found: Ints = np.clip(ticks, -FARTHEST, FARTHEST)
    return found
