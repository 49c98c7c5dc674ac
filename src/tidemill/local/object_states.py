"""Partials that are Python objects: sketches, and algebras that Numba cannot compile."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tidemill.aggregates import sketches
from tidemill.aggregates.algebra import ObjectForm, Sketch
from tidemill.aggregates.layout import StatePart
from tidemill.aggregates.values import functions
from tidemill.core.errors import UserError


def update_object(part: StatePart, state: Any, columns: list[Any]) -> Any:
    """Return a partial with more rows added; None is that of no rows. The one that is given may change only
    if it is a sketch."""
    algebra = part.part.algebra
    if isinstance(algebra, Sketch):
        return sketches.update(algebra, sketches.new(algebra) if state is None else state, columns[0])
    rows = zip(*(c.tolist() if hasattr(c, "tolist") else c for c in columns))
    return combine_objects(part, state, fold_object(part, rows))


def fold_object(part: StatePart, rows: Iterable[tuple[Any, ...]]) -> Any:
    """Return the partial of rows."""
    own = functions(part)
    state = own.start()
    for args in rows:
        try:
            state = own.add(state, args)
        except Exception as failed:
            if isinstance(part.form, ObjectForm):
                raise
            raise UserError(
                f"aggregate {part.part.algebra.name}", f"raised {type(failed).__name__}: {failed}",
                got=f"arguments {args!r}",
            ) from failed  # fmt: skip
    return own.finish(state)


def combine_objects(part: StatePart, a: Any, b: Any, *, ours: bool = False) -> Any:
    """Combine two partials; None is that of no rows. `a` may change if nobody else uses it (`ours`)."""
    algebra = part.part.algebra
    if a is None or b is None:
        return b if a is None else a
    if isinstance(algebra, Sketch):
        return sketches.combine(algebra, a, b)
    own = functions(part)
    return own.combine_into(a, b) if ours else own.combine(a, b)
