"""Sort rows by a column. The other columns break ties, so that the arrival order never matters."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.core.errors import UserError
from tidemill.io.chunks import BATCH_ROWS
from tidemill.kernels.arrow import validity, values
from tidemill.kernels.order import float_key


def in_order(batches: list[pa.RecordBatch], by: str) -> Iterator[pa.RecordBatch]:
    """Sort all rows by a column and then by the other columns; nulls first, NaN last.

    >>> b = pa.record_batch({"x": [2, 1, 2], "y": [1, 1, 0]})
    >>> [r.to_pydict() for r in in_order([b], "x")]
    [{'x': [1, 2, 2], 'y': [1, 0, 1]}]
    """
    table = pa.Table.from_batches(batches).combine_chunks()
    names = [by, *(n for n in table.column_names if n != by)]
    keys: dict[str, pa.Array] = {}
    for i, name in enumerate(names):
        column = _sortable(table.column(name), name)
        if column.null_count:  # false before true: nulls first
            keys[f"v{i}"] = column.is_valid()
        keys[f"k{i}"] = column
    order = pc.sort_indices(pa.table(keys), sort_keys=[(k, "ascending") for k in keys])
    yield from table.take(order).combine_chunks().to_batches(max_chunksize=BATCH_ROWS)


def _sortable(column: pa.ChunkedArray, name: str) -> pa.Array:
    array = column.combine_chunks()
    array = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
    if pa.types.is_nested(array.type):
        raise UserError("order_by", expected="columns that can be compared", got=f"{name!r}: {array.type}")
    if not pa.types.is_floating(array.type):
        return array
    valid = validity(array)
    mask = None if valid is None else valid == 0
    return pa.array(float_key(np.asarray(values(array))), mask=mask)
