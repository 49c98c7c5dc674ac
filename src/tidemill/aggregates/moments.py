"""Variance, covariance and correlation by Welford's method, merged by Chan's formula.

Sums of squares would be invertible but lose every digit when the mean is large; these do not.

Values that are all equal have a mean that is exactly their value in any order of merging, so they
vary by exactly 0. Where a value, or the square of a difference, is no finite number, the result is
NaN: engines meet infinities in different orders, but they all meet one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidemill.aggregates.algebra import Aggregate, Algebra, Part, built_in
from tidemill.core.errors import UserError
from tidemill.core.types import FLOAT64
from tidemill.expr.fluent import Expr, Operand, argument, coalesce, when
from tidemill.expr.nodes import Cast


def _merged_mean(na: Any, nb: Any, mean_a: Any, delta: Any) -> Expr:
    # The division is null only when both sides are empty, and then the mean is 0, as in identity.
    return coalesce(mean_a + delta * (nb / (na + nb)), 0.0)


def _cross(na: Any, nb: Any, delta_x: Any, delta_y: Any) -> Expr:
    # The weight first: it is 0 where a side is empty, and 0 times a square that overflows is NaN.
    return coalesce(delta_x * (na * (nb / (na + nb))) * delta_y, 0.0)


def _combine_moments(a: Any, b: Any) -> tuple[Any, ...]:
    delta = b[1] - a[1]
    return (
        a[0] + b[0],
        _merged_mean(a[0], b[0], a[1], delta),
        a[2] + b[2] + _cross(a[0], b[0], delta, delta),
    )


MOMENTS = Algebra(
    "moments",
    identity=lambda types: (0.0, 0.0, 0.0),
    lift=lambda x: (1.0, x, 0.0),
    combine=_combine_moments,
    factory=(built_in, (__name__, "MOMENTS")),
)


def _combine_comoments(a: Any, b: Any) -> tuple[Any, ...]:
    dx, dy = b[1] - a[1], b[2] - a[2]
    return (
        a[0] + b[0],
        _merged_mean(a[0], b[0], a[1], dx),
        _merged_mean(a[0], b[0], a[2], dy),
        a[3] + b[3] + _cross(a[0], b[0], dx, dy),
        a[4] + b[4] + _cross(a[0], b[0], dx, dx),
        a[5] + b[5] + _cross(a[0], b[0], dy, dy),
    )


COMOMENTS = Algebra(
    "comoments",
    identity=lambda types: (0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    lift=lambda x, y: (1.0, x, y, 0.0, 0.0, 0.0),
    combine=_combine_comoments,
    factory=(built_in, (__name__, "COMOMENTS")),
)


def _moments(
    name: str, algebra: Algebra, given: tuple[Operand, ...], lower: Callable[[Any], Any],
    ddof: int | None = None,
) -> Aggregate:  # fmt: skip
    """An aggregate of arguments that are computed with in float64."""
    args = tuple(argument(x) for x in given)
    part = Part(algebra, tuple(Cast(a, FLOAT64) for a in args))
    return Aggregate(name, args, (part,), lower, params=() if ddof is None else (("ddof", ddof),))


def _ddof(step: str, ddof: int) -> float:
    if ddof not in (0, 1):
        raise UserError(step, expected="ddof=1 (sample) or ddof=0 (population)", got=repr(ddof))
    return float(ddof)


def _over(total: Expr, n: Expr, ddof: float) -> Expr:
    return when(n > ddof).then(_finite(total) / (n - ddof)).otherwise(None)


def _finite(total: Expr) -> Expr:
    """NaN in place of an infinity."""
    return when(total.abs() < math.inf).then(total).otherwise(math.nan)


@dataclass(frozen=True)
class _WithDdof:
    """A `lower` of a partial and the degrees of freedom that are taken off."""

    function: Callable[[Any, float], Any]
    ddof: float

    def __call__(self, m: Any) -> Any:
        return self.function(m, self.ddof)


def _var(m: Any, d: float) -> Any:
    return _over(m[2], m[0], d)


def _std(m: Any, d: float) -> Any:
    return _over(m[2], m[0], d).sqrt()


def _covariance(m: Any, d: float) -> Any:
    return _over(m[3], m[0], d)


def _correlation(m: Any) -> Any:
    return m[3] / (_finite(m[4]).sqrt() * _finite(m[5]).sqrt())


def var(x: Operand, *, ddof: int = 1) -> Aggregate:
    """The variance: of a sample by default. Null with too few rows."""
    d = _ddof("var", ddof)
    return _moments("var", MOMENTS, (x,), _WithDdof(_var, d), ddof)


def std(x: Operand, *, ddof: int = 1) -> Aggregate:
    """The standard deviation: of a sample by default. Null with too few rows."""
    d = _ddof("std", ddof)
    return _moments("std", MOMENTS, (x,), _WithDdof(_std, d), ddof)


def covariance(x: Operand, y: Operand, *, ddof: int = 1) -> Aggregate:
    """The covariance of two expressions, over rows in which neither is null."""
    d = _ddof("covariance", ddof)
    return _moments("covariance", COMOMENTS, (x, y), _WithDdof(_covariance, d), ddof)


def correlation(x: Operand, y: Operand) -> Aggregate:
    """Pearson's correlation; null when either side does not vary."""
    return _moments("correlation", COMOMENTS, (x, y), _correlation)
