"""Compare the features of rows: equal, or as near as floats of two ways to compute them are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.schema import Schema
from tidemill.core.types import DataType
from tidemill.kernels.arrow import validity, values
from tidemill.local.same_rows import as_array, same_rows

Mask = npt.NDArray[np.bool_]

NEAR, NEAR_ALL = 1e-9, 1e-12
"""Two floats are the same if they differ by no more than so much of the greater one, or by so much of the
greatest one of the column: a sum may lose what it once had."""


def same_values(one: pa.Table, other: pa.Table, name: str, kind: DataType) -> Mask:
    """Return at which places a column of two tables has the same values.

    Nulls are equal to nulls, and NaN to NaN.

    >>> from tidemill.core.types import FLOAT64
    >>> one, other = pa.table({"x": [0.1 + 0.2, 1.0, None]}), pa.table({"x": [0.3, 1.1, None]})
    >>> same_values(one, other, "x", FLOAT64)
    array([ True, False,  True])
    """
    exact: Mask = same_rows(one.select([name]), other.select([name]), Schema(((name, kind),)))
    if exact.all() or "float64" not in repr(kind):
        return exact
    a, b = (as_array(table.column(name)) for table in (one, other))
    if kind.kind == "float64":
        return exact | (_valid(a) & _valid(b) & _near(values(a), values(b)))
    rest = np.flatnonzero(~exact)
    pairs = zip(a.take(pa.array(rest)).to_pylist(), b.take(pa.array(rest)).to_pylist())
    exact[rest] = [_alike(x, y) for x, y in pairs]
    return exact


def _valid(array: pa.Array) -> Mask:
    found = validity(array)
    return np.ones(len(array), dtype=np.bool_) if found is None else found.astype(np.bool_)


def _near(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> Mask:
    sizes = np.maximum(np.abs(a), np.abs(b))
    finite = np.isfinite(sizes)
    greatest = float(sizes[finite].max(initial=0.0))
    with np.errstate(invalid="ignore"):
        near: Mask = finite & (np.abs(a - b) <= np.maximum(NEAR * sizes, NEAR_ALL * greatest))
    return near


def _alike(a: Any, b: Any) -> bool:
    """Whether two lists or structs are the same but for the last bits of floats."""
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=NEAR, abs_tol=NEAR_ALL)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_alike(a[n], b[n]) for n in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_alike, a, b))
    return bool(a == b)
