"""The probe rows of base rows as ranges: probe rows are in order of key and time, base rows as well."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.jit.kernel import kernel

Ints = npt.NDArray[np.int64]
_FAR = 1 << 62


@kernel
def _first_from(times: Ints, low: int, high: int, at: int) -> int:
    """Return the first place in `[low, high)` with a time of `at` or later."""
    while low < high:
        middle = (low + high) >> 1
        if times[middle] < at:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _from_near(times: Ints, low: int, high: int, near: int, at: int) -> Any:
    """Return the first place in `[low, high)` with a time of `at` or later, which is mostly near a place."""
    near = min(max(near, low), high)
    step = 1
    if near < high and times[near] < at:
        while near + step < high and times[near + step] < at:
            near += step
            step <<= 1
        return _first_from(times, near + 1, min(near + step + 1, high), at)
    while near - step >= low and times[near - step] >= at:
        near -= step
        step <<= 1
    return _first_from(times, max(near - step, low), near, at)


@kernel
def earlier_times(keys: Ints, times: Ints, order: Ints, out: Ints) -> None:
    """Write the greatest time of the key that is before the time of each row; `-_FAR` if there is none.

    `order` has the rows in order of key and time.
    """
    previous = -_FAR
    for p in range(order.size):
        i = order[p]
        if p == 0 or keys[order[p - 1]] != keys[i]:
            previous = -_FAR
        elif times[order[p - 1]] < times[i]:
            previous = times[order[p - 1]]
        out[i] = previous


@kernel
def interval_ranges(
    keys: Ints, low: Ints, high: Ints, probe_keys: Ints, probe_times: Ints, prevailing: bool, first: Ints,
    last: Ints,
) -> tuple[int, bool]:  # fmt: skip
    """Write the range of the probe rows of each base row, with times in `[low, high]`.

    Base rows and probe rows are in order of key and time. Keys below 0 match nothing. With `prevailing`, a
    range begins with the last row before it. Returns how many pairs there are, and whether ranges of a key
    only move forward.

    >>> one, at = np.array([0]), np.array([5])
    >>> first, last = np.empty(1, np.int64), np.empty(1, np.int64)
    >>> times = np.array([1, 3, 5, 7])
    >>> interval_ranges(one, at - 2, at, np.zeros(4, np.int64), times, False, first, last)
    (2, True)
    >>> first, last
    (array([1]), array([3]))
    """
    pairs = 0
    forward = True
    group = 0
    end = 0
    a = 0
    b = 0
    for i in range(keys.size):
        k = keys[i]
        if i == 0 or k != keys[i - 1]:
            group = end
            while group < probe_keys.size and probe_keys[group] < k:
                group += 1
            end = group
            while end < probe_keys.size and probe_keys[end] == k:
                end += 1
            a = group
            b = group
        if k < 0:
            first[i] = a
            last[i] = a
            continue
        before_a = a
        before_b = b
        a = _from_near(probe_times, group, end, a, low[i])
        b = a
        if low[i] <= high[i]:
            b = _from_near(probe_times, a, end, before_b, high[i] + 1) if high[i] < _FAR else end
        if prevailing and a > group:
            a -= 1
        if i > 0 and k == keys[i - 1] and (a < before_a or b < before_b):
            forward = False
        first[i] = a
        last[i] = b
        pairs += b - a
    return pairs, forward


@kernel
def nearest_rows(at: Ints, times: Ints, most: int, first: Ints, last: Ints, sure: Ints) -> tuple[int, bool]:
    """Keep only the nearest rows of each range, at most so many; the earlier one of two that are as near.

    Where there are so many, `sure` gets the instant up to which no other row can be nearer. Returns how many
    pairs are left, and whether ranges still only move forward.
    """
    pairs = 0
    forward = True
    for i in range(first.size):
        a = first[i]
        b = last[i]
        if b - a >= most:
            middle = _first_from(times, a, b, at[i] + 1)
            if middle == b:
                a = b - most
            elif middle == a:
                b = a + most
            else:
                left = middle
                right = middle
                while right - left < most:
                    past = left > a and (right == b or at[i] - times[left - 1] <= times[right] - at[i])
                    if past:
                        left -= 1
                    else:
                        right += 1
                a = left
                b = right
            sure[i] = min(sure[i], at[i] + max(at[i] - times[a], times[b - 1] - at[i], 0))
        if i > 0 and (a < first[i - 1] or b < last[i - 1]):
            forward = False
        first[i] = a
        last[i] = b
        pairs += b - a
    return pairs, forward


@kernel
def needed_rows(
    keys: Ints, times: Ints, from_low: int, from_at: int, most: int, prevailing: bool,
    needed: npt.NDArray[np.bool_],
) -> None:  # fmt: skip
    """Mark the rows that base rows to come may need: those from `from_low` on, and the last one before it
    with `prevailing`. With `most` above 0, of the rows before `from_at` only so many of a key, the last ones.

    Rows are in order of key and time.
    """
    past = 0
    spared = False
    for back in range(keys.size):
        i = keys.size - 1 - back
        if back == 0 or keys[i] != keys[i + 1]:
            past = 0
            spared = False
        keep = times[i] >= from_low
        if not keep and prevailing and not spared:
            keep = True
            spared = True
        if keep and most > 0 and times[i] < from_at:
            past += 1
            keep = past <= most
        needed[i] = keep and keys[i] >= 0
