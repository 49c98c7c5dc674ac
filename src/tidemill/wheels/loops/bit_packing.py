"""Slots that no longer change, in few bits: frames of reference, read value by value.

A *block* is a stretch of slots of a ring with all its keys. Of each column it has the least value, and the
distances of all values from it in as many bits as the greatest needs. So any value can be read alone, and
ranges are answered from the bits. Blocks lie in *buffers*, arrays of words; a row of the *directory* says
where.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.jit.intrinsics import float_of, word  # noqa: F401  (generated code calls both)
from tidemill.jit.kernel import kernel

THEN, COLUMNS = range(2)
"""Of a row of the directory: how many keys there were then, and where the numbers of columns begin."""
AT, LEAST, BITS_EACH = range(3)
"""Of a column: where its words begin, the least value, bits to a value."""
COLUMN = 3
"""Numbers to a column."""
BUFFER_SHIFT = 40
"""Bits of the word in `AT`; above is the number of the buffer."""




@kernel
def address_of(bases: Any, at: int) -> Any:
    """Where in memory the words of a column begin."""
    return bases[at >> BUFFER_SHIFT] + ((at & ((1 << BUFFER_SHIFT) - 1)) << 3)


@kernel
def unpacked(address: int, bits: int, least: int, i: int) -> Any:
    """Value `i` of a column of a block."""
    if bits == 0:
        return np.int64(least)
    first = i * bits
    at = address + ((first >> 6) << 3)
    shift = np.uint64(first & 63)
    value = word(at) >> shift
    if (first & 63) + bits > 64:
        value |= word(at + 8) << (np.uint64(64) - shift)
    if bits < 64:
        value &= (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    return np.int64(value + np.uint64(least))


@kernel
def bits_needed(values: npt.NDArray[np.int64]) -> Any:
    """The least value, and the bits of the greatest distance from it."""
    least = values[0]
    most = values[0]
    for i in range(values.size):
        least = min(least, values[i])
        most = max(most, values[i])
    distance = np.uint64(most) - np.uint64(least)
    bits = 0
    while distance != np.uint64(0):
        bits += 1
        distance >>= np.uint64(1)
    return least, bits


@kernel
def pack(values: npt.NDArray[np.int64], least: int, bits: int, words: Any) -> None:
    """Write distances from the least into words, which hold nothing yet."""
    for i in range(values.size):
        distance = np.uint64(values[i]) - np.uint64(least)
        first = i * bits
        at = first >> 6
        shift = np.uint64(first & 63)
        words[at] |= distance << shift
        if (first & 63) + bits > 64:
            words[at + 1] |= distance >> (np.uint64(64) - shift)


@kernel
def unpack(address: int, bits: int, least: int, values: npt.NDArray[np.int64]) -> None:
    """All values of a column of a block."""
    for i in range(values.size):
        values[i] = unpacked(address, bits, least, i)
