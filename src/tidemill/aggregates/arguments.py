"""What the arguments of built-in aggregates must be, said before anything runs."""

from __future__ import annotations

from tidemill.aggregates.algebra import Aggregate, Algebra
from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.core.time import Domain, Duration
from tidemill.expr.nodes import Cast, Node
from tidemill.expr.typing import type_of

_NUMBERS = {
    "sum": (0,), "product": (0,), "mean": (0,), "var": (0,), "std": (0,), "covariance": (0, 1),
    "correlation": (0, 1), "ewma": (0,), "drawdown": (0,), "quantile": (0,), "median": (0,),
    "sum_by": (1,), "mean_by": (1,),
}  # fmt: skip
"""Which arguments of which aggregate are computed with."""
_TOTALS = {"sum", "product", "mean", "sum_by", "mean_by"}
"""Those that make no sense of instants either."""
_NO_NUMBER = {"string", "binary", "bool", "list", "struct"}


def check_arguments(aggregate: Aggregate, schema: Schema, time: str, *, step: str) -> None:
    """Refuse what a built-in aggregate cannot compute with. Its arguments are as the user gave them."""
    algebras = [p.algebra for p in aggregate.parts]
    if any(isinstance(a, Algebra) and a.factory is None for a in algebras):
        return  # a user's own, whatever its name
    for position in _NUMBERS.get(aggregate.name, ()):
        _check_number(aggregate, aggregate.args[position], schema, step)
    clock = schema[time].kind == "timestamp"
    for name, value in aggregate.params:
        if isinstance(value, Duration) and (value.domain is Domain.CLOCK) != clock:
            want = "text or a timedelta" if clock else "an int"
            raise UserError(
                step, expected=f"{name} to be {want}, because {time!r} is {schema[time]!r}",
                got=str(value), hint="logical and clock time never mix",
            )  # fmt: skip


def _check_number(aggregate: Aggregate, arg: Node, schema: Schema, step: str) -> None:
    # Those that are no totals compute in float64, by a cast of their own around what the user gave.
    given = arg.arg if isinstance(arg, Cast) and aggregate.name not in _TOTALS else arg
    kind = type_of(given, schema)
    if kind.kind in _NO_NUMBER or (kind.kind == "timestamp" and aggregate.name in _TOTALS):
        raise UserError(step, expected="a number", got=f"{given}, which is {kind!r}")
