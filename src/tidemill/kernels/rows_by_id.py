"""Rows by the ids of their keys, and the rows that others find there (paper 000, section 5.2.2)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.jit.kernel import kernel
from tidemill.kernels.memory import empty

Ints = npt.NDArray[np.int64]


@kernel
def _count(ids: Ints, first: Ints) -> None:
    for i in range(ids.size):
        if ids[i] >= 0:
            first[ids[i] + 1] += 1


@kernel
def _arrange(ids: Ints, next_of: Ints, order: Ints) -> None:
    for i in range(ids.size):
        k = ids[i]
        if k >= 0:
            order[next_of[k]] = i
            next_of[k] += 1


@kernel
def _sum_up(first: Ints) -> None:
    """Turn counts into places."""
    for k in range(1, first.size):
        first[k] += first[k - 1]


@kernel
def _place(ids: Ints, places: Ints) -> bool:
    """Write the row of each id, and return whether no id has two."""
    once = True
    for i in range(ids.size):
        k = ids[i]
        if k >= 0:
            once &= places[k] < 0
            places[k] = i
    return once


@kernel
def _numbered(ids: Ints) -> bool:
    for i in range(ids.size):
        if ids[i] != i:
            return False
    return True


def numbered(ids: Ints, count: int) -> bool:
    """Return whether ids are `0, 1, 2, …` up to a count.

    >>> numbered(np.array([0, 1]), 2), numbered(np.array([0, 1]), 3)
    (True, False)
    """
    return len(ids) == count and bool(_numbered(ids))


def places_of(ids: Ints, count: int) -> Ints | None:
    """Return the row of each id, -1 where there is none; None if some id has two rows.

    Rows with an id below 0 are left out. If the rows are those of the ids, in order, the result is empty.

    >>> places_of(np.array([2, -1, 0]), 3), places_of(np.array([0, 1]), 2), places_of(np.array([0, 0]), 1)
    (array([ 2, -1,  0]), array([], dtype=int64), None)
    """
    if numbered(ids, count):
        return empty(0)
    if len(ids) > count and int((ids >= 0).sum()) > count:
        return None
    places = empty(count)
    places.fill(-1)
    return places if _place(ids, places) else None


def arranged(ids: Ints, count: int) -> tuple[Ints, Ints]:
    """Return where the rows of each id begin, and the rows in order of their ids; ids below 0 are left out.

    >>> arranged(np.array([1, 0, -1, 1]), 2)
    (array([0, 1, 3]), array([1, 0, 3]))
    """
    first = np.zeros(count + 1, dtype=np.int64)
    _count(ids, first)
    _sum_up(first)
    order = empty(int(first[-1]))
    _arrange(ids, first.copy(), order)
    return first, order


@kernel
def _matches(ids: Ints, places: Ints, keep: bool, rows: Ints, found: Ints) -> int:
    n = 0
    direct = places.size == 0
    for i in range(ids.size):
        k = ids[i]
        at = k
        if not direct and k >= 0:
            at = places[np.uint64(k)]
        rows[n] = i
        found[n] = max(at, -1)
        n += (at >= 0) | keep
    return n


def matches(ids: Ints, places: Ints, *, keep: bool) -> tuple[Ints, Ints]:
    """Return the rows that find a row by their id, and what each finds; with `keep`, all, some with -1.

    >>> matches(np.array([0, -1, 1]), np.array([7, -1]), keep=False)
    (array([0]), array([7]))
    >>> matches(np.array([-2]), np.array([7]), keep=True)
    (array([0]), array([-1]))
    """
    rows, found = empty(len(ids) + 1), empty(len(ids) + 1)
    n = _matches(ids, places, keep, rows, found)
    return rows[:n], found[:n]


@kernel
def _pairs(
    ids: Ints, first: Ints, keep: bool, start: int, most: int, rows: Any, found: Any
) -> tuple[int, int]:
    """Write pairs from row `start` on, `most` at most, but all of one row; only count them without room."""
    n = 0
    i = start
    while i < ids.size:
        k = ids[i]
        own = np.uint64(max(k, 0))
        low = np.int64(first[own] if k >= 0 else 0)
        high = np.int64(first[own + np.uint64(1)] if k >= 0 else 0)
        size: Any = max(high - low, np.int64(keep))
        if n + size > most and n > 0:
            break
        if rows.size:
            if high == low:
                if keep:
                    rows[n] = i
                    found[n] = -1
            else:
                for j in range(low, high):
                    rows[n + j - low] = i
                    found[n + j - low] = j
        n += size
        i += 1
    return i, n


def pairs(ids: Ints, first: Ints, start: int, most: int, *, keep: bool) -> tuple[int, Ints, Ints]:
    """Return the pairs of a row and one of the rows of its id, from row `start` on.

    They are about `most`, at most; a row is not divided. The first result is the row to go on from.
    With `keep`, a row that finds nothing has a pair with -1.

    >>> pairs(np.array([1, -1, 0]), np.array([0, 1, 3]), 0, 10, keep=True)
    (3, array([0, 0, 1, 2]), array([ 1,  2, -1,  0]))
    """
    nothing = np.empty(0, dtype=np.int64)
    end, n = _pairs(ids, first, keep, start, most, nothing, nothing)
    rows, found = empty(n), empty(n)
    if n:
        _pairs(ids[:end], first, keep, start, most, rows, found)
    return end, rows, found
