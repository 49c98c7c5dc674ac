"""Interval joins: each base row with its probe rows, when all of these are there (paper 004)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.core.time import BEGINNING, FOREVER
from tidemill.kernels.intervals import earlier_times, needed_rows
from tidemill.kernels.memory import empty
from tidemill.kernels.order import order_by, ordered
from tidemill.kernels.row_batches import taken_column, taken_rows
from tidemill.local.interval_ranges import FAR, Found, find
from tidemill.local.lifetimes import Ints, Mask
from tidemill.local.matching import Matching
from tidemill.local.range_values import RangeValues
from tidemill.local.temporal_operator import Side, TemporalOperator
from tidemill.plan.intervals import IntervalAggregate, IntervalJoin, IntervalPairs, copied

_ANSWERED, _PREVIOUS = "\0state answered", "\0state previous"
"""Whether a base row was answered, and the time of the base row before it."""


class IntervalOperator(TemporalOperator):
    """Keeps the base rows that wait for probe rows, and the probe rows that base rows to come may need."""

    plan: IntervalJoin

    def __init__(self, plan: IntervalJoin, *args: Any, **kwargs: Any) -> None:
        self.state = ((_ANSWERED, _PREVIOUS) if plan.interval.since_previous else (), ())
        super().__init__(plan, *args, **kwargs)
        aggregates = plan.aggregates if isinstance(plan, IntervalAggregate) else None
        self._values = None if aggregates is None else RangeValues(plan.probe, aggregates)

    def _work(
        self, sides: list[Side], below: int
    ) -> tuple[Iterable[pa.RecordBatch], list[pa.RecordBatch]]:
        base, probe = sides
        matching = Matching.of(self.plan.match, base, probe, self._refusing(base))
        answered, previous = self._since(base, matching.keys[0])
        waiting = np.flatnonzero(~answered)
        found = find(self.plan, matching, base, probe, waiting, previous)
        self._refuse_bad(base, found)
        ready = (found.sure < below) | (below == FOREVER)
        done = answered.copy()
        done[found.base[ready]] = True
        open_ = np.flatnonzero(~done)
        if len(open_):
            self._held = int(base.starts[open_].min())
            self._wake = int(found.sure[~ready].min())
        kept = [
            self._base_to_keep(base, matching.keys[0], done, previous),
            self._probe_to_keep(found, open_, probe, below),
        ]
        return self._answers(found.only(ready), base, probe), kept

    def _since(self, base: Side, keys: Ints) -> tuple[Mask, Ints | None]:
        """Return which base rows were answered, and the time of the one before each, if that matters."""
        if not self.plan.interval.since_previous:
            return np.zeros(len(base.starts), dtype=np.bool_), None
        known = ~base.is_new
        answered = known & (base.state(_ANSWERED) != 0)
        previous = empty(len(base.starts))
        earlier_times(keys, base.starts, order_by(keys, base.starts), previous)
        return answered, np.where(known, base.state(_PREVIOUS), previous)

    def _refuse_bad(self, base: Side, found: Found) -> None:
        """Keep a copy of new base rows whose bounds are null or negative; they are answered with no rows."""
        bad = np.flatnonzero(found.reach.bad & base.is_new)
        if self._lenient and len(bad):
            self._refuse(base.rows.take(pa.array(bad)), "no interval: a bound is null or negative")

    # -- what is kept

    def _base_to_keep(self, base: Side, keys: Ints, done: Mask, previous: Ints | None) -> pa.RecordBatch:
        if previous is None:
            return base.keep(~done)
        order = order_by(keys, base.starts)
        last = np.append(keys[order][1:] != keys[order][:-1], True)[: len(order)]
        keep = ~done
        keep[order[last]] = True  # rows to come are after it
        keep &= ~done | (keys >= 0)
        return base.keep(keep, **{_ANSWERED: done.astype(np.int64), _PREVIOUS: previous})

    def _probe_to_keep(self, found: Found, open_: Ints, probe: Side, below: int) -> pa.RecordBatch:
        asked, needed = self.plan.interval, np.zeros(len(probe.starts), dtype=np.bool_)
        if below < FOREVER:
            at = below - asked.offset
            low = BEGINNING if not isinstance(asked.preceding, int) else at - min(asked.preceding, FAR)
            if len(open_):
                at = min(at, int(found.reach.at[open_].min()))
                low = min(low, int(found.reach.low[open_].min()))
            if asked.prevailing and found.by_condition:
                low = BEGINNING
            most = 0 if asked.max_rows is None or found.by_condition else asked.max_rows
            mask = np.zeros(len(found.probe), dtype=np.bool_)
            needed_rows(found.keys, found.times, low, at, most, asked.prevailing, mask)
            needed[found.probe] = mask
        return probe.keep(needed)

    def _ends(self, port: int, kept: pa.RecordBatch) -> int:
        return FOREVER  # `_wake` says when base rows can be answered

    # -- answers

    def _answers(self, found: Found, base: Side, probe: Side) -> Iterator[pa.RecordBatch]:
        if not len(found.base):
            return
        rows = base.rows.select(list(self.plan.base.schema.names))
        if isinstance(self.plan, IntervalPairs):
            yield from self._pairs(self.plan, found, rows, probe)
            return
        order = ordered(found.base)  # results come as rows did
        values = [taken_column(column, order) for column in self._aggregates(found, probe)]
        own = taken_rows(rows, found.base[order])
        yield pa.RecordBatch.from_arrays([*own.columns, *values], schema=self.plan.schema.to_arrow())

    def _aggregates(self, found: Found, probe: Side) -> list[pa.Array]:
        """Return the aggregates of base rows, in order of key and time."""
        values = self._values
        assert values is not None and isinstance(self.plan, IntervalAggregate)
        in_order = not values.layout.commutative
        if not copied(self.plan):
            first, last, places = found.first, found.last, None
            if in_order:  # rows of one time are one element, in which values decide the order
                places = _instants(found)
                bounds = np.append(places, places[-1] + 1 if len(places) else 0)
                first, last = bounds[first], bounds[last]
            return values.of_ranges(
                probe.rows, found.probe, first, last, places=places, moving=found.moving
            )
        rank = np.empty(len(probe.starts), dtype=np.int64)
        rank[found.probe] = _instants(found)
        copies = ((own, found.probe[others]) for own, others in found.pairs())
        return values.of_copies(probe.rows, copies, rank, len(found.base))

    def _pairs(
        self, plan: IntervalPairs, found: Found, rows: pa.RecordBatch, probe: Side
    ) -> Iterator[pa.RecordBatch]:
        alone = np.ones(len(found.base), dtype=np.bool_)
        for own, others in found.pairs():
            alone[own] = False
            yield self._paired(plan, rows, found.base[own], probe, pa.array(found.probe[others]))
        if plan.kind == "left":
            left = found.base[alone]
            yield self._paired(plan, rows, left, probe, pa.nulls(len(left), pa.int64()))

    def _paired(
        self, plan: IntervalPairs, rows: pa.RecordBatch, own: Ints, probe: Side, others: pa.Array
    ) -> pa.RecordBatch:
        left = taken_rows(rows, own)
        right = [probe.rows.column(of).take(others) for _, of in plan.columns]
        return pa.RecordBatch.from_arrays([*left.columns, *right], schema=plan.schema.to_arrow())


def _instants(found: Found) -> Ints:
    """Number the instants of probe rows by key: rows of a key and a time have the same number."""
    keys, times = found.keys, found.times
    if not len(keys):
        return keys
    new = np.append(True, (keys[1:] != keys[:-1]) | (times[1:] != times[:-1]))
    return np.cumsum(new) - 1
