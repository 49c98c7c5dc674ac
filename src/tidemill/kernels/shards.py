"""Divide rows among lanes by a hash of a key, so that equal keys are in one lane."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.floats import canonical_array
from tidemill.jit.intrinsics import address_of
from tidemill.jit.kernel import kernel
from tidemill.kernels.arrow import validity, values
from tidemill.kernels.byte_words import hash_bytes, padded
from tidemill.kernels.functions import hash_slot
from tidemill.kernels.text_arrays import offsets_and_text

Bytes = npt.NDArray[np.uint8]


@kernel
def _lane(x: Any, bits: Any) -> Any:
    """Return the lane of a hash or a number. Hash tables use the high bits of `hash_slot`: with these, all
    keys of a lane would lie in one half of their table, and searches there would be long.
    """
    mixed = np.uint64(x) ^ (np.uint64(x) >> np.uint64(32))
    return hash_slot(mixed, 32) & ((1 << bits) - 1)


@kernel
def _of_numbers(data: Any, bits: int, out: Bytes) -> None:
    for i in range(data.size):
        out[i] = _lane(data[i], bits)


@kernel
def _of_texts(offsets: Any, data: Bytes, bits: int, out: Bytes) -> None:
    text = address_of(data)
    for i in range(out.size):
        out[i] = _lane(hash_bytes(text, data.size, np.int64(offsets[i]), np.int64(offsets[i + 1])), bits)


def lane_of(keys: pa.Array, lanes: int) -> Bytes:
    """Return the lane of each key; there are 2, 4, 8, … lanes. Null is in lane 0.

    >>> lane_of(pa.array(["a", "f", None, "f"]), 2).tolist()
    [0, 1, 0, 1]
    """
    bits = lanes.bit_length() - 1
    out = np.zeros(len(keys), dtype=np.uint8)
    if pa.types.is_string(keys.type) or pa.types.is_binary(keys.type):
        offsets, text = offsets_and_text(keys)
        if text.size:
            _of_texts(offsets, padded(text), bits, out)
    else:
        data = values(keys)
        _of_numbers(canonical_array(data).view(np.int64) if data.dtype.kind == "f" else data, bits, out)
    if (valid := validity(keys)) is not None:
        out[valid == 0] = 0
    return out
