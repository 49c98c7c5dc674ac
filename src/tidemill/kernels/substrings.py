"""Search in all strings of an array at once, and copy some of them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.jit.intrinsics import address_of, bytes_at, copy_bytes
from tidemill.jit.kernel import kernel
from tidemill.kernels.arrow import build, validity
from tidemill.kernels.byte_words import padded, same_bytes, word_at
from tidemill.kernels.index import StringIndex
from tidemill.kernels.memory import empty
from tidemill.kernels.order import some_below_zero
from tidemill.kernels.text_arrays import MOST, offsets_and_text

Bytes = npt.NDArray[np.uint8]
_NO_PLACES = np.empty(0, dtype=np.int64)
ONES = np.uint64(0x0101010101010101)


@kernel
def _mark(offsets: Any, data: Bytes, part: Bytes, out: Bytes, places: Any) -> None:
    """Mark the strings with a part; in `places`, if it has rows, put the byte of theirs where it is."""
    size = part.size
    first = part[0]
    last = part[size - 1]
    firsts = np.uint64(first) * ONES
    lasts = np.uint64(last) * ONES
    stop = offsets[offsets.size - 1] - size + 1
    i = np.int64(offsets[0])
    row = 0
    while i < stop:
        limit = stop
        if i + 8 <= stop:
            # Compare eight places at once: a byte of `differs` is 0 where the first and the last byte match.
            at = address_of(data) + i
            differs = (bytes_at(at) ^ firsts) | (bytes_at(at + size - 1) ^ lasts)
            if ((differs - ONES) & ~differs & (ONES << np.uint64(7))) == 0:
                i += 8
                continue
            limit = i + 8
        while i < limit:
            found = data[i] == first and data[i + size - 1] == last
            j = 1
            while found and j < size - 1:
                found = data[i + j] == part[j]
                j += 1
            if found:
                while offsets[row + 1] <= i:
                    row += 1
                if i + size <= offsets[row + 1]:  # not in two strings
                    out[row] = 1
                    if places.size:
                        places[row] = i - offsets[row]
                    i = np.int64(offsets[row + 1])
                    continue
            i += 1


@kernel
def _in_characters(offsets: Any, data: Bytes, places: Any) -> None:
    """Turn numbers of bytes in strings into numbers of code points."""
    for row in range(places.size):
        start = np.int64(offsets[row])
        for i in range(start, start + places[row]):
            if data[i] & 0xC0 == 0x80:  # it continues a code point
                places[row] -= 1


@kernel
def _compare_ends(offsets: Any, data: Bytes, part: Bytes, last: bool, out: Bytes) -> None:
    """Compare the first or the last bytes of each string; `part` has eight spare bytes of zero.

    The first and the last eight bytes are compared without a branch, which would be hard to predict.
    """
    size = part.size - 8
    mask = ~np.uint64(0) >> np.uint64(8 * (8 - min(size, 8))) if size else np.uint64(0)
    text, n = address_of(data), data.size
    first = word_at(address_of(part), part.size, 0) & mask
    rest = max(0, size - 8)
    second = word_at(address_of(part), part.size, rest) & mask
    for i in range(out.size):
        start = np.int64(offsets[i])
        end = np.int64(offsets[i + 1])
        at = max(np.int64(0), end - size) if last else start
        same = (end - start >= size) & ((word_at(text, n, at) & mask) == first)
        if size > 8:
            same &= (word_at(text, n, at + rest) & mask) == second
        if size > 16 and same:
            for j in range(8, rest):
                same &= data[np.uint64(at + j)] == part[np.uint64(j)]
        out[i] = same


@kernel
def _signature(data: int, n: int, start: int, end: int) -> Any:
    """Return a number that depends on the length of a string and on its first and last eight bytes."""
    size = end - start
    mask = ~np.uint64(0) >> np.uint64(8 * (8 - min(size, 8))) if size else np.uint64(0)
    first = word_at(data, n, start) & mask
    last = word_at(data, n, max(start, end - 8)) & mask
    return (first ^ (last * np.uint64(0xD6E8FEB86659FD93)) ^ np.uint64(size)) * np.uint64(
        0x9E3779B97F4A7C15
    )


@kernel
def _signatures(offsets: Any, data: Bytes, out: Any) -> None:
    text = address_of(data)
    for i in range(out.size):
        out[i] = _signature(text, data.size, np.int64(offsets[i]), np.int64(offsets[i + 1]))


@kernel
def _look_up(
    offsets: Any,
    data: Bytes,
    slots: Any,
    which: Any,
    shift: int,
    ends: Any,
    values: Bytes,
    out: Bytes,
) -> None:
    """Mark the strings that are among some values; `which` has the value of each signature in `slots`."""
    text = address_of(data)
    held = address_of(values)
    for i in range(out.size):
        start = np.int64(offsets[i])
        end = np.int64(offsets[i + 1])
        wanted = _signature(text, data.size, start, end)
        slot = wanted >> np.uint64(shift)
        found = slots[slot] == wanted
        if found:
            at = np.int64(ends[which[slot]])
            size = np.int64(ends[which[slot] + 1]) - at
            found = size == end - start and same_bytes(
                held, values.size, at, text, data.size, start, size
            )
        out[i] = found


@kernel
def _measure(offsets: Any, rows: Any, places: Any) -> Any:
    """Write the offsets of the strings of some rows, and return the length of their text."""
    total = np.int64(0)
    places[0] = 0
    for i in range(rows.size):
        if rows[i] >= 0:
            row = np.uint64(rows[i])
            total += np.int64(offsets[row + np.uint64(1)]) - np.int64(offsets[row])
        places[i + 1] = total
    return total


@kernel
def _copy(offsets: Any, data: Bytes, rows: Any, places: Any, out: Bytes) -> None:
    for i in range(rows.size):
        start = np.int64(places[i])
        end = np.int64(places[i + 1])
        if end > start:
            copy_bytes(
                address_of(out) + start, address_of(data) + np.int64(offsets[rows[i]]), end - start
            )


def contains(array: pa.Array, part: str) -> pa.Array:
    """Return whether each string of an array contains `part`; null for null.

    >>> contains(pa.array(["ab", None, "cab", "a"]), "ab").to_pylist()
    [True, None, True, False]
    """
    wanted = np.frombuffer(part.encode(), dtype=np.uint8)
    offsets, data = offsets_and_text(array)
    found = np.full(len(array), wanted.size == 0, dtype=np.uint8)
    if wanted.size and data.size:
        _mark(offsets, data, wanted, found, _NO_PLACES)
    return _told(found, array)


def place(array: pa.Array, part: str) -> pa.Array:
    """Return the code points before the first `part` in each string, -1 where it is not; null for null.

    >>> place(pa.array(["ab", None, "äab", "a"]), "ab").to_pylist()
    [0, None, 1, -1]
    """
    wanted = np.frombuffer(part.encode(), dtype=np.uint8)
    offsets, data = offsets_and_text(array)
    places = np.full(len(array), -1 if wanted.size else 0, dtype=np.int64)
    if wanted.size and data.size:
        _mark(offsets, data, wanted, empty(len(array), np.uint8), places)
        _in_characters(offsets, data, places)
    return build(places, validity(array), pa.int64())


def begins(array: pa.Array, part: str) -> pa.Array:
    """Return whether each string of an array starts with `part`; null for null.

    >>> begins(pa.array(["ab", None, "cab", "a"]), "ab").to_pylist()
    [True, None, False, False]
    """
    return _at_an_end(array, part, False)


def ends(array: pa.Array, part: str) -> pa.Array:
    """Return whether each string of an array ends with `part`; null for null.

    >>> ends(pa.array(["ab", None, "cab", "a"]), "ab").to_pylist()
    [True, None, True, False]
    """
    return _at_an_end(array, part, True)


def _at_an_end(array: pa.Array, part: str, last: bool) -> pa.Array:
    offsets, data = offsets_and_text(array)
    found = empty(len(array), np.uint8)
    spare = np.frombuffer(part.encode() + bytes(8), dtype=np.uint8)
    _compare_ends(offsets, padded(data), spare, last, found)
    return _told(found, array)


def one_of(array: pa.Array, values: tuple[str, ...]) -> pa.Array:
    """Return whether each string of an array is one of `values`; null for null.

    >>> one_of(pa.array(["ab", None, "b"]), ("b", "c")).to_pylist()
    [False, None, True]
    """
    offsets, data = offsets_and_text(array)
    found = empty(len(array), np.uint8)
    if values and (among := _slots_of(values)) is not None:
        _look_up(offsets, padded(data), *among, found)
    elif not values:
        found.fill(0)
    else:
        found = (_index_of(values).encode(array, add=False) >= 0).view(np.uint8)
    return _told(found, array)


@functools.lru_cache(maxsize=64)
def _slots_of(values: tuple[str, ...]) -> tuple[Any, ...] | None:
    """Return a table of signatures without collisions (`_look_up`), if there is one that is not too large."""
    distinct = pa.array(sorted(set(values)), pa.string())
    offsets, data = offsets_and_text(distinct)
    data = padded(data)
    own = np.empty(len(distinct), dtype=np.uint64)
    _signatures(offsets, data, own)
    for bits in range((4 * len(own)).bit_length(), 15):
        places = own >> np.uint64(64 - bits)
        if len(np.unique(places)) == len(own):
            # A signature in a wrong slot is never found there.
            slots, which = np.full(1 << bits, own[0]), np.zeros(1 << bits, dtype=np.int64)
            slots[places], which[places] = own, np.arange(len(own))
            return slots, which, 64 - bits, offsets, data
    return None


@functools.lru_cache(maxsize=64)
def _index_of(values: tuple[str, ...]) -> StringIndex:
    index = StringIndex()
    index.encode(pa.array(values, pa.string()))
    return index


def taken(array: pa.Array, rows: npt.NDArray[np.int64]) -> pa.Array:
    """Return the strings of some rows, in this order; null for a row below 0.

    >>> taken(pa.array(["ab", None, "b"]), np.array([2, 1, -1, -9])).to_pylist()
    ['b', None, None, None]
    """
    valid = validity(array)
    if valid is not None:
        valid = valid[np.maximum(rows, 0)] & (rows >= 0).view(np.uint8)
    elif some_below_zero(rows):
        valid = (rows >= 0).view(np.uint8)
    offsets, data = offsets_and_text(array)
    places = empty(len(rows) + 1, np.int32)
    size = int(_measure(offsets, rows, places))
    if size > MOST:
        raise pa.ArrowInvalid(f"{size} bytes of text in {len(rows)} rows")
    text = empty(size, np.uint8)
    _copy(offsets, data, rows, places, text)
    nulls = 0 if valid is None else len(rows) - int(np.count_nonzero(valid))
    bitmap = (
        pa.py_buffer(np.packbits(valid, bitorder="little")) if valid is not None and nulls else None
    )
    body = [bitmap, pa.py_buffer(places), pa.py_buffer(text)]
    return pa.Array.from_buffers(array.type, len(rows), body, nulls)


def _told(found: Bytes, array: pa.Array) -> pa.Array:
    """Return an array of bools, with the nulls of the array that they are about."""
    return build(found, validity(array), pa.bool_())
