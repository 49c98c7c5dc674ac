"""Find the probe rows of base rows: ranges of probe rows that are in order of key and time, or pairs."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.core.batch import to_rows
from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.expr.evaluate import evaluate as define
from tidemill.expr.nodes import Node
from tidemill.kernels.arrow import validity, values
from tidemill.kernels.intervals import (
    instants_of,
    last_in_time,
    last_needed,
    nearest_rows,
    only_rows,
    put_places,
    ranges_by_key,
    ranges_in_time,
    rows_by_key,
    spelled_pairs,
)
from tidemill.kernels.memory import empty, taken
from tidemill.kernels.order import in_places, order_by, places_in_order, refine
from tidemill.kernels.row_batches import taken_rows
from tidemill.local.expressions import evaluate
from tidemill.local.lifetimes import Ints, Mask
from tidemill.local.matching import PAIRS, Matching, spelled
from tidemill.local.ranking import rank
from tidemill.local.temporal_operator import Side
from tidemill.plan.intervals import Bound, Interval, IntervalJoin, IntervalPairs
from tidemill.plan.temporal import payload

FAR = 1 << 62
"""Further away than the time of any row."""
_AS_THEY_ARE = np.empty(0, dtype=np.int64)
_FIRST_LOOK = 4
"""So many rows are looked at first to find one that fulfils a condition; then twice as many, and so on."""


@dataclass(frozen=True)
class Reach:
    """The interval of each base row, in ticks; both ends are part of it."""

    at: Ints
    low: Ints
    high: Ints
    bad: Mask | None
    """Rows whose bounds are null, negative or fail, which have no interval; None if there are none."""


def reach(asked: Interval, side: Side, previous: Ints | None, *, lenient: bool) -> Reach:
    """Compute the intervals of base rows. `previous` has the times of those before them, if they matter.

    A bound that fails for a row is an error, unless `lenient`.
    """
    (preceding, no_low), (following, no_high) = (_ticks(bound, side, lenient) for bound in asked.bounds)
    at, low, high = ends(asked, side.starts, preceding, following, previous)
    bad = [mask for mask in (no_low, no_high) if mask is not None and mask.any()]
    return Reach(at, low, high, np.logical_or.reduce(bad) if bad else None)


def ends(asked: Interval, starts: Any, preceding: Any, following: Any, previous: Any = None) -> Any:
    """Return the instants that base rows ask about, and both ends of their intervals, which are part of them.

    All are arrays, or ticks of one row; bounds are at most `FAR`.

    >>> ends(Interval(open_start=True), 100, 60, 0)
    (100, 41, 100)
    """
    at = starts - asked.offset if asked.offset else starts
    low = at - (preceding - asked.open_start)
    high = at + (following - asked.open_end) if asked.following != 0 or asked.open_end else at
    if previous is not None:
        low = np.maximum(low, previous + 1)
    if asked.without_current and not asked.has_hole:
        if asked.following == 0:
            low, high = np.minimum(low, at), np.minimum(high, at - 1)
        else:
            low = np.maximum(low, at + 1)
    return at, low, high


def _ticks(bound: Bound, side: Side, lenient: bool) -> tuple[Any, Mask | None]:
    """Return a bound, for all rows or for each row, at most `FAR`, and where there is none."""
    if not isinstance(bound, Node):
        return min(bound, FAR), None
    schema = side.plan.schema
    rows = side.rows.select(list(schema.names))
    try:
        found = evaluate(bound, rows, schema)
    except UserError as wrong:
        if not lenient:
            raise UserError(
                "interval_join", f"the bound {bound} failed on a row: {wrong}",
                hint="leave such rows out first, with .where(...)",
            ) from wrong  # fmt: skip
        found = pa.array([ticks_of(bound, row, schema) for row in to_rows([rows], schema)], pa.int64())
    valid = validity(found)
    ticks = values(found)
    bad = ticks < 0 if valid is None else (valid == 0) | (ticks < 0)
    return np.clip(np.where(bad, 0, ticks), 0, FAR), bad


def ticks_of(bound: Node, row: Mapping[str, Any], schema: Schema) -> int | None:
    """Return the bound of one row; None if it is null or fails."""
    try:
        ticks: int | None = define(bound, row, schema)
    except UserError:
        return None
    return ticks


@dataclass(frozen=True)
class InTime:
    """Rows of a side in order of their time."""

    keys: Ints
    """The key id of each row; below 0 if it matches nothing."""
    times: Ints
    places: Ints | None
    """The place of each row; None if they are in this order."""

    @staticmethod
    def of(keys: Ints, times: Ints) -> InTime:
        """Put rows in order."""
        places = places_in_order(times)
        return InTime(in_places(keys, places), in_places(times, places), places)

    def place(self, rows: Ints) -> Ints:
        """Return the places of rows that are given by their numbers in this order."""
        return rows if self.places is None else taken(self.places, rows)


@dataclass(frozen=True)
class Rows:
    """Probe rows in order of key and time."""

    heads: Ints
    """Where the rows of each key begin, and where all of them end."""
    order: Ints
    """Their places."""
    times: Ints

    @staticmethod
    def of(rows: InTime, count: int) -> tuple[Rows, bool]:
        """Order rows with a key; return also whether two rows of a key have the same time."""
        heads, order, times = empty(count + 1), empty(len(rows.keys)), empty(len(rows.keys))
        ties = rows_by_key(rows.keys, rows.times, heads, order, times)
        n = int(heads[-1])
        return Rows(heads, rows.place(order[:n]), times[:n]), bool(ties)


@dataclass(frozen=True)
class Probe:
    """Probe rows, in the orders in which they are asked for."""

    in_time: InTime
    plan: IntervalJoin
    matching: Matching

    @functools.cached_property
    def by_key(self) -> Rows:
        """They are in order of key, of time, and of their other columns if that matters."""
        plan, side = self.plan, self.matching.right
        found, ties = Rows.of(self.in_time, self.matching.count)
        if not ties or not plan.interval.in_row_order:
            return found
        there = found.order
        rows = taken_rows(side.rows, there)
        ends = [] if plan.probe.end is None else [side.ends[there]]
        keys = self.matching.keys[1][there]
        order = order_by(keys, found.times, *ends, *rank(rows, plan.probe.schema, payload(plan.probe)))
        return replace(found, order=there[order])

    def last_needed(self, from_low: int, from_at: int) -> Mask:
        """Return the rows that base rows to come may need, which get the last one up to an instant each."""
        rows = self.in_time
        needed, latest = np.zeros(len(rows.keys), dtype=np.bool_), empty(self.matching.count)
        last_needed(rows.keys, rows.times, from_low, from_at, latest, needed)
        if rows.places is None:
            return needed
        found = np.zeros(len(needed), dtype=np.bool_)
        found[rows.places[needed]] = True
        return found


@dataclass(frozen=True)
class Question:
    """Base rows, and which probe rows they ask for."""

    interval: Interval
    matching: Matching
    rows: Probe
    base: Ints
    """The places of base rows."""
    in_order: Ints | None
    """The base rows in order of their time, as places in `base`; None if they are in this order."""
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
        keys, starts = matching.keys[0], base.starts
        if own.bad is not None:
            keys = np.where(own.bad, -1, keys)
        at, low, high = own.at, own.low, own.high
        if rows is not None:
            keys, starts, at, low, high = (of[rows] for of in (keys, starts, at, low, high))
        in_order = places_in_order(starts)
        sure = high if high is starts else np.maximum(high, starts)
        places = np.arange(len(keys)) if rows is None else rows
        there = Probe(InTime.of(matching.keys[1], probe.starts), plan, matching)
        return Question(plan.interval, matching, there, places, in_order, keys, at, low, high, sure)

    @property
    def probe(self) -> Rows:
        """The probe rows in order of key and time."""
        return self.rows.by_key

    @property
    def by_condition(self) -> bool:
        """Whether a range has candidates only, and `pairs` has the rows that belong to a base row."""
        return self.matching.where is not None or self.interval.has_hole

    @property
    def wants_last(self) -> bool:
        """Whether each base row gets the last one of the probe rows up to an instant, or none."""
        asked, pairs = self.interval, isinstance(self.rows.plan, IntervalPairs)
        backward = asked.max_rows == 1 and isinstance(asked.following, int) and asked.following == 0
        return pairs and backward and not asked.prevailing and not self.by_condition

    def only(self, mask: Mask) -> Question:
        """Return some of the base rows."""
        if mask.all():
            return self
        order = self.in_order
        if order is not None:
            order = (np.cumsum(mask) - 1)[order[mask[order]]]
        names = ("base", "keys", "at", "low", "high", "sure")
        return replace(self, in_order=order, **{name: getattr(self, name)[mask] for name in names})

    def answer(self) -> Found | Last:
        """Find what belongs to the base rows."""
        if self.wants_last and (others := self._last()) is not None:
            return Last(self, others, self.sure)
        first, last, asked, rows = empty(len(self.base)), empty(len(self.base)), self.interval, self.probe
        prevailing = asked.prevailing and not self.by_condition
        moving = self._in_turn(first, last, prevailing)
        if not moving:
            moving = self.by_key(self.low, self.high, prevailing, first, last)
        sure = self.sure
        if asked.max_rows is not None and not self.by_condition:
            latest = self.matching.left.starts[self.base]
            sure = sure.copy()
            nearest_rows(self.at, rows.times, asked.max_rows, first, last, sure)
            sure = np.maximum(sure, latest)
        return Found(self, first, last, sure, moving)

    def by_key(self, low: Ints, high: Ints, prevailing: bool, first: Ints, last: Ints) -> bool:
        """Write the probe rows of each base row; return whether ranges of a key only move forward."""
        order = np.arange(len(self.keys)) if self.in_order is None else self.in_order
        rows = self.probe
        return bool(
            ranges_by_key(self.keys, order, low, high, rows.heads, rows.times, prevailing, first, last)
        )

    def _in_turn(self, first: Ints, last: Ints, prevailing: bool) -> bool:
        """As `by_key`, if intervals only move forward in order of time; otherwise return False."""
        keys, low, high = (in_places(column, self.in_order) for column in (self.keys, self.low, self.high))
        probe, heads = self.rows.in_time, self.probe.heads
        into = (first, last) if self.in_order is None else (empty(len(keys)), empty(len(keys)))
        if not ranges_in_time(keys, low, high, probe.keys, probe.times, heads, prevailing, *into):
            return False
        if self.in_order is not None:
            first[self.in_order], last[self.in_order] = into
        return True

    def _last(self) -> Ints | None:
        """Return the place of the probe row of each base row, -1 if there is none; None if times are tied."""
        keys, low, high = (in_places(column, self.in_order) for column in (self.keys, self.low, self.high))
        probe, found = self.rows.in_time, empty(len(keys))
        latest = empty((self.matching.count, 2))
        if not last_in_time(keys, low, high, probe.keys, probe.times, latest, found):
            return None
        if self.in_order is None and probe.places is None:
            return found
        others = empty(len(keys))
        put_places(found, *(_AS_THEY_ARE if p is None else p for p in (probe.places, self.in_order)), others)
        return others


@dataclass(frozen=True)
class Last:
    """The last probe row of each base row."""

    asked: Question
    others: Ints
    """Its place, -1 where there is none."""
    sure: Ints
    """The instant up to which rows may come that belong to a base row, too."""

    def only(self, mask: Mask) -> Last:
        """Return some of the base rows."""
        if mask.all():
            return self
        return Last(self.asked.only(mask), self.others[mask], self.sure[mask])


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
        times = self.asked.probe.times
        self.asked.by_key(far, self.asked.at, False, begin, middle)
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
