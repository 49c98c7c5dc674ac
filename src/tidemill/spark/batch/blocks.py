"""The row format in which Spark's aggregation sends partials to the Python workers that slide over them.

A row has the keys of a group, a pane and the states of all parts, with two savings:

- one row may have several panes of a key (*abreast*), because hashing and shuffling cost by row;
- a count that only shows whether there was a value is not sent if another state is null in that case, or
  if there would be no row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.aggregates.algebra import Form
from tidemill.aggregates.layout import StatePart
from tidemill.core.types import INT64, to_arrow
from tidemill.local.partial_batches import PANE, partial_schema
from tidemill.local.state_columns import state_fields
from tidemill.optimize.share_panes import share_panes
from tidemill.plan.nodes import WindowAggregate
from tidemill.spark.expr.aggregates import counts_at_home, is_simple
from tidemill.windows.spec import GridWindow

ABREAST = (16, 8)
"""The choices for several panes per row; powers of two."""
MOST_FIELDS = 64
"""Above about a hundred columns, Spark interprets plans instead of compiling them."""
PLACES = "places"
"""A column of bits: the panes of a block that the row has."""


@dataclass(frozen=True)
class Blocks:
    """The row format for a plan: the number of panes per row, and the counts that are not sent."""

    plan: WindowAggregate
    dense: bool = False
    """Whether keys have rows in most panes between the first and the last."""

    @cached_property
    def width(self) -> int:
        """The number of panes of a key in one row.

        If a key has few of the panes, rows have unused columns. So the width is limited by the panes of a
        window: a single value is in as many results as a window has panes.
        """
        lengths = [max(ABREAST)] if self.dense else self._panes_to_a_window()
        parts = [p for _, p in self.sent]
        if not lengths or not all(map(is_simple, parts)):
            return 1
        fields = sum(len(p.columns.names) for p in parts)
        fine = [w for w in ABREAST if w <= 4 * min(lengths) and fields * w <= MOST_FIELDS]
        return max(fine, default=1)

    def _panes_to_a_window(self) -> list[int]:
        """The number of panes of each window; empty if a window has no fixed number."""
        lengths, size = [], share_panes(self.plan).size
        for window in self.plan.windows:
            spec = window.spec
            if not isinstance(spec, GridWindow) or spec.length is None or spec.until_end:
                return []
            lengths.append(spec.length // size)
        return lengths

    @cached_property
    def at_home(self) -> dict[int, str | None]:
        """Counts that are not sent, with the column that is null if a count is 0; None if it cannot be 0."""
        return counts_at_home(self.plan.layout)

    @cached_property
    def sent(self) -> list[tuple[int, StatePart]]:
        """The parts that are sent, with their positions."""
        parts = enumerate(self.plan.layout.parts)
        return [(i, p) for i, p in parts if i not in self.at_home]

    def column(self, state: str, place: int) -> str:
        """The name of a state's column for one pane of a row."""
        return state if self.width == 1 else f"{state}_{place}"

    def partials(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Convert rows to one pane per row with all states, as `local.partial_batches` reads them."""
        schema = partial_schema(self.plan)
        keys = schema.names[: schema.names.index(PANE)]
        for place in range(self.width):
            rows, panes = _at(batch, place, self.width)
            if rows.num_rows:
                arrays = [*(rows.column(k) for k in keys), panes, *self._states(rows, place)]
                yield pa.RecordBatch.from_arrays(arrays, names=list(schema.names))

    def _states(self, rows: pa.RecordBatch, place: int) -> Iterator[pa.Array]:
        for i, part in enumerate(self.plan.layout.parts):
            if i in self.at_home:
                yield self._presence(rows, self.at_home[i], place)
                continue
            columns = [rows.column(self.column(n, place)) for n, _ in state_fields(part)]
            if isinstance(part.form, Form):  # as `partial(identity=True)` does in SQL
                none = [v.value for v in part.form.identity]
                columns = [c if v is None else c.fill_null(v) for c, v in zip(columns, none)]
            yield from columns

    def _presence(self, rows: pa.RecordBatch, witness: str | None, place: int) -> pa.Array:
        """A count of 0 or 1: only whether it is 0 matters."""
        if witness is None:
            return pa.repeat(pa.scalar(1, to_arrow(INT64)), rows.num_rows)
        return pc.is_valid(rows.column(self.column(witness, place))).cast(to_arrow(INT64))


def _at(batch: pa.RecordBatch, place: int, width: int) -> tuple[pa.RecordBatch, pa.Array]:
    """The rows that have a pane at position `place`, and these panes."""
    if width == 1:
        return batch, batch.column(PANE)
    held = np.asarray(batch.column(PLACES)) >> place & 1
    there = np.flatnonzero(held)
    if len(there) < batch.num_rows:
        batch = batch.take(pa.array(there))
    return batch, pa.array(np.asarray(batch.column(PANE)) * width + place)
