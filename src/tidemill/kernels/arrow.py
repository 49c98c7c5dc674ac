"""Convert between Arrow arrays and NumPy arrays for kernels, without a copy if possible."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.types import DataType
from tidemill.kernels.memory import discard, empty

_WIDTH = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
_INT64, _FLOAT64 = np.dtype(np.int64), np.dtype(np.float64)  # NumPy would make one of a class at each call
_COMMON = {pa.int64().id: _INT64, pa.float64().id: _FLOAT64, pa.timestamp("us").id: _INT64}
"""The types that columns have after conversion, by their ids in Arrow; other types take longer to look up."""


def values(array: pa.Array) -> npt.NDArray[Any]:
    """Return the values of a fixed-width array; the values of nulls are undefined."""
    n, kind = len(array), array.type
    buffer = array.buffers()[1]
    dtype: Any = _COMMON.get(kind.id)
    if dtype is not None and buffer is not None:
        return np.frombuffer(buffer, dtype, n, 8 * array.offset)
    if pa.types.is_boolean(kind):
        return _bits(buffer, array.offset, n)
    if pa.types.is_floating(kind):
        dtype = np.float64 if kind.bit_width == 64 else np.float32
    else:
        dtype = _WIDTH[kind.bit_width]
    if buffer is None:
        return np.zeros(n, dtype=dtype)
    return np.frombuffer(buffer, dtype=dtype)[array.offset : array.offset + n]


def validity(array: pa.Array) -> npt.NDArray[np.uint8] | None:
    """Return 1 for each value and 0 for each null, or None if the array has no nulls."""
    if array.null_count == 0:
        return None
    if pa.types.is_null(array.type):
        return np.zeros(len(array), dtype=np.uint8)
    return _bits(array.buffers()[0], array.offset, len(array))


def _bits(buffer: pa.Buffer | None, offset: int, n: int) -> npt.NDArray[np.uint8]:
    if buffer is None:
        return np.zeros(n, dtype=np.uint8)
    first = offset // 8
    last = (offset + n + 7) // 8
    packed = np.frombuffer(buffer, dtype=np.uint8)[first:last]
    return np.unpackbits(packed, bitorder="little")[offset - 8 * first : offset - 8 * first + n]


def from_zero(array: pa.Array) -> pa.Array:
    """Return the same strings with offsets that start at 0; the text is not copied.

    A column that was cast from `large_string`, or sliced by another library, may have offsets that do not
    start at 0. Some Arrow functions then return offsets outside their buffer.
    """
    if not pa.types.is_string(array.type) or len(array) == 0:
        return array
    bitmap, places, text = array.buffers()
    if places is None or text is None:
        return array
    n = len(array)
    offsets = np.frombuffer(places, dtype=np.int32)[array.offset : array.offset + n + 1]
    first = int(offsets[0])
    if first == 0 and array.offset == 0:
        return array
    valid = validity(array)
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    body = [bitmap, pa.py_buffer(offsets - np.int32(first)), text.slice(first)]
    return pa.Array.from_buffers(array.type, n, body, array.null_count)


def build(
    data: npt.NDArray[Any], valid: npt.NDArray[Any] | None, kind: pa.DataType
) -> pa.Array:
    """Return an Arrow array of a fixed-width type over NumPy memory."""
    n = len(data)
    bitmap, nulls = None, 0
    if valid is not None:
        nulls = n - int(np.count_nonzero(valid))
        if nulls:
            bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    if pa.types.is_boolean(kind):
        body = pa.py_buffer(np.packbits(data, bitorder="little"))
    else:
        body = pa.py_buffer(np.ascontiguousarray(data))
    return pa.Array.from_buffers(kind, n, [bitmap, body], nulls)


def allocate(kind: DataType, n: int) -> npt.NDArray[Any]:
    """Allocate a fixed-width output column of a kernel."""
    return empty(n, {"float64": np.float64, "bool": np.uint8}.get(kind.kind, np.int64))


def enlarged(
    array: npt.NDArray[Any], size: int, used: int, *, lasting: bool = True
) -> npt.NDArray[Any]:
    """Return an array of length `size` that starts with the first `used` elements of this one.

    Memory of `lasting` state that was too small is released; that of others is used again.
    """
    bigger = empty(size, array.dtype)
    bigger[:used] = array[:used]
    if lasting:
        discard(array)
    return bigger
