"""The wire format of sets of buckets: Golomb codes, and a small number for each bucket."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidemill.kernels.golomb import decode, encode, parameter

Ints = npt.NDArray[np.int64]

_HEAD = struct.Struct("<qqqqqq")


@dataclass(frozen=True)
class BucketSet:
    """Sorted distinct buckets, with a small number for each.

    >>> some = BucketSet(np.array([3, 9, 12]), np.array([1, 0, 1]))
    >>> BucketSet.from_bytes(some.to_bytes()).buckets.tolist()
    [3, 9, 12]
    """

    buckets: Ints
    numbers: Ints

    def __len__(self) -> int:
        return len(self.buckets)

    def within(self, low: int, high: int) -> BucketSet:
        """The buckets in `[low, high)`."""
        at = slice(*np.searchsorted(self.buckets, (low, high)))
        return BucketSet(self.buckets[at], self.numbers[at])

    def to_bytes(self) -> bytes:
        """Serialize the first bucket, which may be large, as an int, and the gaps, minus one, as codes."""
        n = len(self)
        if not n:
            return _HEAD.pack(0, 0, 1, 0, 0, 0)
        first, last = int(self.buckets[0]), int(self.buckets[-1])
        m = parameter((last - first) / max(1, n - 1))
        words, bits = encode(self.buckets[1:], m, before=first, least=1)
        width = int(self.numbers.max()).bit_length()
        head = _HEAD.pack(n, first, m, len(words), bits, width)
        return head + words.tobytes() + _packed(self.numbers, width)

    @staticmethod
    def from_bytes(data: bytes) -> BucketSet:
        n, first, m, words, _, width = _HEAD.unpack_from(data)
        if not n:
            return BucketSet(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
        codes = np.frombuffer(data, dtype=np.uint64, count=words, offset=_HEAD.size)
        buckets = np.empty(n, dtype=np.int64)
        buckets[0] = first
        buckets[1:] = decode(codes, n - 1, m, before=first, least=1)
        return BucketSet(buckets, _unpacked(data[_HEAD.size + 8 * words :], n, width))

    @staticmethod
    def code_bits(data: bytes) -> int:
        """The bits of the codes in a serialized set, without the numbers."""
        return int(_HEAD.unpack_from(data)[4])


def _packed(numbers: Ints, width: int) -> bytes:
    if width == 8:
        return numbers.astype(np.uint8).tobytes()
    bits = (numbers[:, None] >> np.arange(width)) & 1
    return np.packbits(bits.astype(np.uint8)).tobytes()


def _unpacked(data: bytes, n: int, width: int) -> Ints:
    raw = np.frombuffer(data, dtype=np.uint8)
    if width == 8:
        return raw[:n].astype(np.int64)
    bits = np.unpackbits(raw, count=n * width).reshape(n, width).astype(np.int64)
    values: Ints = (bits << np.arange(width)).sum(axis=1)
    return values
