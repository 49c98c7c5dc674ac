"""Add the pane of each row to batches, where panes are the days or months of a calendar."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.schema import Schema, internal
from tidemill.core.time import FARTHEST, FOREVER
from tidemill.core.types import INT64
from tidemill.expr.nodes import Column, Node
from tidemill.kernels.arrow import build, validity, values
from tidemill.kernels.steps import Steps
from tidemill.local.expressions import evaluate
from tidemill.windows.calendar_units import start_of, window_of
from tidemill.windows.spec import Calendar

Ints = npt.NDArray[np.int64]
UNIT = internal("unit")
"""The column with the calendar's number of each row's pane."""
MOST_STEPS = 1 << 20
"""So many windows are tabulated; 2800 years of days."""


class CalendarPanes:
    """Numbers the panes of rows. Windows are computed for a range of years once, and looked up for each row.

    Several threads may use one: a table that must grow is replaced.
    """

    def __init__(self, axis: Calendar, attribute: Node, schema: Schema) -> None:
        """`attribute` has the instants, over the columns of batches."""
        self._axis, self._attribute, self._rows = axis, attribute, schema
        self.schema = Schema((*schema.fields, (UNIT, INT64)))
        self.column = Column(UNIT)
        self._steps: Steps | None = None

    def added_to(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with an additional column `UNIT`; it is null where the attribute is."""
        times = evaluate(self._attribute, batch, self._rows)
        valid = validity(times)
        found = build(self._numbers(values(times), valid), valid, pa.int64())
        return batch.append_column(pa.field(UNIT, pa.int64()), found)

    def _numbers(self, ticks: Ints, valid: npt.NDArray[np.uint8] | None) -> Ints:
        if valid is not None:  # the values of nulls are anything: let them be like the others
            ticks = np.where(valid != 0, ticks, ticks[valid != 0][:1] if valid.any() else 0)
        if not len(ticks):
            return ticks
        low, high = int(ticks.min()), int(ticks.max())
        if low >= -FARTHEST and high <= FARTHEST:
            return self._known(ticks, low, high)
        # The loop raises for far times, unless a filter drops them: their pane is as far.
        far = (ticks < -FARTHEST) | (ticks > FARTHEST)
        return np.where(far, FOREVER, window_of(np.where(far, 0, ticks), self._axis))

    def _known(self, ticks: Ints, low: int, high: int) -> Ints:
        steps = self._steps
        if steps is None or not steps.covers(low, high):
            steps = self._steps = self._tabulated(low, high, steps)
        return window_of(ticks, self._axis) if steps is None else steps.find(ticks)

    def _tabulated(self, low: int, high: int, before: Steps | None) -> Steps | None:
        """Return the windows from `low` to `high`, some around them and those `before`; None if too many."""
        first, last = window_of([low, high], self._axis).tolist()
        if last - first > MOST_STEPS // 2:
            return None
        around = (last - first) // 4 + 32
        first, last = first - around, last + around
        if before is not None:
            joined = min(first, before.number), max(last, before.number + len(before.starts) - 2)
            if joined[1] - joined[0] <= MOST_STEPS:
                first, last = joined
        return Steps.of(start_of(np.arange(first, last + 2), self._axis), first)
