"""Answers of interval joins: base rows beside aggregates of their probe rows, or beside each of these."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tidemill.kernels.memory import empty, taken
from tidemill.kernels.row_batches import taken_column, taken_or_null, taken_rows
from tidemill.local.interval_ranges import Found, Last
from tidemill.local.lifetimes import Ints
from tidemill.local.range_values import RangeValues
from tidemill.local.temporal_operator import Side
from tidemill.plan.intervals import IntervalAggregate, IntervalJoin, IntervalPairs, copied


class IntervalAnswers:
    """Makes the rows of results. Several threads may call it."""

    def __init__(self, plan: IntervalJoin) -> None:
        self._plan, self._values = plan, None
        if isinstance(plan, IntervalAggregate):
            self._values = RangeValues(plan.probe, plan.aggregates)

    def of(self, found: Found | Last, base: Side, probe: Side) -> Iterator[pa.RecordBatch]:
        """Yield the answers to base rows."""
        if not len(found.asked.base):
            return
        rows = base.rows.select(list(self._plan.base.schema.names))
        if isinstance(found, Last):
            yield self._last(found, rows, probe)
            return
        if isinstance(self._plan, IntervalPairs):
            yield from self._pairs(self._plan, found, rows, probe)
            return
        own = _some(rows, found.asked.base)
        values = self._aggregates(found, probe)
        yield pa.RecordBatch.from_arrays([*own.columns, *values], schema=self._plan.schema.to_arrow())

    def _aggregates(self, found: Found, probe: Side) -> list[pa.Array]:
        """Return the aggregates of base rows."""
        values = self._values
        assert values is not None and isinstance(self._plan, IntervalAggregate)
        in_order, order = not values.layout.commutative, found.asked.probe.order
        if copied(self._plan):
            rank = np.empty(len(probe.starts), dtype=np.int64)
            rank[order] = found.instants
            copies = ((own, order[others]) for own, others in found.pairs())
            return values.of_copies(probe.rows, copies, rank, len(found.asked.base))
        turn, places = found.in_turn, None
        first, last = taken(found.first, turn), taken(found.last, turn)
        if in_order:  # rows of one time are one element, in which values decide the order
            places = found.instants
            bounds = np.append(places, places[-1] + 1 if len(places) else 0)
            first, last = bounds[first], bounds[last]
        results = values.of_ranges(probe.rows, order, first, last, places=places, moving=found.moving)
        back = empty(len(turn))
        back[turn] = np.arange(len(turn))
        return [taken_column(column, back) for column in results]

    def _last(self, found: Last, rows: pa.RecordBatch, probe: Side) -> pa.RecordBatch:
        assert isinstance(self._plan, IntervalPairs)
        own, others = found.asked.base, found.others
        if self._plan.kind == "inner":
            there = others >= 0
            own, others = own[there], others[there]
        return self._paired(self._plan, _some(rows, own), probe, others)

    def _pairs(
        self, plan: IntervalPairs, found: Found, rows: pa.RecordBatch, probe: Side
    ) -> Iterator[pa.RecordBatch]:
        if not found.asked.by_condition:
            for own, others in found.spelled(alone=plan.kind == "left"):
                base = found.asked.base
                left = _some(rows, base) if own is None else taken_rows(rows, taken(base, own))
                yield self._paired(plan, left, probe, others)
            return
        alone = np.ones(len(found.asked.base), dtype=np.bool_)
        for own, others in found.pairs():
            alone[own] = False
            left = taken_rows(rows, found.asked.base[own])
            yield self._paired(plan, left, probe, found.asked.probe.order[others])
        if plan.kind == "left":
            left = taken_rows(rows, found.asked.base[alone])
            yield self._paired(plan, left, probe, np.full(left.num_rows, -1))

    def _paired(
        self, plan: IntervalPairs, left: pa.RecordBatch, probe: Side, others: Ints
    ) -> pa.RecordBatch:
        right = [taken_or_null(probe.rows.column(of), others) for _, of in plan.columns]
        return pa.RecordBatch.from_arrays([*left.columns, *right], schema=plan.schema.to_arrow())


def _some(rows: pa.RecordBatch, places: Ints) -> pa.RecordBatch:
    """Return rows at places that only go forward."""
    return rows if len(places) == rows.num_rows else taken_rows(rows, places)
