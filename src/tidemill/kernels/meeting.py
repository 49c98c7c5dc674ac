"""Find the pairs of rows that have a key in common and hold together, in one pass over time.

Each key has a chain of the rows of each side that have started. A row that starts goes through the chain of
the other side: rows that are over leave it, and all others are its pairs. So the work is that of the rows
and of the pairs, however long rows hold and however many keys there are; nothing is sorted by key.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidemill.jit.kernel import kernel

Ints = npt.NDArray[np.int64]
_FRESH = -2
"""In place of a row of a chain: no row of it was looked at."""
BEGIN = (0, 0, _FRESH, -1)
"""Where `meet` begins: the next row of each side, and where it is in a chain."""


@kernel
def chain_up(keys: Ints, ends: Ints, count: int, first: int, side: int, nodes: Ints, heads: Ints) -> None:
    """Put the first `count` rows of a side into the chains of their keys, if they have one.

    `nodes` has the end of each row and the next row of its chain; rows of the side begin at `first`.
    """
    for row in range(count):
        if keys[row] >= 0:
            mine = 2 * keys[row] + side
            nodes[first + row, 0] = ends[row]
            nodes[first + row, 1] = heads[mine]
            heads[mine] = first + row


@kernel
def meet(
    keys: Ints, starts: Ints, ends: Ints, order: Ints, other_keys: Ints, other_starts: Ints, other_ends: Ints,
    other_order: Ints, nodes: Ints, heads: Ints, at: Ints, left: Ints, right: Ints, start: Ints, end: Ints,
) -> int:  # fmt: skip
    """Write pairs, and when both rows hold, until there is no more room; return how many were written.

    `order` has the new rows of a side in order of their start. `at` says where to go on, and is past the last
    rows when all is done. Keys below 0 match nothing. Each pair is found where the second of its rows starts;
    of two that start together, the left one comes first.
    """
    i = at[0]
    j = at[1]
    node = at[2]
    before = at[3]
    n = 0
    others = keys.size
    while i < order.size or j < other_order.size:
        side = 0
        if i >= order.size:
            side = 1
        elif j < other_order.size and other_starts[other_order[j]] < starts[order[i]]:
            side = 1
        if side == 0:
            row = order[i]
            k, begins, until, place = keys[row], starts[row], ends[row], row
        else:
            row = other_order[j]
            k, begins, until, place = other_keys[row], other_starts[row], other_ends[row], others + row
        if k >= 0:
            mine = 2 * k + side
            theirs = mine ^ 1
            if node == _FRESH:
                node = heads[theirs]
                before = -1
            while node >= 0:
                following = nodes[node, 1]
                over = nodes[node, 0]
                if over <= begins:
                    if before < 0:
                        heads[theirs] = following
                    else:
                        nodes[before, 1] = following
                else:
                    if n == left.size:
                        at[0] = i
                        at[1] = j
                        at[2] = node
                        at[3] = before
                        return n
                    left[n] = row if side == 0 else node
                    right[n] = node - others if side == 0 else row
                    start[n] = begins
                    end[n] = min(over, until)
                    n += 1
                    before = node
                node = following
            # A point of the right side is over before the next row of the left side starts.
            if side == 0 or until > begins + 1:
                nodes[place, 0] = until
                nodes[place, 1] = heads[mine]
                heads[mine] = place
            node = _FRESH
        if side == 0:
            i += 1
        else:
            j += 1
    at[0] = i
    at[1] = j
    at[2] = node
    at[3] = before
    return n
