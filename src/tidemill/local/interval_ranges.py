"""Find the probe rows of base rows: ranges of probe rows that are in order of key and time, or pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

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
    bad: Mask
    """Rows whose bounds are null or negative, which have no interval."""


def reach(asked: Interval, side: Side, previous: Ints | None) -> Reach:
    """Compute the intervals of base rows. `previous` has the times of those before them, if they matter."""
    at = side.starts - asked.offset
    (preceding, bad_low), (following, bad_high) = (_ticks(bound, side) for bound in asked.bounds)
    low = at - preceding + asked.open_start
    high = at + following - asked.open_end
    if previous is not None:
        low = np.maximum(low, previous + 1)
    if asked.without_current and not asked.has_hole:
        if asked.following == 0:
            low, high = np.minimum(low, at), np.minimum(high, at - 1)
        else:
            low = np.maximum(low, at + 1)
    return Reach(at, low, high, bad_low | bad_high)


def _ticks(bound: Bound, side: Side) -> tuple[Ints, Mask]:
    """Return a bound for each row, at most `FAR`, and where it is null or negative."""
    n = len(side.starts)
    if not isinstance(bound, Node):
        return np.full(n, min(bound, FAR), dtype=np.int64), np.zeros(n, dtype=np.bool_)
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

    @staticmethod
    def of(keys: Ints, count: int, times: Ints, in_order: Ints) -> tuple[Rows, bool]:
        """Order rows with a key; return also whether two rows of a key have the same time."""
        heads, order, sorted_times = empty(count + 1), empty(len(keys)), empty(len(keys))
        ties = rows_by_key(keys, times, in_order, heads, order, sorted_times)
        n = int(heads[-1])
        return Rows(heads, order[:n], sorted_times[:n]), bool(ties)


@dataclass(frozen=True)
class Found:
    """Base rows and probe rows, and what belongs together."""

    base: Ints
    """The places of base rows."""
    in_order: Ints
    """The base rows in order of their time, as places in `base`."""
    keys: Ints
    """The key ids of base rows, below 0 if nothing belongs to a row."""
    at: Ints
    """The instant that each base row asks about."""
    probe: Rows
    first: Ints
    last: Ints
    """For each base row the range `[first, last)` of its probe rows."""
    sure: Ints
    """The instant up to which rows may come that belong to a base row, too."""
    moving: bool
    """Whether ranges of a key only move forward."""
    by_condition: bool
    """Whether a range has candidates only, and `pairs` has the rows that belong to a base row."""
    reach: Reach
    matching: Matching
    asked: Interval

    def only(self, mask: Mask) -> Found:
        """Return some of the base rows."""
        if mask.all():
            return self
        rows = (self.base, self.keys, self.at, self.first, self.last, self.sure)
        base, keys, at, first, last, sure = (of[mask] for of in rows)
        place = np.cumsum(mask) - 1
        in_order = place[self.in_order[mask[self.in_order]]]
        found = {"base": base, "keys": keys, "at": at, "first": first, "last": last, "sure": sure}
        return replace(self, in_order=in_order, **found)

    @property
    def in_turn(self) -> Ints:
        """The base rows in the order in which ranges move forward: by key, then by time."""
        return refine(self.in_order, self.keys)

    @property
    def instants(self) -> Ints:
        """A number for each instant of probe rows of a key, in order."""
        numbers = empty(len(self.probe.times))
        instants_of(self.probe.heads, self.probe.times, numbers)
        return numbers

    def pairs(self) -> Iterator[tuple[Ints, Ints]]:
        """Yield base rows and their probe rows, as places in both orders; those of one base row together."""
        if not self.by_condition:
            yield from spelled(self.first, self.last)
            return
        if self.asked.max_rows is None and not self.asked.prevailing:
            for own, others in spelled(self.first, self.last):
                holds = self._holds(own, others)
                yield own[holds], others[holds]
            return
        yield self._searched()

    def spelled(self, *, alone: bool) -> Iterator[tuple[Ints | None, Ints]]:
        """Yield base rows and the places of their probe rows, a limited number at once.

        With `alone`, base rows without any are there once, with a place of -1. None is each base row once.
        """
        n, begin = len(self.base), 0
        if alone and only_rows(self.first, self.last, self.probe.order, only := empty(n)):
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
                spelled_pairs(self.first, self.last, self.probe.order, begin, end, alone, own, others)
                yield own, others
            begin = end

    def _holds(self, own: Ints, others: Ints) -> Mask:
        """Return which pairs fulfil the condition, and are not at the very instant if that is left out."""
        holds = self.matching.holds(self.base[own], self.probe.order[others])
        if self.asked.without_current:
            holds &= self.probe.times[others] != self.at[own]
        return holds

    def _searched(self) -> tuple[Ints, Ints]:
        """Return the pairs where rows are looked for one after another, from the nearest one on."""
        asked, every, keys = self.asked, np.arange(len(self.base)), self.keys
        found = []
        if asked.prevailing:
            begin = np.where(keys < 0, self.first, self.probe.heads[keys])
            found.append(self._walk(begin, self.first, 1, back=True))
        if asked.max_rows is None:
            return _sorted([*found, self._passing(every, self.first, self.last)])
        begin, middle, far = empty(len(keys)), empty(len(keys)), np.full(len(keys), -FAR)
        heads, times = self.probe.heads, self.probe.times
        ranges_by_key(keys, self.in_order, far, self.at, heads, times, False, begin, middle)
        middle = np.clip(middle, self.first, self.last)
        found.append(self._walk(self.first, middle, asked.max_rows, back=True))
        found.append(self._walk(middle, self.last, asked.max_rows, back=False))
        own, others = _sorted(found)
        last = np.cumsum(np.bincount(own, minlength=len(keys)))
        first = np.append(0, last[:-1])
        nearest_rows(self.at, times[others], asked.max_rows, first, last, self.sure.copy())
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


def find(
    plan: IntervalJoin, matching: Matching, base: Side, probe: Side, rows: Ints | None, previous: Ints | None
) -> Found:
    """Find what belongs to some base rows, or to all."""
    asked = plan.interval
    own = reach(asked, base, previous)
    keys, starts, in_order = matching.keys[0], base.starts, base.in_order
    if own.bad.any():
        keys = np.where(own.bad, -1, keys)
    at, low, high = own.at, own.low, own.high
    if rows is not None:
        keys, starts, at, low, high = (of[rows] for of in (keys, starts, at, low, high))
        in_order = ordered(starts)
    there = _in_order(plan, matching, probe)
    first, last = empty(len(keys)), empty(len(keys))
    by_condition = matching.where is not None or asked.has_hole
    prevailing, moving = asked.prevailing and not by_condition, True
    if not ranges_in_time(
        keys, in_order, low, high, matching.keys[1], probe.starts, probe.in_order, there.heads, prevailing,
        first, last,
    ):  # fmt: skip
        moving = ranges_by_key(keys, in_order, low, high, there.heads, there.times, prevailing, first, last)
    sure = np.maximum(high, starts)
    if asked.max_rows is not None and not by_condition:
        nearest_rows(at, there.times, asked.max_rows, first, last, sure)
        sure = np.maximum(sure, starts)
    places = np.arange(len(keys)) if rows is None else rows
    return Found(
        places, in_order, keys, at, there, first, last, sure, bool(moving), by_condition, own, matching, asked
    )


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
