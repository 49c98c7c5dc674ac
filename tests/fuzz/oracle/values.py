"""Values, their order, and the answers that are known only up to rounding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

LOW, HIGH = -(1 << 63), (1 << 63) - 1
FAR = 1 << 61


class Wrong(Exception):
    """The query has no answer on these rows: every engine must raise an error."""


class Unsure(Exception):
    """The rules leave this open (see `tests.fuzz.known`): nothing is compared."""


@dataclass(frozen=True)
class Approx:
    """A float that engines may reach by other roundings: at most `tolerance` away."""

    value: float
    tolerance: float


@dataclass(frozen=True)
class Between:
    """An estimate of a sketch: any number of the same type in a closed interval."""

    low: Any
    high: Any


class Anything:
    """A float or null that depends on the order of rounding: infinities cancel, sums overflow on the way."""

    def __repr__(self) -> str:
        return "Anything()"


def fits(value: int) -> int:
    """An int, or an error where it leaves int64."""
    if not LOW <= value <= HIGH:
        raise Wrong(f"{value} is outside int64")
    return value


def rank(value: Any) -> Any:
    """Sort key: NaN after every number."""
    if isinstance(value, float):
        return (1, 0.0) if value != value else (0, value)
    return value


def nulls_first(value: Any) -> Any:
    return (0, 0) if value is None else (1, rank(value))


def equal(a: Any, b: Any) -> bool:
    return bool(a == b or (a != a and b != b))


def total(values: Sequence[int]) -> int:
    """The rule of integer sums: an error where the exact sum leaves int64, and only there."""
    return fits(sum(values))


def times(values: Sequence[int]) -> int:
    """The rule of integer products: an error where the exact product leaves int64, and only there."""
    return fits(math.prod(values))


def float_total(values: Sequence[float]) -> Any:
    """A sum of floats in any order of additions."""
    odd = [x for x in values if not math.isfinite(x)]
    if odd:
        return odd[0] if all(x == odd[0] for x in odd) else math.nan
    size = sum(abs(Fraction(x)) for x in values)
    if size > Fraction(1.7e308):
        return Anything()
    return Approx(float(sum(map(Fraction, values))), 1e-12 * float(size))


def scaled(value: Any, by: Fraction) -> Any:
    """A result of `float_total` times a positive number."""
    if isinstance(value, Approx):
        exact = Fraction(value.value) * by
        return Approx(float(exact), value.tolerance * float(by) + 1e-15 * abs(float(exact)))
    return value
