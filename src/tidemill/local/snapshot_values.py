"""The values of aggregates over the rows that hold at some instants, in one of two ways.

- `moving`: if rows end in the order in which they start, as with a constant duration, those that hold are a
  moving range of them;
- `copies`: otherwise, and where aggregates depend on the order of rows, each row is copied to the instants
  that it holds at. That costs as much as there are pairs of a row and an instant.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidemill.codegen.state_plan import plan_states
from tidemill.core.schema import Schema
from tidemill.core.types import INT64
from tidemill.expr.nodes import columns_of
from tidemill.kernels.arrow import values
from tidemill.kernels.window_ranges import Ranges
from tidemill.local.lifetimes import Ints, Keyed
from tidemill.local.matching import ranges
from tidemill.local.range_values import PLACE, PLACES, sliding
from tidemill.local.results import Results
from tidemill.local.window_operator import WindowOperator
from tidemill.plan.nodes import NamedWindow, Source, WindowAggregate
from tidemill.plan.properties import properties
from tidemill.plan.temporal import SnapshotAggregate
from tidemill.windows.spec import Window, tumbling

_MOST_INSTANTS = 1 << 29
"""One operator numbers so many instants, whose places are below all instants that are too far."""


@dataclass(frozen=True)
class Moments:
    """Instants of keys, in order, and how many rows have started and ended by then."""

    keys: Ints
    at: Ints
    enter: Ints
    leave: Ints


class SnapshotValues:
    """Computes the aggregates of a plan, by moving ranges if they are `allowed` and rows are in turn."""

    def __init__(self, plan: SnapshotAggregate, *, moving: bool = True) -> None:
        self._plan, self._allowed = plan, moving and plan.layout.commutative
        self._in_turn = properties(plan.input).in_turn
        source = plan.input.schema
        parts = [part for _, aggregate in plan.aggregates for part in aggregate.parts]
        needed = frozenset({plan.input.time}).union(
            *(columns_of(a) for part in parts for a in part.args)
        )
        self._names = [n for n in source.names if n in needed]
        schema = Schema((*((n, source[n]) for n in self._names), (PLACE, INT64)))
        self._source, self._schema = Source("rows", schema, PLACE), schema.to_arrow()
        self._values = plan.schema.select(tuple(r.name for r in plan.layout.results)).to_arrow()
        self._rows = WindowOperator(self._windows(tumbling(1, on=PLACE)), watch=False)
        """Gives each row a partial of its own; it is made once, as that takes longer than an advance."""
        layout = self._rows.plan.layout
        how = tuple(map(sliding, layout.parts))
        self._results = Results(layout, plan_states(layout, how), how)
        self._copies: WindowOperator | None = None
        """A window for each instant, numbered on from call to call: one that was asked for is closed."""
        self._instants = 0

    def _windows(self, spec: Window) -> WindowAggregate:
        return WindowAggregate(self._source, (), (NamedWindow(None, spec),), self._plan.aggregates)

    @property
    def not_exact(self) -> tuple[str, ...]:
        """The parts that cannot be taken out of a partial again, exactly."""
        parts = self._rows.plan.layout.parts
        return tuple(str(p.part) for p in parts if sliding(p) != "subtract")

    def at(self, batch: pa.RecordBatch, rows: Keyed, moments: Moments) -> pa.Table:
        """Return the values at some instants; where nothing holds, any values."""
        if not len(moments.at):
            return self._values.empty_table()
        if not (self._allowed and self._are_in_turn(rows)):
            return self._of_copies(batch, rows, moments)
        store = self._rows.partials_of(self._placed(batch, rows.order, np.arange(len(rows.order))))
        none = np.zeros(len(moments.at), dtype=np.int64)
        columns = self._results.columns(
            store.elements(), Ranges(none, none, moments.leave, moments.enter), store.texts
        )
        return pa.Table.from_arrays(columns, schema=self._values)

    def _are_in_turn(self, rows: Keyed) -> bool:
        """Return whether the rows of each key end in the order in which they start."""
        if self._in_turn:
            return True
        in_order = (rows.keys[1:] != rows.keys[:-1]) | (rows.ends[1:] >= rows.ends[:-1])
        return bool(in_order.all())

    def _placed(self, batch: pa.RecordBatch, order: Ints, place: Ints) -> pa.RecordBatch:
        taken = batch.select(self._names).take(pa.array(order))
        return pa.RecordBatch.from_arrays([*taken.columns, pa.array(place)], schema=self._schema)

    def _of_copies(self, batch: pa.RecordBatch, rows: Keyed, moments: Moments) -> pa.Table:
        n, first, operator = len(moments.at), self._instants, self._copies
        if operator is None or first + n > _MOST_INSTANTS:
            first, operator = 0, WindowOperator(self._windows(tumbling(PLACES, on=PLACE)), watch=False)
        self._copies = None  # if it fails half-way, the next call makes another one
        _, rank = np.unique(rows.starts, return_inverse=True)
        at = Keyed(moments.at, moments.keys, moments.at, moments.at)
        for own, others in ranges(rows, at, 0):
            operator.push(0, self._placed(batch, rows.order[own], (first + others) * PLACES + rank[own]))
            operator.settle()
        found = list(operator.advance(0, (first + n) * PLACES, prompt=True))
        self._instants, self._copies = first + n, operator
        if not found:
            return pa.Table.from_arrays(
                [pa.nulls(n, f.type) for f in self._values], schema=self._values
            )
        batches = pa.concat_batches(found)
        place = np.zeros(n, dtype=np.int64)
        place[values(batches.column("window_start")) // PLACES - first] = np.arange(batches.num_rows)
        return pa.Table.from_batches([batches]).select(self._values.names).take(pa.array(place))
