"""Rows that hold until the next one of their key starts: `until_next` (`plan.as_of`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.core.time import FOREVER
from tidemill.core.types import to_arrow
from tidemill.kernels.in_time import own_next_starts
from tidemill.kernels.memory import empty, taken
from tidemill.kernels.row_batches import taken_rows
from tidemill.local.lifetimes import Ints, instants, row_ids
from tidemill.local.temporal_operator import Side, TemporalOperator
from tidemill.plan.as_of import inputs_of, until_next
from tidemill.plan.nodes import Plan
from tidemill.plan.temporal import Cut


class NextOperator(TemporalOperator):
    """Reads the stream once, and keeps the last rows of each key."""

    plan: Cut

    def _reads(self, plan: Any) -> tuple[Plan, ...]:
        return inputs_of(plan)

    @property
    def _key_columns(self) -> tuple[tuple[str, ...], ...]:
        found = until_next(self.plan)
        assert found is not None
        return (found.keys,)

    def _work(
        self, sides: list[Side], below: int
    ) -> tuple[Sequence[pa.RecordBatch], list[pa.RecordBatch]]:
        [side] = sides
        n = side.rows.num_rows
        kid, count = row_ids(side.plan.schema, self._key_columns[0], side.rows)
        ends = empty(n)
        own_next_starts(kid, side.starts, side.in_order, empty((count, 2)), FOREVER, ends)
        if below == FOREVER:
            return [self._ended(side.rows, ends)], [side.rows.slice(0, 0)]
        open_ = ends == FOREVER
        kept = np.flatnonzero(open_)
        if len(kept):
            self._held = int(side.starts[kept].min())
        rows = np.flatnonzero(~open_)
        return [self._ended(taken_rows(side.rows, rows), taken(ends, rows))], [taken_rows(side.rows, kept)]

    def _ended(self, rows: pa.RecordBatch, ends: Ints) -> pa.RecordBatch:
        schema, end = self.plan.schema, self.plan.end
        arrays = [
            instants(ends, to_arrow(schema[name])) if name == end else rows.column(name)
            for name in schema.names
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema.to_arrow())

    def _ends(self, port: int, kept: pa.RecordBatch) -> int:
        return FOREVER
