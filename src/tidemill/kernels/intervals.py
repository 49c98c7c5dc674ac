"""The probe rows of base rows as ranges: probe rows are in order of key and time, base rows as well."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.jit.intrinsics import address_of, fetch
from tidemill.jit.kernel import kernel

Ints = npt.NDArray[np.int64]
_FAR = 1 << 62
_SOON = 16
"""So many rows ahead, what is known of a key is asked for."""


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
def rows_by_key(keys: Ints, times: Ints, heads: Ints, order: Ints, sorted_times: Ints) -> bool:
    """Order rows, which are in order of time, by key; return whether two rows of a key have the same time.

    Rows with a key below 0 are left out. The rows of key `k` are `order[heads[k]:heads[k + 1]]`.
    """
    heads[:] = 0
    for i in range(keys.size):
        if keys[i] >= 0:
            heads[keys[i] + 1] += 1
    for k in range(1, heads.size):
        heads[k] += heads[k - 1]
    place = heads[:-1].copy()
    ties = False
    for i in range(keys.size):
        k = keys[i]
        if k < 0:
            continue
        p = place[k]
        ties |= p > heads[k] and sorted_times[p - 1] == times[i]
        order[p] = i
        sorted_times[p] = times[i]
        place[k] = p + 1
    return ties


@kernel
def last_in_time(
    keys: Ints, low: Ints, high: Ints, probe_keys: Ints, probe_times: Ints, last: Ints, others: Ints
) -> bool:
    """Write the last probe row of the key of each base row with a time in `[low, high]`; -1 if there is none.

    Both sides are in order of time, and `high` only moves forward. Keys below 0 match nothing. `last` has
    room for two numbers of each key. Returns False if two probe rows of a key have the same time; what was
    written has no meaning then.

    >>> keys, low, high = np.array([0, 1, 0]), np.array([0, 0, 8]), np.array([4, 5, 9])
    >>> others, room = np.empty(3, np.int64), np.empty((2, 2), np.int64)
    >>> last_in_time(keys, low, high, np.array([0, 0, 1]), np.array([1, 3, 9]), room, others)
    True
    >>> others
    array([ 1, -1, -1])
    """
    for k in range(last.shape[0]):
        last[k, 0] = -1
        last[k, 1] = -2 * _FAR
    known = address_of(last)
    n = probe_times.size
    until = 0
    for i in range(keys.size):
        if i + _SOON < keys.size:
            fetch(known + 16 * keys[i + _SOON])
        while until < n and probe_times[until] <= high[i]:
            if until + _SOON < n:
                fetch(known + 16 * probe_keys[until + _SOON])
            k = probe_keys[until]
            if k >= 0:
                if last[k, 1] == probe_times[until]:
                    return False
                last[k, 0] = until
                last[k, 1] = probe_times[until]
            until += 1
        k = keys[i]
        others[i] = last[k, 0] if k >= 0 and last[k, 1] >= low[i] else -1
    return True


@kernel
def put_places(numbers: Ints, places: Ints, to: Ints, out: Ints) -> None:
    """Write `places[numbers[i]]`, -1 for -1, at `out[to[i]]`. If there are no places, numbers are places.

    >>> out = np.empty(2, np.int64)
    >>> put_places(np.array([1, -1]), np.array([7, 8]), np.array([1, 0]), out)
    >>> out
    array([-1,  8])
    """
    for i in range(numbers.size):
        at = numbers[i]
        if at >= 0 and places.size > 0:
            at = places[at]
        out[to[i] if to.size > 0 else i] = at


@kernel
def last_needed(
    keys: Ints, times: Ints, from_low: int, from_at: int, latest: Ints, needed: npt.NDArray[np.bool_]
) -> None:
    """Mark the rows, which are in order of time, that base rows to come may need if the last one counts.

    These are the rows from `from_at` on, and the last one of each key before it, or several of one time,
    unless they are before `from_low`. `latest` has room for all keys.
    """
    latest[:] = -2 * _FAR
    unseen = latest.size
    earliest = from_at
    for i in range(keys.size - 1, -1, -1):
        at = times[i]
        if at < from_low or (unseen == 0 and at < earliest):
            return
        k = keys[i]
        if k < 0:
            continue
        if at < from_at and latest[k] == -2 * _FAR:
            latest[k] = at
            earliest = at
            unseen -= 1
        needed[i] = at >= from_at or latest[k] == at


@kernel
def ranges_in_time(
    keys: Ints, low: Ints, high: Ints, probe_keys: Ints, probe_times: Ints, heads: Ints, prevailing: bool,
    first: Ints, last: Ints,
) -> bool:  # fmt: skip
    """As `ranges_by_key`, in one pass over both sides, which are in order of time, if intervals only move
    forward.

    Otherwise return False; what was written has no meaning then.
    """
    passed = np.empty((heads.size - 1, 2), dtype=np.int64)  # side by side, so that a key is one cache line
    for k in range(heads.size - 1):
        passed[k, 0] = heads[k]
        passed[k, 1] = heads[k]
    before = 0
    until = 0
    previous_low = -2 * _FAR
    previous_high = -2 * _FAR
    n = probe_times.size
    for i in range(keys.size):
        k = keys[i]
        if k < 0:
            first[i] = 0
            last[i] = 0
            continue
        if low[i] < previous_low or high[i] < previous_high:
            return False
        previous_low = low[i]
        previous_high = high[i]
        while until < n and probe_times[until] <= previous_high:
            other = probe_keys[until]
            if other >= 0:
                passed[other, 1] += 1
            until += 1
        while before < n and probe_times[before] < previous_low:
            other = probe_keys[before]
            if other >= 0:
                passed[other, 0] += 1
            before += 1
        a = passed[k, 0]
        last[i] = max(a, passed[k, 1])
        first[i] = a - 1 if prevailing and a > heads[k] else a
    return True


@kernel
def ranges_by_key(
    keys: Ints, in_order: Ints, low: Ints, high: Ints, heads: Ints, times: Ints, prevailing: bool,
    first: Ints, last: Ints,
) -> bool:  # fmt: skip
    """Write the range of the probe rows of each base row, with times in `[low, high]`.

    `in_order` has the base rows in order of time, and `heads` and `times` the probe rows in order of key and
    time. Keys below 0 match nothing. With `prevailing`, a range begins with the last row before it. Returns
    whether ranges of a key only move forward.

    >>> one, at = np.array([0]), np.array([5])
    >>> first, last = np.empty(1, np.int64), np.empty(1, np.int64)
    >>> ranges_by_key(one, one, at - 2, at, np.array([0, 4]), np.array([1, 3, 5, 7]), False, first, last)
    True
    >>> first, last
    (array([1]), array([3]))
    """
    near_first = heads[:-1].copy()
    near_last = heads[:-1].copy()
    forward = True
    for i in in_order:
        k = keys[i]
        if k < 0:
            first[i] = 0
            last[i] = 0
            continue
        group = heads[k]
        end = heads[k + 1]
        a = _from_near(times, group, end, near_first[k], low[i])
        b = a
        if low[i] <= high[i]:
            b = _from_near(times, a, end, near_last[k], high[i] + 1) if high[i] < _FAR else end
        forward &= a >= near_first[k] and b >= near_last[k]
        near_first[k] = a
        near_last[k] = b
        if prevailing and a > group:
            a -= 1
        first[i] = a
        last[i] = b
    return forward


@kernel
def nearest_rows(at: Ints, times: Ints, most: int, first: Ints, last: Ints, sure: Ints) -> None:
    """Keep only the nearest rows of each range, at most so many; the earlier one of two that are as near.

    Where there are so many, `sure` gets the instant up to which no other row can be nearer.
    """
    for i in range(first.size):
        a = first[i]
        b = last[i]
        if b - a >= most:
            if times[b - 1] <= at[i]:
                a = b - most
            elif times[a] > at[i]:
                b = a + most
            else:
                middle = _first_from(times, a, b, at[i] + 1)
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
        first[i] = a
        last[i] = b


@kernel
def needed_rows(
    heads: Ints, order: Ints, times: Ints, from_low: int, from_at: int, most: int, prevailing: bool,
    needed: npt.NDArray[np.bool_],
) -> None:  # fmt: skip
    """Mark the rows that base rows to come may need: those from `from_low` on, and the last one before it
    with `prevailing`. With `most` above 0, of the rows before `from_at` only so many of a key, the last ones.

    Rows are as `rows_by_key` orders them.
    """
    for k in range(heads.size - 1):
        past = 0
        spared = False
        i = heads[k + 1] - 1
        while i >= heads[k]:
            keep = times[i] >= from_low
            if not keep and prevailing and not spared:
                keep = True
                spared = True
            if keep and most > 0 and times[i] < from_at:
                past += 1
                keep = past <= most
            if not keep:
                break  # nor is an earlier row
            needed[order[i]] = True
            i -= 1


@kernel
def instants_of(heads: Ints, times: Ints, out: Ints) -> None:
    """Number the instants of rows in order of key and time: rows of a key and a time have the same number."""
    n = -1
    for k in range(heads.size - 1):
        for i in range(heads[k], heads[k + 1]):
            if i == heads[k] or times[i] != times[i - 1]:
                n += 1
            out[i] = n


@kernel
def only_rows(first: Ints, last: Ints, order: Ints, others: Ints) -> bool:
    """Write the only probe row of each base row, -1 if there is none; return False if there are several."""
    for i in range(first.size):
        n = last[i] - first[i]
        if n > 1:
            return False
        others[i] = order[first[i]] if n == 1 else -1
    return True


@kernel
def spelled_pairs(
    first: Ints, last: Ints, order: Ints, begin: int, end: int, alone: bool, own: Ints, others: Ints
) -> None:
    """Write the pairs of the base rows `begin` to `end`; with `alone` a place of -1 for those without any."""
    n = 0
    for i in range(begin, end):
        if alone and first[i] == last[i]:
            own[n] = i
            others[n] = -1
            n += 1
        for j in range(first[i], last[i]):
            own[n] = i
            others[n] = order[j]
            n += 1
