"""Rows of which equal ones follow each other, in the order of their values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.jit.intrinsics import address_of
from tidemill.jit.kernel import kernel
from tidemill.kernels.arrow import values
from tidemill.kernels.byte_words import padded, same_bytes
from tidemill.kernels.order import float_key
from tidemill.kernels.text_arrays import offsets_and_text

Bytes = npt.NDArray[np.uint8]


@kernel
def _rises(data: Any) -> bool:
    fell = False
    for i in range(1, data.size):
        fell |= data[i] < data[i - 1]
    return not fell


@kernel
def _ends(data: Any) -> tuple[int, int]:
    """Return where the first run ends, and where the last one begins."""
    n = data.size
    first = 1
    while first < n and data[first] == data[0]:
        first += 1
    last = n - 1
    while last > 0 and data[last - 1] == data[n - 1]:
        last -= 1
    return first, last


@kernel
def _ends_of_texts(offsets: Any, data: Bytes) -> tuple[int, int]:
    text = address_of(data)
    n = offsets.size - 1
    first = 1
    size = np.int64(offsets[1]) - np.int64(offsets[0])
    while first < n:
        at = np.int64(offsets[first])
        if np.int64(offsets[first + 1]) - at != size:
            break
        if not same_bytes(text, data.size, np.int64(offsets[0]), text, data.size, at, size):
            break
        first += 1
    last = n - 1
    end = np.int64(offsets[n - 1])
    size = np.int64(offsets[n]) - end
    while last > 0:
        at = np.int64(offsets[last - 1])
        if np.int64(offsets[last]) - at != size:
            break
        if not same_bytes(text, data.size, end, text, data.size, at, size):
            break
        last -= 1
    return first, last


@kernel
def _texts_rise(offsets: Any, data: Bytes) -> bool:
    for i in range(1, offsets.size - 1):
        a = np.int64(offsets[i - 1])
        b = np.int64(offsets[i])
        end = np.int64(offsets[i + 1])
        n = min(b - a, end - b)
        j = 0
        while j < n and data[a + j] == data[b + j]:
            j += 1
        if j < n:
            if data[b + j] < data[a + j]:
                return False
        elif end - b < b - a:
            return False
    return True


@dataclass(frozen=True)
class Run:
    """A column whose values do not fall."""

    first: Any
    last: Any
    """Its first and its last value, as something that is ordered as they are."""
    first_end: int
    """Where the rows with the first value end."""
    last_begin: int
    """Where the rows with the last value begin."""


def rising(column: pa.Array) -> Run | None:
    """Return the ends of a column whose values do not fall; None if they do, or if there is a null or no row.

    >>> rising(pa.array([3, 3, 5, 7, 7, 7]))
    Run(first=3, last=7, first_end=2, last_begin=3)
    >>> rising(pa.array(["b", "a"]))
    """
    if not len(column) or column.null_count:
        return None
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        offsets, text = offsets_and_text(column)
        text = padded(text)
        if not _texts_rise(offsets, text):
            return None
        first, last = _ends_of_texts(offsets, text)
        low, high = (text[offsets[i] : offsets[i + 1]].tobytes() for i in (0, len(column) - 1))
        return Run(low, high, int(first), int(last))
    if pa.types.is_boolean(kind):
        return None
    data = values(column)
    if data.dtype.kind == "f":
        data = float_key(data)
    if not _rises(data):
        return None
    first, last = _ends(data)
    return Run(int(data[0]), int(data[-1]), int(first), int(last))
