"""Partials of a window operator as batches with the columns `k0…` (keys), `pane`, and the states."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tidemill.core.schema import Schema
from tidemill.core.types import INT64, to_arrow
from tidemill.kernels.arrow import build, values
from tidemill.local.state_columns import add_states, state_columns, state_fields
from tidemill.local.tuning import DEFAULT
from tidemill.local.window_operator import WindowOperator
from tidemill.plan.nodes import WindowAggregate

PANE = "pane"


def key_name(position: int) -> str:
    return f"k{position}"


def partial_schema(plan: WindowAggregate) -> Schema:
    """Return the schema of the partials of a plan."""
    keys = [(key_name(i), plan.input.schema[k]) for i, k in enumerate(plan.group_keys)]
    states = [f for p in plan.layout.parts for f in state_fields(p)]
    return Schema((*keys, (PANE, INT64), *states))


def partial_batches(operator: WindowOperator) -> Iterator[pa.RecordBatch]:
    """Return the partials of an operator, one row for each key and pane."""
    store = operator.store
    elements = store.elements()
    schema = partial_schema(operator.plan)
    columns: list[pa.Array] = operator.keys.decode(elements.kid) if operator.plan.group_keys else []
    columns.append(build(elements.pane, None, pa.int64()))
    for index in range(len(store.layout.parts)):
        columns += state_columns(store, index, elements)
    batch = pa.RecordBatch.from_arrays(
        [c.cast(to_arrow(t)) for c, (_, t) in zip(columns, schema)], schema=schema.to_arrow()
    )
    for start in range(0, batch.num_rows, DEFAULT.output_rows):
        yield batch.slice(start, DEFAULT.output_rows)


def add_partial_batch(operator: WindowOperator, batch: pa.RecordBatch) -> None:
    """Add a batch of partials from another operator."""
    plan = operator.plan
    kid = np.zeros(batch.num_rows, dtype=np.int64)
    if plan.group_keys:
        arrays = [
            batch.column(key_name(i)).cast(to_arrow(plan.input.schema[k]))
            for i, k in enumerate(plan.group_keys)
        ]
        kid = operator.keys.encode(arrays)
    add_states(operator.store, kid, values(batch.column(PANE)), batch)
