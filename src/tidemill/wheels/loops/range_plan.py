"""Which slots of which rings answer a range: the optimizer of paper 001, section 3.4.4.

Generated code calls it. Everything here counts in finest slots. A plan is a list of segments `(ring,
first slot, end slot, what)`. All integers about the rings are in one array, the *head*.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.jit.addresses import column_at
from tidemill.jit.kernel import kernel

Ints = npt.NDArray[np.int64]
INTS = np.dtype("i8")

# --- the head -------------------------------------------------------------------------------------

KEYS, ROOM, RINGS, FIRST, MARKED, PREFIX, TOTAL, VERSION, BLOCK = range(9)
"""Keys there are, and that there is room for; rings; the first finest slot of all; whether there are
marks; whether there are prefixes; whether the totals are right; how often the wheel has changed; slots to
a compressed block."""
HEAD = 16
"""Where the numbers of the first ring begin."""
UNIT, BASE, CAPACITY, OFFSET, LOW, END, HOT, COLD = range(8)
"""Of a ring: finest slots to a slot; the slot at position 0; slots there is room for; where its cells
begin, in slots; the oldest slot that is held; the slot after the newest; the oldest slot that has cells,
those before it being compressed; the row of the directory for block 0, if there ever is one."""
NEVER = -(1 << 62)
"""In place of that row: the ring is not compressed."""
RING = 8
"""Numbers to a ring."""

# --- plans ----------------------------------------------------------------------------------------

ADD, SUBTRACT, ADD_PREFIX = range(3)
"""What to do with the slots of a segment `(ring, first slot, end slot, what)`. A prefix adds them too, by
the difference of two sums."""
TOTALS = -1
"""In place of a ring: the totals since the beginning."""

NOTHING, USES_PREFIX, LANDMARK, ONE_RING, COMBINED, INVERSE_LANDMARK, NOT_HELD = range(7)
"""The kinds of plans; the last one is none."""
MOST_RINGS = 24
"""More rings than that no wheel may have."""
MOST_SEGMENTS = 4 * MOST_RINGS + 1
"""As many as a plan can have: two cuts of two for each ring, and the totals."""
PLAN_ROOM = 2 * MOST_SEGMENTS + MOST_RINGS
"""Segments there is room for while a plan is made: of two plans, and of one side of a cut."""


@kernel
def row_of(head: Ints, ring: int, slot: int) -> Any:
    """Where a slot of the ring whose numbers begin at `ring` lies."""
    at = slot - head[ring + BASE]
    # A division takes longer than all the rest, and a ring that keeps everything needs none.
    if at < 0 or at >= head[ring + CAPACITY]:
        at %= head[ring + CAPACITY]
    return head[ring + OFFSET] + at


FAR = 1 << 52
"""Ticks below are exact as floats, with a bit to spare."""


@kernel
def slots_at(ticks: int, slots: int, n: int, grain: int) -> bool:
    """The slots of many ticks, from one address to another; whether all lie on the grid.

    One pass over them, with a product in place of a division, which takes five times as long.
    """
    given = column_at(ticks, n, INTS)
    found = column_at(slots, n, INTS)
    inverse = 1.0 / grain
    fits = True
    for i in range(n):
        t = given[i]
        if -FAR < t < FAR:
            q = np.int64(np.float64(t) * inverse)
            rest = t - q * grain
            q += np.int64(rest >= grain) - np.int64(rest < 0)  # the product is off by one at the most
        else:
            q = t // grain
        found[i] = q
        fits = fits and q * grain == t
    return fits


@kernel
def _set(segments: Any, n: int, ring: int, first: int, end: int, what: int) -> None:
    segments[n, 0] = ring
    segments[n, 1] = first
    segments[n, 2] = end
    segments[n, 3] = what


@kernel
def _split(head: Ints, start: int, end: int, what: int, segments: Any, n: int) -> Any:
    """Cut a range along the coarsest rings; the number of segments and of slots, -1 if not all are held."""
    slots = 0
    p = start
    while p < end:
        best = -1
        for r in range(head[RINGS] - 1, -1, -1):
            h = HEAD + RING * r
            unit = head[h + UNIT]
            s = p // unit
            if s * unit == p and p + unit <= end and s >= head[h + LOW] and s < head[h + END]:
                best = r
                break
        if best < 0:
            return n, -1
        h = HEAD + RING * best
        unit = head[h + UNIT]
        s = p // unit
        last = min(end // unit, head[h + END])
        if best + 1 < head[RINGS]:  # a coarser slot may begin at the next of its bounds
            coarse = head[h + RING + UNIT]
            last = min(last, (p // coarse + 1) * coarse // unit)
        if n > 0 and segments[n - 1, 0] == best and segments[n - 1, 2] == s and segments[n - 1, 3] == what:
            segments[n - 1, 2] = last
        else:
            _set(segments, n, best, s, last, what)
            n += 1
        slots += last - s
        p = last * unit
    return n, slots


@kernel
def _cut(head: Ints, start: int, end: int, what: int, segments: Any, n: int) -> Any:
    """As `_split`, where rings hold all that may be asked of them, which is nearly always: two
    divisions a ring. Otherwise it leaves the work to `_split`."""
    rings = head[RINGS]
    right = segments.shape[0]  # at the end of the room, backwards: an array of its own takes longer
    begun = n
    slots = 0
    a = start
    b = end
    for r in range(rings):
        h = HEAD + RING * r
        coarser = r + 1 < rings
        if coarser:
            ratio = head[h + RING + UNIT] // head[h + UNIT]
            up = -((-a) // ratio)
            down = b // ratio
            coarser = up < down
        first = up * ratio if coarser else b
        if a < first:
            if a < head[h + LOW] or first > head[h + END]:
                return _split(head, start, end, what, segments, begun)
            _set(segments, n, r, a, first, what)
            n += 1
            slots += first - a
        if not coarser:
            break
        last = down * ratio
        if last < b:
            if last < head[h + LOW] or b > head[h + END]:
                return _split(head, start, end, what, segments, begun)
            right -= 1
            _set(segments, right, r, last, b, what)
            slots += b - last
        a = up
        b = down
    for j in range(right, segments.shape[0]):
        _set(segments, n, segments[j, 0], segments[j, 1], segments[j, 2], what)
        n += 1
    return n, slots


@kernel
def _one_ring(head: Ints, start: int, end: int, with_prefix: bool) -> int:
    """The coarsest ring whose slots make up a range and are held, -1 if there is none.

    Of prefixes the finest ring does as well, and is found sooner.
    """
    for i in range(head[RINGS]):
        r = i if with_prefix else head[RINGS] - 1 - i
        h = HEAD + RING * r
        unit = head[h + UNIT]
        a = start // unit
        b = end // unit
        low = head[h + LOW]
        if with_prefix and a != head[FIRST] // unit:
            low += 1  # the slot before the first is looked at, too
        if a * unit == start and b * unit == end and a >= low and b <= head[h + END]:
            return r
    return -1


@kernel
def plan(
    head: Ints, start: int, end: int, subtracts: bool, threshold: int, segments: Any
) -> tuple[int, int, int]:
    """The best plan for a range of finest slots: its kind, its number of segments, of operations.

    Ranges reach from the first slot of all to the watermark at the most: nothing is known elsewhere.
    """
    start = max(start, head[FIRST])
    now = head[HEAD + END]
    end = min(end, now)
    if start >= end:
        return NOTHING, 0, 0
    if head[PREFIX] != 0:
        r = _one_ring(head, start, end, True)
        if r >= 0:
            unit = head[HEAD + RING * r + UNIT]
            _set(segments, 0, r, start // unit, end // unit, ADD_PREFIX)
            return USES_PREFIX, 1, 1
    if start == head[FIRST] and end == now and head[TOTAL] != 0:
        _set(segments, 0, TOTALS, 0, 0, ADD)
        return LANDMARK, 1, 0
    r = _one_ring(head, start, end, False) if threshold > 0 else -1
    if r >= 0:
        unit = head[HEAD + RING * r + UNIT]
        if (end - start) // unit <= threshold:
            _set(segments, 0, r, start // unit, end // unit, ADD)
            return ONE_RING, 1, (end - start) // unit - 1
    n, slots = _cut(head, start, end, ADD, segments, 0)
    # What is outside costs less only where that is little.
    if subtracts and head[TOTAL] != 0 and (slots < 0 or 2 * (end - start) > now - head[FIRST]):
        # Tried in the second half of the room, so that the other plan stays.
        other = segments[MOST_SEGMENTS:]
        m, before = _cut(head, head[FIRST], start, SUBTRACT, other, 1)
        after = -1
        if before >= 0:
            m, after = _cut(head, end, now, SUBTRACT, other, m)
        if before >= 0 and after >= 0 and (slots < 0 or before + after < slots - 1):
            _set(segments, 0, TOTALS, 0, 0, ADD)
            for j in range(1, m):
                for c in range(4):
                    segments[j, c] = other[j, c]
            return INVERSE_LANDMARK, m, before + after
    if slots < 0:
        return NOT_HELD, 0, 0
    return (ONE_RING if n == 1 else COMBINED), n, slots - 1
