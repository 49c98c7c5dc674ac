"""Which slots of which rings answer a range: the optimizer of paper 001, section 3.4.4.

Everything here counts in finest slots. A plan is a list of segments `(ring, first slot, end slot, what)`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.codegen.runtime import kernel
from tidemill.codegen.wheel import (
    ADD,
    ADD_PREFIX,
    END,
    FIRST,
    HEAD,
    LOW,
    PREFIX,
    RING,
    RINGS,
    SUBTRACT,
    TOTAL,
    TOTALS,
    UNIT,
)  # fmt: skip

Ints = npt.NDArray[np.int64]

NOTHING, USES_PREFIX, LANDMARK, ONE_RING, COMBINED, INVERSE_LANDMARK, NOT_HELD = range(7)
"""The kinds of plans; the last one is none."""
MOST_SEGMENTS = 64
"""More than any plan has: two for each ring and side, at the most."""


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
            segments[n, 0] = best
            segments[n, 1] = s
            segments[n, 2] = last
            segments[n, 3] = what
            n += 1
        slots += last - s
        p = last * unit
    return n, slots


@kernel
def _one_ring(head: Ints, start: int, end: int, with_prefix: bool) -> int:
    """The coarsest ring whose slots make up a range and are held, -1 if there is none."""
    for r in range(head[RINGS] - 1, -1, -1):
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
def _set(segments: Any, n: int, ring: int, first: int, end: int, what: int) -> None:
    segments[n, 0] = ring
    segments[n, 1] = first
    segments[n, 2] = end
    segments[n, 3] = what


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
    r = _one_ring(head, start, end, False)
    if r >= 0:
        unit = head[HEAD + RING * r + UNIT]
        if (end - start) // unit <= threshold:
            _set(segments, 0, r, start // unit, end // unit, ADD)
            return ONE_RING, 1, (end - start) // unit - 1
    n, slots = _split(head, start, end, ADD, segments, 0)
    if subtracts and head[TOTAL] != 0:
        # Tried in the second half of the room, so that the other plan stays.
        other = segments[MOST_SEGMENTS:]
        m, before = _split(head, head[FIRST], start, SUBTRACT, other, 1)
        after = -1
        if before >= 0:
            m, after = _split(head, end, now, SUBTRACT, other, m)
        if before >= 0 and after >= 0 and (slots < 0 or before + after < slots - 1):
            _set(segments, 0, TOTALS, 0, 0, ADD)
            for j in range(1, m):
                for c in range(4):
                    segments[j, c] = other[j, c]
            return INVERSE_LANDMARK, m, before + after
    if slots < 0:
        return NOT_HELD, 0, 0
    return (ONE_RING if n == 1 else COMBINED), n, slots - 1


@kernel
def plans(
    head: Ints, starts: Ints, ends: Ints, subtracts: bool, threshold: int, segments: Any, begins: Ints
) -> int:
    """Plans of many ranges, one after the other; the first range that is not held, -1 if all are.

    `segments` has room for `MOST_SEGMENTS` more than are used, twice.
    """
    n = 0
    begins[0] = 0
    for i in range(starts.size):
        kind, count, _ = plan(head, starts[i], ends[i], subtracts, threshold, segments[n:])
        if kind == NOT_HELD:
            return i
        n += count
        begins[i + 1] = n
    return -1
