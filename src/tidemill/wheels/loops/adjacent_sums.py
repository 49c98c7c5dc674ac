"""Sums of adjacent cells, which the compiler turns into SIMD code.

Floats are added in any order: their sums agree up to rounding and no closer (docs/design.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidemill.jit.kernel import adding_kernel, kernel
from tidemill.kernels.functions import carry, wrap_add

HALF = np.uint64(32)
LOWER = np.uint64((1 << 32) - 1)
SIGN = np.uint64(1 << 31)


@adding_kernel
def sum_floats(values: Any, first: int, end: int) -> Any:
    """The sum of `values[first:end]`."""
    total = 0.0
    for i in range(np.uint64(first), np.uint64(end)):  # unsigned: negative positions are not looked for
        total += values[i]
    return total


@kernel
def sum_ints(values: Any, first: int, end: int) -> Any:
    """The sum of `values[first:end]`, of fewer than 2**31 ints, as `low + high * 2**64`.

    The halves of the ints are added up separately, the upper ones plus 2**31: no sum can overflow, no step
    needs a carry, and there are machine instructions for vectors of each.
    """
    lower = np.uint64(0)
    upper = np.uint64(0)
    for i in range(np.uint64(first), np.uint64(end)):
        x = np.uint64(values[i])
        lower += x & LOWER
        upper += (x >> HALF) ^ SIGN
    high = np.int64(upper) - ((end - first) << 31)
    a = np.int64(np.uint64(high) << HALF)
    low = np.int64(lower)
    return wrap_add(a, low), (high >> 32) + np.int64(a < 0) + carry(a, low)
