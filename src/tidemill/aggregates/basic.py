"""Counting, sums and extremes, written in the algebra.

Sums and products of ints are exact: only a *result* outside int64 is an error, whatever the order in
which rows came and partials were combined.
"""

from __future__ import annotations

import math
from typing import Any

from tidemill.aggregates.algebra import Aggregate, Algebra, Field, Part, built_in
from tidemill.core.types import DURATION, FLOAT64, INT64, DataType
from tidemill.expr.fluent import Expr, Operand, argument, call, greatest, least, when
from tidemill.expr.fluent import condition as a_condition
from tidemill.expr.functions import INT_MAX, INT_MIN
from tidemill.expr.nodes import Column, Node

Types = tuple[DataType, ...]


def lowest(kind: DataType) -> Any:
    """A value that no value of the type is below; null for strings."""
    return {"float64": -math.inf, "bool": False, "string": None}.get(kind.kind, INT_MIN)


def highest(kind: DataType) -> Any:
    """A value that no value of the type is above; null for strings. Of floats it is NaN."""
    return {"float64": math.nan, "bool": True, "string": None}.get(kind.kind, INT_MAX)


def zero(kind: DataType) -> Any:
    return 0.0 if kind == FLOAT64 else 0


COUNT = Algebra(
    "count",
    identity=lambda types: (0,),
    lift=lambda *x: (1,),
    combine=lambda a, b: (a[0] + b[0],),
    inverse=lambda a, b: (a[0] - b[0],),
    accumulate=lambda a, *x: (call("wrap_add", a[0], 1),),  # nobody counts to 2**63
    factory=(built_in, (__name__, "COUNT")),
)


def _add_wide(a: Any, x: Any) -> tuple[Any, ...]:
    return call("wrap_add", a[0], x), call("wrap_add", a[1], call("carry", a[0], x))


def _combine_wide(a: Any, b: Any) -> tuple[Any, ...]:
    low, high = _add_wide(a, b[0])
    return low, call("wrap_add", high, b[1])


def _subtract_wide(a: Any, b: Any) -> tuple[Any, ...]:
    high = call("wrap_add", a[1], call("borrow", a[0], b[0]))
    return call("wrap_sub", a[0], b[0]), call("wrap_sub", high, b[1])


WIDE_SUM = Algebra(
    "sum",
    identity=lambda types: (0, 0),
    lift=lambda x: (x, 0),
    combine=_combine_wide,
    inverse=_subtract_wide,
    accumulate=_add_wide,
    carries=frozenset((1,)),
    factory=(built_in, (__name__, "WIDE_SUM")),
)
"""`low + high * 2**64`: 128 bits, of which only a result must fit 64."""
SUM = Algebra(
    "sum",
    identity=lambda types: (zero(types[0]),),
    lift=lambda x: (x,),
    combine=lambda a, b: (a[0] + b[0],),
    inverse=lambda a, b: (a[0] - b[0],),
    typed=lambda types: WIDE_SUM if types[0].kind in ("int64", "duration") else None,
    factory=(built_in, (__name__, "SUM")),
)


def _negative_magnitude(x: Any) -> Any:
    return when(x < 0).then(x).otherwise(when(x > 0).then(-x).otherwise(-1))


def _combine_wide_products(a: Any, b: Any) -> tuple[Any, ...]:
    return call("magnitude", a[0], b[0]), a[1] != b[1], a[2] | b[2]


WIDE_PRODUCT = Algebra(
    "product",
    identity=lambda types: (-1, False, False),
    lift=lambda x: (_negative_magnitude(x), x < 0, x == 0),
    combine=_combine_wide_products,
    factory=(built_in, (__name__, "WIDE_PRODUCT")),
)
"""Three fields: the magnitude of the factors that are not 0, as a negative number because 2**63 is one, and 0
once it is larger; whether their product is negative; whether any factor is 0. A magnitude only grows, so the
order of factors does not matter."""
PRODUCT = Algebra(
    "product",
    identity=lambda types: (1.0,),
    lift=lambda x: (x,),
    combine=lambda a, b: (a[0] * b[0],),
    typed=lambda types: None if types[0] == FLOAT64 else WIDE_PRODUCT,
    factory=(built_in, (__name__, "PRODUCT")),
)
MIN = Algebra(
    "min",
    identity=lambda types: (highest(types[0]),),
    lift=lambda x: (x,),
    combine=lambda a, b: (least(a[0], b[0]),),
    factory=(built_in, (__name__, "MIN")),
)
MAX = Algebra(
    "max",
    identity=lambda types: (lowest(types[0]),),
    lift=lambda x: (x,),
    combine=lambda a, b: (greatest(a[0], b[0]),),
    factory=(built_in, (__name__, "MAX")),
)
ANY = Algebra(
    "any",
    identity=lambda types: (False,),
    lift=lambda x: (x,),
    combine=lambda a, b: (a[0] | b[0],),
    factory=(built_in, (__name__, "ANY")),
)
ALL = Algebra(
    "all",
    identity=lambda types: (True,),
    lift=lambda x: (x,),
    combine=lambda a, b: (a[0] & b[0],),
    factory=(built_in, (__name__, "ALL")),
)


def _one(algebra: Algebra, x: Operand, name: str | None = None, empty: Any = None) -> Aggregate:
    node = argument(x)
    part = Part(algebra, (node,))
    return Aggregate(name or algebra.name, (node,), (part,), Field(), empty)


def count(x: Operand | None = None) -> Aggregate:
    """How many rows; with an argument, in how many it is not null. 0 over nothing."""
    args = () if x is None else (argument(x),)
    return Aggregate("count", args, (Part(COUNT, args),), Field(), 0)


def count_if(condition: Operand) -> Aggregate:
    """In how many rows a condition is true. 0 over nothing."""
    given = _condition("count_if", condition)
    node = when(Expr(given)).then(True).node
    return Aggregate("count_if", (given,), (Part(COUNT, (node,)),), Field(), 0)


def _condition(step: str, given: Operand) -> Node:
    """The node of a condition; a string names a column."""
    return Column(given) if isinstance(given, str) else a_condition(given, step=step)


def sum(x: Operand) -> Aggregate:
    """The sum. The sum of ints is an int, and an error when it is outside int64. True counts as 1."""
    args = (argument(x),)
    return Aggregate("sum", args, (Part(SUM, args),), _sum_of)


def _sum_of(s: Any) -> Any:
    return call("unwrap", *s) if len(s) == 2 else s[0]


def _sum_as_float(s: Any) -> Any:
    # The high word is 0 nearly always, and then this is the sum, rounded once.
    return s[0].cast(FLOAT64) + s[1].cast(FLOAT64) * 2.0**64 if len(s) == 2 else s[0]


def product(x: Operand) -> Aggregate:
    """The product. The product of ints is an int, and an error when it is outside int64."""
    args = (argument(x),)
    return Aggregate("product", args, (Part(PRODUCT, args),), _product_of)


def _product_of(s: Any) -> Any:
    if len(s) == 1:
        return s[0]
    magnitude, negative, zero = s
    too_large = call("unwrap", 0, 1)
    signed = when(negative).then(magnitude).otherwise(-magnitude)
    return when(zero).then(0).when(magnitude == 0).then(too_large).otherwise(signed)


def min(x: Operand) -> Aggregate:
    """The smallest value; NaN only when there is nothing else."""
    return _one(MIN, x)


def max(x: Operand) -> Aggregate:
    """The greatest value; NaN is greater than every number."""
    return _one(MAX, x)


def any(x: Operand) -> Aggregate:
    """Whether a condition is true in some row."""
    return _one(ANY, Expr(_condition("any", x)))


def all(x: Operand) -> Aggregate:
    """Whether a condition is true in every row."""
    return _one(ALL, Expr(_condition("all", x)))


def mean(x: Operand) -> Aggregate:
    """The arithmetic mean, from a sum and a count that it shares with others.

    The mean of a condition is its rate: true counts as 1, false as 0. The mean of durations is a duration,
    rounded to a microsecond, half away from zero.

    >>> from tidemill.expr.fluent import col
    >>> mean(col.price).parts == sum(col.price).parts + count(col.price).parts
    True
    """
    args = (argument(x),)
    return Aggregate("mean", args, (Part(SUM, args), Part(COUNT, args)), _mean_of)


def _mean_of(s: Any, n: Any) -> Any:
    return _sum_as_float(s) / n[0]


def mean_of_durations(s: Any, n: Any) -> Any:
    """Lower the mean of durations, whose type is known once it is bound."""
    return _mean_of((s[0].cast(INT64), s[1]), n).round().cast(INT64).cast(DURATION)
