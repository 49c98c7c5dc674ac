"""Aggregates over a list of rows, straight from the algebra."""

from __future__ import annotations

from typing import Any

from tidemill.aggregates import sketches
from tidemill.aggregates.algebra import Multiset, Sketch
from tidemill.aggregates.layout import Layout, StatePart
from tidemill.aggregates.values import functions, lower
from tidemill.core.floats import order_key
from tidemill.core.schema import Schema
from tidemill.expr.evaluate import evaluate

Row = dict[str, Any]


def aggregate(layout: Layout, rows: list[tuple[int, Row]], schema: Schema) -> Row:
    """The result columns over some rows, each with its place in the order: lift, combine, lower."""
    states = [_state(part, rows, schema) for part in layout.parts]
    return {r.name: lower(r, layout, states) for r in layout.results}


def _state(part: StatePart, rows: list[tuple[int, Row]], schema: Schema) -> Any:
    tuples = []
    for place, row in rows:
        args = tuple(evaluate(a, row, schema) for a in part.part.args)
        if None not in args:
            tuples.append((place, args))
    # Ties are ordered by value, so that order-sensitive aggregates have one answer.
    tuples.sort(key=lambda t: (t[0], order_key(t[1])))
    inputs = [args for _, args in tuples]
    algebra = part.part.algebra
    if isinstance(algebra, Multiset):
        return sorted(inputs, key=order_key)
    if isinstance(algebra, Sketch):
        return sketches.update(algebra, sketches.new(algebra), [a[0] for a in inputs])
    lift, combine, state = functions(part)
    for args in inputs:
        state = combine(state, lift(args))
    return state
