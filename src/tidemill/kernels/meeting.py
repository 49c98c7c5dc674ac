"""Find the pairs of rows that have a key in common and hold together, in one pass over time.

Each key has a chain of the rows of each side that have started. A row that starts goes through the chain of
the other side: rows that are over leave it, and all others are its pairs. So the work is that of the rows
and of the pairs, however long rows hold and however many keys there are; nothing is sorted by key.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidemill.jit.intrinsics import address_of, fetch
from tidemill.jit.kernel import kernel

Ints = npt.NDArray[np.int64]
_FRESH = -2
"""In place of a row of a chain: no row of it was looked at."""
BEGIN = (0, _FRESH, -1)
"""Where `meet` begins: the next row, and where it is in a chain."""
_SOON, _SOONER = 24, 8
"""So many rows ahead, the chain of a row is asked for, and then the first row of the chain."""


@kernel
def chain_slots(keys: Ints, side: int, slots: Ints) -> None:
    """Number the chains of the rows of a side: those of a key are neighbours. Below 0: a row has none."""
    for row in range(keys.size):
        slots[row] = 2 * keys[row] + side if keys[row] >= 0 else -1


@kernel
def both_in_order(starts: Ints, order: Ints, other_order: Ints, first: int, out: Ints) -> None:
    """Merge the rows of two sides, each in order of their start; those of `order` come first if they tie.

    Rows of the other side are numbered from `first` on.

    >>> out = np.empty(3, np.int64)
    >>> both_in_order(np.array([2, 5, 2]), np.array([0, 1]), np.array([0]), 2, out)
    >>> out
    array([0, 2, 1])
    """
    i = 0
    j = 0
    while i < order.size and j < other_order.size:
        one = order[np.uint64(i)]
        other = other_order[np.uint64(j)] + first
        later = int(starts[np.uint64(other)] < starts[np.uint64(one)])  # no branch: it is any order
        out[np.uint64(i + j)] = other if later else one
        i += 1 - later
        j += later
    for rest in range(i, order.size):
        out[rest + j] = order[rest]
    for rest in range(j, other_order.size):
        out[i + rest] = other_order[rest] + first


@kernel
def chain_up(slots: Ints, ends: Ints, first: int, count: int, nodes: Ints, heads: Ints) -> None:
    """Put the `count` rows from `first` on into their chains, if they have one.

    `nodes` has the end of each row and the next row of its chain; `heads` has the first row of each chain.
    """
    for row in range(first, first + count):
        if slots[row] >= 0:
            nodes[row, 0] = ends[row]
            nodes[row, 1] = heads[slots[row]]
            heads[slots[row]] = row


@kernel
def meet(
    slots: Ints, starts: Ints, ends: Ints, order: Ints, first: int, nodes: Ints, heads: Ints, at: Ints,
    left: Ints, right: Ints, start: Ints, end: Ints,
) -> int:  # fmt: skip
    """Write pairs, and when both rows hold, until there is no more room; return how many were written.

    Rows from `first` on are those of the right side. `order` has the new rows in order of their start, of two
    that start together the left one first. `at` says where to go on, and is past the last row when all is
    done. Each pair is found where the second of its rows starts.
    """
    p = at[0]
    node = at[1]
    before = at[2]
    n = 0
    chains = address_of(heads)
    rows = address_of(nodes)
    while p < order.size:
        if p + _SOON < order.size:
            soon = slots[np.uint64(order[np.uint64(p + _SOON)])]
            if soon >= 0:
                fetch(chains + 8 * (soon ^ 1))
            soon = slots[np.uint64(order[np.uint64(p + _SOONER)])]
            if soon >= 0:
                fetch(rows + 16 * heads[np.uint64(soon ^ 1)])
        row = order[np.uint64(p)]
        mine = slots[np.uint64(row)]
        if mine >= 0:
            begins = starts[np.uint64(row)]
            until = ends[np.uint64(row)]
            theirs = mine ^ 1
            if node == _FRESH:
                node = heads[np.uint64(theirs)]
                before = -1
            while node >= 0:
                following = nodes[np.uint64(node), 1]
                over = nodes[np.uint64(node), 0]
                if over <= begins:
                    if before < 0:
                        heads[np.uint64(theirs)] = following
                    else:
                        nodes[np.uint64(before), 1] = following
                else:
                    if n == left.size:
                        at[0] = p
                        at[1] = node
                        at[2] = before
                        return n
                    left[np.uint64(n)] = min(row, node)
                    right[np.uint64(n)] = max(row, node) - first
                    start[np.uint64(n)] = begins
                    end[np.uint64(n)] = min(over, until)
                    n += 1
                    before = node
                node = following
            # A point of the right side is over before the next row of the left side starts.
            if row < first or until > begins + 1:
                nodes[np.uint64(row), 0] = until
                nodes[np.uint64(row), 1] = heads[np.uint64(mine)]
                heads[np.uint64(mine)] = row
            node = _FRESH
        p += 1
    at[0] = p
    at[1] = node
    at[2] = before
    return n
