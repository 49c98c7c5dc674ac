"""Read records from planes, which hold one recent pane each, and select the rows of a lane."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.jit.kernel import kernel

Words = npt.NDArray[np.int64]


@kernel
def _unroll(planes: Words, width: int, keys: int, first: int, last: int, out: Words) -> int:
    mask = planes.shape[0] - 1
    m = 0
    for k in range(keys):
        at = k * width
        for p in range(first, last + 1):
            # Always write, and advance only for a match: there is no branch to mispredict.
            for j in range(width):
                out[m + j] = planes[p & mask, at + j]
            m += width * (planes[p & mask, at + 1] == p)
    return m


def unroll(
    planes: npt.NDArray[Any], keys: int, first: int, last: int, out: npt.NDArray[Any]
) -> int:
    """Write the records of panes `first..last` to `out` by key and pane, and return their number.

    The plane of a pane is its number modulo the number of planes, a power of two. There must be no more
    panes than planes. Records start with key and pane and consist of whole words, so that one compiled loop
    serves all record types. `out` needs room for one record more, because the loop writes before it tests.
    """
    width = planes.dtype.itemsize // 8
    return int(_unroll(planes.view(np.int64), width, keys, first, last, out.view(np.int64))) // width


@kernel
def _pick(kid: Words, mask: int, number: int, out: Any) -> int:
    m = 0
    for i in range(kid.size):
        out[m] = i
        m += (kid[i] & mask) == number
    return m


def pick(kid: Words, lanes: int, number: int, out: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Write the row numbers of one lane to `out` and return them; `lanes` is a power of two.

    >>> pick(np.array([0, 1, 5, 2]), 2, 1, np.empty(4, dtype=np.uint32))
    array([1, 2], dtype=uint32)
    """
    return out[: _pick(kid, lanes - 1, number, out)]
