"""Aggregates over a list of rows, computed by the definition of the algebra."""

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
    """Compute the result columns over rows, given with their positions: lift, combine, lower."""
    states = [_state(part, rows, schema) for part in layout.parts]
    return {r.name: lower(r, layout, states) for r in layout.results}


def _state(part: StatePart, rows: list[tuple[int, Row]], schema: Schema) -> Any:
    tuples = []
    for place, row in rows:
        args = tuple(evaluate(a, row, schema) for a in part.part.args)
        if None not in args:
            tuples.append((place, args))
    # Values break ties, so that order-dependent aggregates have one result.
    tuples.sort(key=lambda t: (t[0], order_key(t[1])))
    inputs = [args for _, args in tuples]
    algebra = part.part.algebra
    if isinstance(algebra, Multiset):
        return sorted(inputs, key=order_key)
    if isinstance(algebra, Sketch):
        return sketches.update(algebra, sketches.new(algebra), [a[0] for a in inputs])
    return functions(part).fold(inputs)
