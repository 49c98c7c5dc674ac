"""The rule for NaN and zero: NaN equals NaN and is greater than every number; -0.0 equals 0.0.

Values therefore compare, sort and group alike on every engine. A key is shown in its canonical form, 0.0
or NaN; an aggregate that picks a value (`min`, `first`) may return either zero.

The rule is implemented once for each representation: Python values, NumPy and Arrow arrays here, scalars of
compiled loops in `kernels.functions` (`less_float`, `equal_float`), integers that sort like floats in
`kernels.order` (`float_key`), columns of Spark in `spark.expr.values` (`canonical`). Spark's own comparisons
follow it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa


def order_key(value: Any) -> Any:
    """Return a key that sorts and groups values by the rule; tuples are converted value by value.

    >>> sorted([math.nan, 1.0, math.inf, -0.0], key=order_key)
    [-0.0, 1.0, inf, nan]
    >>> len({order_key(v) for v in ((0.0, math.nan), (-0.0, float("nan")))})
    1
    """
    if isinstance(value, tuple):
        return tuple(map(order_key, value))
    return (value != value, 0.0 if value != value else value) if isinstance(value, float) else value


def equal(a: Any, b: Any) -> bool:
    """Return whether two values are equal by the rule."""
    return bool(a == b or (a != a and b != b))


def canonical(value: Any) -> Any:
    """Return the canonical form of a value. NaN becomes the object `math.nan`, which works as a dict key."""
    if not isinstance(value, float):
        return value
    return math.nan if value != value else value + 0.0


def canonical_array(data: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the floats in canonical form: equal values have equal bits."""
    import numpy as np

    return np.where(np.isnan(data), np.nan, data + 0.0)


def canonical_arrow(data: pa.Array) -> pa.Array:
    """Return a column of floats, which may have nulls, in canonical form."""
    import pyarrow.compute as pc  # slow to import, seldom needed

    return pc.if_else(pc.is_nan(data), math.nan, pc.add(data, 0.0))
