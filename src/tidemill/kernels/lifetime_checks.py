"""Look at the lifetimes of a batch in one pass."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidemill.jit.kernel import kernel

Ints = npt.NDArray[np.int64]


@kernel
def first_wrong(starts: Ints, ends: Ints, farthest: int, never: int) -> int:
    """Return the first row that holds at no instant or is too far from zero, or -1.

    >>> first_wrong(np.array([1, 5]), np.array([2, 5]), 100, 999)
    1
    >>> first_wrong(np.array([1]), np.array([999]), 100, 999)
    -1
    """
    for i in range(starts.size):
        if ends[i] <= starts[i] or starts[i] < -farthest or (ends[i] > farthest and ends[i] != never):
            return i
    return -1


@kernel
def first_far(starts: Ints, farthest: int) -> int:
    """Return the first point that is too far from zero, or -1.

    >>> first_far(np.array([1, -200]), 100)
    1
    """
    for i in range(starts.size):
        if starts[i] < -farthest or starts[i] >= farthest:
            return i
    return -1
