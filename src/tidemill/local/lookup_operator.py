"""Joins with rows that hold for ever: build a hash table, then probe it (paper 000, section 5.2.2).

Rows of the stream need no watermark: what they match is known as soon as the table is complete. Until then
they wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.core.time import FOREVER
from tidemill.core.types import to_arrow
from tidemill.kernels.keys import KeyIndex
from tidemill.kernels.memory import empty
from tidemill.kernels.order import order_by
from tidemill.kernels.overlaps import spelled_out
from tidemill.local.lifetimes import (
    Ints,
    Mask,
    check_lifetimes,
    ends_of,
    instants,
    starts_of,
    without_nulls,
)
from tidemill.local.matching import Matching
from tidemill.local.temporal_operator import Side, TemporalOperator
from tidemill.plan.nodes import Plan
from tidemill.plan.properties import properties
from tidemill.plan.temporal import LEFT, Cut, Join


def looks_up(plan: Join | Cut) -> bool:
    """Return whether the right side is a table, and rows of the left side have at most its columns added."""
    return properties(plan.right).everlasting and plan.kind in ("inner", "left", "exists", "not_exists")


class LookupOperator(TemporalOperator):
    """Keeps the table, and the rows of the stream that came before it was complete."""

    plan: Join | Cut

    def __init__(self, plan: Join | Cut, *args: Any, **kwargs: Any) -> None:
        super().__init__(plan, *args, **kwargs)
        self._table: _Table | None = None

    def push(self, port: int, batch: pa.RecordBatch) -> Sequence[pa.RecordBatch]:
        if port == 1 or self._table is None:
            return super().push(port, batch)
        check_lifetimes(self.inputs[0], batch)
        return self._found(self._in_time(0, batch))

    def advance(self, port: int, below: int, *, prompt: bool = False) -> Iterator[pa.RecordBatch]:
        self._marks.raise_to(port, below)
        if self._marks.ports[1] == FOREVER and self._table is None:
            rows = [self._kept_rows[1], *self._waiting[1]]
            self._kept_rows[1], self._waiting[1] = pa.concat_batches(rows), []
            self._table = _Table(self.plan, self._kept_rows[1])
            waiting, self._waiting[0] = self._waiting[0], []
            for batch in waiting:
                yield from self._found(batch)
            self._see_next()
        if self._table is not None:
            self._done = self._marks.ports[0]

    def advance_keys(self, *args: Any, **kwargs: Any) -> Iterator[pa.RecordBatch]:
        return iter(())  # rows never wait for a watermark

    @property
    def wants_advance(self) -> bool:
        return self._table is None

    def _found(self, batch: pa.RecordBatch) -> Sequence[pa.RecordBatch]:
        assert self._table is not None
        return self._probed(self._table, batch, *self._table.ranges(batch))

    def _probed(self, table: _Table, batch: pa.RecordBatch, low: Ints, high: Ints) -> list[pa.RecordBatch]:
        """Return what rows find in ranges of the table; rows that find many are divided."""
        half = batch.num_rows // 2
        if half and int((high - low).sum()) > self._tuning.many_pairs:
            return [
                *self._probed(table, batch.slice(0, half), low[:half], high[:half]),
                *self._probed(table, batch.slice(half), low[half:], high[half:]),
            ]
        out = table.probed(batch, low, high, self)
        return [out] if out.num_rows else []

    def refusing(self, side: Side) -> Any:
        """Return what keeps rows apart for which the condition fails."""
        return self._refusing(side)

    def _work(self, sides: list[Side], below: int) -> Any:
        raise NotImplementedError("rows are looked up when they come")


class _Table:
    """The rows of a table by their keys."""

    def __init__(self, plan: Join | Cut, rows: pa.RecordBatch) -> None:
        self._plan, self._match = plan, plan.match
        self._index = (
            KeyIndex(plan.left.schema.select(self._match.left_keys))
            if self._match.left_keys
            else None
        )
        kid = np.zeros(rows.num_rows, dtype=np.int64)
        if self._index is not None and rows.num_rows:
            kid = self._index.encode([rows.column(n) for n in self._match.right_keys])
            kid = without_nulls(kid, rows, self._match.right_keys[len(self._match.scope) :], -1)
        order = order_by(kid)
        self._rows = rows.take(pa.array(order[kid[order] >= 0]))
        count = 1 if self._index is None else self._index.count
        self._first = np.append(0, np.cumsum(np.bincount(kid[kid >= 0], minlength=max(1, count))))
        self._unique = bool((np.diff(self._first) <= 1).all())
        self._outputs: list[tuple[bool, str]] = []
        if isinstance(plan, Join):
            self._outputs = [(of.startswith(LEFT), of.split(".", 1)[1]) for _, of in plan.columns]
        self._schema = plan.schema.to_arrow()

    def probed(
        self, batch: pa.RecordBatch, low: Ints, high: Ints, operator: LookupOperator
    ) -> pa.RecordBatch:
        """Return what rows of the stream find in their ranges of the table."""
        rows: Ints
        if self._unique:
            there = high > low
            rows, found = np.flatnonzero(there), low[there]
        else:
            pairs = int((high - low).sum())
            rows, found = empty(pairs), empty(pairs)
            spelled_out(low, high, 0, len(low), rows, found)
        if self._match.where is not None:
            passed = self._holds(batch, rows, found, operator)
            rows, found = rows[passed], found[passed]
        if isinstance(self._plan, Cut):
            met = np.zeros(batch.num_rows, dtype=np.bool_)
            met[rows] = True
            kept: Mask = met if self._plan.kind == "exists" else ~met
            return batch if kept.all() else batch.filter(pa.array(kept))
        if self._plan.kind == "left":
            met = np.zeros(batch.num_rows, dtype=np.bool_)
            met[rows] = True
            alone = np.flatnonzero(~met)
            rows, found = np.append(rows, alone), np.append(found, np.full(len(alone), -1))
        return self._joined(batch, rows, found)

    def ranges(self, batch: pa.RecordBatch) -> tuple[Ints, Ints]:
        """Return which rows of the table have the key of each row."""
        n = batch.num_rows
        if self._index is None:
            return np.zeros(n, dtype=np.int64), np.full(n, self._rows.num_rows, dtype=np.int64)
        if not self._rows.num_rows:
            return np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        kid = self._index.find([batch.column(name) for name in self._match.left_keys])
        kid = without_nulls(kid, batch, self._match.left_keys[len(self._match.scope) :], -1)
        known = kid >= 0
        if known.all():
            return self._first[kid], self._first[kid + 1]
        kid = np.where(known, kid, 0)
        return np.where(known, self._first[kid], 0), np.where(known, self._first[kid + 1], 0)

    def _holds(
        self, batch: pa.RecordBatch, rows: Ints, found: Ints, operator: LookupOperator
    ) -> Mask:
        left, right = (_side(p, r) for p, r in zip(self._plan.children(), (batch, self._rows)))
        return Matching.of_places(self._match, left, right, operator.refusing(left)).holds(
            rows, found
        )

    def _joined(self, batch: pa.RecordBatch, rows: Ints, found: Ints) -> pa.RecordBatch:
        plan, whole = (
            self._plan,
            len(rows) == batch.num_rows and bool((rows == np.arange(len(rows))).all()),
        )
        missing = found < 0
        places = pa.array(found, mask=missing) if missing.any() else pa.array(found)
        taken = pa.array(rows)
        arrays = []
        for left, name in self._outputs:
            if left:
                column = batch.column(name)
                arrays.append(column if whole else column.take(taken))
            else:
                arrays.append(self._rows.column(name).take(places))
        kind = to_arrow(plan.schema[plan.time])
        start, end = starts_of(plan.left, batch), ends_of(plan.left, batch)
        bounds = (instants(t if whole else t[rows], kind) for t in (start, end))
        return pa.RecordBatch.from_arrays([*arrays, *bounds], schema=self._schema)


def _side(plan: Plan, rows: pa.RecordBatch) -> Side:
    return Side(plan, rows, 0, starts_of(plan, rows), ends_of(plan, rows))
