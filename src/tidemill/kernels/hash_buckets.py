"""Map hashes of keys to *buckets*, numbers in `[0, size)`, for a distributed Bloom filter.

A hash has 64 bits. Its bucket is the high half of `hash × size`, so buckets are sorted like hashes for any
size. Hashes are therefore sorted once, before the number of buckets is known.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.jit.kernel import kernel

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.uint8]

MANY = 255
"""The maximum of an 8-bit count; it stands for this or more."""

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@kernel
def bucket_of(hash: int, size: int) -> Any:
    """Return the bucket of a hash: the high 64 bits of the 128-bit product."""
    h, s = np.uint64(hash), np.uint64(size)
    low, high = h & _LOW, h >> _HALF
    low_s, high_s = s & _LOW, s >> _HALF
    middle = high * low_s + ((low * low_s) >> _HALF)
    other = low * high_s + (middle & _LOW)
    return np.int64(high * high_s + (middle >> _HALF) + (other >> _HALF))


@kernel
def _counted(hashes: Hashes, rows: Ints, out: Hashes, counts: Counts) -> int:
    found = -1
    for i in range(hashes.size):
        if found >= 0 and hashes[i] == out[found]:
            counts[found] = min(np.int64(MANY), np.int64(counts[found]) + rows[i])
        else:
            found += 1
            out[found] = hashes[i]
            counts[found] = min(np.int64(MANY), rows[i])
    return found + 1


def counted(hashes: Hashes, rows: Ints) -> tuple[Hashes, Counts]:
    """Return the distinct hashes, sorted, and the number of rows of each; 255 means 255 or more.

    >>> counted(np.array([7, 3, 7], dtype=np.uint64), np.array([1, 300, 1]))
    (array([3, 7], dtype=uint64), array([255,   2], dtype=uint8))
    """
    order = np.argsort(hashes)
    out, counts = np.empty_like(hashes), np.empty(len(hashes), dtype=np.uint8)
    found = _counted(hashes[order], rows[order], out, counts)
    return out[:found], counts[:found]


@kernel
def _in_buckets(hashes: Hashes, counts: Counts, size: int, out: Ints, sums: Counts) -> int:
    found = -1
    for i in range(hashes.size):
        bucket = bucket_of(hashes[i], size)
        if found >= 0 and bucket == out[found]:
            sums[found] = min(np.int64(MANY), np.int64(sums[found]) + np.int64(counts[i]))
        else:
            found += 1
            out[found] = bucket
            sums[found] = counts[i]
    return found + 1


def in_buckets(hashes: Hashes, counts: Counts, size: int) -> tuple[Ints, Counts]:
    """Return the distinct buckets of sorted hashes, and the sum of the counts in each.

    >>> in_buckets(np.array([0, 1 << 62, 1 << 63], dtype=np.uint64), np.array([1, 2, 250], np.uint8), 2)
    (array([0, 1]), array([  3, 250], dtype=uint8))
    """
    if not 0 < size < 1 << 62:
        raise ValueError(f"invalid number of buckets: {size}")
    out, sums = np.empty(len(hashes), dtype=np.int64), np.empty(len(hashes), dtype=np.uint8)
    found = _in_buckets(hashes, counts, size, out, sums)
    return out[:found], sums[:found]
