"""Find which intervals of two sets overlap, by key, without looking at pairs that do not.

Rows of a side are in order of their key id and of their start. Every pair of rows that overlap is found once:
where the second one starts within the first one. So the rows that a row meets are a range of the other side.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidemill.jit.kernel import kernel

Ints = npt.NDArray[np.int64]


@kernel
def _first_from(starts: Ints, low: int, high: int, at: int) -> int:
    """Return the first place in `[low, high)` whose start is `at` or later."""
    while low < high:
        middle = (low + high) >> 1
        if starts[middle] < at:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def starting_within(
    keys: Ints, starts: Ints, ends: Ints, other_keys: Ints, other_starts: Ints, later: int, low: Ints,
    high: Ints,
) -> int:  # fmt: skip
    """Write the range of the other rows that start in `[start + later, end)` of each row; count the pairs.

    >>> low, high = np.empty(1, np.int64), np.empty(1, np.int64)
    >>> one, many = np.array([7]), np.array([7, 7, 7])
    >>> starting_within(one, np.array([3]), np.array([9]), many, np.array([1, 3, 9]), 0, low, high)
    1
    >>> low, high
    (array([1]), array([2]))
    """
    total = 0
    group = 0  # the first of the other rows that have the key
    end_of_group = 0
    i = 0
    m = other_keys.size
    while i < keys.size:
        k = keys[i]
        while group < m and other_keys[group] < k:
            group += 1
        end_of_group = max(group, end_of_group)
        while end_of_group < m and other_keys[end_of_group] == k:
            end_of_group += 1
        at = group
        while i < keys.size and keys[i] == k:
            first = starts[i] + later
            # Starts only grow, so the next range begins no earlier; it is mostly near.
            step = 1
            while at + step < end_of_group and other_starts[at + step] < first:
                at += step
                step <<= 1
            at = _first_from(other_starts, at, min(at + step + 1, end_of_group), first)
            low[i] = at
            reach = at
            step = 1
            while reach + step < end_of_group and other_starts[reach + step] < ends[i]:
                reach += step
                step <<= 1
            high[i] = _first_from(other_starts, reach, min(reach + step + 1, end_of_group), ends[i])
            total += high[i] - low[i]
            i += 1
        group = end_of_group
    return total


@kernel
def spelled_out(low: Ints, high: Ints, first: int, last: int, own: Ints, other: Ints) -> None:
    """Write the pairs of the ranges of the rows `first` to `last`."""
    n = 0
    for i in range(first, last):
        for j in range(low[i], high[i]):
            own[n] = i
            other[n] = j
            n += 1


@kernel
def resolve_absence(
    row: Ints, start: Ints, end: Ints, below: int, order: Ints, ends: Ints, free: Ints, out_row: Ints,
    out_start: Ints, out_end: Ints,
) -> int:  # fmt: skip
    """Write the parts of rows that matches leave, up to a watermark; return how many there are.

    Matches are pairs: those of a row in order of their start, and rows as in `order`, which has all of them.
    `free` is the instant up to which a row is done: what lies before was written, or is matched. A part is
    written when it cannot grow any more.
    """
    n = 0
    p = 0
    for i in order:
        at = free[i]
        while p < row.size and row[p] == i:
            if start[p] > at:
                out_row[n] = i
                out_start[n] = at
                out_end[n] = min(start[p], ends[i])
                n += 1
            if end[p] > at:
                at = end[p]
            p += 1
        if at < ends[i] and ends[i] <= below:
            out_row[n] = i
            out_start[n] = at
            out_end[n] = ends[i]
            n += 1
            at = ends[i]
        free[i] = at
    return n


@kernel
def resolve_presence(
    row: Ints, start: Ints, end: Ints, below: int, order: Ints, ends: Ints, since: Ints, until: Ints,
    none: int, out_row: Ints, out_start: Ints, out_end: Ints,
) -> int:  # fmt: skip
    """Write the parts of rows that matches cover, up to a watermark; return how many there are.

    Matches are as in `resolve_absence`. The part that is open goes from `since` (or `none`) to `until`, as
    far as is known. A row is done when `until` has reached its end.
    """
    n = 0
    p = 0
    for i in order:
        a = since[i]
        b = until[i]
        done = a == none and b >= ends[i]
        while p < row.size and row[p] == i:
            if done:
                pass
            elif a == none:
                a = start[p]
                b = end[p]
            elif start[p] > b:
                out_row[n] = i
                out_start[n] = a
                out_end[n] = b
                n += 1
                a = start[p]
                b = end[p]
            elif end[p] > b:
                b = end[p]
            p += 1
        if a != none and (b >= ends[i] or b < below):
            out_row[n] = i
            out_start[n] = a
            out_end[n] = min(b, ends[i])
            n += 1
            a = none
            if b >= ends[i]:
                b = ends[i]
        since[i] = a
        until[i] = b
    return n


@kernel
def entered_and_left(
    keys: Ints, at: Ints, start_keys: Ints, starts: Ints, end_keys: Ints, ends: Ints, enter: Ints, leave: Ints
) -> None:  # fmt: skip
    """Write how many rows have started and have ended by some instants, of this key and those before it.

    All are in order of key and instant. The rows of the key that hold are those that have started and not
    ended: `enter - leave` of them.
    """
    s = 0
    e = 0
    for i in range(keys.size):
        k = keys[i]
        while s < starts.size and (start_keys[s] < k or (start_keys[s] == k and starts[s] <= at[i])):
            s += 1
        while e < ends.size and (end_keys[e] < k or (end_keys[e] == k and ends[e] <= at[i])):
            e += 1
        enter[i] = s
        leave[i] = e


@kernel
def merged_edges(
    start_keys: Ints, starts: Ints, end_keys: Ints, ends: Ints, out_keys: Ints, out_at: Ints
) -> int:
    """Merge starts and ends, both in order of key and instant; write each pair once and return how many."""
    n = 0
    s = 0
    e = 0
    while s < starts.size or e < ends.size:
        take_start = e >= ends.size
        if s < starts.size and e < ends.size:
            if start_keys[s] != end_keys[e]:
                take_start = start_keys[s] < end_keys[e]
            else:
                take_start = starts[s] <= ends[e]
        if take_start:
            k = start_keys[s]
            t = starts[s]
            s += 1
        else:
            k = end_keys[e]
            t = ends[e]
            e += 1
        if n == 0 or out_keys[n - 1] != k or out_at[n - 1] != t:
            out_keys[n] = k
            out_at[n] = t
            n += 1
    return n
