"""Find the step of each value: between which of many ordered instants it lies.

Steps may have any length. Values are mapped to *cells* of equal length, and each cell knows the step in
which it begins; so a lookup is a shift and, mostly, no more than one comparison. Consecutive values are
mostly in one step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidemill.jit.kernel import kernel
from tidemill.kernels.memory import empty

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Steps:
    """Step `number + i` is `[starts[i], starts[i + 1])`.

    >>> steps = Steps.of(np.array([0, 10, 10, 40]), number=7)
    >>> steps.find(np.array([0, 9, 10, 39]))
    array([7, 7, 9, 9])
    """

    starts: Ints
    number: int
    cells: npt.NDArray[np.int32]
    """The position of the step that each cell begins in."""
    shift: int

    @staticmethod
    def of(starts: Ints, number: int) -> Steps:
        """The steps between ordered instants, the first of which begins step `number`."""
        span = int(starts[-1]) - int(starts[0])
        shift = max(0, (span // (2 * len(starts))).bit_length() - 1)
        begins = starts[0] + (np.arange((span >> shift) + 1) << shift)
        cells = np.searchsorted(starts, begins, side="right") - 1
        return Steps(starts, number, cells.astype(np.int32), shift)

    def covers(self, low: int, high: int) -> bool:
        """Return whether all values from `low` to `high` are in steps."""
        return bool(self.starts[0] <= low and high < self.starts[-1])

    def find(self, values: Ints) -> Ints:
        """Return the number of the step of each value; all values must be in steps."""
        out = empty(len(values))
        _find(values, self.starts, self.cells, self.shift, self.number, out)
        return out


@kernel
def _find(
    values: Ints, starts: Ints, cells: npt.NDArray[np.int32], shift: int, number: int, out: Ints
) -> None:
    base = starts[0]
    at = 0
    begin = base
    end = base
    for i in range(values.size):
        value = values[i]
        if value < begin or value >= end:
            at = cells[(value - base) >> shift]
            while value >= starts[at + 1]:
                at += 1
            begin = starts[at]
            end = starts[at + 1]
        out[i] = number + at
