"""Search for a substring in all strings of an array at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.jit.intrinsics import bytes_at
from tidemill.jit.kernel import kernel

Bytes = npt.NDArray[np.uint8]
ONES = np.uint64(0x0101010101010101)


@kernel
def _mark(offsets: Any, data: Bytes, part: Bytes, out: Bytes) -> None:
    size = part.size
    first = part[0]
    last = part[size - 1]
    firsts = np.uint64(first) * ONES
    lasts = np.uint64(last) * ONES
    stop = offsets[offsets.size - 1] - size + 1
    i = np.int64(offsets[0])
    row = 0
    while i < stop:
        limit = stop
        if i + 8 <= stop:
            # Compare eight places at once: a byte of `differs` is 0 where the first and the last byte match.
            at = data.ctypes.data + i
            differs = (bytes_at(at) ^ firsts) | (bytes_at(at + size - 1) ^ lasts)
            if ((differs - ONES) & ~differs & (ONES << np.uint64(7))) == 0:
                i += 8
                continue
            limit = i + 8
        while i < limit:
            found = data[i] == first and data[i + size - 1] == last
            j = 1
            while found and j < size - 1:
                found = data[i + j] == part[j]
                j += 1
            if found:
                while offsets[row + 1] <= i:
                    row += 1
                if i + size <= offsets[row + 1]:  # not in two strings
                    out[row] = 1
                    i = np.int64(offsets[row + 1])
                    continue
            i += 1


def contains(array: pa.Array, part: str) -> pa.Array:
    """Return whether each string of an array contains `part`; null for null.

    >>> contains(pa.array(["ab", None, "cab", "a"]), "ab").to_pylist()
    [True, None, True, False]
    """
    n = len(array)
    validity, places, text = array.buffers()
    wanted = np.frombuffer(part.encode(), dtype=np.uint8)
    found = np.full(n, wanted.size == 0, dtype=np.uint8)
    if wanted.size and n and places is not None and text is not None:
        offsets = np.frombuffer(places, dtype=np.int32)[array.offset : array.offset + n + 1]
        _mark(offsets, np.frombuffer(text, dtype=np.uint8), wanted, found)
    body = pa.py_buffer(np.packbits(found, bitorder="little"))
    if array.null_count == 0:
        return pa.Array.from_buffers(pa.bool_(), n, [None, body])
    return pa.Array.from_buffers(pa.bool_(), n, [_shifted(validity, array.offset, n), body])


def _shifted(bitmap: pa.Buffer, offset: int, n: int) -> pa.Buffer:
    """Return a bitmap that begins at its first bit."""
    if offset == 0:
        return bitmap
    bits = np.unpackbits(np.frombuffer(bitmap, dtype=np.uint8), bitorder="little")[offset : offset + n]
    return pa.py_buffer(np.packbits(bits, bitorder="little"))
