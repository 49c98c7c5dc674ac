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
from tidemill.kernels.memory import empty
from tidemill.kernels.text_arrays import offsets_and_text

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


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


@kernel
def _next_of(lane: Bytes, ends: Ints) -> None:
    """Count the rows of each lane, and write where those of each end, if they lie one after another."""
    for i in range(lane.size):
        ends[np.uint64(lane[i])] += 1
    for to in range(1, ends.size):
        ends[to] += ends[to - 1]


@kernel
def _apart(lane: Bytes, begins: Ints, out: Ints) -> None:
    """Write the places of rows, those of each lane together from `begins` on, which moves to their end."""
    for i in range(lane.size):
        to = np.uint64(lane[i])
        out[np.uint64(begins[to])] = i
        begins[to] += 1


def shares_of(keys: pa.Array, lanes: int) -> list[Ints]:
    """Return the places of the rows of each lane, in order.

    >>> [share.tolist() for share in shares_of(pa.array(["a", "f", None, "f"]), 2)]
    [[0, 2], [1, 3]]
    """
    lane = lane_of(keys, lanes)
    ends = np.zeros(lanes, dtype=np.int64)
    _next_of(lane, ends)
    begins, places = np.append(0, ends[:-1]), empty(len(lane))
    _apart(lane, begins, places)
    return [places[begin:end] for begin, end in zip([0, *ends.tolist()], ends.tolist())]


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
