"""Plan which slots of which rings answer a range: the optimizer of paper 001, section 3.4.4.

Generated code calls it. Ranges are in slots of the finest ring. A plan is a list of segments `(ring, first
slot, end slot, what)`. All integers about the rings are in one array, the *head*.
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
"""Positions in the head: the number of keys; allocated keys; rings; the first finest slot; whether marks are
stored; whether prefixes are; whether the totals are valid; the number of changes; slots per compressed
block."""
HEAD = 16
"""The position of the first ring's numbers."""
UNIT, BASE, CAPACITY, OFFSET, LOW, END, PLAIN, BLOCK_ROW = range(8)
"""Positions in a ring's numbers: finest slots per slot; the slot at position 0; allocated slots; where its
cells start, in slots; the oldest slot held; the slot after the newest; the oldest uncompressed slot; the row
of the directory for block 0."""
NEVER = -(1 << 62)
"""The value of `BLOCK_ROW` in a ring that is never compressed."""
RING = 8
"""Numbers per ring."""

# --- plans ----------------------------------------------------------------------------------------

ADD, SUBTRACT, ADD_PREFIX, ADD_VALUES, LOOK = range(5)
"""What to do with the slots of a segment `(ring, first slot, end slot, what)`: add values and marks; subtract
values; add values by the difference of two prefix sums; add values only; read marks only."""
TOTALS = -1
"""The ring number that stands for the totals since the beginning."""

NOTHING, USES_PREFIX, LANDMARK, ONE_RING, COMBINED, INVERSE_LANDMARK, NOT_HELD = range(7)
"""The kinds of plans."""
ADDING = 1 << USES_PREFIX | 1 << LANDMARK | 1 << ONE_RING | 1 << COMBINED
"""The kinds allowed for any aggregate, as bits; the prefix kind applies only if prefixes are stored."""
SEGMENT_COST = 100
"""The cost of reading a segment besides its slots. A slot costs `slot_cost`, see `loops.slots`; the unit is
about a tenth of a nanosecond. `python -m benchmarks wheels --case costs` measures both."""
MOST_SEGMENTS = 6 * MOST_RINGS + 1
"""A plan has at most this many segments: three cuts of two for each ring, and the totals."""
PLAN_ROOM = 2 * MOST_SEGMENTS + MOST_RINGS
"""Rows of the array in which a plan is made: two plans, and one side of a cut."""


@kernel
def row_of(head: Ints, ring: int, slot: int) -> Any:
    """The row of a slot in the ring whose numbers start at `ring`."""
    at = slot - head[ring + BASE]
    # The division takes longer than the rest, and a ring that keeps every slot needs none.
    if at < 0 or at >= head[ring + CAPACITY]:
        at %= head[ring + CAPACITY]
    return head[ring + OFFSET] + at


FAR = 1 << 52
"""Smaller ticks are exact as floats, with a bit to spare."""


@kernel
def slots_at(ticks: int, slots: int, n: int, grain: int) -> bool:
    """Convert `n` ticks at one address to slots at another; returns whether all are on the grid.

    It multiplies, because a division takes five times as long.
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
            q += np.int64(rest >= grain) - np.int64(rest < 0)  # the product is off by at most one
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
    """Cut a range along the coarsest slots held; returns the numbers of segments and slots (-1: not held)."""
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
        if best + 1 < head[RINGS]:  # stop at the next bound of the coarser ring, which may hold a slot there
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
    """Cut a range at the least cost; returns the numbers of segments and slots (-1: not held).

    From ring to ring, the slots on both sides that do not fill a coarser slot are cut off. The rest is read
    from a coarser ring if that is cheaper: fewer slots, but up to two more segments. If a ring has evicted
    some of the slots, which is rare, `_split` does the work.
    """
    right = segments.shape[0]  # segments on the right side are stored backwards from the end
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
        if coarser and first == a and last == b:  # fewer slots, and no more segments
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
    """The coarsest ring whose slots cover a range exactly and are held, or -1.

    For prefixes, the finest such ring: it costs the same and is found sooner.
    """
    for i in range(head[RINGS]):
        r = i if with_prefix else head[RINGS] - 1 - i
        h = HEAD + RING * r
        unit = head[h + UNIT]
        a = start // unit
        b = end // unit
        low = head[h + LOW]
        if with_prefix and a != head[FIRST] // unit:
            low += 1  # the slot before the first is read, too
        if a * unit == start and b * unit == end and a >= low and b <= head[h + END]:
            return r
    return -1


@kernel
def plan(
    head: Ints, start: int, end: int, allowed: int, threshold: int, slot_cost: int, segments: Any
) -> Any:
    """Plan a range of finest slots at the least cost; returns kind, number of segments, aggregate operations.

    Ranges are clipped to the slots from the first one to the watermark. `allowed` has the kinds to choose
    from, as bits. Ranges of at most `threshold` slots of one ring are read from it. Marks cannot be
    subtracted: plans that subtract read the marks of the range itself.
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
        # Subtracting is cheaper only if little lies outside the range. Where slots cost less than segments,
        # it takes more time to find out than it saves.
        little = 2 * (end - start) > now - head[FIRST]
        if not adds or (little and slot_cost * slots > SEGMENT_COST * n):
            return _inverse(head, start, end, slot_cost, segments, n, slots, adds)
    if not adds:
        return NOT_HELD, 0, 0
    return (ONE_RING if n == 1 else COMBINED), n, slots - 1


@kernel
def _inverse(
    head: Ints, start: int, end: int, slot_cost: int, segments: Any, n: int, slots: int, adds: bool
) -> Any:
    """Plan the totals minus the slots outside a range. If `adds`, the existing `n` segments are a plan, too,
    and the cheaper of both is taken."""
    other = segments[MOST_SEGMENTS:]
    m, before = _cut(head, head[FIRST], start, SUBTRACT, slot_cost, other, 1)
    after = -1
    if before >= 0:
        m, after = _cut(head, end, head[HEAD + END], SUBTRACT, slot_cost, other, m)
    marked = head[MARKED] != 0
    # If the slots of the range are not held, neither are their marks.
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
