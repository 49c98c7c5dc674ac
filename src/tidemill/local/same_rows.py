"""Compare rows of two tables by value."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.core.floats import canonical_array
from tidemill.core.schema import Schema
from tidemill.kernels.arrow import validity, values

Mask = npt.NDArray[np.bool_]


def same_rows(one: pa.Table | pa.RecordBatch, other: pa.Table | pa.RecordBatch, schema: Schema) -> Mask:
    """Return whether the rows at each place are equal. Nulls are equal to nulls, and NaN to NaN.

    >>> from tidemill.core.schema import schema
    >>> kinds = schema({"a": "int64", "b": "float64"})
    >>> one = pa.table({"a": [1, 2, None], "b": [0.5, float("nan"), 1.0]})
    >>> same_rows(one, one.set_column(0, "a", [[1, 3, None]]), kinds)
    array([ True, False,  True])
    """
    same = np.ones(one.num_rows, dtype=np.bool_)
    for name, kind in schema:
        a, b = (as_array(table.column(name)) for table in (one, other))
        if kind.is_fixed:
            same &= _same_fixed(a, b, kind.kind == "float64")
        elif kind.kind in ("string", "binary"):
            equal = pc.fill_null(pc.equal(a, b), False)
            both_null = pc.and_(pc.is_null(a), pc.is_null(b))
            same &= np.asarray(pc.or_(equal, both_null))
        else:  # lists and structs: their text is equal where NaN is, too
            same &= np.array([repr(x) == repr(y) for x, y in zip(a.to_pylist(), b.to_pylist())], np.bool_)
    return same


def _same_fixed(a: pa.Array, b: pa.Array, floats: bool) -> Mask:
    data = [values(x) for x in (a, b)]
    if floats:
        data = [canonical_array(x).view(np.int64) for x in data]
    same: Mask = data[0] == data[1]
    valid = [validity(x) for x in (a, b)]
    if valid[0] is None and valid[1] is None:
        return same
    there = [np.ones(len(same), np.uint8) if v is None else v for v in valid]
    same_or_null: Mask = (there[0] == there[1]) & (same | (there[0] == 0))
    return same_or_null


def as_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return a column in one piece."""
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
