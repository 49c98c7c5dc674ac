"""Rows with lifetimes: when they hold, in which order they are, which of two streams belong together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tidemill.core.floats import canonical, equal, order_key
from tidemill.core.schema import Schema
from tidemill.core.time import FARTHEST, FOREVER
from tidemill.expr.evaluate import evaluate
from tidemill.plan.faults import no_lifetime, null_start
from tidemill.plan.nodes import Plan
from tidemill.plan.temporal import LEFT, RIGHT, Match, sided
from tidemill.reference.aggregates import Row

Life = tuple[int, int]
"""A lifetime, `[start, end)`; the end may be `FOREVER`."""


def life(plan: Plan, row: Row) -> Life:
    """Return the lifetime of a row; a point holds for one tick."""
    start = row[plan.time]
    if start is None:
        raise null_start(plan)
    if plan.end is None:
        return start, start + 1
    end = FOREVER if row[plan.end] is None else row[plan.end]
    if end <= start or not -FARTHEST <= start <= FARTHEST or (end != FOREVER and end > FARTHEST):
        raise no_lifetime(plan, start, end)
    return start, end


def key_of(row: Row, names: Iterable[str]) -> tuple[Any, ...]:
    return tuple(canonical(row[n]) for n in names)


def in_order(row: Row, names: Iterable[str]) -> Any:
    """Return a key that sorts rows by some columns, null first."""
    return tuple((row[n] is not None, 0 if row[n] is None else order_key(row[n])) for n in names)


def matching(match: Match, left: Plan, right: Plan) -> Callable[[Row, Row], bool]:
    """Return whether rows of two streams belong together."""
    schema = Schema(sided(left, right))

    def matches(one: Row, other: Row) -> bool:
        if key_of(one, match.scope) != key_of(other, match.scope):
            return False
        for a, b in match.keys:
            if one[a] is None or other[b] is None or not equal(one[a], other[b]):
                return False
        if match.where is None:
            return True
        pair = {
            **{LEFT + n: v for n, v in one.items()},
            **{RIGHT + n: v for n, v in other.items()},
        }
        return evaluate(match.where, pair, schema) is True

    return matches
