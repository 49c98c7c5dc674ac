"""Partials that are Python objects: sketches, and algebras that Numba cannot compile."""

from __future__ import annotations

from typing import Any

from tidemill.aggregates import sketches
from tidemill.aggregates.algebra import Sketch
from tidemill.aggregates.layout import StatePart
from tidemill.aggregates.values import functions
from tidemill.core.errors import UserError


def update_object(part: StatePart, state: Any, columns: list[Any]) -> Any:
    """Return a state with more rows added; a state of None is the identity."""
    algebra = part.part.algebra
    if isinstance(algebra, Sketch):
        return sketches.update(algebra, sketches.new(algebra) if state is None else state, columns[0])
    lift, combine, identity = functions(part)
    rows = zip(*(c.tolist() if hasattr(c, "tolist") else c for c in columns))
    state = identity if state is None else state
    for args in rows if algebra.commutative else sorted(rows):
        try:
            state = combine(state, lift(args))
        except Exception as failed:
            raise UserError(
                f"aggregate {algebra.name}", f"raised {type(failed).__name__}: {failed}",
                got=f"arguments {args!r}",
            ) from failed  # fmt: skip
    return state


def combine_objects(part: StatePart, a: Any, b: Any) -> Any:
    algebra = part.part.algebra
    if a is None or b is None:
        return b if a is None else a
    if isinstance(algebra, Sketch):
        return sketches.combine(algebra, a, b)
    return functions(part)[1](a, b)
