"""Compiled holistic aggregates over ranges of rows; `aggregates.holistic` defines them.

Rows are argument columns sorted by key and pane. A window is a range `[low, high)` of rows. Strings are
passed as ranks, so that only numbers are compared. Each function returns a column: values and validity, or
list offsets and item columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.core.floats import canonical_array
from tidemill.jit.kernel import kernel
from tidemill.kernels.functions import OVERFLOW, carry, wrap_add
from tidemill.kernels.memory import empty
from tidemill.kernels.order import float_key

Ints = npt.NDArray[np.int64]
Column = npt.NDArray[Any]


@kernel
def _select(s: Column, n: int, k: int) -> None:
    """Partition the first n numbers in place so that position k holds the k-th smallest."""
    low = 0
    high = n - 1
    while low < high:
        middle = (low + high) >> 1
        if s[middle] < s[low]:
            s[middle], s[low] = s[low], s[middle]
        if s[high] < s[low]:
            s[high], s[low] = s[low], s[high]
        if s[high] < s[middle]:
            s[high], s[middle] = s[middle], s[high]
        pivot = s[middle]
        i = low
        j = high
        while i <= j:
            while s[i] < pivot:
                i += 1
            while pivot < s[j]:
                j -= 1
            if i <= j:
                s[i], s[j] = s[j], s[i]
                i += 1
                j -= 1
        if k <= j:
            high = j
        elif k >= i:
            low = i
        else:
            return


_SAMPLE, _MARGIN = 64, 8
"""The size of a sample, and how far in it the bounds of a number are from where the number would be."""


@kernel
def _narrow(s: Column, n: int, k: int, sample: Column) -> tuple[Any, Any]:
    """Move the numbers near the k-th smallest to the front, without a branch to mispredict.

    Returns how many they are, and how many are less than all of them. The other numbers are lost. The k-th
    smallest is among them unless a sample misleads.
    """
    for j in range(_SAMPLE):
        x = s[j * (n // _SAMPLE)]
        i = j
        while i > 0 and sample[i - 1] > x:
            sample[i] = sample[i - 1]
            i -= 1
        sample[i] = x
    middle = k * _SAMPLE // n
    low = sample[max(0, middle - _MARGIN)] if middle >= _MARGIN else -np.inf
    high = sample[min(_SAMPLE - 1, middle + _MARGIN)] if middle + _MARGIN < _SAMPLE else np.inf
    m = np.uint64(0)
    less = np.int64(0)
    for j in range(n):
        x = s[np.uint64(j)]
        s[m] = x
        m += np.uint64(x >= low) & np.uint64(x <= high)
        less += np.int64(x < low)
    return np.int64(m), less


@kernel
def _numbers(low: int, high: int, x: Column, out: Column) -> Any:
    """Copy the values of a window that are not NaN, and return how many they are."""
    n = np.uint64(0)
    for j in range(low, high):
        number = x[np.uint64(j)]
        out[n] = number
        n += np.uint64(number == number)
    return np.int64(n)


@kernel
def _quantile(low: Ints, high: Ints, x: Column, q: float, scratch: Column, out: Column) -> None:
    sample = np.empty(_SAMPLE, dtype=np.float64)
    for i in range(low.size):
        n = high[i] - low[i]
        if n == 0:
            continue
        numbers = _numbers(low[i], high[i], x, scratch)
        at = q * (n - 1)
        base = np.int64(np.floor(at))
        last = base + np.int64(at != base)
        if last >= numbers:
            out[i] = np.nan  # NaN sorts after every number
            continue
        less = np.int64(0)
        if numbers >= 4 * _SAMPLE:
            found, less = _narrow(scratch, numbers, base, sample)
            if base < less or last >= less + found:
                _numbers(low[i], high[i], x, scratch)
                less = np.int64(0)
            else:
                numbers = found
        base -= less
        _select(scratch, numbers, base)
        a = scratch[base]
        if last == base + less:
            out[i] = a
            continue
        b = scratch[base + 1]
        for j in range(base + 2, numbers):
            if scratch[j] < b:
                b = scratch[j]
        out[i] = a + (b - a) * (at - (base + less))


@kernel
def _distinct(low: Ints, high: Ints, bits: Ints, slots: Ints, window: Ints, out: Ints) -> None:
    """Count different numbers with a hash table; `window[s]` is the window that filled slot `s` last."""
    mask = slots.size - 1
    for i in range(low.size):
        count = 0
        for j in range(low[i], high[i]):
            x = bits[j]
            h = np.uint64(x) * np.uint64(0x9E3779B97F4A7C15)
            s = np.int64(h >> np.uint64(32)) & mask
            while window[s] == i and slots[s] != x:
                s = (s + 1) & mask
            if window[s] != i:
                window[s] = i
                slots[s] = x
                count += 1
        out[i] = count


@kernel
def _entropy(low: Ints, high: Ints, x: Column, out: Column) -> None:
    for i in range(low.size):
        n = high[i] - low[i]
        if n == 0:
            continue
        ordered = np.sort(x[low[i] : high[i]])
        total = 0.0
        run = 1
        for j in range(1, n + 1):
            if j < n:
                a, b = ordered[j - 1], ordered[j]
                if a == b or (a != a and b != b):
                    run += 1
                    continue
            p = run / n
            total -= p * np.log2(p)
            run = 1
        out[i] = total + 0.0


@kernel
def _extremes(
    low: Ints, high: Ints, x: Column, k: int, greatest: bool, offsets: Ints, items: Column,
) -> int:  # fmt: skip
    m = 0
    for i in range(low.size):
        ordered = np.sort(x[low[i] : high[i]])
        n = ordered.size
        for j in range(min(k, n)):
            items[m] = ordered[n - 1 - j] if greatest else ordered[j]
            m += 1
        offsets[i + 1] = m
    return m


@kernel
def _collect(low: Ints, high: Ints, t: Column, x: Column, offsets: Ints, items: Column) -> int:
    m = 0
    for i in range(low.size):
        times = t[low[i] : high[i]]
        order = np.argsort(times, kind="mergesort")
        a = 0
        n = order.size
        while a < n:
            b = a + 1
            while b < n and times[order[b]] == times[order[a]]:
                b += 1
            tied = np.empty(b - a, dtype=x.dtype)
            for j in range(a, b):
                tied[j - a] = x[low[i] + order[j]]
            if b - a > 1:
                tied.sort()
            for j in range(b - a):
                items[m] = tied[j]
                m += 1
            a = b
        offsets[i + 1] = m
    return m


@kernel
def _before(t: int, x: Any, other_t: int, other_x: Any, latest: bool) -> bool:
    """Return whether a row is before another one; of one time, the one with the greater value."""
    if t != other_t:
        return bool((t > other_t) if latest else (t < other_t))
    return bool(x > other_x or (x != x and other_x == other_x))


@kernel
def _of_time(
    low: Ints, high: Ints, t: Column, x: Column, k: int, latest: bool, offsets: Ints, items: Column
) -> None:
    """Write the values of the first k rows of each window in order of time, or of the last k ones."""
    m = 0
    times = np.empty(min(k, max(items.size, 1)), dtype=np.int64)
    for i in range(low.size):
        n = 0
        for j in range(high[i] - low[i]):
            # Rows mostly come in order of time, so the first ones that are looked at stay.
            row = high[i] - 1 - j if latest else low[i] + j
            if n == k and not _before(t[row], x[row], times[n - 1], items[m + n - 1], latest):
                continue
            at = n if n < k else k - 1
            while at > 0 and _before(t[row], x[row], times[at - 1], items[m + at - 1], latest):
                times[at] = times[at - 1]
                items[m + at] = items[m + at - 1]
                at -= 1
            times[at] = t[row]
            items[m + at] = x[row]
            n = min(n + 1, k)
        m += n
        offsets[i + 1] = m


_COUNT, _SUM, _MEAN, _MIN, _MAX = 0, 1, 2, 3, 4


@kernel
def _less(a: Any, b: Any) -> bool:
    return bool(a < b or (b != b and a == a))


@kernel
def _by(
    low: Ints, high: Ints, key: Column, x: Column, how: int, offsets: Ints, keys: Column,
    out: Column,
) -> int:  # fmt: skip
    m = 0
    for i in range(low.size):
        part = key[low[i] : high[i]]
        order = np.argsort(part, kind="mergesort")
        n = order.size
        a = 0
        while a < n:
            first = x[low[i] + order[a]]
            total = first
            b = a + 1
            k = part[order[a]]
            while b < n:
                other = part[order[b]]
                if not (other == k or (other != other and k != k)):
                    break
                v = x[low[i] + order[b]]
                if how == _MIN:
                    total = v if _less(v, total) else total
                elif how == _MAX:
                    total = v if _less(total, v) else total
                elif how != _COUNT:
                    total = total + v
                b += 1
            keys[m] = k
            if how == _COUNT:
                out[m] = b - a
            elif how == _MEAN:
                out[m] = total / (b - a)
            else:
                out[m] = total
            m += 1
            a = b
        offsets[i + 1] = m
    return m


@kernel
def _int_totals_by(
    low: Ints, high: Ints, key: Column, x: Ints, offsets: Ints, keys: Column, lows: Ints, highs: Ints,
    counts: Ints,
) -> int:  # fmt: skip
    """Compute the exact sum of each category as `low + high * 2**64`, and its number of rows."""
    m = 0
    for i in range(low.size):
        part = key[low[i] : high[i]]
        order = np.argsort(part, kind="mergesort")
        for j in range(order.size):
            k = part[order[j]]
            if j == 0 or not (k == keys[m - 1] or (k != k and keys[m - 1] != keys[m - 1])):
                keys[m] = k
                lows[m] = highs[m] = counts[m] = 0
                m += 1
            v = x[low[i] + order[j]]
            highs[m - 1] += carry(lows[m - 1], v)
            lows[m - 1] = wrap_add(lows[m - 1], v)
            counts[m - 1] += 1
        offsets[i + 1] = m
    return m


@kernel
def _top_keys(
    low: Ints, high: Ints, key: Column, n: int, offsets: Ints, keys: Column, out: Column,
) -> int:  # fmt: skip
    m = 0
    for i in range(low.size):
        ordered = np.sort(key[low[i] : high[i]])
        size = ordered.size
        found = np.empty(size, dtype=key.dtype)
        counts = np.empty(size, dtype=np.int64)
        groups = 0
        for j in range(size):
            if groups:
                a, b = found[groups - 1], ordered[j]
                if a == b or (a != a and b != b):
                    counts[groups - 1] += 1
                    continue
            found[groups] = ordered[j]
            counts[groups] = 1
            groups += 1
        # A stable sort by count over ascending keys; read backwards, so that ties give the greater key.
        order = np.argsort(counts[:groups], kind="mergesort")
        for j in range(min(n, groups)):
            at = order[groups - 1 - j]
            keys[m] = found[at]
            out[m] = counts[at]
            m += 1
        offsets[i + 1] = m
    return m


class Lowered:
    """A result column: `data` and `valid`, or lists with `offsets` and one or two item columns."""

    def __init__(
        self, data: list[Column], valid: npt.NDArray[np.bool_] | None = None,
        offsets: Ints | None = None, err: int = 0, there: list[Column] | None = None,
    ) -> None:  # fmt: skip
        self.data, self.valid, self.offsets, self.err = data, valid, offsets, err
        self.there = there
        """Whether the items of each column are not null; None if none is."""


def lower(name: str, params: tuple[Any, ...], low: Ints, high: Ints, args: list[Column]) -> Lowered:
    """Compute one holistic aggregate for every window."""
    return _LOWER[name](low, high, args, *params)


def _scalar(run: Callable[..., None], dtype: Any) -> Callable[..., Lowered]:
    def apply(low: Ints, high: Ints, args: list[Column], *params: Any) -> Lowered:
        out = np.zeros(len(low), dtype=dtype)
        run(low, high, args[0], *params, out)
        return Lowered([out], high > low)

    return apply


def _distinct_counts(low: Ints, high: Ints, args: list[Column]) -> Lowered:
    x = args[0]
    bits = canonical_array(x).view(np.int64) if x.dtype.kind == "f" else x.astype(np.int64, copy=False)
    most = int((high - low).max(initial=0))
    size = 1 << (2 * most).bit_length()  # never more than half full
    slots, window = np.empty(size, dtype=np.int64), np.full(size, -1, dtype=np.int64)
    out = np.zeros(len(low), dtype=np.int64)
    _distinct(low, high, bits, slots, window, out)
    return Lowered([out], high > low)


def _quantiles(low: Ints, high: Ints, args: list[Column], q: float) -> Lowered:
    out = np.zeros(len(low), dtype=np.float64)
    scratch = empty(int((high - low).max(initial=0)) + 1, np.float64)
    _quantile(low, high, args[0], q, scratch, out)
    return Lowered([out], high > low)


def _listed(low: Ints, high: Ints, most: int | None = None) -> tuple[Ints, int]:
    sizes = high - low if most is None else np.minimum(high - low, most)
    return np.zeros(len(low) + 1, dtype=np.int64), int(sizes.sum())


def _k(greatest: bool) -> Callable[..., Lowered]:
    def apply(low: Ints, high: Ints, args: list[Column], k: int) -> Lowered:
        offsets, room = _listed(low, high, k)
        items = empty(room, args[0].dtype)
        _extremes(low, high, args[0], k, greatest, offsets, items)
        return Lowered([items], offsets=offsets)

    return apply


def _collected(low: Ints, high: Ints, args: list[Column]) -> Lowered:
    offsets, room = _listed(low, high)
    items = empty(room, args[1].dtype)
    _collect(low, high, args[0], args[1], offsets, items)
    return Lowered([items], offsets=offsets)


def _k_of_time(latest: bool) -> Callable[..., Lowered]:
    def apply(low: Ints, high: Ints, args: list[Column], k: int) -> Lowered:
        offsets, room = _listed(low, high, k)
        items = empty(room, args[1].dtype)
        _of_time(low, high, args[0], args[1], k, latest, offsets, items)
        return Lowered([items], offsets=offsets)

    return apply


def _grouped(how: int, dtype: Any) -> Callable[..., Lowered]:
    def apply(low: Ints, high: Ints, args: list[Column]) -> Lowered:
        offsets, room = _listed(low, high)
        keys = empty(room, args[0].dtype)
        out = empty(room, dtype or args[-1].dtype)
        m = _by(low, high, args[0], args[-1], how, offsets, keys, out)
        return Lowered([keys[:m], out[:m]], offsets=offsets)

    return apply


def _totals(how: int) -> Callable[..., Lowered]:
    """Sums and means by category. Int sums overflow only if the final sum does, for any order of rows."""
    of_floats = _grouped(how, np.float64)

    def apply(low: Ints, high: Ints, args: list[Column]) -> Lowered:
        if args[1].dtype.kind == "f":
            return of_floats(low, high, args)
        offsets, room = _listed(low, high)
        keys = empty(room, args[0].dtype)
        lows, highs, counts = (empty(room, np.int64) for _ in range(3))
        m = _int_totals_by(low, high, args[0], args[1], offsets, keys, lows, highs, counts)
        if how == _MEAN:
            means = (lows[:m].astype(np.float64) + highs[:m] * 2.0**64) / counts[:m]
            return Lowered([keys[:m], means], offsets=offsets)
        err = OVERFLOW if highs[:m].any() else 0
        return Lowered([keys[:m], lows[:m]], offsets=offsets, err=err)

    return apply


def _tops(low: Ints, high: Ints, args: list[Column], n: int) -> Lowered:
    offsets, room = _listed(low, high, n)
    keys, out = empty(room, args[0].dtype), empty(room, np.int64)
    m = _top_keys(low, high, args[0], n, offsets, keys, out)
    return Lowered([keys[:m], out[:m]], offsets=offsets)


_MOST_ROWS = 1 << 20
"""Rows of windows that are ranked together; a window with more has its own turn."""


def _top_rows(
    low: Ints, high: Ints, args: list[Column], k: int, least: bool, ties: bool, names: tuple[str, ...]
) -> Lowered:
    """Rank rows by NumPy, many windows at a time: there is nothing to compile for each set of columns."""
    ordered = [float_key(a) if a.dtype.kind == "f" else a.astype(np.int64, copy=False) for a in args]
    offsets = np.zeros(len(low) + 1, dtype=np.int64)
    ends = np.cumsum(high - low)
    taken, first = [], 0
    while first < len(low):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + _MOST_ROWS, side="right")))
        rows, counts = _ranked(low[first:last], high[first:last], ordered, k, least, ties)
        taken.append(rows)
        offsets[first + 1 : last + 1] = counts
        first = last
    chosen = np.concatenate(taken) if taken else np.zeros(0, dtype=np.int64)
    there = [args[2 + 2 * i][chosen].astype(np.bool_) for i in range(len(names))]
    data = [args[3 + 2 * i][chosen] for i in range(len(names))]
    return Lowered(data, offsets=np.cumsum(offsets), there=there)


def _ranked(
    low: Ints, high: Ints, keys: list[Column], k: int, least: bool, ties: bool
) -> tuple[Ints, Ints]:
    """Return the rows that are chosen, window by window, and how many each window has."""
    sizes = high - low
    starts = np.cumsum(sizes) - sizes
    window = np.repeat(np.arange(len(low)), sizes)
    rows = np.arange(len(window)) + np.repeat(low - starts, sizes)
    by = keys[1][rows]
    # Integers are turned round by ~, which never overflows; the last key of `lexsort` is the first.
    best = [window, ~keys[0][rows], by if least else ~by]
    order = np.lexsort([key for key in best[:0:-1] if len(key) and key.min() < key.max()] + [window])
    # Other columns decide among equals only, so that few rows are sorted by them.
    place = np.arange(len(order)) - np.repeat(starts, sizes)
    _, flag, value = (column[order] for column in best)
    new = (place == 0) | (flag != np.roll(flag, 1)) | (value != np.roll(value, 1))
    order = order[place[np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))] < k]
    some = rows[order]
    within = np.lexsort([*(~key[some] for key in keys[:1:-1]), *(key[order] for key in best[::-1])])
    chosen = order[within]
    counts = np.bincount(window[chosen], minlength=len(low))
    if not ties:
        chosen = chosen[np.arange(len(chosen)) - np.repeat(np.cumsum(counts) - counts, counts) < k]
        counts = np.minimum(counts, k)
    return rows[chosen], counts


_LOWER: dict[str, Callable[..., Lowered]] = {
    "quantile": _quantiles,
    "distinct_count": _distinct_counts,
    "entropy": _scalar(_entropy, np.float64),
    "top_rows": _top_rows,
    "top_k": _k(True),
    "bottom_k": _k(False),
    "collect": _collected,
    "first_k": _k_of_time(False),
    "last_k": _k_of_time(True),
    "count_by": _grouped(_COUNT, np.int64),
    "sum_by": _totals(_SUM),
    "mean_by": _totals(_MEAN),
    "min_by": _grouped(_MIN, None),
    "max_by": _grouped(_MAX, None),
    "top_keys": _tops,
}
