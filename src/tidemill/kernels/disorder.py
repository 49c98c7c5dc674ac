"""How far the times of a batch are out of order, in one pass: batches of few rows are many."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidemill.jit.kernel import kernel


@kernel
def out_of_order(ticks: npt.NDArray[np.int64]) -> tuple[int, int, int]:
    """Return the least and the greatest time, and the most that one is below an earlier one.

    There is at least one. The last number is meaningless if times are more than 2**62 apart.

    >>> out_of_order(np.array([3, 7, 5, 8]))
    (3, 8, 2)
    """
    least = latest = ticks[0]
    behind = 0
    for i in range(1, ticks.size):
        t = ticks[i]
        if t > latest:
            latest = t
        else:
            behind = max(behind, latest - t)
            least = min(least, t)
    return least, latest, behind
