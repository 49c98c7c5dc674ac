"""Hash tables that map values to dense ids in order of first appearance, for keys and string pools.

State is arrays; the loops are compiled. A loop returns when its table is full; the caller grows the table
and calls the loop again from where it stopped.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.jit.intrinsics import address_of, copy_bytes
from tidemill.jit.kernel import kernel, slow
from tidemill.kernels.arrow import enlarged, validity, values
from tidemill.kernels.byte_words import hash_bytes, padded, same_bytes
from tidemill.kernels.functions import hash_slot
from tidemill.kernels.memory import empty
from tidemill.kernels.text_arrays import strings

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
_EMPTY = -1
MISSING = -2
"""In place of an id: a value that is not in the index and was not added."""
_HASHING = threading.Lock()
DIRECT_SPAN = 1 << 20
"""Values within a span of this size are looked up in a direct table, which fits the CPU cache."""


@kernel
def _look_up(values: Any, table: Any, base: int, out: Ints) -> bool:
    """Look up values that have no nulls, without a branch; return whether all are in the table."""
    size = np.uint64(table.size)
    missing = False
    for i in range(values.size):
        at = np.uint64(values[i]) - np.uint64(base)
        inside = at < size
        k = table[at if inside else np.uint64(0)]
        out[i] = k
        missing |= (not inside) | (k < 0)
    return not missing


@kernel
def _encode_direct(
    values: Any, valid: Bytes, start: int, n: int, table: Any, base: int, keys: Ints, count: int,
    null_id: int, add: bool, out: Ints,
) -> tuple[int, int]:  # fmt: skip
    for i in range(start, n):
        if valid.size and valid[i] == 0:
            out[i] = null_id
            continue
        x = values[i]
        at = np.uint64(np.uint64(x) - np.uint64(base))
        if at >= np.uint64(table.size):
            if not add:
                out[i] = MISSING
                continue
            return i, count
        k = table[at]
        if k == _EMPTY:
            if not add:
                out[i] = MISSING
                continue
            if count >= keys.size:
                return i, count
            k = count
            table[at] = k
            keys[count] = x
            count += 1
        out[i] = k
    return n, count


@kernel
def _encode_ascending(values: Any, start: int, n: int, keys: Ints, count: int, out: Ints) -> tuple[int, int]:
    """Give values that do not fall ids, as long as there is room; `keys` has those before, in order."""
    if count:
        last = keys[count - 1]
        k = count - 1
    elif start < n and keys.size:
        last = np.int64(values[start])
        keys[0] = last
        count = 1
        k = 0
    else:
        return start, count
    for i in range(start, n):
        x = np.int64(values[i])
        if x != last:
            if x < last or count >= keys.size:
                return i, count
            keys[count] = x
            last = x
            k = count
            count += 1
        out[i] = k
    return n, count


@kernel
def _find_ascending(values: Any, keys: Ints, count: int, add: bool, out: Ints) -> int:
    """Look up values among keys in order; return where they fall: from there on nothing was looked up.

    With `add`, return also where the first one is that is not among the keys.
    """
    at = 0  # no key before it is at or above the value before
    before = np.int64(values[0])
    for i in range(values.size):
        x = np.int64(values[i])
        if x < before:
            return i
        before = x
        if at < count and keys[at] < x:
            step = 1
            while at + step < count and keys[at + step] < x:
                at += step
                step <<= 1
            end = min(at + step, count)
            at += 1
            while at < end:
                middle = (at + end) >> 1
                if keys[middle] < x:
                    at = middle + 1
                else:
                    end = middle
        found = at < count and keys[at] == x
        if add and not found:
            return i
        out[i] = at if found else MISSING
    return int(values.size)


@kernel
def _rises(keys: Ints, count: int) -> bool:
    for k in range(1, count):
        if keys[k] <= keys[k - 1]:
            return False
    return True


@kernel
def _encode_hashed(
    values: Any, valid: Bytes, start: int, n: int, slots: Any, bits: int, keys: Ints, count: int,
    null_id: int, add: bool, out: Ints,
) -> tuple[int, int]:  # fmt: skip
    mask = slots.size - 1
    limit = min(keys.size, slots.size // 2)
    for i in range(start, n):
        if valid.size and valid[i] == 0:
            out[i] = null_id
            continue
        x = values[i]
        s = hash_slot(x, bits)
        while True:
            k = slots[s]
            if k == _EMPTY:
                if not add:
                    out[i] = MISSING
                    break
                if count >= limit:
                    return i, count
                slots[s] = count
                keys[count] = x
                out[i] = count
                count += 1
                break
            if keys[k] == x:
                out[i] = k
                break
            s = (s + 1) & mask
    return n, count


@kernel
def _rehash(keys: Ints, count: int, skip: int, slots: Any, bits: int) -> None:
    mask = slots.size - 1
    for k in range(count):
        if k == skip:
            continue
        s = hash_slot(keys[k], bits)
        while slots[s] != _EMPTY:
            s = (s + 1) & mask
        slots[s] = k


def _more_bits(bits: int) -> int:
    """Return how large a hash table grows: small ones by four, to do so less often."""
    return bits + 2 if bits < 16 else bits + 1


class IntIndex:
    """Maps int64 values and null to ids `0, 1, 2, …`.

    Values in a small span are looked up in a table indexed by value. Others are in a hash table, or in order:
    while the values that come do not fall, a new one is one that is greater than the last, and values that do
    not fall are found by going through both.

    >>> index = IntIndex()
    >>> index.encode(np.array([7, 9, 7]))
    array([0, 1, 0])
    """

    def __init__(self) -> None:
        self._keys = np.empty(0, dtype=np.int64)
        self._direct: npt.NDArray[np.int32] | None = np.empty(0, dtype=np.int32)
        self._base = 0
        self._bits = 10
        self._slots = np.empty(0, dtype=np.int32)
        """The hash table; empty if there is none (yet)."""
        self._rising = False
        """Whether ids are in order of their values, so that a hash table is only made when it is needed."""
        self.count = 0
        self.null_id = _EMPTY

    def encode(
        self, values: npt.NDArray[Any], valid: npt.NDArray[np.uint8] | None = None, *, add: bool = True
    ) -> Ints:
        """Return the id of each value. Without `add`, a value that is not in the index is negative."""
        n = len(values)
        out = empty(n)
        if valid is None and self._direct is not None and len(self._direct):
            if _look_up(values, self._direct, self._base, out):
                return out
        mask = valid if valid is not None else np.empty(0, dtype=np.uint8)
        if add and valid is not None and self.null_id == _EMPTY and not valid.all():
            self._reserve_null()
        done = 0
        if self._rising and n:
            if not len(mask):
                # Values may be among those that are known, and go on behind them.
                done = _find_ascending(values, self._keys, self.count, add, out)
                if done == n:
                    return out
            if not add or len(mask):
                self._stop_rising()
        while True:
            if self._rising and add:
                done, self.count = _encode_ascending(values, done, n, self._keys, self.count, out)
            elif self._direct is not None:
                done, self.count = _encode_direct(
                    values, mask, done, n, self._direct, self._base, self._keys, self.count,
                    self.null_id, add, out,
                )  # fmt: skip
            else:
                done, self.count = _encode_hashed(
                    values, mask, done, n, self._slots, self._bits, self._keys, self.count,
                    self.null_id, add, out,
                )  # fmt: skip
            if done == n:
                return out
            if self._rising and self.count < len(self._keys):
                self._stop_rising()
            else:
                self._grow(values[done:], mask[done:])

    @property
    def direct(self) -> bool:
        """Whether values are looked up in a table indexed by value."""
        return self._direct is not None

    def in_loop(self) -> tuple[str, tuple[Any, ...]] | None:
        """Return how a loop finds ids itself (`codegen.accumulate`), and the tables for it.

        None while values are in order: to go through them first takes less time.
        """
        if self._rising:
            return None
        if self._direct is not None:
            return "direct", (self._direct, self._base)
        return "hashed", (self._slots, self._keys, self._bits)

    @property
    def keys(self) -> Ints:
        """The value of each id; undefined at `null_id`."""
        return self._keys[: self.count]

    def _reserve_null(self) -> None:
        if self.count >= len(self._keys):
            self._keys = enlarged(self._keys, max(512, 2 * self.count), self.count)
        self.null_id = self.count
        self._keys[self.count] = 0
        self.count += 1

    def _grow(self, coming: npt.NDArray[Any], valid: npt.NDArray[np.uint8]) -> None:
        """Make room for more values; `coming` are the next ones."""
        if self.count >= len(self._keys):
            self._keys = enlarged(self._keys, max(512, 2 * self.count), self.count)
        if self._direct is not None and not self._widen(coming[valid != 0] if len(valid) else coming):
            self._direct = None
            if self.null_id == _EMPTY and not len(valid) and _rises(self._keys, self.count):
                self._rising = True
            else:
                self._hash_anew()
        elif self._direct is None and not self._rising and self.count >= len(self._slots) // 2:
            self._bits = _more_bits(self._bits)
            self._hash()

    def _stop_rising(self) -> None:
        """Look up values in a hash table from now on. Other threads may want one at the same time."""
        with _HASHING:
            if self._rising:
                self._hash_anew()
                self._rising = False

    def _hash_anew(self) -> None:
        self._bits = max(10, (2 * self.count).bit_length())
        self._hash()

    def _hash(self) -> None:
        self._slots = np.full(1 << self._bits, _EMPTY, dtype=np.int32)
        _rehash(self._keys, self.count, self.null_id, self._slots, self._bits)

    def _widen(self, coming: npt.NDArray[Any]) -> bool:
        """Widen the direct table to include the next values; return False if the span is too wide."""
        assert self._direct is not None
        low, high = int(coming.min()), int(coming.max())
        if len(self._direct):
            low, high = min(low, self._base), max(high, self._base + len(self._direct) - 1)
        span = high - low + 1
        if span == len(self._direct):
            return True
        if span > DIRECT_SPAN:
            return False
        more = span // 2 if span < 1 << 16 else span // 8
        base = max(low - more, -(1 << 63))
        wider = np.full(min(span + 2 * more + 64, (1 << 63) - base), _EMPTY, dtype=np.int32)
        if len(self._direct):
            wider[self._base - base :][: len(self._direct)] = self._direct
        self._direct, self._base = wider, base
        return True


_ID = np.int64(0xFFFFFFFF)
_FEW = 64
"""Arrow finds the different ones of more strings, where a loop in Python would look at each."""


@kernel
def _encode_strings(
    offsets: Any, data: Bytes, valid: Bytes, start: int, n: int, slots: Ints, bits: int,
    ends: Ints, arena: Bytes, count: int, used: Any, add: bool, out: Ints,
) -> tuple[int, int, Any]:  # fmt: skip
    """Look up strings. A slot has half of the hash of a string, and its id in the other half."""
    mask = slots.size - 1
    limit = min(ends.size - 1, slots.size // 2)
    text, held = address_of(data), address_of(arena)
    for j in range(start, n):
        i = np.uint64(j)
        if valid.size and valid[i] == 0:
            out[i] = -1
            continue
        a = np.int64(offsets[i])
        length = np.int64(offsets[i + np.uint64(1)]) - a
        h = hash_bytes(text, data.size, a, a + length)
        s = hash_slot(h, bits)
        while True:
            entry = slots[np.uint64(s)]
            if entry == _EMPTY:
                if not add:
                    out[i] = MISSING
                    break
                if count >= limit or used + length > arena.size:
                    return j, count, used
                slots[np.uint64(s)] = (h & ~_ID) | count
                copy_bytes(held + used, text + a, length)
                used += length
                ends[count + 1] = used
                out[i] = count
                count += 1
                break
            if np.uint64(entry ^ h) <= np.uint64(_ID):
                k = np.uint64(entry & _ID)
                at = ends[k]
                same = ends[k + np.uint64(1)] - at == length
                if same and same_bytes(held, arena.size, at, text, data.size, a, length):
                    out[i] = k
                    break
            s = (s + 1) & mask
    return n, count, used


@kernel
def _rehash_strings(ends: Ints, arena: Bytes, count: int, slots: Ints, bits: int) -> None:
    mask = slots.size - 1
    held = address_of(arena)
    for k in range(count):
        h = hash_bytes(held, arena.size, ends[k], ends[k + 1])
        s = hash_slot(h, bits)
        while slots[s] != _EMPTY:
            s = (s + 1) & mask
        slots[s] = (h & ~_ID) | k


class StringIndex:
    """Maps strings of Arrow arrays to ids `0, 1, 2, …`; null is -1.

    >>> index = StringIndex()
    >>> index.encode(pa.array(["b", None, "a", "b"]))
    array([ 0, -1,  1,  0])
    >>> index.decode(np.array([1, 0])).to_pylist()
    ['a', 'b']
    """

    def __init__(self) -> None:
        self._bits = 10
        self._slots = np.full(1 << self._bits, _EMPTY, dtype=np.int64)
        self._ends = np.zeros((1 << (self._bits - 1)) + 1, dtype=np.int64)
        self._arena = np.empty(1 << 14, dtype=np.uint8)
        self.count = 0
        self._used = 0
        self._ranked = np.empty(0, dtype=np.int64)

    def encode(self, array: pa.Array, *, add: bool = True) -> Ints:
        """Return the id of each string. Without `add`, a string that is not in the index is `MISSING`."""
        n = len(array)
        out = empty(n)
        _, offsets_buffer, data_buffer = array.buffers()
        if n == 0 or offsets_buffer is None:
            out.fill(-1)
            return out
        if n > _FEW and slow(_encode_strings):
            texts = array.dictionary_encode()
            if 2 * len(texts.dictionary) < n:
                ids = np.append(self.encode(texts.dictionary, add=add), -1)
                out[...] = ids[values(texts.indices.fill_null(len(ids) - 1))]
                return out
        offsets = np.frombuffer(offsets_buffer, dtype=np.int32)[array.offset : array.offset + n + 1]
        data = padded(np.frombuffer(data_buffer or b"", dtype=np.uint8))
        valid = validity(array)
        mask = valid if valid is not None else np.empty(0, dtype=np.uint8)
        done = 0
        while done < n:
            done, self.count, self._used = _encode_strings(
                offsets, data, mask, done, n, self._slots, self._bits, self._ends, self._arena,
                self.count, self._used, add, out,
            )  # fmt: skip
            if done < n:
                self._grow(int(offsets[done + 1] - offsets[done]))
        return out

    def values(self) -> pa.Array:
        """Return all strings in the order of their ids."""
        return self._views().cast(pa.string())

    def decode(self, ids: npt.NDArray[Any]) -> pa.Array:
        """Return strings by id; negative ids are null.

        Another thread may add strings at the same time.
        """
        ends, arena = self._ends, self._arena
        return strings(ids, np.array([[ends.ctypes.data, arena.ctypes.data, 8]]))

    def _views(self) -> pa.LargeStringArray:
        """Return all strings without a copy. Stored strings are never moved; growing allocates new arrays."""
        count, ends, arena = self.count, self._ends, self._arena
        return pa.LargeStringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(arena))

    @property
    def arrays(self) -> tuple[Ints, Bytes]:
        """Where the text of each id ends in the bytes of all, after a 0; and these bytes.

        Stored strings are never moved; growing allocates new arrays.
        """
        return self._ends, self._arena

    def clear(self) -> None:
        """Remove all strings."""
        self.__dict__.update(StringIndex().__dict__)

    def keep(self, used: npt.NDArray[np.bool_]) -> Ints:
        """Remove the strings that are not `used`; return the new id of each old id, -1 if removed.

        >>> index = StringIndex()
        >>> ids = index.encode(pa.array(["a", "b", "c"]))
        >>> index.keep(np.array([False, True, True]))
        array([-1,  0,  1])
        >>> index.encode(pa.array(["c", "a"]))
        array([1, 2])
        """
        kept = np.flatnonzero(used)
        renamed = np.full(self.count, -1, dtype=np.int64)
        fresh = StringIndex()
        renamed[kept] = fresh.encode(self.decode(kept))
        self.__dict__.update(fresh.__dict__)
        return renamed

    @property
    def rank(self) -> Ints:
        """The rank of each id in the sort order of the strings, to compare strings by id."""
        if len(self._ranked) != self.count:
            import pyarrow.compute as pc

            self._ranked = np.empty(self.count, dtype=np.int64)
            order = np.asarray(pc.sort_indices(self.values()), dtype=np.int64)
            self._ranked[order] = np.arange(self.count)
        return self._ranked

    def _grow(self, length: int) -> None:
        if self._used + length > self._arena.size:
            size = max(2 * self._arena.size, self._used + length)
            self._arena = enlarged(self._arena, size, self._used)
        if self.count >= min(self._ends.size - 1, self._slots.size // 2):
            self._bits = _more_bits(self._bits)
            self._ends = enlarged(self._ends, (1 << (self._bits - 1)) + 1, self.count + 1)
            self._slots = np.full(1 << self._bits, _EMPTY, dtype=np.int64)
            _rehash_strings(self._ends, self._arena, self.count, self._slots, self._bits)
