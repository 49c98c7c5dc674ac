"""List the rows of intervals, and all rows, of the time-travel index."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidemill.intervals.loops.blocks import (
    LEVELS,
    NEVER,
    Ints,
    begin_to_read,
    read_head,
    was_reused,
)
from tidemill.intervals.loops.find import (
    CURSOR,
    ITEM,
    ITEMS,
    PLACE,
    advance,
    at_end,
    find_interval,
    nearest,
    seek,
)
from tidemill.jit.kernel import kernel

_BEGIN = -(1 << 63)


@kernel
def list_intervals(
    first: int, keys: Ints, low: Ints, high: Ints, at: Ints, most: int, prevailing: bool, heads: Ints,
    nodes: Ints, rows: Ints, clock: Ints, limit: Ints, offsets: Ints, places: Ints,
) -> Any:  # fmt: skip
    """Write the places of the rows of intervals, from number `first` on, while there is room.

    Those of interval `i` are `places[offsets[i]:offsets[i + 1]]`. Returns the first interval that is not
    written, for which there is no room or newer heads are needed, and whether it is room.
    """
    head = np.empty(2 * LEVELS, dtype=np.int64)
    lo = np.empty(CURSOR, dtype=np.int64)
    hi = np.empty(CURSOR, dtype=np.int64)
    left = np.empty(CURSOR, dtype=np.int64)
    right = np.empty(CURSOR, dtype=np.int64)
    i = first
    while i < keys.size:
        since = begin_to_read(clock, limit)
        read_head(heads, keys[i], head)
        find_interval(rows, nodes, head, low[i], high[i], prevailing, lo, hi, False, False)
        if most >= 0:
            nearest(rows, nodes, head, lo, hi, at[i], most, left, right)
        n = offsets[i]
        full = False
        while True:
            same = lo[PLACE] == hi[PLACE]
            stop = hi[ITEM] if same else lo[ITEMS]
            if n + stop - lo[ITEM] > places.size:
                full = True
                break
            for q in range(lo[PLACE] + lo[ITEM], lo[PLACE] + stop):
                places[n] = rows[q, 1]
                n += 1
            if same or at_end(lo):
                break
            lo[ITEM] = lo[ITEMS] - 1
            advance(rows, nodes, head, lo)
        if was_reused(clock, since):
            if limit[0] != NEVER:
                return i, False
            continue
        if full:
            return i, True
        offsets[i + 1] = n
        i += 1
    return i, False


@kernel
def list_all(heads: Ints, nodes: Ints, rows: Ints, keys: Ints, places: Ints) -> Any:
    """Write the key of each row, and where it is, in order of key and time; return how many there are."""
    head = np.empty(2 * LEVELS, dtype=np.int64)
    cursor = np.empty(CURSOR, dtype=np.int64)
    n = 0
    for k in range(heads.shape[0]):
        read_head(heads, k, head)
        seek(rows, nodes, head, _BEGIN, cursor)
        while not at_end(cursor):
            keys[n] = k
            places[n] = cursor[PLACE] + cursor[ITEM]
            n += 1
            advance(rows, nodes, head, cursor)
    return n
