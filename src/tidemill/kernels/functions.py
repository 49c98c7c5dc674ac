"""Scalar functions that generated kernels call.

Generated code reports errors by setting bits in `err`; the caller turns them into a `UserError`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tidemill.jit.intrinsics import (  # noqa: F401  (generated code calls some)
    as_int,
    byte_at,
    bytes_at,
    float_to_int_fits,
    leading_zeros,
)
from tidemill.jit.kernel import calling_kernel, kernel  # noqa: F401

OVERFLOW, BAD_CAST, NULL_TIME, NULL_STATE, FAR_TIME = 1, 2, 4, 8, 16
"""Bits of `err`: an int result left int64; a value did not fit a strict cast; the windowing
attribute was null; an aggregate's function returned null for a field of its partial; the windowing
attribute was so far from zero that window arithmetic would overflow."""

INT_MIN, INT_MAX = -(1 << 63), (1 << 63) - 1
EXACT_FLOAT = float(1 << 52)
NAN, INF = math.nan, math.inf


# Signed overflow is undefined behaviour in LLVM, which then removes the test for it. Unsigned arithmetic
# wraps, and compiles to the same instruction.


@kernel
def wrap_add(a: int, b: int) -> Any:
    return np.int64(np.uint64(a) + np.uint64(b))


@kernel
def wrap_sub(a: int, b: int) -> Any:
    return np.int64(np.uint64(a) - np.uint64(b))


@kernel
def wrap_mul(a: int, b: int) -> Any:
    return np.int64(np.uint64(a) * np.uint64(b))


@kernel
def carry(a: int, b: int) -> Any:
    """Return `(a + b - wrap_add(a, b)) / 2**64`: 1, 0 or -1."""
    low = wrap_add(a, b)
    return (np.int64(low < 0) * 2 - 1) * np.int64(((a ^ low) & (b ^ low)) < 0)


@kernel
def borrow(a: int, b: int) -> Any:
    """Return `(a - b - wrap_sub(a, b)) / 2**64`: 1, 0 or -1."""
    low = wrap_sub(a, b)
    return (np.int64(low < 0) * 2 - 1) * np.int64(((a ^ b) & (a ^ low)) < 0)


@kernel
def magnitude(a: int, b: int) -> Any:
    """Return `-abs(a * b)`, or 0 if it is below -2**63."""
    size_a = wrap_sub(0, a) if a < 0 else a
    size_b = wrap_sub(0, b) if b < 0 else b
    near = abs(float(a) * float(b))
    if near > 9.2e18 and np.uint64(size_a) > np.uint64(1 << 63) // np.uint64(size_b):
        return np.int64(0)
    return wrap_sub(0, wrap_mul(size_a, size_b))


@kernel
def outside(a: int, begin: int, length: int) -> bool:
    """Return whether `a` is outside `[begin, begin + length)`, modulo 2**64."""
    return bool(np.uint64(a) - np.uint64(begin) >= np.uint64(length))


@kernel
def hash_slot(x: Any, bits: Any) -> Any:
    """Return the slot at which the search for a value begins, in a table of `2**bits` slots."""
    # Fibonacci hashing: the high bits of a product with 2**64 / phi.
    return np.int64((np.uint64(x) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - bits))


@kernel
def hashed_id(x: Any, slots: Any, values: Any, bits: int) -> Any:
    """Return the id of a value in an `IntIndex`; negative if it is not there."""
    s = hash_slot(x, bits)
    while True:
        k = slots[np.uint64(s)]
        if k < 0 or values[np.uint64(k)] == x:
            return np.int64(k)
        s = (s + 1) & (slots.size - 1)


@kernel
def mul_overflows(a: int, b: int) -> bool:
    # The relative error of the float product is about 2**-53, so an exact test is needed only near the limit.
    near = float(a) * float(b)
    if -9.2e18 < near < 9.2e18:
        return False
    size_a = wrap_sub(0, a) if a < 0 else a
    size_b = wrap_sub(0, b) if b < 0 else b
    limit = np.uint64(1 << 63) if (a < 0) != (b < 0) else np.uint64(INT_MAX)
    return bool(np.uint64(size_a) > limit // np.uint64(size_b))


@kernel
def floordiv_float(a: float, b: float) -> float:
    return float(floor_float(a / b))


@kernel
def mod_float(a: float, b: float) -> float:
    if math.isinf(a) or math.isnan(a) or math.isnan(b):
        return NAN
    rest = float(np.fmod(a, b))
    if rest != 0.0 and (rest < 0.0) != (b < 0.0):
        rest += b
    return rest


@kernel
def floor_float(a: float) -> float:
    return math.floor(a) * 1.0 if abs(a) < EXACT_FLOAT else a


@kernel
def ceil_float(a: float) -> float:
    return math.ceil(a) * 1.0 if abs(a) < EXACT_FLOAT else a


@kernel
def round_float(a: float, scale: float) -> float:
    scaled = abs(a) * scale
    if not scaled < EXACT_FLOAT:
        return a
    return math.copysign(math.floor(scaled + 0.5) / scale, a)


@kernel
def sign_float(a: float) -> float:
    if a != a:
        return a
    return 1.0 * ((a > 0.0) - (a < 0.0))


@kernel
def exp_float(a: float) -> float:
    return float(np.exp(a))


@kernel
def pow_float(a: float, b: float) -> float:
    return float(np.power(a, b))


@kernel
def less_float(a: float, b: float) -> bool:
    """Return whether `a` is less than `b`, by the rule of `core.floats`."""
    return a < b or (b != b and a == a)


@kernel
def equal_float(a: float, b: float) -> bool:
    """Return whether `a` equals `b`, by the rule of `core.floats`."""
    return a == b or (a != a and b != b)


@kernel
def text_at(text: int, texts: Any) -> Any:
    """Return the address and the length of the text with an id (`kernels.texts`)."""
    source = text >> 32
    width = texts[source, 2]
    at = texts[source, 0] + (text & 0xFFFFFFFF) * width
    pair = bytes_at(at)
    if width == 4:  # start and end, of 32 bits each
        start = np.int64(pair & np.uint64(0xFFFFFFFF))
        end = np.int64(pair >> np.uint64(32))
    else:
        start = np.int64(pair)
        end = np.int64(bytes_at(at + 8))
    return texts[source, 1] + start, end - start


@kernel
def compare_text(a: int, b: int, texts: Any) -> int:
    """Return 0 if two texts are equal, -1 if the first is less by code point, otherwise 1."""
    if a == b:
        return 0
    at, size = text_at(a, texts)
    other, other_size = text_at(b, texts)
    shared = min(size, other_size)
    k = 0
    while k + 8 <= shared and bytes_at(at + k) == bytes_at(other + k):
        k += 8
    while k < shared:
        x = byte_at(at + k)
        y = byte_at(other + k)
        if x != y:
            return 1 if x > y else -1
        k += 1
    return (1 if size > other_size else 0) - (1 if size < other_size else 0)


@kernel
def civil(days: int) -> tuple[int, int, int]:
    """Return year, month and day of a number of days since the epoch (Hinnant's algorithm)."""
    z = days + 719468
    era = z // 146097
    doe = z - era * 146097
    yoe = (doe - doe // 1460 + doe // 36524 - doe // 146096) // 365
    doy = doe - (365 * yoe + yoe // 4 - yoe // 100)
    mp = (5 * doy + 2) // 153
    day = doy - (153 * mp + 2) // 5 + 1
    month = mp + 3 if mp < 10 else mp - 9
    year = yoe + era * 400 + (1 if month <= 2 else 0)
    return year, month, day


@kernel
def day_of_year(days: int) -> int:
    year, month, day = civil(days)
    leap = (year % 4 == 0 and year % 100 != 0) or year % 400 == 0
    return int((275 * month) // 9 - (1 if leap else 2) * ((month + 9) // 12) + day - 30)
