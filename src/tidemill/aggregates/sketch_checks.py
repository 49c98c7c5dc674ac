"""Checks of sketches from files, before DataSketches reads them without checks of its own.

The forms are those of `sketches.serialize`: HLL_8, updatable, and KLL of doubles. What is not as a sketch of
this size must be is a `UserError`; a few bytes that were changed could crash the process otherwise.
"""

from __future__ import annotations

import struct

import numpy as np

from tidemill.aggregates.algebra import Sketch
from tidemill.core.errors import UserError


def check_sketch(sketch: Sketch, data: bytes) -> None:
    """Refuse bytes that are not a sketch of this kind and size."""
    try:
        sound = _is_hll(sketch.size, data) if sketch.kind == "hll" else _is_kll(sketch.size, data)
    except (struct.error, IndexError, ValueError):  # shorter than it says
        sound = False
    if not sound:
        raise UserError(
            "sketch", expected=f"{sketch.kind} sketches of size {sketch.size}",
            got=f"other bytes: {data[:16].hex()}…",
        )  # fmt: skip


# --- HLL --------------------------------------------------------------------------------------------

_LIST, _SET, _HLL = range(3)
_LIST_LG, _SET_LG = 3, 5
"""Lists have 8 places for coupons, sets 32 at first."""
_TARGET_8 = 2
_MOST_REGISTER = 63


def _is_hll(lg_k: int, data: bytes) -> bool:
    ints, version, family, own_lg_k, lg_places, flags, byte6, mode = struct.unpack_from("<8B", data)
    if (version, family, own_lg_k, mode >> 2) != (1, 7, lg_k, _TARGET_8):
        return False
    if mode & 3 == _LIST:
        listed = ints == 2 and lg_places == _LIST_LG
        return listed and _are_coupons(data[8:], _LIST_LG, byte6, flags, packed=True)
    if mode & 3 == _SET:
        (count,) = struct.unpack_from("<i", data, 8)
        room = _SET_LG <= lg_places <= max(_SET_LG, lg_k - 3) and 4 * count <= 3 << lg_places
        return ints == 3 and room and _are_coupons(data[12:], lg_places, count, flags, packed=False)
    return mode & 3 == _HLL and ints == 10 and byte6 == 0 and _are_registers(data, lg_k)


def _are_coupons(body: bytes, lg_places: int, count: int, flags: int, *, packed: bool) -> bool:
    """So many different coupons among empty places; at the front, where they are `packed`."""
    if len(body) != 4 << lg_places or bool(flags & 4) != (count == 0):
        return False
    places = np.frombuffer(body, dtype="<u4")
    there = places[places != 0]
    front = not packed or not places[count:].any()
    return len(there) == count == len(np.unique(there)) and front


def _are_registers(data: bytes, lg_k: int) -> bool:
    hip, low, high, zeros, others = struct.unpack_from("<dddii", data, 8)
    registers = np.frombuffer(data, dtype=np.uint8, offset=40)
    if len(registers) != 1 << lg_k or registers.max() > _MOST_REGISTER or others:
        return False
    powers = np.exp2(-registers.astype(np.float64))
    sums = powers[registers < 32].sum(), powers[registers >= 32].sum()
    return bool(
        zeros == (registers == 0).sum() and np.isfinite(hip) and hip >= 0
        and np.allclose((low, high), sums, rtol=1e-6, atol=1e-9)
    )  # fmt: skip


# --- KLL --------------------------------------------------------------------------------------------

_EMPTY, _SORTED, _SINGLE = 1, 2, 4
_LEAST_LEVEL = 8
_MOST_LEVELS = 61


def _is_kll(k: int, data: bytes) -> bool:
    ints, version, family, flags, own_k, least, _ = struct.unpack_from("<4BHBB", data)
    if (family, own_k, least) != (15, k, _LEAST_LEVEL):
        return False
    if flags & _EMPTY:
        return (ints, version, len(data)) == (2, 1, 8)
    if flags & _SINGLE:
        (item,) = struct.unpack_from("<d", data, 8)
        return (ints, version, len(data)) == (2, 2, 16) and not np.isnan(item)
    n, min_k, levels, _ = struct.unpack_from("<QHBB", data, 8)
    if (ints, version) != (5, 1) or not 8 <= min_k <= k or not 0 < levels <= _MOST_LEVELS:
        return False
    begins = [*struct.unpack_from(f"<{levels}I", data, 20), _capacity(k, levels)]
    counts = np.diff(np.array(begins, dtype=np.int64))
    items = np.frombuffer(data, dtype="<f8", offset=20 + 4 * levels)
    if (counts < 0).any() or len(items) != 2 + counts.sum() or np.isnan(items).any():
        return False
    if n != sum(c << level for level, c in enumerate(counts.tolist())):
        return False
    smallest, greatest, kept = items[0], items[1], items[2:]
    if not len(kept) or kept.min() < smallest or kept.max() > greatest:
        return False
    ends = np.cumsum(counts)
    first = 0 if flags & _SORTED else 1
    runs = [kept[e - c : e] for c, e in zip(counts[first:], ends[first:])]
    return all(bool((run[1:] >= run[:-1]).all()) for run in runs)


def _capacity(k: int, levels: int) -> int:
    """How many items a sketch of so many levels can hold."""
    return sum(max(_LEAST_LEVEL, _level(k, levels - level - 1)) for level in range(levels))


def _level(k: int, depth: int) -> int:
    if depth <= 30:
        return (((2 * k) << depth) // int(3**depth) + 1) >> 1
    half = depth // 2
    return _level(_level(k, half), depth - half)
