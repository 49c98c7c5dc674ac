"""Convert partials to Arrow columns and back, for snapshots and for exchange between engines.

Each part of a layout has one or more columns (`state_fields`). A multiset is a list of structs `x0…`, a
sketch is its binary form. Strings are stored as strings, not as ids.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.aggregates import sketches
from tidemill.aggregates.algebra import Algebra, Multiset, ObjectForm, Scalar, Sketch
from tidemill.aggregates.containers import Containers
from tidemill.aggregates.layout import StatePart
from tidemill.core.errors import UserError
from tidemill.core.types import BINARY, INT64, DataType, list_of, struct_of, to_arrow
from tidemill.kernels.arrow import build, values
from tidemill.kernels.index import StringIndex
from tidemill.kernels.texts import Texts
from tidemill.local.expressions import plain
from tidemill.local.pane_store import Elements, PaneStore

Ints = npt.NDArray[np.int64]


def state_fields(part: StatePart) -> list[tuple[str, DataType]]:
    """Return names and types of the columns of one part."""
    first = part.columns.names[0]
    if isinstance(part.part.algebra, Multiset):
        return [(first, _rows_type(part))]
    if isinstance(part.part.algebra, Sketch):
        return [(first, BINARY)]
    return list(part.columns.fields)


def saved_fields(store: PaneStore, index: int) -> list[tuple[str, DataType]]:
    """Return the columns of one part in a snapshot, where some parts save their rows."""
    part = store.layout.parts[index]
    if index in store.parts.saved_rows:
        return [(part.columns.names[0], _rows_type(part))]
    return state_fields(part)


def _rows_type(part: StatePart) -> DataType:
    return list_of(struct_of({f"x{j}": t for j, t in enumerate(part.types)}))


# --- out --------------------------------------------------------------------------------------------


def state_columns(
    store: PaneStore, index: int, elements: Elements, *, saved: bool = False
) -> list[pa.Array]:
    """Return the states of one part, a row for each element, as `saved_fields` if `saved`."""
    part, texts = store.layout.parts[index], store.texts
    if index in store.parts.multisets or (saved and index in store.parts.saved_rows):
        offsets, args = elements.rows[index]
        by_rank = np.argsort(texts.pool.rank)
        columns = [
            _scalar(by_rank[a] if t.kind == "string" else a, t, texts) for a, t in zip(args, part.types)
        ]
        names = [f"x{j}" for j in range(len(columns))]
        rows = pa.StructArray.from_arrays(columns, names=names)
        return [pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), rows)]
    if index in store.parts.fixed:
        return [_scalar(elements.records[n], t, texts) for n, t in part.columns]
    return objects_out(part, elements.objects[index])


def objects_out(part: StatePart, states: list[Any]) -> list[pa.Array]:
    """Convert states that are Python objects to columns; None is the identity."""
    if isinstance(part.part.algebra, Sketch):
        sketch = part.part.algebra
        return [pa.array([None if s is None else sketches.serialize(sketch, s) for s in states], pa.binary())]
    if isinstance(part.form, ObjectForm):
        assert isinstance(part.part.algebra, Algebra)
        own = Containers(part.part.algebra)
        return [pa.array([None if s is None else own.written(s[0]) for s in states], pa.string())]
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
        raise TypeError("floats in place of ints")  # Arrow would truncate them
    return pa.array(field, to_arrow(kind))


def _scalar(data: npt.NDArray[Any], kind: DataType, texts: Texts) -> pa.Array:
    if kind.kind == "string":
        return texts.decode(np.ascontiguousarray(data))
    return build(np.ascontiguousarray(data), None, to_arrow(kind))


# --- in ---------------------------------------------------------------------------------------------


def add_states(
    store: PaneStore, kid: Ints, pane: Ints, batch: pa.RecordBatch | pa.Table, *, saved: bool = False
) -> None:
    """Add partials to a store, given their key ids, panes and columns."""
    records = store.room_for(len(kid))
    records["kid"], records["pane"] = kid, pane
    if store.gap is not None:
        records["end"] = values(_array(batch.column("end")))
    for index, part in enumerate(store.layout.parts):
        fields = saved_fields(store, index) if saved else state_fields(part)
        columns = [_array(batch.column(name)) for name, _ in fields]
        if index in store.parts.fixed:
            folded = saved and index in store.parts.ordered
            for j, (name, kind) in enumerate(part.columns):
                records[name] = 0 if folded else _from_scalar(columns[j], kind, store.texts.pool)
            if not folded:
                continue
        if index in store.parts.objects:
            store.add_objects(index, kid, pane, objects_in(part, columns))
        else:
            _add_rows(store, index, part, columns[0], kid, pane)
    store.add_partials(len(kid))


def _array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    return column


def _from_scalar(array: pa.Array, kind: DataType, pool: StringIndex) -> npt.NDArray[Any]:
    return pool.encode(array) if kind.kind == "string" else values(array)


def _add_rows(
    store: PaneStore, index: int, part: StatePart, column: pa.Array, kid: Ints, pane: Ints
) -> None:
    sizes = np.diff(np.asarray(column.offsets))
    rows = column.flatten()
    args = [
        _from_scalar(rows.field(j).cast(to_arrow(t)), t, store.texts.pool) for j, t in enumerate(part.types)
    ]
    store.add_rows(index, np.repeat(kid, sizes), np.repeat(pane, sizes), args)


def objects_in(part: StatePart, columns: list[pa.Array]) -> list[Any]:
    """Convert columns that `objects_out` returned back to Python objects."""
    if isinstance(part.part.algebra, Sketch):
        sketch = part.part.algebra
        return [None if b is None else sketches.deserialize(sketch, b) for b in columns[0].to_pylist()]
    if isinstance(part.form, ObjectForm):
        assert isinstance(part.part.algebra, Algebra)
        own = Containers(part.part.algebra)
        return [None if t is None else Scalar((own.read(t),)) for t in columns[0].to_pylist()]
    states = zip(*(plain(c) for c in columns))
    return [None if all(v is None for v in state) else state for state in states]
