"""Aggregates that look at time or at another column to choose: first, last, arg_*, ewma, drawdown.

Ties go to the greater value, so that every engine agrees.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from tidemill.aggregates.algebra import EVENT_TIME, Aggregate, Algebra, Field, Part, built_in
from tidemill.aggregates.basic import highest, lowest
from tidemill.core.errors import UserError
from tidemill.core.time import DurationLike, duration
from tidemill.core.types import FLOAT64, INT64
from tidemill.expr.fluent import Expr, Operand, argument, greatest, least, when
from tidemill.expr.nodes import Cast


def _pick(replace: Any, a: Any, b: Any) -> tuple[Any, ...]:
    return tuple(when(replace).then(y).otherwise(x) for x, y in zip(a, b))


ARG_MAX = Algebra(
    "arg_max",
    identity=lambda types: (lowest(types[0]), lowest(types[1])),
    lift=lambda by, value: (by, value),
    combine=lambda a, b: _pick(
        (b[0] > a[0]) | a[0].is_null() | ((b[0] == a[0]) & ((b[1] > a[1]) | a[1].is_null())), a, b
    ),
    factory=(built_in, (__name__, "ARG_MAX")),
)
ARG_MIN = Algebra(
    "arg_min",
    identity=lambda types: (highest(types[0]), lowest(types[1])),
    lift=lambda by, value: (by, value),
    combine=lambda a, b: _pick(
        (b[0] < a[0]) | a[0].is_null() | ((b[0] == a[0]) & ((b[1] > a[1]) | a[1].is_null())), a, b
    ),
    factory=(built_in, (__name__, "ARG_MIN")),
)


def _arg(name: str, algebra: Algebra, value: Operand, by: Operand) -> Aggregate:
    args = (argument(value), argument(by))
    return Aggregate(name, args, (Part(algebra, args[::-1]),), Field(1))


def arg_max(value: Operand, by: Operand) -> Aggregate:
    """The value in the row where `by` is greatest."""
    return _arg("arg_max", ARG_MAX, value, by)


def arg_min(value: Operand, by: Operand) -> Aggregate:
    """The value in the row where `by` is smallest."""
    return _arg("arg_min", ARG_MIN, value, by)


def last(x: Operand) -> Aggregate:
    """The value of the latest row in which it is not null."""
    return _arg("last", ARG_MAX, x, Expr(EVENT_TIME))


def first(x: Operand) -> Aggregate:
    """The value of the earliest row in which it is not null."""
    return _arg("first", ARG_MIN, x, Expr(EVENT_TIME))


@functools.cache
def _ewma(half_life: int) -> Algebra:
    # The state is two decayed sums as of its latest event; combining moves the older one forward.
    def decayed(now: Any, t: Any) -> Any:
        age = (now.cast(FLOAT64) - t.cast(FLOAT64)) / float(half_life)
        return (age * -math.log(2.0)).exp()

    def combine(a: Any, b: Any) -> tuple[Any, ...]:
        now = greatest(a[0], b[0])
        da, db = decayed(now, a[0]), decayed(now, b[0])
        return (now, a[1] * da + b[1] * db, a[2] * da + b[2] * db)

    return Algebra(
        f"ewma({half_life})",
        identity=lambda types: (-(1 << 62), 0.0, 0.0),
        lift=lambda t, x: (t, x, 1.0),
        combine=combine,
        factory=(_ewma, (half_life,)),
    )


def ewma(x: Operand, *, half_life: DurationLike) -> Aggregate:
    """The mean weighted by age: a row counts half as much as one that is `half_life` younger."""
    life = duration(half_life, step="ewma")
    if life.ticks <= 0:
        raise UserError("ewma", expected="a positive half_life", got=repr(half_life))
    part = Part(_ewma(life.ticks), (Cast(EVENT_TIME, INT64), Cast(argument(x), FLOAT64)))
    return Aggregate(
        "ewma", (argument(x), EVENT_TIME), (part,), _weighted_mean,
        params=(("half_life", life),),
    )  # fmt: skip


def _weighted_mean(s: Any) -> Any:
    return s[1] / s[2]


DRAWDOWN = Algebra(
    "drawdown",
    identity=lambda types: (-math.inf, math.inf, 0.0),
    lift=lambda x: (x, x, 0.0),
    combine=lambda a, b: (
        greatest(a[0], b[0]),
        least(a[1], b[1]),
        greatest(a[2], b[2], a[0] - b[1]),
    ),
    commutative=False,
    factory=(built_in, (__name__, "DRAWDOWN")),
)


def drawdown(x: Operand) -> Aggregate:
    """The greatest fall from a peak to a later trough; 0 when it only rises.

    Rows go in the order of the windowing attribute: time, the column of `on=`, or the row number.
    """
    part = Part(DRAWDOWN, (Cast(argument(x), FLOAT64),))
    return Aggregate("drawdown", (argument(x), EVENT_TIME), (part,), Field(2))
