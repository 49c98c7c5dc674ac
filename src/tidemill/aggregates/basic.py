"""Counting, sums and extremes, written in the algebra."""

from __future__ import annotations

import math
from typing import Any

from tidemill.aggregates.algebra import Aggregate, Algebra, Part, built_in
from tidemill.core.types import FLOAT64, DataType
from tidemill.expr.fluent import Expr, Operand, argument, greatest, least, when
from tidemill.expr.fluent import condition as a_condition
from tidemill.expr.functions import INT_MAX, INT_MIN
from tidemill.expr.nodes import Column, Node

Types = tuple[DataType, ...]


def lowest(kind: DataType) -> Any:
    """Below or at every value of a type; absent (null) for strings, which have no bottom to name."""
    return {"float64": -math.inf, "bool": False, "string": None}.get(kind.kind, INT_MIN)


def highest(kind: DataType) -> Any:
    """Above or at every value of a type. NaN is the greatest float."""
    return {"float64": math.nan, "bool": True, "string": None}.get(kind.kind, INT_MAX)


def zero(kind: DataType) -> Any:
    return 0.0 if kind == FLOAT64 else 0


COUNT = Algebra(
    "count",
    identity=lambda types: (0,),
    lift=lambda *x: (1,),
    combine=lambda a, b: (a[0] + b[0],),
    inverse=lambda a, b: (a[0] - b[0],),
    factory=(built_in, (__name__, "COUNT")),
)
SUM = Algebra(
    "sum",
    identity=lambda types: (zero(types[0]),),
    lift=lambda x: (x,),
    combine=lambda a, b: (a[0] + b[0],),
    inverse=lambda a, b: (a[0] - b[0],),
    factory=(built_in, (__name__, "SUM")),
)
PRODUCT = Algebra(
    "product",
    identity=lambda types: (1.0 if types[0] == FLOAT64 else 1,),
    lift=lambda x: (x,),
    combine=lambda a, b: (a[0] * b[0],),
    factory=(built_in, (__name__, "PRODUCT")),
)
MIN = Algebra(
    "min",
    identity=lambda types: (highest(types[0]),),
    lift=lambda x: (x,),
    combine=lambda a, b: (least(a[0], b[0]),),
    idempotent=True,
    selective=True,
    factory=(built_in, (__name__, "MIN")),
)
MAX = Algebra(
    "max",
    identity=lambda types: (lowest(types[0]),),
    lift=lambda x: (x,),
    combine=lambda a, b: (greatest(a[0], b[0]),),
    idempotent=True,
    selective=True,
    factory=(built_in, (__name__, "MAX")),
)
ANY = Algebra(
    "any",
    identity=lambda types: (False,),
    lift=lambda x: (x,),
    combine=lambda a, b: (a[0] | b[0],),
    idempotent=True,
    factory=(built_in, (__name__, "ANY")),
)
ALL = Algebra(
    "all",
    identity=lambda types: (True,),
    lift=lambda x: (x,),
    combine=lambda a, b: (a[0] & b[0],),
    idempotent=True,
    factory=(built_in, (__name__, "ALL")),
)


def _one(algebra: Algebra, x: Operand, name: str | None = None, empty: Any = None) -> Aggregate:
    node = argument(x)
    part = Part(algebra, (node,))
    return Aggregate(name or algebra.name, (node,), (part,), lambda s: s[0], empty)


def count(x: Operand | None = None) -> Aggregate:
    """How many rows; with an argument, in how many it is not null. 0 over nothing."""
    args = () if x is None else (argument(x),)
    return Aggregate("count", args, (Part(COUNT, args),), lambda n: n[0], 0)


def count_if(condition: Operand) -> Aggregate:
    """In how many rows a condition is true. 0 over nothing."""
    given = _condition("count_if", condition)
    node = when(Expr(given)).then(True).node
    return Aggregate("count_if", (given,), (Part(COUNT, (node,)),), lambda n: n[0], 0)


def _condition(step: str, given: Operand) -> Node:
    """A string names a column, here too."""
    return Column(given) if isinstance(given, str) else a_condition(given, step=step)


def sum(x: Operand) -> Aggregate:
    """The sum; of ints it is an int, and an error when it leaves int64."""
    return _one(SUM, x)


def product(x: Operand) -> Aggregate:
    """The product; of ints it is an int, and an error when it leaves int64."""
    return _one(PRODUCT, x)


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

    >>> from tidemill.expr.fluent import col
    >>> mean(col.price).parts == sum(col.price).parts + count(col.price).parts
    True
    """
    args = (argument(x),)
    return Aggregate("mean", args, (Part(SUM, args), Part(COUNT, args)), lambda s, n: s[0] / n[0])
