"""Where listed buckets go, as a compact map of arrays instead of a hash map.

A *cell* has the buckets with the same high bits. Buckets are as good as random, so a cell has few of them,
about `IN_A_CELL`: who looks for one goes to its cell and through the low bits there. Nothing is stored
beside those and the targets but where each cell begins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

IN_A_CELL = 16


def cell_bits(listed: int, bits: int) -> int:
    """How many high bits, of the `bits` of a bucket, name the cells of so many buckets.

    >>> cell_bits(0, 20), cell_bits(100, 20), cell_bits(1 << 20, 20)
    (1, 3, 17)
    """
    return min(bits, max(1, listed // IN_A_CELL).bit_length())


@dataclass(frozen=True)
class Cells:
    """The listed buckets of one source and where they go.

    >>> Cells.of(np.array([1, 5, 7]), np.array([3, 0, 2]), bits=3, high=1)
    Cells(starts=array([0, 1, 3], dtype=int32), lows=array([1, 1, 3]), targets=array([3, 0, 2], dtype=int32))
    """

    starts: npt.NDArray[np.int32]
    """Where each cell begins, and where the last one ends."""
    lows: Ints
    targets: npt.NDArray[np.int32]

    @staticmethod
    def of(buckets: Ints, targets: Ints, *, bits: int, high: int) -> Cells:
        """The map of buckets of so many bits, which are in order; `high` bits name a cell."""
        shift = bits - high
        starts = np.searchsorted(buckets >> shift, np.arange((1 << high) + 1))
        return Cells(
            starts.astype(np.int32), buckets & ((1 << shift) - 1), targets.astype(np.int32)
        )
