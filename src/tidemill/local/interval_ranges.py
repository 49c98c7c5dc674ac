"""Find the probe rows of base rows: ranges of probe rows that are in order of key and time, or pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tidemill.expr.nodes import Node
from tidemill.kernels.arrow import validity, values
from tidemill.kernels.intervals import interval_ranges, nearest_rows
from tidemill.kernels.memory import empty
from tidemill.kernels.order import order_by
from tidemill.kernels.row_batches import taken_rows
from tidemill.local.expressions import evaluate
from tidemill.local.lifetimes import Ints, Mask
from tidemill.local.matching import Matching, spelled
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
class Found:
    """Base rows and probe rows, both in order of key and time, and what belongs together."""

    base: Ints
    """The places of base rows."""
    probe: Ints
    """The places of the probe rows whose keys match something."""
    keys: Ints
    """The key ids of these probe rows."""
    times: Ints
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
        rows = (self.base, self.first, self.last, self.sure)
        base, first, last, sure = (of[mask] for of in rows)
        return replace(self, base=base, first=first, last=last, sure=sure)

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

    def _holds(self, own: Ints, others: Ints) -> Mask:
        """Return which pairs fulfil the condition, and are not at the very instant if that is left out."""
        holds = self.matching.holds(self.base[own], self.probe[others])
        if self.asked.without_current:
            holds &= self.times[others] != self.reach.at[self.base[own]]
        return holds

    def _searched(self) -> tuple[Ints, Ints]:
        """Return the pairs where rows are looked for one after another, from the nearest one on."""
        asked, every = self.asked, np.arange(len(self.base))
        keys = self.matching.keys[0][self.base]
        found = []
        if asked.prevailing:
            found.append(self._walk(np.searchsorted(self.keys, keys), self.first, 1, back=True))
        if asked.max_rows is None:
            return _sorted([*found, self._passing(every, self.first, self.last)])
        at = self.reach.at[self.base]
        begin, middle = empty(len(at)), empty(len(at))
        interval_ranges(keys, np.full(len(at), -FAR), at, self.keys, self.times, False, begin, middle)
        middle = np.clip(middle, self.first, self.last)
        found.append(self._walk(self.first, middle, asked.max_rows, back=True))
        found.append(self._walk(middle, self.last, asked.max_rows, back=False))
        own, others = _sorted(found)
        last = np.cumsum(np.bincount(own, minlength=len(at)))
        first = np.append(0, last[:-1])
        nearest_rows(at, self.times[others], asked.max_rows, first, last, self.sure.copy())
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
    plan: IntervalJoin, matching: Matching, base: Side, probe: Side, rows: Ints, previous: Ints | None
) -> Found:
    """Find what belongs to some base rows."""
    asked = plan.interval
    own = reach(asked, base, previous)
    keys, other_keys = matching.keys
    keys = np.where(own.bad, -1, keys)
    matching = replace(matching, keys=(keys, other_keys))
    order = rows[order_by(keys[rows], own.at[rows])]
    there = np.flatnonzero(other_keys >= 0)
    there = there[_in_order(plan, probe, other_keys, there)]
    probe_keys, times = other_keys[there], probe.starts[there]
    first, last = empty(len(order)), empty(len(order))
    by_condition = matching.where is not None or asked.has_hole
    at, low, high = own.at[order], own.low[order], own.high[order]
    _, moving = interval_ranges(
        keys[order], low, high, probe_keys, times, asked.prevailing and not by_condition, first, last
    )
    sure = np.maximum(high, base.starts[order])
    if asked.max_rows is not None and not by_condition:
        _, moving = nearest_rows(at, times, asked.max_rows, first, last, sure)
        sure = np.maximum(sure, base.starts[order])
    return Found(
        order, there, probe_keys, times, first, last, sure, moving, by_condition, own, matching, asked
    )


def _in_order(plan: IntervalJoin, probe: Side, keys: Ints, there: Ints) -> Ints:
    """Return the order of some probe rows: by key, by time, and by their other columns if that matters."""
    columns = [keys[there], probe.starts[there]]
    if plan.interval.in_row_order and not _differ(*columns):
        rows = taken_rows(probe.rows, there)
        ends = [] if plan.probe.end is None else [probe.ends[there]]
        columns += [*ends, *rank(rows, plan.probe.schema, payload(plan.probe))]
    return order_by(*columns)


def _differ(keys: Ints, times: Ints) -> bool:
    """Return whether no two rows of a key have the same time."""
    order = order_by(keys, times)
    keys, times = keys[order], times[order]
    return not bool(((keys[1:] == keys[:-1]) & (times[1:] == times[:-1])).any())
