"""Aggregates on Python values: what `lift`, `combine` and `lower` of a layout give for them.

The reference engine uses these, and so does every store that keeps partials as Python objects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidemill.aggregates import holistic, sketches
from tidemill.aggregates.algebra import (
    Algebra,
    NamedLower,
    OpaqueForm,
    Sketch,
    as_state,
    call_on_states,
)  # fmt: skip
from tidemill.aggregates.layout import Layout, Result, StatePart
from tidemill.core.schema import Schema
from tidemill.expr.evaluate import evaluate, returned
from tidemill.expr.nodes import Node


def functions(part: StatePart) -> tuple[Callable[[Any], Any], Callable[[Any, Any], Any], Any]:
    """`lift` of argument tuples, `combine` of partials and the identity, on Python values."""
    algebra, form = part.part.algebra, part.form
    assert isinstance(algebra, Algebra)
    if isinstance(form, OpaqueForm):
        return (
            lambda args: as_state(algebra.lift(*args)),
            lambda a, b: as_state(call_on_states(algebra.combine, form.identity, a, b)),
            form.identity,
        )
    assert form is not None
    xs = Schema(tuple((f"x{i}", t) for i, t in enumerate(part.types)))
    fields = [(f"{s}{i}", t) for s in "ab" for i, t in enumerate(form.fields)]
    both = Schema(tuple(fields))

    def lift(args: Any) -> Any:
        return tuple(evaluate(n, dict(zip(xs.names, args)), xs) for n in form.lift)

    def combine(a: Any, b: Any) -> Any:
        return tuple(evaluate(n, dict(zip(both.names, (*a, *b))), both) for n in form.combine)

    return lift, combine, tuple(v.value for v in form.identity)


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
    return returned(result.lower(*[states[p] for p in result.parts]), result.type, result.shown)
