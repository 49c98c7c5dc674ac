"""Joins with rows that hold for ever: build a hash table, then probe it (paper 000, section 5.2.2).

Rows of the stream need no watermark: what they match is known as soon as the table is complete. Until then
they wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.core.schema import Schema
from tidemill.core.threads import on_threads
from tidemill.core.time import BEGINNING, FOREVER
from tidemill.core.types import to_arrow
from tidemill.expr.nodes import Literal
from tidemill.kernels.keys import KeyIndex
from tidemill.kernels.row_batches import joined_rows, taken_column, taken_or_null, taken_rows
from tidemill.kernels.rows_by_id import arranged, matches, numbered, pairs, places_of
from tidemill.local.expressions import repeated, row_by_row
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
from tidemill.plan.temporal import ALWAYS_START, LEFT, Cut, Join, sided


class LookupOperator(TemporalOperator):
    """Keeps the table, and the rows of the stream that came before it was complete."""

    plan: Join | Cut

    def __init__(self, plan: Join | Cut, *args: Any, threads: int = 1, **kwargs: Any) -> None:
        """Rows that waited for the table are looked up on so many threads."""
        super().__init__(plan, *args, **kwargs)
        where = plan.match.where
        sides = Schema(sided(plan.left, plan.right))
        self._threadsafe = where is None or not row_by_row(where, sides)
        self._threads = threads if self._threadsafe else 1
        self._table: _Table | None = None
        self._always = properties(plan.left).everlasting

    def push(self, port: int, batch: pa.RecordBatch) -> Sequence[pa.RecordBatch]:
        if port == 1 or (self._always and self._table is None):
            if batch.num_rows:  # it holds for ever: there is nothing to check
                self._waiting[port].add(batch)
            return ()
        if self._table is None:
            return super().push(port, batch)
        if not self._always:
            check_lifetimes(self.inputs[0], batch)
        return self._found(self._in_time(0, batch))

    def stateless(self, port: int) -> Callable[[pa.RecordBatch], Sequence[pa.RecordBatch]] | None:
        late = self._marks.ports[0] > BEGINNING or self._by_key[0] or self._lenient
        if port == 1 or self._table is None or late or not self._threadsafe:
            return None
        return self._found if self._always else partial(self.push, port)

    def advance(self, port: int, below: int, *, prompt: bool = False) -> Iterator[pa.RecordBatch]:
        self._marks.raise_to(port, below)
        if self._marks.ports[1] == FOREVER and self._table is None:
            self._kept_rows[1] = joined_rows([self._kept_rows[1], *self._waiting[1].all()])
            self._table = _Table(self.plan, self._kept_rows[1])
            for found in on_threads(self._found, self._waiting[0].all(), self._threads):
                yield from found
            self._see_next()
        if self._table is not None:
            self._done = self._marks.ports[0]

    def advance_keys(self, *args: Any, **kwargs: Any) -> Iterator[pa.RecordBatch]:
        return iter(())  # rows never wait for a watermark

    @property
    def wants_advance(self) -> bool:
        return self._table is None

    def _found(self, batch: pa.RecordBatch) -> Sequence[pa.RecordBatch]:
        """Return what rows find in the table, which is complete. Any thread may call it."""
        assert self._table is not None
        return self._table.found(batch, self) if batch.num_rows else ()

    @property
    def most_pairs(self) -> int:
        """Rows that find more rows of the table together are divided."""
        return self._tuning.many_pairs

    def refusing(self, side: Side) -> Any:
        """Return what keeps rows apart for which the condition fails."""
        return self._refusing(side)

    def _work(self, sides: list[Side], below: int) -> Any:
        raise NotImplementedError("rows are looked up when they come")


class _Table:
    """The rows of a table by their keys."""

    def __init__(self, plan: Join | Cut, rows: pa.RecordBatch) -> None:
        self._plan, self._match = plan, plan.match
        match = self._match
        self._index = (
            KeyIndex(plan.left.schema.select(match.left_keys)) if match.left_keys else None
        )
        kid = np.zeros(rows.num_rows, dtype=np.int64)
        if self._index is not None and rows.num_rows:
            kid = self._index.encode([rows.column(n) for n in match.right_keys])
            kid = without_nulls(kid, rows, match.right_keys[len(match.scope) :], -1)
        count = 1 if self._index is None else self._index.count
        self._rows = rows
        self._first: Ints | None = None
        """Where the rows of each key begin; None if no key has two rows."""
        places = places_of(kid, count)
        if places is None:
            self._first, order = arranged(kid, count)
            places = order
            if not numbered(order, rows.num_rows):
                self._rows = taken_rows(rows, order)
        self._places = places
        """Without two rows of a key: the row of each key, empty if that is its id."""
        self._outputs: list[tuple[bool, str]] = []
        if isinstance(plan, Join):
            self._outputs = [(of.startswith(LEFT), of.split(".", 1)[1]) for _, of in plan.columns]
        self._schema = plan.schema.to_arrow()
        self._always = properties(plan.left).everlasting

    def found(self, batch: pa.RecordBatch, operator: LookupOperator) -> list[pa.RecordBatch]:
        """Return what rows find; those that find many rows come in several batches."""
        ids = self._ids(batch)
        # Which rows find nothing is known where their pairs are, as a row is not divided.
        alone = isinstance(self._plan, Cut) or self._plan.kind == "left"
        keep = alone and self._match.where is None
        if self._first is None:
            found = [
                self._result(
                    batch, 0, batch.num_rows, *matches(ids, self._places, keep=keep), operator
                )
            ]
        else:
            found, start = [], 0
            while start < batch.num_rows:
                end, rows, places = pairs(ids, self._first, start, operator.most_pairs, keep=keep)
                found.append(self._result(batch, start, end, rows, places, operator))
                start = end
        return [out for out in found if out.num_rows]

    def _result(
        self,
        batch: pa.RecordBatch,
        start: int,
        end: int,
        rows: Ints,
        found: Ints,
        operator: LookupOperator,
    ) -> pa.RecordBatch:
        """Return what the rows from `start` to `end` give, with their pairs; without a match, it is -1."""
        if self._match.where is not None:
            passed = self._holds(batch, rows, found, operator)
            rows, found = rows[passed], found[passed]
        if isinstance(self._plan, Cut):
            met = np.zeros(batch.num_rows, dtype=np.bool_)
            met[rows[found >= 0]] = True
            kept = met[start:end] if self._plan.kind == "exists" else ~met[start:end]
            some = batch.slice(start, end - start)
            return some if kept.all() else taken_rows(some, np.flatnonzero(kept))
        if self._plan.kind == "left" and self._match.where is not None:
            met = np.zeros(batch.num_rows, dtype=np.bool_)
            met[rows] = True
            missing = np.flatnonzero(~met[start:end]) + start
            rows, found = np.append(rows, missing), np.append(found, np.full(len(missing), -1))
        return self._joined(batch, rows, found)

    def _ids(self, batch: pa.RecordBatch) -> Ints:
        """Return the id of the key of each row, below 0 if the table does not have it."""
        n = batch.num_rows
        if self._index is None or not self._rows.num_rows:
            return np.full(n, 0 if self._rows.num_rows else -1, dtype=np.int64)
        kid = self._index.find([batch.column(name) for name in self._match.left_keys])
        return without_nulls(kid, batch, self._match.left_keys[len(self._match.scope) :], -1)

    def _holds(
        self, batch: pa.RecordBatch, rows: Ints, found: Ints, operator: LookupOperator
    ) -> Mask:
        left, right = (_side(p, r) for p, r in zip(self._plan.children(), (batch, self._rows)))
        return Matching.of_places(self._match, left, right, operator.refusing(left)).holds(
            rows, found
        )

    def _joined(self, batch: pa.RecordBatch, rows: Ints, found: Ints) -> pa.RecordBatch:
        plan, whole = self._plan, numbered(rows, batch.num_rows)

        def of_left(column: pa.Array) -> pa.Array:
            return column if whole else taken_column(column, rows)

        arrays = [
            of_left(batch.column(name)) if left else taken_or_null(self._rows.column(name), found)
            for left, name in self._outputs
        ]
        kind = plan.schema[plan.time]
        if self._always:
            bounds = [repeated(Literal(tick, kind), len(rows)) for tick in (ALWAYS_START, None)]
        else:
            end = instants(ends_of(plan.left, batch), to_arrow(kind))
            bounds = [of_left(batch.column(plan.left.time)), of_left(end)]
        return pa.RecordBatch.from_arrays([*arrays, *bounds], schema=self._schema)


def _side(plan: Plan, rows: pa.RecordBatch) -> Side:
    return Side(plan, rows, 0, starts_of(plan, rows), ends_of(plan, rows))
