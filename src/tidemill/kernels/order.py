"""Stable radix sort of integers, used to sort partials and rows by key and pane."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidemill.core.floats import canonical_array
from tidemill.jit.kernel import kernel
from tidemill.kernels.memory import empty, taken

Ints = npt.NDArray[np.int64]
_DIGIT = 11
_MOST_BITS = 24
"""Maximum number of bits of a digit: the counters of 2**24 buckets take 128 MB."""
_FEW_EQUAL = 32
"""So many rows are moved past one another at most, where packed keys are equal."""
_AS_THEY_ARE = np.empty(0, dtype=np.int64)


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


@kernel
def _packed(keys: Ints, low: int, order: Ints, drop: int, place: int, out: Ints) -> None:
    """Write each key, without its last `drop` bits, and its place in `order` as one number."""
    for i in range(out.size):
        at = i if order.size == 0 else order[i]
        out[i] = (((keys[at] - low) >> drop) << place) | i


@kernel
def _places(packed: Ints, order: Ints, place: int) -> None:
    """Replace what `_packed` wrote by the rows that it stands for."""
    mask = (1 << place) - 1
    for i in range(packed.size):
        at = packed[i] & mask
        packed[i] = at if order.size == 0 else order[at]


@kernel
def _settle(keys: Ints, order: Ints) -> bool:
    """Sort rows that are in order but for the last bits of their keys; False if too many are equal."""
    for i in range(1, order.size):
        row = order[i]
        key = keys[row]
        if keys[order[i - 1]] <= key:
            continue
        p = i
        while p > 0 and keys[order[p - 1]] > key:
            if i - p == _FEW_EQUAL:
                return False
            order[p] = order[p - 1]
            p -= 1
        order[p] = row
    return True


def refine(order: Ints | None, keys: npt.NDArray[np.int64]) -> Ints:
    """Sort `order` by `keys[order]`, stably. None is the order of the keys as they are."""
    n = len(keys) if order is None else len(order)
    if n < 2 or (_is_sorted(keys) and (order is None or _is_sorted(order))):
        return np.arange(n) if order is None else order
    low, high = min_max(keys)
    bits = int(int(high) - int(low)).bit_length()
    if bits > 2 * _DIGIT and (found := _by_packing(order, keys, int(low), bits, n)) is not None:
        return found
    if order is None:
        order = np.arange(n)
    if bits > 44:  # too many passes: a comparison sort is faster
        return order[np.argsort(keys[order], kind="stable")]
    # One pass if the range of keys is about the number of rows; otherwise digits that fit the CPU cache.
    dense = bits <= min(_MOST_BITS, n.bit_length() + 1)
    passes = 1 if dense else max(1, -(-bits // _DIGIT))
    digit = -(-bits // passes) if bits else 1
    spare = np.empty_like(order)
    for p in range(passes):
        _pass(keys, low, p * digit, 1 << digit, order, spare)
        order, spare = spare, order
    return order


def _by_packing(order: Ints | None, keys: Ints, low: int, bits: int, n: int) -> Ints | None:
    """As `refine`: each key with its place in one number, which NumPy sorts with SIMD.

    The last bits of keys may find no room there. None if they are many, or many keys differ only there.
    """
    place = (n - 1).bit_length()
    drop = max(0, bits + place - 63)
    if bits > 63 or bits - drop <= 2 * _DIGIT:
        return None
    found, rows = empty(n), _AS_THEY_ARE if order is None else order
    _packed(keys, low, rows, drop, place, found)
    found.sort()
    _places(found, rows, place)
    return found if not drop or _settle(keys, found) else None


def order_by(*keys: npt.NDArray[np.int64]) -> Ints:
    """Return the stable sort order by the first key, then the second, and so on.

    >>> order_by(np.array([1, 0, 1]), np.array([5, 9, 4]))
    array([1, 2, 0])
    """
    order: Ints | None = None
    for key in reversed(_fewer(list(keys))):
        order = refine(order, key)
    assert order is not None
    return order


def ordered(ticks: Ints, first: int = 0) -> Ints:
    """Return the places of instants in order, if they are numbered from `first` on.

    >>> ordered(np.array([3, 4]), 10), ordered(np.array([4, 3]), 10)
    (array([10, 11]), array([11, 10]))
    """
    order = places_in_order(ticks)
    if order is None:
        return np.arange(first, first + len(ticks), dtype=np.int64)
    order += first
    return order


def places_in_order(ticks: Ints) -> Ints | None:
    """Return the places of instants in order; None if they are in order.

    >>> places_in_order(np.array([3, 4])), places_in_order(np.array([4, 3]))
    (None, array([1, 0]))
    """
    return None if _is_sorted(ticks) else order_by(ticks)


def in_places(column: Ints, places: Ints | None) -> Ints:
    """Return a column in another order; None is the one that it has."""
    return column if places is None else taken(column, places)


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
