"""Arrays of strings: made from texts that lie anywhere in memory, and read as offsets and bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.jit.intrinsics import address_of, copy_bytes
from tidemill.jit.kernel import kernel, slow
from tidemill.kernels.functions import text_at
from tidemill.kernels.memory import empty

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
MOST = (1 << 31) - 1
"""The bytes that an array of strings can have."""
_FEW = 64


@kernel
def _measure(ids: Ints, texts: Any, offsets: Any) -> int:
    """Write the offsets of texts that follow each other, and return their length together.

    Offsets are wrong if the length exceeds 32 bits.
    """
    total = 0
    offsets[0] = 0
    for i in range(ids.size):
        if ids[i] >= 0:
            total += text_at(ids[i], texts)[1]
        offsets[i + 1] = total
    return total


@kernel
def _copy(ids: Ints, texts: Any, offsets: Any, out: Any) -> None:
    for i in range(ids.size):
        if ids[i] >= 0:
            at, size = text_at(ids[i], texts)
            copy_bytes(address_of(out) + offsets[i], at, size)


def strings(ids: Ints, table: Ints) -> pa.Array:
    """Return texts by id; negative ids are null. `table` has the place of each source (`kernels.texts`)."""
    ids = np.ascontiguousarray(ids)
    if len(ids) > _FEW and slow(_copy):  # a loop in Python
        some, at = np.unique(ids, return_inverse=True)
        if 2 * len(some) < len(ids):
            return strings(some, table).take(pa.array(at))
    offsets = empty(len(ids) + 1, np.int32)
    size = _measure(ids, table, offsets)
    if size > MOST:
        raise pa.ArrowInvalid(f"{size} bytes of text in {len(ids)} rows")
    data = empty(size, np.uint8)
    _copy(ids, table, offsets, data)
    nulls = int(np.count_nonzero(ids < 0))
    valid = pa.py_buffer(np.packbits(ids >= 0, bitorder="little")) if nulls else None
    body = [valid, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(ids), body, nulls)


def offsets_and_text(array: pa.Array) -> tuple[npt.NDArray[np.int32], Bytes]:
    """Return the offsets and the bytes of an array of strings; there is an offset more than strings."""
    _, places, text = array.buffers()
    if len(array) == 0 or places is None:
        return np.zeros(len(array) + 1, dtype=np.int32), np.empty(0, dtype=np.uint8)
    offsets = np.frombuffer(places, np.int32, len(array) + 1, 4 * array.offset)
    return offsets, np.frombuffer(text or b"", dtype=np.uint8)
