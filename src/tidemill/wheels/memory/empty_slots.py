"""Close empty slots in bulk, so that a wheel that was idle catches up quickly.

The watermark moves in steps of whole slots of the coarsest ring possible. So there are only a few steps for
each ring, however long the time is. A step costs what it writes: in rings that keep all slots, new slots
are empty already, and in others no more is written than they hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tidemill.wheels.loops.range_plan import CAPACITY, END, FIRST, LOW, OFFSET, PLAIN, ROOM, UNIT
from tidemill.wheels.memory.compressed import compress_empty, compress_full

if TYPE_CHECKING:
    from tidemill.wheels.memory.store import RingStore


def close_empty(store: RingStore, until: int) -> int:
    """Close the slots below `until`, which are allocated and have no rows; returns error bits."""
    store.need_marks()
    units = [int(store.ring(r)[UNIT]) for r in range(len(store.rings))]
    empty_from = [int(store.ring(r)[END]) for r in range(len(store.rings))]
    while (now := store.now) < until:
        coarsest = max(r for r, unit in enumerate(units) if now % unit == 0 and now + unit <= until)
        end = until // units[coarsest] * units[coarsest]
        if coarsest + 1 < len(units):  # stop where a slot of the next ring becomes complete
            end = min(end, (now // units[coarsest + 1] + 1) * units[coarsest + 1])
        for r in range(coarsest + 1):
            _pass(store, r, end // units[r], empty_from[r])
        before = [int(store.ring(r)[END]) for r in range(len(units))]
        if err := store.roll_up(coarsest + 1):
            return err
        for r, was in enumerate(before):
            if store.ring(r)[END] > was:  # the slot just made contains older rows
                empty_from[r] = was + 1
        compress_full(store)
    return 0


def _pass(store: RingStore, r: int, end: int, empty_from: int) -> None:
    """Close the slots of a ring below `end`. Those from `empty_from` on are empty."""
    while (begin := int(store.ring(r)[END])) < end:
        if not store.compresses(r):
            _write(store, r, begin, end)
            h = store.ring(r)
            h[END], h[PLAIN] = end, max(int(h[PLAIN]), end - int(h[CAPACITY]))
            h[LOW] = h[PLAIN]
        elif store.ring(r)[PLAIN] < empty_from:
            step = min(end, begin + store.compress)
            _write(store, r, begin, step)
            store.ring(r)[END] = step
            compress_full(store)
        else:
            compress_empty(store, r, end)
            _write(store, r, int(store.ring(r)[PLAIN]), end)


def _write(store: RingStore, r: int, first: int, end: int) -> None:
    """Clear the cells of slots, and repeat the prefix sums of the slot before them."""
    h, room = store.ring(r), int(store.head[ROOM])
    capacity, begin = int(h[CAPACITY]), int(h[OFFSET])
    before = None
    if store.prefix and first > int(store.head[FIRST]) // int(h[UNIT]):
        at = int(store.rows(r, np.array([first - 1]))[0]) * room
        before = [x[at : at + room].copy() for x in store.prefixes]
    if store.grows(r) and before is None:
        return  # the cells were never written
    slots = np.arange(max(first, end - capacity), end)
    rows = np.sort(store.rows(r, slots))
    turn = np.flatnonzero(np.diff(rows) > 1) + 1  # where the ring wraps around
    for run in np.split(rows, turn):
        a, b = int(run[0]) * room, (int(run[-1]) + 1) * room
        for j, (name, _) in enumerate(store.slots.stored):
            store.columns[j][a:b] = store.identity[name]
            if before is not None:
                store.prefixes[j][a:b].reshape(-1, room)[:] = before[j]
            elif store.prefix:
                store.prefixes[j][a:b] = store.identity[name]
        for bits in store.marks:
            _clear(bits, a, b)
    assert begin <= rows[0] and rows[-1] < begin + capacity


def _clear(bits: npt.NDArray[np.uint8], a: int, b: int) -> None:
    """Set the bits `[a, b)` to zero."""
    first, last = a >> 3, b >> 3
    below, above = (1 << (a & 7)) - 1, 0xFF & ~((1 << (b & 7)) - 1)
    if first == last:
        bits[first] &= below | above
        return
    bits[first] &= below
    bits[first + 1 : last] = 0
    if b & 7:
        bits[last] &= above
