"""Bit packing of closed slots with a frame of reference, read value by value.

A *block* is a run of slots of a ring with all keys. For each column it has the least value, and the
differences of all values from it in as many bits as the greatest needs. So any value can be read alone, and
ranges are answered without unpacking a block. Blocks are stored in *buffers*, arrays of words; a row of the
*directory* locates each block.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.jit.intrinsics import float_of, word  # noqa: F401  (generated code calls both)
from tidemill.jit.kernel import kernel

THEN, COLUMNS = range(2)
"""Positions in a row of the directory: the number of keys at packing time, and the start of the columns."""
AT, LEAST, BITS_EACH = range(3)
"""Positions in a column's numbers: where its words start, the least value, bits per value."""
COLUMN = 3
"""Numbers per column."""
BUFFER_SHIFT = 40
"""The low bits of `AT` are the word's position; the bits above are the number of the buffer."""




@kernel
def address_of(bases: Any, at: int) -> Any:
    """The memory address of a column's words."""
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
    """The least value, and the bits that the greatest difference from it needs."""
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
    """Write the differences from the least value into words that are all zero."""
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
    """Unpack all values of a column of a block."""
    for i in range(values.size):
        values[i] = unpacked(address, bits, least, i)
