"""Aggregates on Python values: what `lift`, `combine` and `lower` of a layout give for them.

The reference engine uses these, and so does every store that keeps partials as Python objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from tidemill.aggregates import holistic, sketches
from tidemill.aggregates.algebra import (
    Algebra,
    NamedLower,
    ObjectForm,
    OpaqueForm,
    Scalar,
    Sketch,
    as_state,
    call_on_states,
)  # fmt: skip
from tidemill.aggregates.containers import Containers, copied
from tidemill.aggregates.layout import Layout, Result, StatePart
from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.expr.evaluate import evaluate, returned
from tidemill.expr.nodes import Node


@dataclass(frozen=True)
class StateFunctions:
    """The algebra of a part on Python values. A state is a tuple, of one field if it is a Python object.

    The partial of rows is `finish` of a state that began as `start()` and was given to `add` with each row.
    """

    start: Callable[[], Any]
    add: Callable[[Any, tuple[Any, ...]], Any]
    finish: Callable[[Any], Any]
    combine: Callable[[Any, Any], Any]
    """Of two partials; neither changes."""
    combine_into: Callable[[Any, Any], Any]
    """The same, if nobody else uses the first one: it may be changed and returned."""
    inverse_into: Callable[[Any, Any], Any] | None = None
    """Takes a partial out of one that nobody else uses."""
    subtract: Callable[[Any, tuple[Any, ...]], Any] | None = None
    """Takes a row out of a state."""
    copy: Callable[[Any], Any] = lambda state: state
    """A partial that a user's function may be given."""
    copy_state: Callable[[Any], Any] = lambda state: state
    """The same for a state that has not seen `finish`."""

    def identity(self) -> Any:
        """Return the partial of no rows."""
        return self.finish(self.start())

    def fold(self, rows: Iterable[tuple[Any, ...]]) -> Any:
        """Return the partial of rows."""
        state = self.start()
        for args in rows:
            state = self.add(state, args)
        return self.finish(state)


@lru_cache(maxsize=256)
def functions(part: StatePart) -> StateFunctions:
    """The functions of a part that is no multiset or sketch."""
    algebra, form = part.part.algebra, part.form
    assert isinstance(algebra, Algebra) and form is not None
    if isinstance(form, ObjectForm):
        return _of_objects(Containers(algebra), form)
    inverse: Callable[[Any, Any], Any] | None = None
    if isinstance(form, OpaqueForm):
        identity = form.identity

        def lift(args: Any) -> Any:
            return as_state(algebra.lift(*args))

        def combine(a: Any, b: Any) -> Any:
            return as_state(call_on_states(algebra.combine, form.identity, a, b))

        if algebra.inverse is not None:
            take_out = algebra.inverse
            inverse = lambda a, b: as_state(call_on_states(take_out, form.identity, a, b))
    else:
        identity = tuple(v.value for v in form.identity)
        xs = Schema(tuple((f"x{i}", t) for i, t in enumerate(part.types)))
        fields = [(f"{s}{i}", t) for s in "ab" for i, t in enumerate(form.fields)]
        both = Schema(tuple(fields))

        def lift(args: Any) -> Any:
            return tuple(evaluate(n, dict(zip(xs.names, args)), xs) for n in form.lift)

        def evaluated(nodes: tuple[Node, ...], a: Any, b: Any) -> Any:
            return tuple(evaluate(n, dict(zip(both.names, (*a, *b))), both) for n in nodes)

        combine = partial(evaluated, form.combine)
        inverse = None if form.inverse is None else partial(evaluated, form.inverse)
    subtract: Callable[[Any, tuple[Any, ...]], Any] | None = None
    if algebra.subtract is not None:
        remove, bare = algebra.subtract, not isinstance(algebra.identity(part.types), tuple)
        subtract = lambda state, args: as_state(remove(state[0] if bare else state, *args))
    return StateFunctions(
        lambda: identity, lambda state, args: combine(state, lift(args)), lambda state: state,
        combine, combine, inverse, subtract,
    )  # fmt: skip


def _of_objects(own: Containers, form: ObjectForm) -> StateFunctions:
    def on_states(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *states: Scalar((function(*(s[0] for s in states)),))

    return StateFunctions(
        on_states(own.new),
        lambda state, args: Scalar((own.added(state[0], args),)),
        on_states(own.frozen),
        on_states(own.combined),
        on_states(partial(own.combined, ours=True)),
        on_states(partial(own.without, ours=True)) if form.subtracts else None,
        (lambda state, args: Scalar((own.removed(state[0], args),))) if own.has_subtract else None,
        on_states(own.copy),
        on_states(copied),
    )  # fmt: skip


def lower(result: Result, layout: Layout, states: list[Any]) -> Any:
    """One result from the states of all parts."""
    if result.present is not None and states[result.present][0] == 0:
        return None
    first = layout.parts[result.parts[0]]
    if isinstance(result.lower, NamedLower):
        if isinstance(first.part.algebra, Sketch):
            return sketches.lower(first.part.algebra, states[result.parts[0]], result.lower)
        rows = states[result.parts[0]]
        if not rows:
            return result.empty if not isinstance(result.empty, tuple) else []
        return holistic.DEFINITIONS[result.lower.name][0](rows, *result.lower.params)
    if isinstance(result.lower, Node):
        columns = Schema(tuple(f for p in result.parts for f in layout.parts[p].columns))
        values = [v for p in result.parts for v in states[p]]
        return evaluate(result.lower, dict(zip(columns.names, values)), columns)
    if isinstance(first.form, ObjectForm):
        return _lowered(result, functions(first).copy(states[result.parts[0]]))
    return returned(result.lower(*[states[p] for p in result.parts]), result.type, result.shown)


def _lowered(result: Result, state: Any) -> Any:
    assert callable(result.lower)
    try:
        value = result.lower(state)
    except Exception as failed:  # the user's function
        raise UserError(
            result.shown, f"lower raised {type(failed).__name__}: {failed}",
            got=f"the state {state[0]!r:.200}",
        ) from failed  # fmt: skip
    return returned(value, result.type, result.shown)
