"""The cells of a sparse store: a key has cells only in slots in which it had rows.

The cells of a key in a ring are in the order of time. They are found by *groups*: a group covers 64 slots
from its first one on, has a bit for each slot with a cell, and knows where its first cell is; its cells are
adjacent. So a long range of a key is a few runs of adjacent cells, and a stretch without rows takes nothing.

The groups of a key are adjacent, too. If there is no room for another one, they move to a place of twice the
size, and the old place is kept for other keys. Readers check positions against the sizes of the arrays: they
may read while a writer changes them, and then repeat the read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.jit.intrinsics import popcount
from tidemill.jit.kernel import kernel
from tidemill.wheels.loops.range_plan import ROOM

Ints = npt.NDArray[np.int64]

GROUPS_AT, GROUP_COUNT, GROUP_ROOM, NEXT_CELL, CELLS_LEFT = range(5)
"""Positions in the numbers of a ring and key: its first group; the number of its groups; how many fit in
their place; the next cell that is reserved for it; how many are reserved."""
SPAN = 5
START, BITS, CELL = range(3)
"""Positions in a group: its first slot; a bit for each of its slots with a cell; its first cell."""
GROUP = 3
WIDTH = 64
"""The slots that a group covers."""
GROUPS_USED, CELLS_USED = 9, 10
"""Positions in the head of a sparse store: the groups and the cells that were ever handed out."""
CLASSES = 48
"""Places for groups are kept by the power of two that they hold."""


@kernel
def below(bits: int, n: int) -> Any:
    """The number of set bits among the first `n`; `n` may be negative or above 64."""
    if n <= 0:
        return 0
    return popcount(bits) if n >= WIDTH else popcount(bits & ((np.int64(1) << n) - 1))


@kernel
def first_bit(bits: int) -> Any:
    """The position of the lowest set bit."""
    return popcount((bits & -bits) - 1)


@kernel
def any_bit(words: Any, row: int) -> bool:
    """Whether any bit of a row of words is set."""
    for w in range(words.shape[1]):
        if words[row, w] != 0:
            return True
    return False


@kernel
def seek(groups: Ints, begin: int, end: int, slot: int) -> Any:
    """A group of `[begin, end)` before which all cells are before a slot.

    The search starts where the group is if no slot is empty.
    """
    first = groups[np.uint64(begin), START]
    if slot <= first:
        return begin
    # Never negative, unless a damaged file makes the difference overflow.
    low = begin + min(max((slot - first) >> 6, 0), end - 1 - begin)
    if 0 <= slot - groups[np.uint64(low), START] < WIDTH:  # perhaps not the last: readers go on from there
        return low
    high = low + 1
    step = 1
    if groups[np.uint64(low), START] <= slot:
        while high < end and groups[np.uint64(high), START] <= slot:
            low = high
            high = min(end, high + step)
            step *= 2
    else:
        high = low
        low = max(begin, high - step)
        while low > begin and groups[np.uint64(low), START] > slot:
            high = low
            step *= 2
            low = max(begin, high - step)
    while high - low > 1:
        middle = (low + high) // 2
        if groups[np.uint64(middle), START] <= slot:
            low = middle
        else:
            high = middle
    return low


@kernel
def cells_in(groups: Ints, g: int, low: int, high: int) -> Any:
    """The first cell of a group in the slots `[low, high)`, and the cell after the last."""
    start = groups[np.uint64(g), START]
    bits = groups[np.uint64(g), BITS]
    cell = groups[np.uint64(g), CELL]
    return cell + below(bits, low - start), cell + below(bits, high - start)


@kernel
def _double(head: Ints, groups: Ints, free: Ints, spans: Any, at: int) -> bool:
    """Move the groups of a key to a place of twice the size; returns whether there is one."""
    count = spans[at, GROUP_COUNT]
    size = np.int64(1)
    number = 0
    while size <= count:
        size *= 2
        number += 1
    to = free[number]
    if to >= 0:
        free[number] = groups[to, START]
    else:
        to = head[GROUPS_USED]
        if to + size > groups.shape[0]:
            return False
        head[GROUPS_USED] = to + size
    begin = spans[at, GROUPS_AT]
    for i in range(count):
        for j in range(GROUP):
            groups[to + i, j] = groups[begin + i, j]
    held = spans[at, GROUP_ROOM]
    if held > 0:
        number = 0
        while (np.int64(2) << number) <= held:
            number += 1
        groups[begin, START] = free[number]
        free[number] = begin
    spans[at, GROUPS_AT] = to
    spans[at, GROUP_ROOM] = size
    return True


@kernel
def cell_for(head: Ints, spans: Any, groups: Ints, free: Ints, size: int, at: int, slot: int) -> Any:
    """The cell of a slot that is later than all slots of a ring and key; -1 if there is no room for it.

    `at` is the row of `spans`, `size` the number of allocated cells. A key that had a row in each of the last
    slots gets room for twice as many, up to a whole group; without keys, there is always that much.
    """
    count = spans[at, GROUP_COUNT]
    g = spans[at, GROUPS_AT] + count - 1
    left = spans[at, CELLS_LEFT]
    if count > 0 and left > 0 and slot - groups[g, START] < WIDTH:
        groups[g, BITS] |= np.int64(1) << (slot - groups[g, START])
    else:
        if left == 0:
            more = np.int64(WIDTH)
            if head[ROOM] > 1:
                more = min(more, 2 * popcount(groups[g, BITS])) if count > 0 else np.int64(1)
            if head[CELLS_USED] + more > size:
                return -1
        if count == spans[at, GROUP_ROOM] and not _double(head, groups, free, spans, at):
            return -1
        if left == 0:
            spans[at, NEXT_CELL] = head[CELLS_USED]
            spans[at, CELLS_LEFT] = more
            head[CELLS_USED] += more
        g = spans[at, GROUPS_AT] + count
        groups[g, START] = slot
        groups[g, BITS] = 1
        groups[g, CELL] = spans[at, NEXT_CELL]
        spans[at, GROUP_COUNT] = count + 1
    cell = spans[at, NEXT_CELL]
    spans[at, NEXT_CELL] = cell + 1
    spans[at, CELLS_LEFT] -= 1
    return cell
