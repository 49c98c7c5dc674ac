"""Partials in and out of a window operator, as Arrow: how engines hand work to each other.

Columns are the keys `k0…`, `pane`, and the state columns of the layout. A multiset is a list of
structs `x0…`, a sketch is its binary form. Strings are strings.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.aggregates import sketches
from tidemill.aggregates.algebra import Multiset, Sketch
from tidemill.aggregates.layout import StatePart
from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.core.types import BINARY, INT64, DataType, list_of, struct_of, to_arrow
from tidemill.kernels.arrow import build, values
from tidemill.kernels.index import StringIndex
from tidemill.local.expressions import plain
from tidemill.local.lanes import OUTPUT_ROWS
from tidemill.local.windows import WindowOperator
from tidemill.plan.nodes import WindowAggregate

PANE = "pane"


def key_name(position: int) -> str:
    return f"k{position}"


def partial_schema(plan: WindowAggregate) -> Schema:
    """The columns of partials of a plan."""
    keys = [(key_name(i), plan.input.schema[k]) for i, k in enumerate(plan.group_keys)]
    states = [f for p in plan.layout.parts for f in state_fields(p)]
    return Schema((*keys, (PANE, INT64), *states))


def state_fields(part: StatePart) -> list[tuple[str, DataType]]:
    first = part.columns.names[0]
    if isinstance(part.part.algebra, Multiset):
        rows = struct_of({f"x{j}": t for j, t in enumerate(part.types)})
        return [(first, list_of(rows))]
    if isinstance(part.part.algebra, Sketch):
        return [(first, BINARY)]
    return list(part.columns.fields)


# --- out --------------------------------------------------------------------------------------------


def partial_batches(operator: WindowOperator) -> Iterator[pa.RecordBatch]:
    """Everything an operator has gathered, one row for each key and pane."""
    elements = operator.store.elements()
    schema = partial_schema(operator.plan)
    columns: list[pa.Array] = operator.keys.decode(elements.kid) if operator.plan.group_keys else []
    columns.append(build(elements.pane, None, pa.int64()))
    for index, part in enumerate(operator.layout.parts):
        columns += state_columns(operator, index, part, elements)
    batch = pa.RecordBatch.from_arrays(
        [c.cast(to_arrow(t)) for c, (_, t) in zip(columns, schema)], schema=schema.to_arrow()
    )
    for start in range(0, batch.num_rows, OUTPUT_ROWS):
        yield batch.slice(start, OUTPUT_ROWS)


def state_columns(
    operator: WindowOperator, index: int, part: StatePart, elements: Any
) -> list[pa.Array]:
    """The states of one part of what an operator has gathered."""
    pool = operator.store.pool
    if index in operator.parts.fixed:
        return [_scalar(elements.records[n], t, pool) for n, t in part.columns]
    if index in operator.parts.multisets:
        offsets, args = elements.rows[index]
        by_rank = np.argsort(pool.rank)
        columns = [
            _scalar(by_rank[a] if t.kind == "string" else a, t, pool)
            for a, t in zip(args, part.types)
        ]
        names = [f"x{j}" for j in range(len(columns))]
        rows = pa.StructArray.from_arrays(columns, names=names)
        return [pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), rows)]
    return objects_out(part, elements.objects[index])


def objects_out(part: StatePart, states: list[Any]) -> list[pa.Array]:
    """States that are Python objects; None is the identity."""
    if isinstance(part.part.algebra, Sketch):
        sketch = part.part.algebra
        return [pa.array([None if s is None else sketches.serialize(sketch, s) for s in states], pa.binary())]
    fields = ([None if s is None else s[j] for s in states] for j in range(len(part.columns)))
    try:
        return [_exactly(f, t) for f, (_, t) in zip(fields, part.columns)]
    except (pa.ArrowException, OverflowError, TypeError) as unfit:
        raise UserError(
            f"aggregate {part.part.algebra}", expected="partials of the types that identity() has",
            got=str(unfit), hint="other partials cannot leave the process that made them",
        ) from unfit  # fmt: skip


def _exactly(field: list[Any], kind: DataType) -> pa.Array:
    if kind == INT64 and float in map(type, field):
        raise TypeError("floats in place of ints")  # of which Arrow would drop a part
    return pa.array(field, to_arrow(kind))


def _scalar(data: npt.NDArray[Any], kind: DataType, pool: StringIndex) -> pa.Array:
    if kind.kind == "string":
        return pool.decode(np.ascontiguousarray(data))
    return build(np.ascontiguousarray(data), None, to_arrow(kind))


# --- in ---------------------------------------------------------------------------------------------


def add_partial_batch(operator: WindowOperator, batch: pa.RecordBatch) -> None:
    """Partials made elsewhere, into an operator."""
    plan, store = operator.plan, operator.store
    n = batch.num_rows
    kid = np.zeros(n, dtype=np.int64)
    if plan.group_keys:
        arrays = [
            batch.column(key_name(i)).cast(to_arrow(plan.input.schema[k]))
            for i, k in enumerate(plan.group_keys)
        ]
        kid = operator.keys.encode(arrays)
    pane = values(batch.column(PANE))
    records = store.room_for(n)
    records["kid"], records["pane"] = kid, pane
    for index, part in enumerate(operator.layout.parts):
        if index in operator.parts.fixed:
            for name, kind in part.columns:
                records[name] = _from_scalar(batch.column(name), kind, store.pool)
            continue
        if isinstance(part.part.algebra, Multiset):
            column = batch.column(part.columns.names[0])
            _add_rows(operator, index, part, column, kid, pane)
        else:
            columns = [batch.column(n) for n, _ in state_fields(part)]
            store.add_objects(index, kid, pane, objects_in(part, columns))
    store.add_partials(n)


def _from_scalar(array: pa.Array, kind: DataType, pool: StringIndex) -> npt.NDArray[Any]:
    return pool.encode(array) if kind.kind == "string" else values(array)


def _add_rows(
    operator: WindowOperator, index: int, part: StatePart, column: pa.Array, kid: Any, pane: Any
) -> None:
    sizes = np.diff(np.asarray(column.offsets))
    rows = column.flatten()
    args = [
        _from_scalar(rows.field(j).cast(to_arrow(t)), t, operator.store.pool)
        for j, t in enumerate(part.types)
    ]
    operator.store.add_rows(index, np.repeat(kid, sizes), np.repeat(pane, sizes), args)


def objects_in(part: StatePart, columns: list[pa.Array]) -> list[Any]:
    """What `objects_out` was given."""
    if isinstance(part.part.algebra, Sketch):
        sketch = part.part.algebra
        return [None if b is None else sketches.deserialize(sketch, b) for b in columns[0].to_pylist()]
    states = zip(*(plain(c) for c in columns))
    return [None if all(v is None for v in state) else state for state in states]
