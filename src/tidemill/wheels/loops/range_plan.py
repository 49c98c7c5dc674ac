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
from tidemill.wheels.rings import MOST_RINGS

Ints = npt.NDArray[np.int64]
INTS = np.dtype("i8")

# --- the head -------------------------------------------------------------------------------------

KEYS, ROOM, RINGS, FIRST, MARKED, PREFIX, TOTAL, VERSION, BLOCK = range(9)
"""Keys there are, and that there is room for; rings; the first finest slot of all; whether there are
marks; whether there are prefixes; whether the totals are right; how often the wheel has changed; slots to
a compressed block."""
HEAD = 16
"""Where the numbers of the first ring begin."""
UNIT, BASE, CAPACITY, OFFSET, LOW, END, PLAIN, BLOCK_ROW = range(8)
"""Of a ring: finest slots to a slot; the slot at position 0; slots there is room for; where its cells
begin, in slots; the oldest slot that is held; the slot after the newest; the oldest slot that is plain, those
before it being compressed; the row of the directory for block 0, if there ever is one."""
NEVER = -(1 << 62)
"""In place of that row: the ring is not compressed."""
RING = 8
"""Numbers to a ring."""

# --- plans ----------------------------------------------------------------------------------------

ADD, SUBTRACT, ADD_PREFIX, ADD_VALUES, LOOK = range(5)
"""What to do with the slots of a segment `(ring, first slot, end slot, what)`: add values and marks; subtract
values; add values by the difference of two prefix sums; add values only; read marks only."""
TOTALS = -1
"""In place of a ring: the totals since the beginning."""

NOTHING, USES_PREFIX, LANDMARK, ONE_RING, COMBINED, INVERSE_LANDMARK, NOT_HELD = range(7)
"""The kinds of plans. A range that is not held has none."""
ADDING = 1 << USES_PREFIX | 1 << LANDMARK | 1 << ONE_RING | 1 << COMBINED
"""The kinds that any aggregate may use, as a set of bits; prefixes only where there are some."""
SEGMENT_COST = 100
"""What reading a segment costs besides its slots. A slot costs `slot_cost`, see `loops.slots`; the unit is
about a tenth of a nanosecond. `python -m benchmarks wheels --case costs` measures both."""
MOST_SEGMENTS = 6 * MOST_RINGS + 1
"""A plan has at most this many segments: three cuts of two for each ring, and the totals."""
PLAN_ROOM = 2 * MOST_SEGMENTS + MOST_RINGS
"""Rows of the array in which a plan is made: two plans, and one side of a cut."""


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
    """Cut a range along the coarsest slots that are held: segments, and slots, -1 if not all are."""
    slots = 0
    begun = n
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
        if best < 0 or n - begun > 2 * MOST_RINGS:
            return n, -1
        h = HEAD + RING * best
        unit = head[h + UNIT]
        s = p // unit
        last = min(end // unit, head[h + END])
        if best + 1 < head[RINGS]:  # a coarser slot may begin at the next of its bounds
            coarse = head[h + RING + UNIT]
            last = min(last, (p // coarse + 1) * coarse // unit)
        if n > begun and segments[n - 1, 0] == best and segments[n - 1, 2] == s:
            segments[n - 1, 2] = last
        else:
            _set(segments, n, best, s, last, what)
            n += 1
        slots += last - s
        p = last * unit
    return n, slots


@kernel
def _cut(head: Ints, start: int, end: int, what: int, slot_cost: int, segments: Any, n: int) -> Any:
    """The cheapest way to cut a range into slots of rings: segments, and slots, -1 if not all are held.

    From ring to ring, the slots on both sides that make no coarser slot are cut off. Whether the rest is
    cheaper in a coarser ring is a question of cost: two more segments against fewer slots. Where a ring has
    dropped some of its slots, which is rare, the work is left to `_split`.
    """
    right = segments.shape[0]  # segments at the end of the range, backwards
    begun = n
    slots = 0
    spent = 0
    least = -1
    best, best_n, best_right, best_a, best_b, best_slots = 0, n, right, start, end, 0
    a = start
    b = end
    rings = head[RINGS]
    for r in range(rings):
        h = HEAD + RING * r
        up = a
        down = a
        ratio = 1
        if r + 1 < rings:
            ratio = head[h + RING + UNIT] // head[h + UNIT]
            up = -((-a) // ratio)
            down = b // ratio
        first = up * ratio
        last = down * ratio
        coarser = up < down
        if coarser and first == a and last == b:  # fewer slots, and no segment more
            a = up
            b = down
            continue
        low = head[h + LOW]
        stop = head[h + END]
        if a >= low and b <= stop:
            cost = spent + SEGMENT_COST + slot_cost * (b - a)
            if least < 0 or cost < least:
                least = cost
                best, best_n, best_right, best_a, best_b, best_slots = r, n, right, a, b, slots
        if not coarser:
            break
        if (a < first and (a < low or first > stop)) or (last < b and (last < low or b > stop)):
            return _split(head, start, end, what, segments, begun)
        if a < first:
            _set(segments, n, r, a, first, what)
            n += 1
            slots += first - a
            spent += SEGMENT_COST + slot_cost * (first - a)
        if last < b:
            right -= 1
            _set(segments, right, r, last, b, what)
            slots += b - last
            spent += SEGMENT_COST + slot_cost * (b - last)
        if 0 <= least <= spent:  # coarser rings can only cost more
            break
        a = up
        b = down
    if least < 0:
        return _split(head, start, end, what, segments, begun)
    n = best_n
    _set(segments, n, best, best_a, best_b, what)
    n += 1
    for j in range(best_right, segments.shape[0]):
        _set(segments, n, segments[j, 0], segments[j, 1], segments[j, 2], what)
        n += 1
    return n, best_slots + best_b - best_a


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
    head: Ints, start: int, end: int, allowed: int, threshold: int, slot_cost: int, segments: Any
) -> Any:
    """The cheapest plan for a range of finest slots: its kind, its segments, its aggregate operations.

    Ranges reach from the first slot of all to the watermark at the most: nothing is known elsewhere.
    `allowed` are the kinds to choose from, as bits. Ranges of at most `threshold` slots of one ring are read
    from it. Where there are marks, plans that subtract look for marks in the slots that are asked for: they
    cannot be subtracted.
    """
    start = max(start, head[FIRST])
    now = head[HEAD + END]
    end = min(end, now)
    if start >= end:
        return NOTHING, 0, 0
    if head[PREFIX] != 0 and allowed >> USES_PREFIX & 1:
        r = _one_ring(head, start, end, True)
        if r >= 0:
            n = 1
            if head[MARKED] != 0:
                n, _ = _cut(head, start, end, LOOK, 1, segments, 1)
            unit = head[HEAD + RING * r + UNIT]
            _set(segments, 0, r, start // unit, end // unit, ADD_PREFIX)
            return USES_PREFIX, n, 1
    if start == head[FIRST] and end == now and head[TOTAL] != 0 and allowed >> LANDMARK & 1:
        _set(segments, 0, TOTALS, 0, 0, ADD)
        return LANDMARK, 1, 0
    combines = allowed >> COMBINED & 1 != 0
    if allowed >> ONE_RING & 1 and (threshold > 0 or not combines):
        r = _one_ring(head, start, end, False)
        if r >= 0:
            unit = head[HEAD + RING * r + UNIT]
            if (end - start) // unit <= threshold or not combines:
                _set(segments, 0, r, start // unit, end // unit, ADD)
                return ONE_RING, 1, (end - start) // unit - 1
    n, slots = _cut(head, start, end, ADD, slot_cost, segments, 0)
    adds = combines and slots >= 0
    if allowed >> INVERSE_LANDMARK & 1 and head[TOTAL] != 0:
        # What is outside costs less only where that is little. It has a bound at the least.
        little = 2 * (end - start) > now - head[FIRST]
        if not adds or (little and SEGMENT_COST * n + slot_cost * slots > 2 * (SEGMENT_COST + slot_cost)):
            return _inverse(head, start, end, slot_cost, segments, n, slots, adds)
    if not adds:
        return NOT_HELD, 0, 0
    return (ONE_RING if n == 1 else COMBINED), n, slots - 1


@kernel
def _inverse(
    head: Ints, start: int, end: int, slot_cost: int, segments: Any, n: int, slots: int, adds: bool
) -> Any:
    """Everything, less what is outside of a range. Where `adds`, the `n` segments that are there are a plan,
    which is taken if it is cheaper."""
    other = segments[MOST_SEGMENTS:]
    m, before = _cut(head, head[FIRST], start, SUBTRACT, slot_cost, other, 1)
    after = -1
    if before >= 0:
        m, after = _cut(head, end, head[HEAD + END], SUBTRACT, slot_cost, other, m)
    marked = head[MARKED] != 0
    # The marks of a range whose slots are not held are not known.
    possible = before >= 0 and after >= 0 and not (marked and slots < 0)
    cost = SEGMENT_COST * m + slot_cost * (before + after)
    if adds and (not possible or cost >= SEGMENT_COST * n + slot_cost * slots):
        return (ONE_RING if n == 1 else COMBINED), n, slots - 1
    if not possible:
        return NOT_HELD, 0, 0
    looks = n if marked else 0
    for j in range(looks - 1, -1, -1):
        _set(segments, m + j, segments[j, 0], segments[j, 1], segments[j, 2], LOOK)
    _set(segments, 0, TOTALS, 0, 0, ADD_VALUES)
    for j in range(1, m):
        _set(segments, j, other[j, 0], other[j, 1], other[j, 2], SUBTRACT)
    return INVERSE_LANDMARK, m + looks, before + after
