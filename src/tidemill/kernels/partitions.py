"""Divide rows by a hash of their keys, so that the hash table of each part fits in a cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.floats import canonical_array
from tidemill.jit.intrinsics import address_of
from tidemill.jit.kernel import kernel
from tidemill.kernels.arrow import validity, values
from tidemill.kernels.byte_words import hash_bytes, padded
from tidemill.kernels.memory import empty
from tidemill.kernels.text_arrays import offsets_and_text

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
_ALL = np.empty(0, dtype=np.uint8)


@kernel
def _mixed(x: Any, before: Any) -> Any:
    h = (np.uint64(x) ^ before) * np.uint64(0xD6E8FEB86659FD93)
    return h ^ (h >> np.uint64(32))


@kernel
def _of_numbers(data: Any, valid: Bytes, out: Any) -> None:
    for i in range(data.size):
        out[i] = _mixed(data[i] if valid.size == 0 or valid[i] != 0 else 1, out[i])


@kernel
def _of_texts(offsets: Any, data: Bytes, valid: Bytes, out: Any) -> None:
    text = address_of(data)
    for i in range(out.size):
        found = np.int64(1)
        if valid.size == 0 or valid[i] != 0:
            found = hash_bytes(text, data.size, np.int64(offsets[i]), np.int64(offsets[i + 1]))
        out[i] = _mixed(found, out[i])


@kernel
def _arrange(hashes: Any, bits: int, first: Ints, order: Ints) -> None:
    shift = np.uint64(32 - bits)
    mask = np.uint64((1 << bits) - 1)
    for i in range(hashes.size):
        first[np.int64((hashes[i] >> shift) & mask) + 2] += 1
    for p in range(2, first.size):
        first[p] += first[p - 1]
    for i in range(hashes.size):
        at = np.int64((hashes[i] >> shift) & mask) + 1
        order[first[at]] = i
        first[at] += 1


def _hashes(keys: Sequence[pa.Array]) -> npt.NDArray[np.uint64]:
    """Return a hash of each row; it has nothing to do with that of a hash table."""
    out = empty(len(keys[0]), np.uint64)
    out.fill(0)
    for column in keys:
        mask = validity(column)
        valid = _ALL if mask is None else mask
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            offsets, text = offsets_and_text(column)
            _of_texts(offsets, padded(text), valid, out)
            continue
        data = values(column)
        _of_numbers(canonical_array(data).view(np.int64) if data.dtype.kind == "f" else data, valid, out)
    return out


def partitioned(keys: Sequence[pa.Array], parts: int) -> tuple[Ints, Ints]:
    """Return the rows in the order of their parts, and where each part begins. There are 2, 4, 8, … parts.

    >>> order, first = partitioned([pa.array([7, 8, 7, 9])], 2)
    >>> sorted(order.tolist()), len(first), first[-1]
    ([0, 1, 2, 3], 3, np.int64(4))
    """
    hashes = _hashes(keys)
    first, order = np.zeros(parts + 2, dtype=np.int64), empty(len(hashes))
    _arrange(hashes, parts.bit_length() - 1, first, order)
    return order, first[:-1]

