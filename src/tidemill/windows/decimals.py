"""Lengths, origins and starts of windows over floats: the decimals that the user wrote, as fractions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from tidemill.core.errors import UserError

MOST_PARTS = 10**9
"""The most parts of 1 that a step may have: nine digits after the point."""
_EXACT = 1 << 51
"""Up to so many parts, arithmetic in float64 finds the step of a value, give or take one."""


def is_real(value: Any) -> bool:
    """Return whether a value is a float, also of NumPy."""
    return isinstance(value, float) or type(value).__name__ in ("float32", "float16")


def decimal(value: Any, *, step: str) -> Fraction:
    """Return a number as it is written: 0.1 is a tenth.

    >>> decimal(0.1, step="tumbling")
    Fraction(1, 10)
    """
    number = isinstance(value, (int, float)) or is_real(value)
    if isinstance(value, bool) or not number or not math.isfinite(value):
        raise UserError(
            step, expected="numbers only, as one of them is a float",
            got=f"{value!r} ({type(value).__name__})",
        )  # fmt: skip
    return Fraction(str(value) if is_real(value) else value)


def common_step(numbers: Sequence[Fraction], *, step: str) -> Fraction:
    """Return the greatest step that all numbers are multiples of.

    >>> common_step([Fraction("0.25"), Fraction("0.1")], step="tumbling")
    Fraction(1, 20)
    """
    parts = math.lcm(*(n.denominator for n in numbers))
    found = Fraction(math.gcd(*(int(n * parts) for n in numbers)), parts)
    if parts > MOST_PARTS or any(abs(n) > farthest(found) for n in numbers):
        raise UserError(
            step, expected="floats with at most nine digits after the point, and 15 in all",
            got=", ".join(str(float(n)) for n in numbers), hint="round them, or scale the attribute",
        )  # fmt: skip
    return found


def farthest(step: Fraction) -> float:
    """Values up to this, on both sides of zero, have an exact place on the grid of a step."""
    return float(_EXACT // step.denominator)
