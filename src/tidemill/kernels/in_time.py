"""Follow the rows of keys in order of time: what comes next, what covers them, where their sessions end.

Rows are read in order of their start, whatever their keys are. What has to be known of a key is in arrays by
key id; ids below 0 match nothing. So nothing is put in order of keys.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidemill.jit.intrinsics import address_of, fetch
from tidemill.jit.kernel import kernel

Ints = npt.NDArray[np.int64]
_NONE = 1 << 62
"""A start after all others."""
_SOON = 16
"""So many rows ahead, what is known of a key is asked for."""


@kernel
def next_starts(
    keys: Ints, starts: Ints, order: Ints, other_keys: Ints, other_starts: Ints, other_order: Ints,
    later: Ints, never: int, out: Ints,
) -> None:  # fmt: skip
    """Write the first start of the other rows of the key that is after the start of each row, or `never`.

    `order` and `other_order` have the rows in order of their start. `later` has room for all keys.

    >>> one, starts, order = np.array([0, 0]), np.array([4, 7]), np.array([0, 1])
    >>> out = np.empty(2, np.int64)
    >>> next_starts(one, starts, order, one, starts, order, np.empty(1, np.int64), 99, out)
    >>> out
    array([ 7, 99])
    """
    for k in range(later.size):
        later[k] = never
    j = other_order.size - 1
    for p in range(order.size - 1, -1, -1):
        i = order[p]
        while j >= 0 and other_starts[other_order[j]] > starts[i]:
            k = other_keys[other_order[j]]
            if k >= 0:
                later[k] = other_starts[other_order[j]]
            j -= 1
        out[i] = later[keys[i]] if keys[i] >= 0 else never


@kernel
def own_next_starts(keys: Ints, starts: Ints, order: Ints, seen: Ints, never: int, out: Ints) -> None:
    """Write the first start of a row of the same key that is after that of each row, or `never`.

    `order` has the rows in order of their start. `seen` has room for two instants of each key.

    >>> out, seen = np.empty(3, np.int64), np.empty((1, 2), np.int64)
    >>> own_next_starts(np.array([0, 0, 0]), np.array([4, 4, 7]), np.arange(3), seen, 99, out)
    >>> out
    array([ 7,  7, 99])
    """
    for k in range(seen.shape[0]):
        seen[k, 0] = never
        seen[k, 1] = never
    rows = address_of(seen)
    for p in range(order.size - 1, -1, -1):
        if p >= _SOON:
            fetch(rows + 16 * keys[np.uint64(order[np.uint64(p - _SOON)])])
        row = np.uint64(order[np.uint64(p)])
        key = np.uint64(keys[row])
        if seen[key, 0] != starts[row]:
            seen[key, 1] = seen[key, 0]
            seen[key, 0] = starts[row]
        out[row] = seen[key, 1]


@kernel
def session_ends(
    keys: Ints, starts: Ints, order: Ints, gap: int, next_start: Ints, end: Ints, out: Ints
) -> None:
    """Write where the session of each row ends: `gap` after the last row before which no gap is as long.

    `next_start` and `end` have room for all keys; `order` has the rows in order of their start.
    """
    for k in range(next_start.size):
        next_start[k] = _NONE
    for p in range(order.size - 1, -1, -1):
        i = order[p]
        k = keys[i]
        if next_start[k] - starts[i] >= gap:
            end[k] = starts[i] + gap
        next_start[k] = starts[i]
        out[i] = end[k]


@kernel
def joined_by_key(
    keys: Ints, starts: Ints, ends: Ints, order: Ints, parts: Ints, heads: Ints, tails: Ints
) -> None:
    """Write the union of the intervals of each key as a chain of parts that do not touch.

    `parts` has a start, an end and the next part of the key, which is -1 at the end; `heads` has the first
    part of each key. `order` has the intervals in order of their start.
    """
    for k in range(heads.size):
        heads[k] = -1
        tails[k] = -1
    n = 0
    for p in range(order.size):
        i = order[p]
        k = keys[i]
        if k < 0:
            continue
        last = tails[k]
        if last >= 0 and starts[i] <= parts[last, 1]:
            parts[last, 1] = max(parts[last, 1], ends[i])
            continue
        parts[n, 0] = starts[i]
        parts[n, 1] = ends[i]
        parts[n, 2] = -1
        if last >= 0:
            parts[last, 2] = n
        else:
            heads[k] = n
        tails[k] = n
        n += 1


@kernel
def meet_parts(
    keys: Ints, starts: Ints, ends: Ints, order: Ints, parts: Ints, current: Ints, at: Ints, row: Ints,
    start: Ints, end: Ints,
) -> int:  # fmt: skip
    """Write where rows meet the parts of their keys, until there is no more room; return how often they do.

    `current` has the first part of each key that later rows may meet. `at` is the row to go on with and its
    part, -2 if that is not known; the row is past the last one when all is done.
    """
    n = 0
    for p in range(at[0], order.size):
        i = order[p]
        k = keys[i]
        if k < 0:
            continue
        part = at[1]
        at[1] = -2
        if part == -2:
            part = current[k]
            while part >= 0 and parts[part, 1] <= starts[i]:
                part = parts[part, 2]
            current[k] = part
        while part >= 0 and parts[part, 0] < ends[i]:
            if n == row.size:
                at[0] = p
                at[1] = part
                return n
            row[n] = i
            start[n] = max(starts[i], parts[part, 0])
            end[n] = min(ends[i], parts[part, 1])
            n += 1
            part = parts[part, 2]
    at[0] = order.size
    return n


@kernel
def last_before(
    keys: Ints, starts: Ints, order: Ints, other_keys: Ints, other_starts: Ints, other_order: Ints,
    tolerance: int, last: Ints, before: Ints, at: Ints, row: Ints, other: Ints,
) -> int:  # fmt: skip
    """Write pairs of a row and the rows of its key on the other side that started last, not after it.

    All that started at one instant are paired, unless that was `tolerance` ago or longer. `last` has the last
    row of each key so far, or -1; `before` has for each row another one that started with it, or -1. Stops
    where there is no more room and returns how many pairs were written; `at` says where to go on.
    """
    n = 0
    i = at[0]
    j = at[1]
    node = at[2]
    while i < order.size or j < other_order.size:
        if j < other_order.size and (i >= order.size or other_starts[other_order[j]] <= starts[order[i]]):
            o = other_order[j]
            k = other_keys[o]
            if k >= 0:
                together = last[k] >= 0 and other_starts[last[k]] == other_starts[o]
                before[o] = last[k] if together else -1
                last[k] = o
            j += 1
            continue
        own = order[i]
        if keys[own] >= 0:
            if node == -2:
                node = last[keys[own]]
            while node >= 0 and starts[own] - other_starts[node] < tolerance:
                if n == row.size:
                    at[0] = i
                    at[1] = j
                    at[2] = node
                    return n
                row[n] = own
                other[n] = node
                n += 1
                node = before[node]
            node = -2
        i += 1
    at[0] = i
    at[1] = j
    at[2] = -2
    return n


@kernel
def chained_up(last: Ints, before: Ints, found: npt.NDArray[np.bool_]) -> None:
    """Mark the last rows of all keys, as `last_before` leaves them."""
    for k in range(last.size):
        node = last[k]
        while node >= 0:
            found[node] = True
            node = before[node]
