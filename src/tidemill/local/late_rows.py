"""Late rows: rows whose time is below the watermark. They are kept, so that none is lost."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.schema import Schema
from tidemill.expr.nodes import Column, Node
from tidemill.kernels.arrow import validity, values
from tidemill.local.expressions import evaluate
from tidemill.local.limits import Ints, Limits
from tidemill.local.row_numbers import ROW
from tidemill.local.stage_runner import StageRunner


class LateRows:
    """The late rows of one port, unchanged. Rows that the port's filters drop do not count as late."""

    def __init__(
        self, schema: Schema, attribute: Node, predicates: tuple[Node, ...], *, keep: bool = True
    ) -> None:
        """Without `keep`, late rows are found only: whoever drives the operator keeps them."""
        self._schema, self._attribute, self._keep = schema, attribute, keep
        self._predicates = predicates
        self.schema = schema.select(tuple(n for n in schema.names if n != ROW))
        """The schema of the late rows, without the row number that the engine adds."""
        self._rows: list[pa.RecordBatch] = []

    def keep(
        self, batch: pa.RecordBatch, kid: Ints, promise: Limits
    ) -> npt.NDArray[np.bool_] | None:
        """Find and store the late rows of a batch. Return a mask of the rows below the watermark, or None."""
        times = evaluate(self._attribute, batch, self._schema)
        ticks = values(times)
        if not len(ticks) or ticks.min() >= promise.highest:
            return None
        late: npt.NDArray[np.bool_] = ticks < (promise.of(kid) if len(kid) else promise.common)
        valid = validity(times)
        if valid is not None:
            late &= valid != 0
        if not late.any():
            return None
        if not self._keep:
            return late
        rows = batch.filter(pa.array(late))
        if self._predicates:
            rows = self._filters.run(rows)
        if rows.num_rows:
            self._rows.append(rows.select(list(self.schema.names)))
        return late

    @functools.cached_property
    def _filters(self) -> StageRunner:
        unchanged = tuple((n, Column(n)) for n in self._schema.names)
        return StageRunner(self._predicates, unchanged, self._schema)

    def table(self) -> pa.Table:
        """Return all late rows so far."""
        return pa.Table.from_batches(self._rows, schema=self.schema.to_arrow())

    def restore(self, table: pa.Table) -> None:
        """Load the rows that `table` returned."""
        self._rows = table.to_batches()
