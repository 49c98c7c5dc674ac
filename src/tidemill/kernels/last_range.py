"""Find when rows leave windows of the last range of one attribute that slide over another."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidemill.jit.kernel import kernel

Ints = npt.NDArray[np.int64]


@kernel
def leaving(partition: Ints, first: Ints, x: Ints, by_x: Ints, length: int, never: int) -> Ints:
    """Return the first window of each row that no longer has it, or `never`.

    Rows are in order of the partition and of the first window that sees them; `by_x` is their order by
    partition and range attribute. A row leaves with the first row that is `length` or more beyond it.
    """
    out = np.empty(x.size, dtype=np.int64)
    begin = 0
    while begin < x.size:
        end = begin
        while end < x.size and partition[end] == partition[begin]:
            end += 1
        at = begin  # the first row at which the greatest value so far is beyond the range of the row
        for i in range(begin, end):
            row = by_x[i]
            while at < end and x[at] < x[row] + length:
                at += 1
            out[row] = first[at] if at < end else never
        begin = end
    return out
