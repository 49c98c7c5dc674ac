"""The memory of the time-travel index: blocks of rows and nodes of a tree over them, by key.

The rows of a key are in order of time, in *leaves* of up to `LEAF` rows. An *entry* describes a leaf: its
first and last time, where it is, and the partial of its rows. `FAN` entries make a *node*, which has an entry
in a node of the level above it, and so on. The newest leaf and the newest node of each level are *open*:
they grow, have no entry yet, and are found in the *head* of the key. All rows of the open node of a level
are before those of the level below it.

One thread writes. What readers can see is never changed: rows and entries are added behind the end that they
know of, everything else is copied. A head has two versions, and its number says which one counts, so a key
changes for readers by one store. Memory that is released is used again in a later batch, with the batch of
its release in `clock[REUSED]`: a reader that began before that may have read something else than it thinks,
and begins again. It never waits. Arrays that are too small are replaced, those of heads each time; readers of
the old heads may go on until memory that was released after that is used again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tidemill.jit.intrinsics import address_of, in_order, publish
from tidemill.jit.kernel import bare_kernel

Ints = npt.NDArray[np.int64]

LEAF, UNIT = 32, 4
"""The rows of a full leaf; those of the smallest one, for keys of few rows."""
FAN = 16
"""The entries of a full node."""
LEVELS = 7
"""Level 0 has rows; the others have `LEAF * FAN ** 6` of a key, half a billion."""

FIRST, LAST, AT, META, PARTIAL = range(5)
"""The numbers of an entry: the times of its first and last row; the place of its leaf or node; see below;
where its partial begins."""
SKIP, STALE, FAILED, SIZE = 8, 16, 24, 32
"""`META` is how many there are, and from these bits on: how many of them have expired, whether the partial is
to be computed, the errors of computing it, and the size of a leaf."""
COUNT = (1 << SKIP) - 1

SLOT = 2 * LEVELS
HEAD = 1 + 2 * SLOT
"""The numbers of a head: that of its version, and two versions. A version has, by level, the place of the
open leaf or node, and as `META` how many rows or entries it has."""

CLOCK, REUSED = range(2)
"""The number of the last batch; the last batch whose released memory is used again."""

TICK, ROWS_TOP, NODES_TOP, LIVE, TOUCHED, BELOW, SPARE, LACKS = range(8)
"""Numbers of the writer: the batch that is being written; the ends of used memory; the number of rows; that
of entries whose partial is to be computed; what has expired; and which arrays are too small, as bits."""
LACK_ROWS, LACK_NODES, LACK_TOUCHED, LACK_NEW = 1, 2, 4, 8
QUEUES, QUEUE = 8, 4
"""Where the queues of released memory begin, one for each size; the numbers of a queue are below."""
OLDEST, NEWEST, LENGTH, READY = range(4)
FULL, NODES = 3, 4
"""The queue of full leaves, behind those of 4, 8 and 16 rows; the queue of nodes."""
OWN = QUEUES + QUEUE * (NODES + 1)
_QUARANTINE = 16
"""One block of so many is kept unused, so that readers seldom begin again."""
NONE = -1
NEVER = (1 << 63) - 1


class Store(NamedTuple):
    """The arrays of an index, as the writer has them."""

    rows: Ints
    """A row of numbers for each row: its time, its place, its ties, its partial. The last leaf is unused."""
    nodes: Ints
    """A row of numbers for each entry."""
    heads: Ints
    """A row of numbers for each key."""
    clock: Ints
    limit: Ints
    """The last batch whose rows will ever be in these heads."""
    own: Ints
    row_stamps: Ints
    """The batch in which a block was taken or released, by its first unit."""
    row_next: Ints
    """The next block in its queue."""
    node_stamps: Ints
    node_next: Ints
    touched: Ints
    """The level and the place of entries whose partial is to be computed."""
    oldest: Ints
    """By key an instant before which no leaf ends."""
    new: Ints
    """Space for three lists of entries; the third one has two."""
    scratch: Ints
    """Space for a path, a head and a cursor."""


@bare_kernel
def take(s: Store, c: int) -> Any:
    """Return the place of a leaf of a size, or of a node, in unused memory, which there must be."""
    own = s.own
    q = QUEUES + QUEUE * c
    nodes = c == NODES
    size = FAN if nodes else UNIT << c
    unit = FAN if nodes else UNIT
    top = NODES_TOP if nodes else ROWS_TOP
    room = s.nodes.shape[0] if nodes else s.rows.shape[0] - LEAF
    stamps = s.node_stamps if nodes else s.row_stamps
    fresh = own[top] + size <= room
    if own[q + READY] > 0 and (own[q + LENGTH] > 8 + own[top] // size // _QUARANTINE or not fresh):
        u = own[q + OLDEST]
        following = s.node_next if nodes else s.row_next
        own[q + OLDEST] = following[u]
        own[q + LENGTH] -= 1
        own[q + READY] -= 1
        if stamps[u] > s.clock[REUSED]:
            publish(address_of(s.clock) + 8 * REUSED, stamps[u])
    else:
        u = own[top] // unit
        own[top] += size
    stamps[u] = own[TICK]
    return u * unit


@bare_kernel
def take_leaf(s: Store, rows: int) -> Any:
    """Return the place of a leaf for so many rows, and its size: the smallest one, or a full one.

    So `_has_room` of `insert` is right whatever the sizes are.
    """
    c = 0
    while UNIT << c < rows:
        c += 1
    fresh = s.own[ROWS_TOP] + (UNIT << c) <= s.rows.shape[0] - LEAF
    if not fresh and s.own[QUEUES + QUEUE * c + READY] == 0:
        c = FULL
    return take(s, c), c


@bare_kernel
def release(s: Store, c: int, at: int) -> None:
    """Release a leaf of a size, or a node, which readers may still see."""
    own = s.own
    q = QUEUES + QUEUE * c
    nodes = c == NODES
    u = at // (FAN if nodes else UNIT)
    stamps = s.node_stamps if nodes else s.row_stamps
    following = s.node_next if nodes else s.row_next
    stamps[u] = own[TICK]
    following[u] = NONE
    if own[q + LENGTH] == 0:
        own[q + OLDEST] = u
    else:
        following[own[q + NEWEST]] = u
    own[q + NEWEST] = u
    own[q + LENGTH] += 1


@bare_kernel
def begin(s: Store) -> None:
    """Begin a batch."""
    own = s.own
    own[TICK] = s.clock[CLOCK] + 1
    own[TOUCHED] = 0
    for c in range(NODES + 1):
        own[QUEUES + QUEUE * c + READY] = own[QUEUES + QUEUE * c + LENGTH]


@bare_kernel
def new_version(heads: Ints, k: int) -> Any:
    """Return where the next version of a head is, after making it equal to the one that counts."""
    number = heads[k, 0]
    now = 1 + SLOT * (number & 1)
    to = 1 + SLOT * ((number + 1) & 1)
    for j in range(SLOT):
        heads[k, to + j] = heads[k, now + j]
    return to


@bare_kernel
def show(heads: Ints, k: int) -> None:
    """Make the next version of a head count."""
    publish(address_of(heads) + 8 * HEAD * k, heads[k, 0] + 1)


@bare_kernel
def show_all(s: Store, keys: Ints, order: Ints, first: int) -> None:
    """End a batch: show the rows of each of its keys, which are in order from `first` on."""
    before = NONE
    for j in range(first, order.size):
        k = keys[order[j]]
        if k != before:
            show(s.heads, k)
            before = k
    publish(address_of(s.clock) + 8 * CLOCK, s.own[TICK])


@bare_kernel
def begin_to_read(clock: Ints, limit: Ints) -> Any:
    """Return the last batch of which the heads have the rows."""
    now = in_order(address_of(clock) + 8 * CLOCK)
    return min(now, in_order(address_of(limit)))


@bare_kernel
def was_reused(clock: Ints, since: int) -> Any:
    """Return whether memory is used again that heads may have referred to when the reader began."""
    return in_order(address_of(clock) + 8 * REUSED) > since


@bare_kernel
def read_head(heads: Ints, k: int, head: Ints) -> None:
    """Copy the version of a head that counts; unknown keys have an empty one."""
    if k < 0 or k >= heads.shape[0]:
        for j in range(SLOT):
            head[j] = 0
        return
    at = address_of(heads) + 8 * HEAD * k
    while True:
        number = in_order(at)
        now = 1 + SLOT * (number & 1)
        for j in range(SLOT):
            head[j] = heads[k, now + j]
        if in_order(at) == number:  # else this version may have been overwritten by the one after next
            return
