"""A compact map from buckets to targets, in arrays instead of a hash table.

A *cell* has the buckets with the same high bits. Buckets are pseudo-random, so a cell has few of them, about
`IN_A_CELL`. A lookup scans the low bits in one cell. The map stores only the low bits, the targets and the
start of each cell.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

IN_A_CELL = 16


def cell_bits(listed: int, bits: int) -> int:
    """Return how many of the high bits of a bucket number select its cell, for `listed` buckets.

    >>> cell_bits(0, 20), cell_bits(100, 20), cell_bits(1 << 20, 20)
    (1, 3, 17)
    """
    return min(bits, max(1, listed // IN_A_CELL).bit_length())


@dataclass(frozen=True)
class Cells:
    """The buckets of one source and their targets.

    >>> Cells.of(np.array([1, 5, 7]), np.array([3, 0, 2]), bits=3, high=1)
    Cells(starts=array([0, 1, 3], dtype=int32), lows=array([1, 1, 3]), targets=array([3, 0, 2], dtype=int32))
    """

    starts: npt.NDArray[np.int32]
    """The start of each cell, and the end of the last one."""
    lows: Ints
    targets: npt.NDArray[np.int32]

    @staticmethod
    def of(buckets: Ints, targets: Ints, *, bits: int, high: int) -> Cells:
        """Build the map from sorted buckets of `bits` bits, of which `high` select the cell."""
        shift = bits - high
        starts = np.searchsorted(buckets >> shift, np.arange((1 << high) + 1))
        return Cells(
            starts.astype(np.int32), buckets & ((1 << shift) - 1), targets.astype(np.int32)
        )
