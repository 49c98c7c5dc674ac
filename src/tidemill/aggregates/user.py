"""User-defined aggregates: plain Python functions, treated like the built-in ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidemill.aggregates.algebra import Aggregate, Algebra, Part
from tidemill.core.errors import UserError
from tidemill.core.types import parse_type
from tidemill.expr.fluent import Operand, argument


def aggregate(
    name: str,
    *,
    identity: Callable[[], Any],
    lift: Callable[..., Any],
    combine: Callable[[Any, Any], Any],
    lower: Callable[[Any], Any],
    inverse: Callable[[Any, Any], Any] | None = None,
    accumulate: Callable[..., Any] | None = None,
    commutative: bool = True,
    empty: Any = None,
    returns: object = None,
) -> Callable[..., Aggregate]:
    """Make an aggregate from functions on scalars or small tuples.

    Functions made of arithmetic and `tm` functions are recorded and inlined into the generated
    loop, on every engine. Others (`if`, `math.log`) are compiled by Numba as they are, and what
    Numba refuses runs row by row; `explain()` says which. `returns` is the type of the result
    where it cannot be recorded; by default the type of `lower(identity())`.

    >>> from tidemill.expr.fluent import col
    >>> sum_of_squares = aggregate(
    ...     "sum_of_squares",
    ...     identity=lambda: 0.0,
    ...     lift=lambda x: x * x,
    ...     combine=lambda a, b: a + b,
    ...     lower=lambda s: s,
    ... )
    >>> sum_of_squares(col.price)
    sum_of_squares(col.price)
    """
    given = {"identity": identity, "lift": lift, "combine": combine, "lower": lower}
    given |= {n: f for n, f in (("inverse", inverse), ("accumulate", accumulate)) if f is not None}
    for what, function in given.items():
        if not callable(function):
            raise UserError(
                f"aggregate {name}", expected=f"{what} to be a function", got=repr(function),
                hint=f"write {what}=lambda: {function!r}" if what == "identity" else "",
            )  # fmt: skip
    algebra = Algebra(
        name,
        identity=lambda types: identity(),
        lift=lift,
        combine=combine,
        inverse=inverse,
        accumulate=accumulate,
        commutative=commutative,
    )
    kind = None if returns is None else parse_type(returns, step=f"aggregate {name}")
    bare = not isinstance(identity(), tuple)
    lowered = (lambda s: lower(s[0])) if bare else lower  # once, so that equal aggregates are equal

    def of(*args: Operand) -> Aggregate:
        nodes = tuple(argument(a) for a in args)
        return Aggregate(name, nodes, (Part(algebra, nodes),), lowered, empty, returns=kind)

    return of
