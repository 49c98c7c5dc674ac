"""Tasks for Spark's Python workers: they run the local engine on the rows of one partition.

Every function here is made on the driver and shipped with its plan. Batches carry instants as
bigint; see `windows` for how columns are named.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from tidemill.core.schema import Schema
from tidemill.core.time import FOREVER
from tidemill.core.types import to_arrow
from tidemill.plan.nodes import WindowAggregate
from tidemill.spark.batch.blocks import Blocks

if TYPE_CHECKING:
    from tidemill.spark.workers import Batches, Task

def last_name(window: int) -> str:
    """The name of the column with the last pane of a window that lasts until the end of the stream."""
    return f"last_pane{window}"


def whole_windows(plan: WindowAggregate, schema: Schema) -> Task:
    """A task that runs the local operator on all rows of a partition, and yields results."""

    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        from tidemill.local.last_range import operator_of

        operator = operator_of(plan)
        for batch in batches:
            operator.push(0, typed(batch, schema))
            operator.settle()
        yield from operator.advance(0, FOREVER)

    return task


def partials(plan: WindowAggregate, schema: Schema) -> Task:
    """A task that aggregates the rows of a partition, and yields partials by key and pane."""

    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        from tidemill.local.partial_batches import partial_batches
        from tidemill.local.window_operator import WindowOperator

        operator = WindowOperator(plan)
        for batch in batches:
            operator.push(0, typed(batch, schema))
            operator.settle()
        yield from partial_batches(operator)

    return task


def finish(plan: WindowAggregate, blocks: Blocks | None = None) -> Task:
    """A task that computes results from all partials of its keys, which may be in `blocks`."""

    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        from tidemill.local.partial_batches import add_partial_batch
        from tidemill.local.window_operator import WindowOperator

        operator = WindowOperator(plan)
        for batch in batches:
            if batch.num_rows == 0:
                continue
            for window in range(len(plan.windows)):
                position = batch.schema.get_field_index(last_name(window))
                # The value is the same in every row; null if no row of the stream is in such a window.
                last = None if position < 0 else batch.column(position)[0].as_py()
                if last is not None:
                    operator.goes_on_to(window, last)
            for part in (batch,) if blocks is None else blocks.partials(batch):
                add_partial_batch(operator, part)
            operator.settle()
        yield from operator.advance(0, FOREVER)

    return task


def typed(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Rename columns by position, and cast bigints to instants, without a copy."""
    arrays = [batch.column(i).cast(to_arrow(t)) for i, (_, t) in enumerate(schema)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.to_arrow())
