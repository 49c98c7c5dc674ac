"""Find the probe rows of base rows: ranges of probe rows that are in order of key and time, or pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tidemill.expr.nodes import Node
from tidemill.kernels.arrow import validity, values
from tidemill.kernels.intervals import (
    instants_of,
    nearest_rows,
    only_rows,
    ranges_by_key,
    ranges_in_time,
    rows_by_key,
    spelled_pairs,
)
from tidemill.kernels.memory import empty
from tidemill.kernels.order import order_by, ordered, refine
from tidemill.kernels.row_batches import taken_rows
from tidemill.local.expressions import evaluate
from tidemill.local.lifetimes import Ints, Mask
from tidemill.local.matching import PAIRS, Matching, spelled
from tidemill.local.ranking import rank
from tidemill.local.temporal_operator import Side
from tidemill.plan.intervals import Bound, Interval, IntervalJoin
from tidemill.plan.temporal import payload

FAR = 1 << 62
"""Further away than the time of any row."""
_FIRST_LOOK = 4
"""So many rows are looked at first to find one that fulfils a condition; then twice as many, and so on."""


@dataclass(frozen=True)
class Reach:
    """The interval of each base row, in ticks; both ends are part of it."""

    at: Ints
    low: Ints
    high: Ints
    bad: Mask | None
    """Rows whose bounds are null or negative, which have no interval; None if there are none."""


def reach(asked: Interval, side: Side, previous: Ints | None) -> Reach:
    """Compute the intervals of base rows. `previous` has the times of those before them, if they matter."""
    at = side.starts - asked.offset if asked.offset else side.starts
    (preceding, no_low), (following, no_high) = (_ticks(bound, side) for bound in asked.bounds)
    low = at - (preceding - asked.open_start)
    high = at + (following - asked.open_end) if asked.following != 0 or asked.open_end else at
    if previous is not None:
        low = np.maximum(low, previous + 1)
    if asked.without_current and not asked.has_hole:
        if asked.following == 0:
            low, high = np.minimum(low, at), np.minimum(high, at - 1)
        else:
            low = np.maximum(low, at + 1)
    bad = [mask for mask in (no_low, no_high) if mask is not None and mask.any()]
    return Reach(at, low, high, np.logical_or.reduce(bad) if bad else None)


def _ticks(bound: Bound, side: Side) -> tuple[Any, Mask | None]:
    """Return a bound, for all rows or for each row, at most `FAR`, and where it is null or negative."""
    if not isinstance(bound, Node):
        return min(bound, FAR), None
    found = evaluate(bound, side.rows.select(list(side.plan.schema.names)), side.plan.schema)
    valid = validity(found)
    ticks = values(found)
    bad = ticks < 0 if valid is None else (valid == 0) | (ticks < 0)
    return np.clip(np.where(bad, 0, ticks), 0, FAR), bad


@dataclass(frozen=True)
class Rows:
    """Probe rows in order of key and time."""

    heads: Ints
    """Where the rows of each key begin, and where all of them end."""
    order: Ints
    """Their places."""
    times: Ints
    in_time: tuple[Ints, Ints, Ints]
    """The keys and times of all rows, and these in order of time."""

    @staticmethod
    def of(keys: Ints, count: int, times: Ints, in_order: Ints) -> tuple[Rows, bool]:
        """Order rows with a key; return also whether two rows of a key have the same time."""
        heads, order, sorted_times = empty(count + 1), empty(len(keys)), empty(len(keys))
        ties = rows_by_key(keys, times, in_order, heads, order, sorted_times)
        n = int(heads[-1])
        return Rows(heads, order[:n], sorted_times[:n], (keys, times, in_order)), bool(ties)


@dataclass(frozen=True)
class Question:
    """Base rows, and which probe rows they ask for."""

    interval: Interval
    matching: Matching
    probe: Rows
    base: Ints
    """The places of base rows."""
    in_order: Ints
    """The base rows in order of their time, as places in `base`."""
    keys: Ints
    """Their key ids, below 0 if nothing belongs to a row."""
    at: Ints
    """The instant that each base row asks about."""
    low: Ints
    high: Ints
    sure: Ints
    """The instant up to which rows may come that belong to a base row, too."""

    @staticmethod
    def of(
        plan: IntervalJoin, matching: Matching, base: Side, probe: Side, own: Reach, rows: Ints | None
    ) -> Question:
        """Return what some base rows ask for, or all."""
        keys, starts, in_order = matching.keys[0], base.starts, base.in_order
        if own.bad is not None:
            keys = np.where(own.bad, -1, keys)
        at, low, high = own.at, own.low, own.high
        if rows is not None:
            keys, starts, at, low, high = (of[rows] for of in (keys, starts, at, low, high))
            in_order = ordered(starts)
        sure = high if high is starts else np.maximum(high, starts)
        places = np.arange(len(keys)) if rows is None else rows
        there = _in_order(plan, matching, probe)
        return Question(plan.interval, matching, there, places, in_order, keys, at, low, high, sure)

    @property
    def by_condition(self) -> bool:
        """Whether a range has candidates only, and `pairs` has the rows that belong to a base row."""
        return self.matching.where is not None or self.interval.has_hole

    def only(self, mask: Mask) -> Question:
        """Return some of the base rows."""
        if mask.all():
            return self
        place = np.cumsum(mask) - 1
        return self._chosen(mask, place[self.in_order[mask[self.in_order]]])

    def part(self, begin: int, end: int) -> Question:
        """Return the base rows from one to another."""
        order = self.in_order
        inside = order[(order >= begin) & (order < end)] - begin
        return self._chosen(slice(begin, end), inside)

    def _chosen(self, rows: Any, in_order: Ints) -> Question:
        names = ("base", "keys", "at", "low", "high", "sure")
        return replace(self, in_order=in_order, **{name: getattr(self, name)[rows] for name in names})

    def answer(self) -> Found:
        """Find what belongs to the base rows."""
        first, last, asked, rows = empty(len(self.base)), empty(len(self.base)), self.interval, self.probe
        prevailing, moving = asked.prevailing and not self.by_condition, True
        intervals = (self.keys, self.in_order, self.low, self.high)
        if not ranges_in_time(*intervals, *rows.in_time, rows.heads, prevailing, first, last):
            moving = ranges_by_key(*intervals, rows.heads, rows.times, prevailing, first, last)
        sure = self.sure
        if asked.max_rows is not None and not self.by_condition:
            latest = self.matching.left.starts[self.base]
            sure = sure.copy()
            nearest_rows(self.at, rows.times, asked.max_rows, first, last, sure)
            sure = np.maximum(sure, latest)
        return Found(self, first, last, sure, bool(moving))


@dataclass(frozen=True)
class Found:
    """What belongs to base rows."""

    asked: Question
    first: Ints
    last: Ints
    """For each base row the range `[first, last)` of its probe rows."""
    sure: Ints
    """The instant up to which rows may come that belong to a base row, too."""
    moving: bool
    """Whether ranges of a key only move forward."""

    def only(self, mask: Mask) -> Found:
        """Return some of the base rows."""
        if mask.all():
            return self
        first, last, sure = self.first[mask], self.last[mask], self.sure[mask]
        return replace(self, asked=self.asked.only(mask), first=first, last=last, sure=sure)

    @property
    def in_turn(self) -> Ints:
        """The base rows in the order in which ranges move forward: by key, then by time."""
        return refine(self.asked.in_order, self.asked.keys)

    @property
    def instants(self) -> Ints:
        """A number for each instant of probe rows of a key, in order."""
        rows = self.asked.probe
        numbers = empty(len(rows.times))
        instants_of(rows.heads, rows.times, numbers)
        return numbers

    @property
    def _interval(self) -> Interval:
        return self.asked.interval

    def pairs(self) -> Iterator[tuple[Ints, Ints]]:
        """Yield base rows and their probe rows, as places in both orders; those of one base row together."""
        if not self.asked.by_condition:
            yield from spelled(self.first, self.last)
            return
        if self._interval.max_rows is None and not self._interval.prevailing:
            for own, others in spelled(self.first, self.last):
                holds = self._holds(own, others)
                yield own[holds], others[holds]
            return
        yield self._searched()

    def spelled(self, *, alone: bool) -> Iterator[tuple[Ints | None, Ints]]:
        """Yield base rows and the places of their probe rows, a limited number at once.

        With `alone`, base rows without any are there once, with a place of -1. None is each base row once.
        """
        n, begin = len(self.asked.base), 0
        if alone and only_rows(self.first, self.last, self.asked.probe.order, only := empty(n)):
            yield None, only
            return
        counts = self.last - self.first
        until = np.cumsum(np.maximum(counts, 1) if alone else counts)
        while begin < n:
            before = int(until[begin - 1]) if begin else 0
            end = max(begin + 1, int(np.searchsorted(until, before + PAIRS, side="right")))
            pairs = int(until[end - 1]) - before
            if pairs:
                own, others = empty(pairs), empty(pairs)
                spelled_pairs(self.first, self.last, self.asked.probe.order, begin, end, alone, own, others)
                yield own, others
            begin = end

    def _holds(self, own: Ints, others: Ints) -> Mask:
        """Return which pairs fulfil the condition, and are not at the very instant if that is left out."""
        holds = self.asked.matching.holds(self.asked.base[own], self.asked.probe.order[others])
        if self._interval.without_current:
            holds &= self.asked.probe.times[others] != self.asked.at[own]
        return holds

    def _searched(self) -> tuple[Ints, Ints]:
        """Return the pairs where rows are looked for one after another, from the nearest one on."""
        asked, every, keys = self._interval, np.arange(len(self.first)), self.asked.keys
        found = []
        if asked.prevailing:
            begin = np.where(keys < 0, self.first, self.asked.probe.heads[keys])
            found.append(self._walk(begin, self.first, 1, back=True))
        if asked.max_rows is None:
            return _sorted([*found, self._passing(every, self.first, self.last)])
        begin, middle, far = empty(len(keys)), empty(len(keys)), np.full(len(keys), -FAR)
        heads, times = self.asked.probe.heads, self.asked.probe.times
        ranges_by_key(keys, self.asked.in_order, far, self.asked.at, heads, times, False, begin, middle)
        middle = np.clip(middle, self.first, self.last)
        found.append(self._walk(self.first, middle, asked.max_rows, back=True))
        found.append(self._walk(middle, self.last, asked.max_rows, back=False))
        own, others = _sorted(found)
        last = np.cumsum(np.bincount(own, minlength=len(keys)))
        first = np.append(0, last[:-1])
        nearest_rows(self.asked.at, times[others], asked.max_rows, first, last, self.sure.copy())
        places = np.concatenate([np.empty(0, dtype=np.int64), *(rows for _, rows in spelled(first, last))])
        return own[places], others[places]

    def _walk(self, first: Ints, last: Ints, most: int, *, back: bool) -> tuple[Ints, Ints]:
        """Return up to `most` pairs of each range that fulfil the condition, from its last (first) row on."""
        found, left = [], np.full(len(first), most)
        first, last, look = first.copy(), last.copy(), max(_FIRST_LOOK, most)
        while (open_ := np.flatnonzero((left > 0) & (first < last))).size:
            low = np.maximum(first[open_], last[open_] - look) if back else first[open_]
            high = last[open_] if back else np.minimum(last[open_], first[open_] + look)
            found.append(self._passing(open_, low, high))
            left -= np.bincount(found[-1][0], minlength=len(left))
            ends = last if back else first
            ends[open_] = low if back else high
            look *= 2
        own, others = _sorted(found, back=back)
        chosen = np.arange(len(own)) - np.searchsorted(own, own) < most
        return own[chosen], others[chosen]

    def _passing(self, rows: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        """Return the pairs of the ranges of some base rows that fulfil the condition."""
        found = []
        for some, others in spelled(low, high):
            own = rows[some]
            holds = self._holds(own, others)
            found.append((own[holds], others[holds]))
        return _joined(found)


_Pairs = tuple[Ints, Ints]


def _joined(found: Sequence[_Pairs]) -> _Pairs:
    own, others = zip(*found) if found else ((), ())
    nothing = np.empty(0, dtype=np.int64)
    return np.concatenate([nothing, *own]), np.concatenate([nothing, *others])


def _sorted(found: Sequence[_Pairs], *, back: bool = False) -> _Pairs:
    """Return pairs in order of the base rows, and of the probe rows, or `back` from the last one of these."""
    own, others = _joined(found)
    order = order_by(own, -others if back else others)
    return own[order], others[order]


def _in_order(plan: IntervalJoin, matching: Matching, probe: Side) -> Rows:
    """Return probe rows in order of key, of time, and of their other columns if that matters."""
    keys = matching.keys[1]
    found, ties = Rows.of(keys, matching.count, probe.starts, probe.in_order)
    if not ties or not plan.interval.in_row_order:
        return found
    there = found.order
    rows = taken_rows(probe.rows, there)
    ends = [] if plan.probe.end is None else [probe.ends[there]]
    order = order_by(keys[there], found.times, *ends, *rank(rows, plan.probe.schema, payload(plan.probe)))
    return replace(found, order=there[order])
