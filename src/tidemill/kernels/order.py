"""Stable radix sort of integers, used to sort partials and rows by key and pane."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidemill.core.floats import canonical_array
from tidemill.jit.kernel import kernel

Ints = npt.NDArray[np.int64]
_DIGIT = 11
_MOST_BITS = 24
"""Maximum number of bits of a digit: the counters of 2**24 buckets take 128 MB."""


@kernel
def _is_sorted(x: Ints) -> bool:
    for i in range(1, x.size):
        if x[i] < x[i - 1]:
            return False
    return True


@kernel
def some_below_zero(x: Ints) -> bool:
    """Return whether some number is below 0."""
    found = False
    for i in range(x.size):
        found |= x[i] < 0
    return found


@kernel
def min_max(x: Ints) -> tuple[int, int]:
    """Return the least and the greatest number of an array that has some."""
    low = x[0]
    high = x[0]
    for i in range(1, x.size):
        low = min(low, x[i])
        high = max(high, x[i])
    return low, high


@kernel
def _joined(a: Ints, low_a: int, b: Ints, low_b: int, span: int) -> Ints:
    """Pack each pair into one number that sorts like the pair; `span` is greater than any `b - low_b`."""
    out = np.empty(a.size, dtype=np.int64)
    for i in range(a.size):
        out[i] = (a[i] - low_a) * span + (b[i] - low_b)
    return out


@kernel
def _pass(keys: Ints, low: int, shift: int, buckets: int, source: Ints, target: Ints) -> None:
    """Counting sort of `source` by one digit of `keys[source]`; a digit has `buckets` possible values."""
    counts = np.zeros(buckets + 1, dtype=np.int64)
    mask = np.uint64(buckets - 1)
    base = np.uint64(low)
    for i in range(source.size):
        d = np.int64(((np.uint64(keys[source[i]]) - base) >> np.uint64(shift)) & mask)
        counts[d + 1] += 1
    for b in range(buckets):
        counts[b + 1] += counts[b]
    for i in range(source.size):
        at = source[i]
        d = np.int64(((np.uint64(keys[at]) - base) >> np.uint64(shift)) & mask)
        target[counts[d]] = at
        counts[d] += 1


def refine(order: Ints, keys: npt.NDArray[np.int64]) -> Ints:
    """Sort `order` by `keys[order]`, stably."""
    if len(order) < 2 or (_is_sorted(keys) and _is_sorted(order)):
        return order
    low, high = min_max(keys)
    bits = int(int(high) - int(low)).bit_length()
    # One pass if the range of keys is about the number of rows; otherwise digits that fit the CPU cache.
    dense = bits <= min(_MOST_BITS, len(order).bit_length() + 1)
    place = (len(order) - 1).bit_length()
    if bits + place < 64 and bits > 2 * _DIGIT:
        # Each key with its place in one number: NumPy sorts numbers with SIMD.
        packed = ((keys[order] - low) << place) | np.arange(len(order))
        packed.sort()
        found: Ints = order[packed & ((1 << place) - 1)]
        return found
    if bits > 44:  # too many passes: a comparison sort is faster
        return order[np.argsort(keys[order], kind="stable")]
    passes = 1 if dense else max(1, -(-bits // _DIGIT))
    digit = -(-bits // passes) if bits else 1
    spare = np.empty_like(order)
    for p in range(passes):
        _pass(keys, low, p * digit, 1 << digit, order, spare)
        order, spare = spare, order
    return order


def order_by(*keys: npt.NDArray[np.int64]) -> Ints:
    """Return the stable sort order by the first key, then the second, and so on.

    >>> order_by(np.array([1, 0, 1]), np.array([5, 9, 4]))
    array([1, 2, 0])
    """
    order = np.arange(len(keys[0]), dtype=np.int64)
    for key in reversed(_fewer(list(keys))):
        order = refine(order, key)
    return order


def ordered(ticks: Ints, first: int = 0) -> Ints:
    """Return the places of instants in order, if they are numbered from `first` on.

    >>> ordered(np.array([3, 4]), 10), ordered(np.array([4, 3]), 10)
    (array([10, 11]), array([11, 10]))
    """
    places = np.arange(first, first + len(ticks), dtype=np.int64)
    return places if _is_sorted(ticks) else places[order_by(ticks)]


def _fewer(keys: list[Ints]) -> list[Ints]:
    """Pack the first keys into one number as long as they fit; the order stays the same."""
    while len(keys) > 1 and len(keys[0]):
        (low, high), (low_next, high_next) = (map(int, min_max(k)) for k in keys[:2])
        span = high_next - low_next + 1
        if (high - low + 1) * span > 1 << 44:
            break
        keys = [_joined(keys[0], low, keys[1], low_next, span), *keys[2:]]
    return keys


def float_key(column: npt.NDArray[np.float64]) -> Ints:
    """Return integers that sort like the floats, by the rule of `core.floats`."""
    bits = canonical_array(column).view(np.int64)
    return np.where(bits < 0, bits ^ np.int64((1 << 63) - 1), bits)
