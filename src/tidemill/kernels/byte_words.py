"""Read, hash and compare bytes eight at a time.

Functions take the address and the size of an array instead of the array: where a kernel passes an array to
another one, it counts a reference up and down, which takes longer than to hash a short text. An array has at
least eight bytes (`padded`), so that eight can be read anywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.jit.intrinsics import bytes_at
from tidemill.jit.kernel import kernel

Bytes = npt.NDArray[np.uint8]


def padded(data: Bytes) -> Bytes:
    """Return data of at least eight bytes."""
    return data if data.size >= 8 else np.frombuffer(data.tobytes() + bytes(8), dtype=np.uint8)


@kernel
def word_at(data: int, size: int, at: int) -> Any:
    """Return eight bytes from a place on, fewer before the end of the data."""
    if at <= size - 8:
        return bytes_at(data + at)
    whole = min(at, size - 8)
    return bytes_at(data + whole) >> np.uint64(8 * min(at - whole, 7))


@kernel
def _mixed(h: Any, w: Any) -> Any:
    h = (h ^ w) * np.uint64(0x9E3779B97F4A7C15)
    return h ^ (h >> np.uint64(29))


@kernel
def hash_bytes(data: int, size: int, start: int, end: int) -> Any:
    """Return a hash of some bytes; the last eight may overlap those before."""
    length = end - start
    h = np.uint64(length)
    if length > 8:
        at = data + start
        last = data + end - 8
        while at < last:
            h = _mixed(h, bytes_at(at))
            at += 8
        h = _mixed(h, bytes_at(last))
    elif length > 0:
        h = _mixed(h, word_at(data, size, start) << np.uint64(8 * (8 - length)))
    return np.int64(h * np.uint64(0x9E3779B97F4A7C15))


@kernel
def same_bytes(a: int, a_size: int, i: int, b: int, b_size: int, j: int, length: int) -> bool:
    """Return whether bytes from `i` on in `a` are those from `j` on in `b`."""
    if length > 8:
        at = a + i
        to = b + j
        last = at + length - 8
        while at < last:
            if bytes_at(at) != bytes_at(to):
                return False
            at += 8
            to += 8
        return bool(bytes_at(last) == bytes_at(b + j + length - 8))
    if length == 0:
        return True
    return bool(((word_at(a, a_size, i) ^ word_at(b, b_size, j)) << np.uint64(8 * (8 - length))) == 0)
