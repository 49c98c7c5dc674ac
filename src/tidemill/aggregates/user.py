"""User-defined aggregates: plain Python functions, treated like the built-in ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tidemill.aggregates.algebra import Aggregate, Algebra, Part, holds_container
from tidemill.core.errors import UserError
from tidemill.core.types import DataType, parse_type
from tidemill.expr.fluent import Operand, argument
from tidemill.expr.nodes import Node


def aggregate(
    name: str,
    *,
    identity: Callable[[], Any],
    combine: Callable[[Any, Any], Any],
    lower: Callable[[Any], Any],
    lift: Callable[..., Any] | None = None,
    accumulate: Callable[..., Any] | None = None,
    inverse: Callable[[Any, Any], Any] | None = None,
    subtract: Callable[..., Any] | None = None,
    freeze: Callable[[Any], Any] | None = None,
    commutative: bool = True,
    empty: Any = None,
    returns: object = None,
) -> Callable[..., Aggregate]:
    """Make an aggregate from functions on scalars, small tuples, or lists and maps.

    A row is added by `accumulate(state, x)`, by default `combine(state, lift(x))`; one of the two is needed.

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

    A state may also be a list, a map or a set, or a tuple that has one. It runs row by row. The functions
    may change the state that they are given (of two, the first), and return it.

    >>> def seen(counts, x):
    ...     counts[x] = counts.get(x, 0) + 1
    ...     return counts
    >>> def both(a, b):
    ...     for x, n in b.items():
    ...         a[x] = a.get(x, 0) + n
    ...     return a
    >>> mode = aggregate(
    ...     "mode", identity=dict, accumulate=seen, combine=both, returns="int64",
    ...     lower=lambda counts: max(counts, key=lambda x: (counts[x], x)),
    ... )

    Sliding windows take out what leaves, instead of combining again what stays, where one of these is given.
    Both must be exact: what was added and taken out must leave no trace, as the rounding of floats does.

    - `inverse(a, b)`: the state `a` without the state `b`. The windows of numbers use it if all are ints.
    - `subtract(state, x)`: the state without the row `x`, the oldest one where order matters. Windows that
      follow the rows (`per_event`, `rows`) use it for lists and maps.

    `freeze(state)` turns a state into the form in which it is combined, lowered and saved, such as a sorted
    tuple. It is called once with a state to which no more rows are added; later rows begin a new state.
    `combine`, `inverse` and `lower` get its results only, which are shared and must not be changed, and
    `identity`, `accumulate` and `subtract` know nothing of it. Without `freeze` they get copies.

    `tm.check_aggregate` finds functions that contradict each other.
    """
    made_with: dict[str, Any] = {
        "identity": identity, "combine": combine, "lower": lower, "lift": lift, "accumulate": accumulate,
        "inverse": inverse, "subtract": subtract, "freeze": freeze, "commutative": commutative,
        "empty": empty, "returns": returns,
    }  # fmt: skip
    given = {"identity": identity, "combine": combine, "lower": lower}
    options = {
        "lift": lift, "accumulate": accumulate, "inverse": inverse, "subtract": subtract, "freeze": freeze,
    }  # fmt: skip
    given |= {n: f for n, f in options.items() if f is not None}
    for what, function in given.items():
        if not callable(function):
            raise UserError(
                f"aggregate {name}", expected=f"{what} to be a function", got=repr(function),
                hint=f"write {what}=lambda: {function!r}" if what == "identity" else "",
            )  # fmt: skip
    if freeze is not None and accumulate is None:
        raise UserError(
            f"aggregate {name}", expected="accumulate= beside freeze=", got="none",
            hint="rows are added to states that are not frozen, and combine gets frozen ones only",
        )  # fmt: skip
    if lift is None:
        lift = _lifting(name, identity, accumulate)
    algebra = Algebra(
        name,
        identity=lambda types: identity(),
        lift=lift,
        combine=combine,
        inverse=inverse,
        accumulate=accumulate,
        commutative=commutative,
        subtract=subtract,
        freeze=freeze,
    )
    kind = None if returns is None else parse_type(returns, step=f"aggregate {name}")
    first = identity()
    bare = not isinstance(first, tuple) or freeze is not None or holds_container(first)
    lowered = _of_the_field(lower) if bare else lower  # once, so that equal aggregates are equal

    return _Own(name, made_with, algebra, lowered, kind)


class _Own:
    """A user's aggregate: called on arguments, it is one of these. It is pickled as what the user gave."""

    def __init__(
        self, name: str, made_with: dict[str, Any], algebra: Algebra, lower: Callable[[Any], Any],
        returns: DataType | None,
    ) -> None:  # fmt: skip
        self.__name__, self._made_with, self._lower, self._returns = name, made_with, lower, returns
        self.algebra = replace(algebra, own=self)

    def __call__(self, *args: Operand) -> Aggregate:
        return self.over(tuple(argument(a) for a in args))

    def over(self, args: tuple[Node, ...]) -> Aggregate:
        """The aggregate of some expressions."""
        empty = self._made_with["empty"]
        parts = (Part(self.algebra, args),)
        return Aggregate(self.__name__, args, parts, self._lower, empty, returns=self._returns)

    def __reduce__(self) -> Any:
        return _again, (self.__name__, self._made_with)

    def __repr__(self) -> str:
        return f"the aggregate {self.__name__}"


def _again(name: str, made_with: dict[str, Any]) -> Callable[..., Aggregate]:
    return aggregate(name, **made_with)


def _of_the_field(lower: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function of a state that is a tuple of one field, where the user's is one of the field."""

    def lowered(state: Any) -> Any:
        return lower(state[0])

    lowered.__name__ = getattr(lower, "__name__", "lower")  # errors name it
    return lowered


def _lifting(
    name: str, identity: Callable[[], Any], accumulate: Callable[..., Any] | None
) -> Callable[..., Any]:
    """The state of one row, by `accumulate`."""
    if accumulate is None:
        raise UserError(f"aggregate {name}", expected="lift= or accumulate=", got="neither")
    return lambda *row: accumulate(identity(), *row)
