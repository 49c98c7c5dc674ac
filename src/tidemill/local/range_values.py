"""Aggregates over ranges of rows that are in an order, and over copies of rows."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.aggregates.algebra import Aggregate, Algebra
from tidemill.aggregates.layout import Layout, StatePart
from tidemill.codegen.state_plan import plan_states
from tidemill.core.schema import Schema, internal
from tidemill.core.types import INT64
from tidemill.expr.nodes import columns_of
from tidemill.intervals.partials import Lifting, partial_fields, refusal
from tidemill.kernels.memory import empty
from tidemill.kernels.row_batches import taken_column, taken_rows
from tidemill.kernels.texts import Texts
from tidemill.kernels.window_ranges import Ranges
from tidemill.local.expressions import evaluate
from tidemill.local.lifetimes import Ints
from tidemill.local.pane_store import Elements
from tidemill.local.results import Results
from tidemill.local.window_operator import WindowOperator
from tidemill.plan.nodes import NamedWindow, Plan, Source, WindowAggregate
from tidemill.windows.spec import Window, tumbling

PLACE = internal("place")
"""The column with the places of rows, or of copies of rows."""
PLACES = 1 << 31
"""Places of the copies for one result, or at one instant."""


class RangeValues:
    """Computes aggregates of the rows of a plan, for any rows that are given."""

    def __init__(self, source: Plan, aggregates: tuple[tuple[str, Aggregate], ...]) -> None:
        parts = [part for _, aggregate in aggregates for part in aggregate.parts]
        needed = frozenset({source.time}).union(*(columns_of(a) for part in parts for a in part.args))
        self._names = [n for n in source.schema.names if n in needed]
        self._rows = Schema(tuple((n, source.schema[n]) for n in self._names))
        schema = Schema((*self._rows.fields, (PLACE, INT64)))
        self._source, self._schema = Source("rows", schema, PLACE), schema.to_arrow()
        self._aggregates = aggregates
        self._by_row = self._windows(tumbling(1, on=PLACE))
        self._lifting = None if refusal(self.layout) else Lifting(self.layout)
        """What makes partials of rows, if there is no more to them than that."""

    def _windows(self, spec: Window) -> WindowAggregate:
        return WindowAggregate(self._source, (), (NamedWindow(None, spec),), self._aggregates)

    @property
    def layout(self) -> Layout:
        return self._by_row.layout

    def shown_parts(self, *, jumping: bool) -> list[str]:
        """Describe how each part of the aggregates follows the ranges."""
        how = _at_once if jumping else sliding
        return [f"{part.part}   [{_SHOWN[how(part)]}]" for part in self.layout.parts]

    @functools.cached_property
    def _record(self) -> np.dtype[Any]:
        """The partials of an element."""
        return np.dtype(partial_fields(self.layout), align=True)

    @functools.cached_property
    def _moving(self) -> Results:
        return self._results(tuple(map(sliding, self.layout.parts)))

    @functools.cached_property
    def _jumping(self) -> Results:
        return self._results(tuple(map(_at_once, self.layout.parts)))

    def _results(self, sliding: tuple[str, ...]) -> Results:
        return Results(self.layout, plan_states(self.layout, sliding), sliding)

    def of_ranges(
        self, batch: pa.RecordBatch, order: Ints, low: Ints, high: Ints, *, places: Ints | None = None,
        moving: bool = True,
    ) -> list[pa.Array]:  # fmt: skip
        """Return the aggregates of ranges `[low, high)` of rows in an order, a row for each range.

        With `places`, rows that have equal ones are one element, and ranges are of elements. If ranges only
        move forward they are `moving`, mostly.
        """
        if self._lifting is not None and places is None:
            elements, texts = self._lifted(self._lifting, batch, order)
        else:
            operator = WindowOperator(self._by_row, watch=False)
            operator.push(0, self._placed(batch, order, np.arange(len(order)) if places is None else places))
            elements, texts = operator.store.elements(), operator.store.texts
        none = np.zeros(len(low), dtype=np.int64)
        results = self._moving if moving else self._jumping
        return results.columns(elements, Ranges(none, none, low, high), texts)

    def _lifted(self, lifting: Lifting, batch: pa.RecordBatch, order: Ints) -> tuple[Elements, Texts]:
        """Return the partials of rows in an order, each row an element."""
        rows = batch.select(self._names)
        columns = [evaluate(node, rows, self._rows) for node in lifting.arguments]
        texts, records = Texts(), empty(len(order), self._record)
        lifting.into(records, [taken_column(column, order) for column in columns], texts)
        return Elements(records), texts

    def of_copies(
        self, batch: pa.RecordBatch, copies: Iterable[tuple[Ints, Ints]], rank: Ints, n: int
    ) -> list[pa.Array]:
        """Return the aggregates of `n` results, given rows for them: pairs of a result and a row.

        `rank` says how rows are ordered; equal ranks are decided by values. What has no rows is that of none.
        """
        operator = WindowOperator(self._windows(tumbling(PLACES, on=PLACE)), watch=False)
        for owners, rows in copies:
            operator.push(0, self._placed(batch, rows, owners * PLACES + rank[rows]))
            operator.settle()
        found = list(operator.advance(0, n * PLACES, prompt=True))
        names = [r.name for r in self.layout.results]
        place = np.full(n, -1, dtype=np.int64)
        if found:
            batches = pa.concat_batches(found)
            owner = np.asarray(batches.column("window_start").cast(pa.int64())) // PLACES
            place[owner] = np.arange(batches.num_rows)
        columns = []
        for name, nothing in zip(names, self._of_nothing):
            values = pa.concat_arrays([batches.column(name), nothing]) if found else nothing
            columns.append(values.take(pa.array(np.where(place < 0, len(values) - 1, place))))
        return columns

    @functools.cached_property
    def _of_nothing(self) -> list[pa.Array]:
        """Return the aggregates of no rows."""
        rows = pa.RecordBatch.from_pylist([], schema=pa.schema([f for f in self._schema if f.name != PLACE]))
        none = np.zeros(1, dtype=np.int64)
        return self.of_ranges(rows, none[:0], none, none)

    def _placed(self, batch: pa.RecordBatch, order: Ints, place: Ints) -> pa.RecordBatch:
        taken = taken_rows(batch.select(self._names), order)
        return pa.RecordBatch.from_arrays([*taken.columns, pa.array(place)], schema=self._schema)


_SHOWN = {
    "subtract": "moving: rows that leave are subtracted",
    "two_stacks": "moving: two stacks",
    "tree": "a tree of partials",
    "recompute": "all rows of each range",
}


def sliding(part: StatePart) -> str:
    """Return how a part moves on from range to range, where ranges of rows only move forward."""
    if not isinstance(part.part.algebra, Algebra):
        return "recompute"
    assert part.form is not None
    return "subtract" if part.form.subtracts else "two_stacks"


def _at_once(part: StatePart) -> str:
    """Return how a part is computed for ranges that jump."""
    return "tree" if isinstance(part.part.algebra, Algebra) else "recompute"
