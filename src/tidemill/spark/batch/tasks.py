"""What runs inside Spark's Python workers: the local engine on the rows of one partition.

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
    """The column of the last pane that a window has in the whole stream, if it goes on until there."""
    return f"last_pane{window}"


def whole_windows(plan: WindowAggregate, schema: Schema) -> Task:
    """Rows of complete partitions in, results out: the local operator from start to end."""

    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        from tidemill.local.window_operator import WindowOperator

        operator = WindowOperator(plan)
        for batch in batches:
            operator.push(0, _typed(batch, schema))
            operator.settle()
        yield from operator.advance(0, FOREVER)

    return task


def partials(plan: WindowAggregate, schema: Schema) -> Task:
    """Rows of any partition in, partials by key and pane out."""

    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        from tidemill.local.partial_batches import partial_batches
        from tidemill.local.window_operator import WindowOperator

        operator = WindowOperator(plan)
        for batch in batches:
            operator.push(0, _typed(batch, schema))
            operator.settle()
        yield from partial_batches(operator)

    return task


def finish(plan: WindowAggregate, blocks: Blocks | None = None) -> Task:
    """Partials of complete keys in, which may come in `blocks`; results out."""

    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        from tidemill.local.partial_batches import add_partial_batch
        from tidemill.local.window_operator import WindowOperator

        operator = WindowOperator(plan)
        for batch in batches:
            if batch.num_rows == 0:
                continue
            for window in range(len(plan.windows)):
                position = batch.schema.get_field_index(last_name(window))
                # The same in every row; null where no row of the stream is in such a window.
                last = None if position < 0 else batch.column(position)[0].as_py()
                if last is not None:
                    operator.goes_on_to(window, last)
            for part in (batch,) if blocks is None else blocks.partials(batch):
                add_partial_batch(operator, part)
            operator.settle()
        yield from operator.advance(0, FOREVER)

    return task


def _typed(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Columns by their places, and bigints as the instants they stand for: new labels, the same bytes."""
    arrays = [batch.column(i).cast(to_arrow(t)) for i, (_, t) in enumerate(schema)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.to_arrow())
