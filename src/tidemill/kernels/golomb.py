"""Golomb codes of the differences between sorted numbers (paper 002, section 4.2.1).

A difference `n` is written as `n // m` in unary (ones, then a zero) and `n % m` in truncated binary. Bits
fill words from the highest bit, in the order in which the paper writes them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.jit.intrinsics import leading_zeros
from tidemill.jit.kernel import kernel

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_RUN = 32
"""Long runs of ones are written in pieces of this length; the rest and the remainder then fit a word."""
_LONGEST = 30
"""Maximum number of bits of a remainder. Larger differences have more ones instead."""


def parameter(mean: float) -> int:
    """Return the best parameter for geometrically distributed differences, rounded to a power of two.

    >>> parameter(8.0), parameter(1.2)
    (4, 1)
    """
    return 1 << min(_LONGEST, max(0, round(math.log2(max(1.0, mean * math.log(2))))))


def encode(values: Ints, m: int, before: int = 0, least: int = 0) -> tuple[Words, int]:
    """Encode non-decreasing values; return the words and the number of bits in them.

    The first difference is to `before`. `least` is a lower bound of all differences and is subtracted.

    >>> words, bits = encode(np.array([6, 10, 17, 18]), 5)
    >>> f"{int(words[0]):064b}"[:bits]
    '100101111010001'
    """
    if not len(values):
        return np.zeros(0, dtype=np.uint64), 0
    if not 0 < m < 1 << (_LONGEST + 1):
        raise ValueError(f"invalid parameter of a Golomb code: {m}")
    longest = len(values) * (m.bit_length() + 2) + (int(values[-1]) - before) // m
    words = np.zeros(longest // 64 + 2, dtype=np.uint64)
    bits = _encode(values, m, before, least, words)
    return words[: -(-bits // 64)], bits


def decode(words: Words, count: int, m: int, before: int = 0, least: int = 0) -> Ints:
    """Decode `count` values that `encode` wrote with the same parameters.

    >>> decode(encode(np.array([6, 10, 17, 18]), 5)[0], 4, 5).tolist()
    [6, 10, 17, 18]
    """
    out = np.empty(count, dtype=np.int64)
    padded = np.zeros(len(words) + 2, dtype=np.uint64)  # the loop reads one word ahead
    padded[: len(words)] = words
    if _decode(padded, m, before, least, out) > 64 * len(words):
        raise ValueError(f"{len(words)} words of a Golomb code end before {count} values")
    return out


@kernel
def _encode(values: Ints, m: int, before: int, least: int, words: Words) -> int:
    k = 0
    while 1 << (k + 1) <= m:
        k += 1
    short = (1 << (k + 1)) - m  # remainders below this have k bits, others k + 1
    power = m & (m - 1) == 0
    one = np.uint64(1)
    at = 0
    held = np.uint64(0)
    free = 64
    for i in range(values.size):
        n = values[i] - before - least
        before = values[i]
        q = n >> k if power else n // m
        r = n - q * m
        while q > _RUN:
            ones = (one << np.uint64(_RUN)) - one
            if free > _RUN:
                free -= _RUN
                held |= ones << np.uint64(free)
            else:
                words[at] = held | (ones >> np.uint64(_RUN - free))
                at += 1
                free += 64 - _RUN
                held = ones << np.uint64(free) if free < 64 else np.uint64(0)
            q -= _RUN
        ones = ((one << np.uint64(q)) - one) << one
        if r < short:
            size = q + 1 + k
            code = (ones << np.uint64(k)) | np.uint64(r)
        else:
            size = q + 2 + k
            code = (ones << np.uint64(k + 1)) | np.uint64(r + short)
        if size < free:
            free -= size
            held |= code << np.uint64(free)
        else:
            words[at] = held | (code >> np.uint64(size - free))
            at += 1
            free += 64 - size
            held = code << np.uint64(free) if free < 64 else np.uint64(0)
    words[at] = held
    return 64 * at + 64 - free


@kernel
def _decode(words: Words, m: int, before: int, least: int, out: Ints) -> Any:
    """Return the position after the last bit read; stop at the end of the words."""
    k = 0
    while 1 << (k + 1) <= m:
        k += 1
    short = (1 << (k + 1)) - m
    end = 64 * (words.size - 2)
    at = 0
    for i in range(out.size):
        q = 0
        while True:
            word, shift = at >> 6, np.uint64(at & 63)
            seen = words[word] << shift
            if shift:
                seen |= words[word + 1] >> (np.uint64(64) - shift)
            ones = leading_zeros(~seen)
            if ones <= _RUN:
                break
            q += _RUN
            at += _RUN
            if at > end:
                return at
        q += ones
        seen = seen << np.uint64(ones) << np.uint64(1)
        r = np.int64(seen >> np.uint64(1) >> np.uint64(63 - k))
        at += ones + 1 + k
        if r >= short:
            r = np.int64(seen >> np.uint64(63 - k)) - short
            at += 1
        before += q * m + r + least
        out[i] = before
        if at > end:
            return at
    return at
