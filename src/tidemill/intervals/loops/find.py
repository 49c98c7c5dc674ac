"""Find rows in the blocks of the time-travel index: see `blocks`.

A *cursor* is a place between two rows of a key, as the path to the row behind it: for each level the leaf or
node, the row or entry, how many there are, and the first one. It ends with the level at which the path
begins. Behind the last row, it is at the end of the open leaf.

Readers may read memory that is used again meanwhile. Such an answer is thrown away, but reads must stay in
bounds.
"""

from __future__ import annotations

from typing import Any

from tidemill.intervals.loops.blocks import (
    AT,
    COUNT,
    FAN,
    FIRST,
    LAST,
    LEAF,
    LEVELS,
    META,
    NEVER,
    SKIP,
    SLOT,
    Ints,
)
from tidemill.jit.kernel import bare_kernel

PLACE, ITEM, ITEMS, START = range(4)
"""The numbers of a level of a cursor."""
STEP = 4
TOP = STEP * LEVELS
CURSOR = TOP + 1
_NEAR = 4
"""So many leaves ahead are looked at before a row is sought from the top."""
_WALK = 12
"""A walk over more rows takes longer than a search."""


@bare_kernel
def read_head_of_writer(heads: Ints, k: int, head: Ints) -> None:
    """Copy the version of a head that counts; nobody writes."""
    now = 1 + SLOT * (heads[k, 0] & 1)
    for j in range(SLOT):
        head[j] = heads[k, now + j]


@bare_kernel
def _set(rows: Ints, nodes: Ints, cursor: Ints, level: int, place: int, meta: int, last: bool) -> None:
    """Go to the first or the last item of a leaf or node."""
    c = STEP * level
    if level == 0:
        cursor[PLACE] = min(max(place, 0), rows.shape[0] - LEAF)
        cursor[ITEMS] = min(meta & COUNT, LEAF)
        cursor[START] = 0
    else:
        cursor[c + PLACE] = min(max(place, 0), nodes.shape[0] - FAN)
        cursor[c + ITEMS] = min(meta & COUNT, FAN)
        cursor[c + START] = min(meta >> SKIP & COUNT, FAN - 1)
    cursor[c + ITEM] = max(cursor[c + ITEMS] - 1, 0) if last else cursor[c + START]


@bare_kernel
def _down(rows: Ints, nodes: Ints, cursor: Ints, level: int, last: bool) -> None:
    """Go from an entry of a level to the first or the last row below it."""
    while level > 0:
        e = cursor[STEP * level + PLACE] + cursor[STEP * level + ITEM]
        level -= 1
        _set(rows, nodes, cursor, level, nodes[e, AT], nodes[e, META], last)


@bare_kernel
def _open(rows: Ints, nodes: Ints, head: Ints, cursor: Ints, level: int, last: bool) -> None:
    """Go to the first or the last row of the open leaf or node of a level."""
    _set(rows, nodes, cursor, level, head[2 * level], head[2 * level + 1], last)
    cursor[TOP] = level
    _down(rows, nodes, cursor, level, last)


@bare_kernel
def _within(rows: Ints, cursor: Ints, time: int) -> None:
    """Go to the first row of a time or later, in a leaf that has one, from its row on."""
    at = cursor[PLACE]
    low = cursor[ITEM]
    high = cursor[ITEMS] - 1
    while low < high:
        middle = (low + high) >> 1
        if rows[at + middle, 0] < time:
            low = middle + 1
        else:
            high = middle
    cursor[ITEM] = max(low, 0)


@bare_kernel
def seek(rows: Ints, nodes: Ints, head: Ints, time: int, cursor: Ints) -> None:
    """Go to the first row of a time or later."""
    newer = -1
    for level in range(LEVELS):
        meta = head[2 * level + 1]
        if meta & COUNT == 0:
            continue
        _set(rows, nodes, cursor, level, head[2 * level], meta, False)
        c = STEP * level
        at = cursor[c + PLACE]
        first = rows[at, 0] if level == 0 else nodes[at + cursor[c + START], FIRST]
        if first >= time:
            newer = level
            continue
        end = at + cursor[c + ITEMS] - 1
        if (rows[end, 0] if level == 0 else nodes[end, LAST]) < time:
            break
        cursor[TOP] = level
        while level > 0:
            c = STEP * level
            at = cursor[c + PLACE]
            low = cursor[c + START]
            high = cursor[c + ITEMS] - 1
            while low < high:  # the first entry that ends at the time or later
                middle = (low + high) >> 1
                if nodes[at + middle, LAST] < time:
                    low = middle + 1
                else:
                    high = middle
            cursor[c + ITEM] = low
            level -= 1
            _set(rows, nodes, cursor, level, nodes[at + low, AT], nodes[at + low, META], False)
        _within(rows, cursor, time)
        return
    if newer >= 0:
        _open(rows, nodes, head, cursor, newer, False)
        return
    _open(rows, nodes, head, cursor, 0, False)
    cursor[ITEM] = cursor[ITEMS]


@bare_kernel
def advance(rows: Ints, nodes: Ints, head: Ints, cursor: Ints) -> None:
    """Go behind the next row; at the end, stay there."""
    if cursor[ITEM] < cursor[ITEMS]:
        cursor[ITEM] += 1
    if cursor[ITEM] < cursor[ITEMS]:
        return
    top = cursor[TOP]
    for level in range(1, top + 1):
        c = STEP * level
        cursor[c + ITEM] += 1
        if cursor[c + ITEM] < cursor[c + ITEMS]:
            _down(rows, nodes, cursor, level, False)
            return
    for level in range(top - 1, -1, -1):
        if head[2 * level + 1] & COUNT != 0:
            _open(rows, nodes, head, cursor, level, False)
            return


@bare_kernel
def retreat(rows: Ints, nodes: Ints, head: Ints, cursor: Ints) -> Any:
    """Go before the previous row; return False, and stay, if there is none."""
    if cursor[ITEM] > 0:
        cursor[ITEM] -= 1
        return True
    top = cursor[TOP]
    for level in range(1, top + 1):
        c = STEP * level
        if cursor[c + ITEM] > cursor[c + START]:
            cursor[c + ITEM] -= 1
            _down(rows, nodes, cursor, level, True)
            return True
    for level in range(top + 1, LEVELS):
        if head[2 * level + 1] & COUNT != 0:
            _open(rows, nodes, head, cursor, level, True)
            return True
    return False


@bare_kernel
def copy_cursor(to: Ints, cursor: Ints) -> None:
    for j in range(CURSOR):
        to[j] = cursor[j]


@bare_kernel
def same_place(a: Ints, b: Ints) -> Any:
    return a[PLACE] == b[PLACE] and a[ITEM] == b[ITEM]


@bare_kernel
def at_end(cursor: Ints) -> Any:
    return cursor[ITEM] >= cursor[ITEMS]


@bare_kernel
def pieces_between(nodes: Ints, head: Ints, low: Ints, high: Ints, pieces: Ints) -> Any:
    """Write what is between two cursors: ranges of rows (0) and of entries (1); return their number.

    The first piece is the rest of the leaf of the first cursor, and the last one the begin of that of the
    second one, if they are in two leaves.
    """
    pieces[0, 0] = 0
    pieces[0, 1] = low[PLACE] + low[ITEM]
    if low[PLACE] == high[PLACE]:
        pieces[0, 2] = high[PLACE] + high[ITEM]
        return 1
    pieces[0, 2] = low[PLACE] + low[ITEMS]
    n = 1
    shared = 0  # the level at which both are in one node
    for level in range(1, min(low[TOP], high[TOP]) + 1):
        if low[STEP * level + PLACE] == high[STEP * level + PLACE]:
            shared = level
            break
    up = low[TOP] if shared == 0 else shared - 1
    for level in range(1, up + 1):
        c = STEP * level
        pieces[n, 0] = 1
        pieces[n, 1] = low[c + PLACE] + low[c + ITEM] + 1
        pieces[n, 2] = low[c + PLACE] + low[c + ITEMS]
        n += 1
    down = high[TOP]
    if shared > 0:
        c = STEP * shared
        pieces[n, 0] = 1
        pieces[n, 1] = low[c + PLACE] + low[c + ITEM] + 1
        pieces[n, 2] = high[c + PLACE] + high[c + ITEM]
        n += 1
        down = shared - 1
    else:
        for level in range(low[TOP] - 1, high[TOP], -1):
            meta = head[2 * level + 1]
            place = min(max(head[2 * level], 0), nodes.shape[0] - FAN)
            pieces[n, 0] = 1
            pieces[n, 1] = place + min(meta >> SKIP & COUNT, FAN)
            pieces[n, 2] = place + min(meta & COUNT, FAN)
            n += 1
    for level in range(down, 0, -1):
        c = STEP * level
        pieces[n, 0] = 1
        pieces[n, 1] = high[c + PLACE] + high[c + START]
        pieces[n, 2] = high[c + PLACE] + high[c + ITEM]
        n += 1
    pieces[n, 0] = 0
    pieces[n, 1] = high[PLACE]
    pieces[n, 2] = high[PLACE] + high[ITEM]
    return n + 1


PIECES = 3 * LEVELS + 2
"""More pieces than there can be."""


@bare_kernel
def nearest(
    rows: Ints, nodes: Ints, head: Ints, low: Ints, high: Ints, at: int, most: int, left: Ints, right: Ints
) -> None:
    """Draw two cursors together around the `most` rows nearest to an instant; of two as near, the earlier."""
    if same_place(low, high):
        return
    copy_cursor(left, high)
    retreat(rows, nodes, head, left)
    if rows[left[PLACE] + left[ITEM], 0] <= at:
        copy_cursor(left, high)
    elif rows[low[PLACE] + low[ITEM], 0] > at:
        copy_cursor(left, low)
    else:
        seek(rows, nodes, head, at + 1, left)
    copy_cursor(right, left)
    for _ in range(most):
        more = not same_place(right, high)
        if not same_place(left, low):
            later = rows[right[PLACE] + right[ITEM], 0] - at if more else 0
            retreat(rows, nodes, head, left)
            if more and at - rows[left[PLACE] + left[ITEM], 0] > later:
                advance(rows, nodes, head, left)
                advance(rows, nodes, head, right)
        elif more:
            advance(rows, nodes, head, right)
        else:
            break
    copy_cursor(low, left)
    copy_cursor(high, right)


@bare_kernel
def find_interval(
    rows: Ints, nodes: Ints, head: Ints, start: int, end: int, prevailing: bool, low: Ints, high: Ints,
    on: bool, high_on: bool,
) -> None:  # fmt: skip
    """Go to both ends of an interval, and one row further back with `prevailing`.

    `on` and `high_on` say that the cursors are at ends which are not later.
    """
    if on:
        seek_on(rows, nodes, head, start, low)
    else:
        seek(rows, nodes, head, start, low)
    if start > end:
        copy_cursor(high, low)
    elif rows[low[PLACE] + max(low[ITEMS] - 1, 0), 0] > end:  # mostly, both are in one leaf
        copy_cursor(high, low)
        _within(rows, high, end + 1)
    elif end == NEVER:
        _open(rows, nodes, head, high, 0, False)
        high[ITEM] = high[ITEMS]
    elif high_on:
        seek_on(rows, nodes, head, end + 1, high)
    else:
        seek(rows, nodes, head, end + 1, high)
    if prevailing:
        retreat(rows, nodes, head, low)


@bare_kernel
def seek_on(rows: Ints, nodes: Ints, head: Ints, time: int, cursor: Ints) -> None:
    """As `seek`, from a place that is not behind that row, and is mostly near."""
    if at_end(cursor):
        return
    if rows[cursor[PLACE] + cursor[ITEMS] - 1, 0] >= time:
        _within(rows, cursor, time)
        return
    if cursor[TOP] > 0:
        at = cursor[STEP + PLACE]
        following = cursor[STEP + ITEM] + 1
        for q in range(following, min(following + _NEAR, cursor[STEP + ITEMS])):
            if nodes[at + q, LAST] >= time:
                cursor[STEP + ITEM] = q
                _set(rows, nodes, cursor, 0, nodes[at + q, AT], nodes[at + q, META], False)
                _within(rows, cursor, time)
                return
    seek(rows, nodes, head, time, cursor)


@bare_kernel
def is_far(rows: Ints, cursor: Ints, time: int) -> Any:
    """Return whether a walk to the first row after an instant is known to be long."""
    ahead = cursor[ITEM] + _WALK
    return ahead < cursor[ITEMS] and rows[cursor[PLACE] + ahead, 0] <= time
