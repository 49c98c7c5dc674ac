"""Read records from planes, which hold one recent pane each, and group rows by lane or by record."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.jit.kernel import kernel
from tidemill.kernels.memory import empty

Words = npt.NDArray[np.int64]


@kernel
def _unroll(planes: Words, width: int, keys: int, first: int, last: int, out: Words) -> int:
    mask = planes.shape[0] - 1
    m = 0
    for k in range(keys):
        at = k * width
        for p in range(first, last + 1):
            # Always write, and advance only for a match: there is no branch to mispredict.
            for j in range(width):
                out[m + j] = planes[p & mask, at + j]
            m += width * (planes[p & mask, at + 1] == p)
    return m


def unroll(
    planes: npt.NDArray[Any], keys: int, first: int, last: int, out: npt.NDArray[Any]
) -> int:
    """Write the records of panes `first..last` to `out` by key and pane, and return their number.

    The plane of a pane is its number modulo the number of planes, a power of two. There must be no more
    panes than planes. Records start with key and pane and consist of whole words, so that one compiled loop
    serves all record types. `out` needs room for one record more, because the loop writes before it tests.
    """
    width = planes.dtype.itemsize // 8
    return int(_unroll(planes.view(np.int64), width, keys, first, last, out.view(np.int64))) // width


@kernel
def _drain(planes: Words, width: int, started: Any, needed: int, free: int, out: Words) -> int:
    m = 0
    for p in range(planes.shape[0]):
        if started[p] == 0:
            continue
        for at in range(0, planes.shape[1], width):
            if planes[p, at + 1] >= needed:
                for j in range(width):
                    out[m + j] = planes[p, at + j]
                m += width
            planes[p, at + 1] = free
    return m


def drain(
    planes: npt.NDArray[Any], started: npt.NDArray[np.uint8], needed: int, free: int, out: npt.NDArray[Any]
) -> int:
    """Write the records of panes from `needed` on to `out`, and return their number; all records are freed.

    Planes that are not `started` have no records. A free record has the pane `free`. `out` needs room for all
    records.
    """
    width = planes.dtype.itemsize // 8
    return int(_drain(planes.view(np.int64), width, started, needed, free, out.view(np.int64))) // width


@kernel
def _pick(kid: Words, mask: int, number: int, out: Any) -> Any:
    m = np.uint64(0)
    for i in range(kid.size):
        out[m] = i
        m += np.uint64((kid[np.uint64(i)] & mask) == number)
    return np.int64(m)


def pick(kid: Words, lanes: int, number: int, out: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Write the row numbers of one lane to `out` and return them; `lanes` is a power of two.

    >>> pick(np.array([0, 1, 5, 2]), 2, 1, np.empty(4, dtype=np.uint32))
    array([1, 2], dtype=uint32)
    """
    return out[: _pick(kid, lanes - 1, number, out)]


@kernel
def _element_of_rows(
    kid: Words, pane: Words, epane: Words, needed: int, starts: Words, hint: Words, out: Words, sizes: Words
) -> None:
    # Indices are unsigned, because Numba checks signed ones for negative values.
    one = np.uint64(1)
    for j in range(kid.size):
        i = np.uint64(j)
        p = pane[i]
        k = np.uint64(kid[i])
        out[i] = -1
        if p < needed or k >= np.uint64(hint.size):
            continue
        end = np.uint64(starts[k + one])
        at = np.uint64(hint[k])  # consecutive rows of a key are mostly in the same pane, or in the next one
        if at < end and epane[at] < p:
            at += one
        if at == end or epane[at] != p:
            at = np.uint64(starts[k])
            while at < end:
                middle = (at + end) >> one
                if epane[middle] < p:
                    at = middle + one
                else:
                    end = middle
            if at == np.uint64(starts[k + one]) or epane[at] != p:
                continue
        hint[k] = at
        out[i] = at
        sizes[at] += 1


@kernel
def _places(element: Words, following: Words) -> None:
    for j in range(element.size):
        i = np.uint64(j)
        if element[i] >= 0:
            e = np.uint64(element[i])
            element[i] = following[e]
            following[e] += 1


def grouped(kid: Words, pane: Words, ekid: Words, epane: Words, needed: int) -> tuple[Words, Words]:
    """Group rows by element: return the place of each row, and the offsets of the elements' rows.

    Elements are sorted by key and pane. Rows of an element stay in their order. Rows in panes below
    `needed`, and rows without an element, have the place -1.

    >>> places, offsets = grouped(
    ...     np.array([1, 0, 1]), np.array([5, 5, 4]), np.array([0, 1, 1]), np.array([5, 4, 5]), 0
    ... )
    >>> places, offsets
    (array([2, 0, 1]), array([0, 1, 2, 3]))
    """
    places = empty(len(kid))
    sizes = np.zeros(len(ekid), dtype=np.int64)
    keys = int(ekid[-1]) + 1 if len(ekid) else 0
    starts = np.zeros(keys + 1, dtype=np.int64)
    np.cumsum(np.bincount(ekid, minlength=keys), out=starts[1:])
    _element_of_rows(
        kid, pane, np.ascontiguousarray(epane), needed, starts, starts[:-1].copy(), places, sizes
    )
    offsets = np.zeros(len(ekid) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    _places(places, offsets[:-1].copy())
    return places, offsets


@kernel
def _moved(column: Any, places: Words, out: Any) -> None:
    for j in range(places.size):
        i = np.uint64(j)
        if places[i] >= 0:
            out[np.uint64(places[i])] = column[i]


def moved(column: npt.NDArray[Any], places: Words, count: int) -> npt.NDArray[Any]:
    """Return the values of a column at the places of their rows."""
    out = empty(count, column.dtype)
    _moved(column, places, out)
    return out


@kernel
def _spread(values: Any, offsets: Words, out: Words) -> None:
    for e in range(values.size):
        out[offsets[e] : offsets[e + 1]] = values[e]


def spread(values: npt.NDArray[Any], offsets: Words) -> Words:
    """Return the value of the element of each row, given the offsets of the elements' rows.

    >>> spread(np.array([7, 8]), np.array([0, 1, 3]))
    array([7, 8, 8])
    """
    out = empty(int(offsets[-1]))
    _spread(values, offsets, out)
    return out
