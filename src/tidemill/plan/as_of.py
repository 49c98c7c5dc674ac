"""The last known value, `s.until_next(k)`, and joins of points with it.

A row holds until the next one of its key starts, so one pass over `s` finds all ends. A join of points with
it, `points.join(s.until_next(k), on=k)`, needs the last rows of each key only. No row of it waits until an
end is known, as it would if the rows of `s` had to have their ends before they are joined.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.expr.nodes import Call, Column, Literal, columns_of
from tidemill.plan.nodes import Plan
from tidemill.plan.properties import properties
from tidemill.plan.temporal import RIGHT, Cut, Join, Lifetime, Temporal


@dataclass(frozen=True)
class AsOf:
    """The right side of such a join."""

    rows: Plan
    """The stream whose rows hold until the next one of their key starts."""
    tolerance: int | None
    """They hold for so many ticks at most."""


@dataclass(frozen=True)
class UntilNext:
    """A stream whose rows hold until the next one of their key starts."""

    rows: Plan
    """The stream; it may give its rows other ends."""
    keys: tuple[str, ...]


def until_next(plan: Plan) -> UntilNext | None:
    """Return which stream a step ends at the next start of each key; None if it does something else.

    >>> import tidemill as tm
    >>> s = tm.stream("s", time="t", schema={"t": "int64", "k": "string"})
    >>> until_next(s.until_next("k").plan).keys
    ('k',)
    >>> until_next(s.lasting(5).clip(s, on="k").plan)
    """
    if not isinstance(plan, Cut) or plan.kind != "clip" or plan.match.keys or plan.match.where is not None:
        return None
    lasting = plan.left
    if not isinstance(lasting, Lifetime) or lasting.input is not plan.right or not _only_end(lasting):
        return None
    if lasting.end_column is None:
        return None  # points
    end = dict(lasting.outputs)[lasting.end_column]
    if not isinstance(end, Literal) or end.value is not None:
        return None
    return UntilNext(plan.right, plan.match.scope)


def as_of(plan: Plan) -> AsOf | None:
    """Return what a join looks up as of each instant; None if it is not such a join.

    >>> import tidemill as tm
    >>> a, b = (tm.stream(n, time="t", schema={"t": "int64", "k": "string"}) for n in "ab")
    >>> as_of(a.join(b.until_next("k").at_most(5), on="k").plan).tolerance
    5
    >>> as_of(a.join(b.lasting(5), on="k").plan)
    """
    if not isinstance(plan, Join) or plan.kind not in ("inner", "left"):
        return None
    if properties(plan.left).duration != 1:
        return None
    right, tolerance = _at_most(plan.right)
    found = until_next(right)
    if found is None or not found.keys or {*plan.match.right_keys} != {*found.keys}:
        return None
    where = plan.match.where
    if where is not None and f"{RIGHT}{plan.right.end}" in columns_of(where):
        return None  # the end of a row is not known when it is looked up
    return AsOf(found.rows, tolerance)


def inputs_of(plan: Temporal) -> tuple[Plan, ...]:
    """Return the plans that the operator of a node reads."""
    if (last := until_next(plan)) is not None:
        return (last.rows,)
    found = as_of(plan)
    return plan.children() if found is None else (plan.children()[0], found.rows)


def _at_most(plan: Plan) -> tuple[Plan, int | None]:
    """Return the plan below `at_most`, and how long rows hold at most."""
    if not isinstance(plan, Lifetime) or plan.end is None or not _only_end(plan):
        return plan, None
    end, start = dict(plan.outputs)[plan.end], Column(plan.time)
    if isinstance(end, Call) and end.function == "least" and end.args[0] == Column(plan.end):
        later = end.args[1]
        if isinstance(later, Call) and later.function == "add" and later.args[0] == start:
            by = later.args[1]
            if isinstance(by, Literal) and isinstance(by.value, int):
                return plan.input, by.value
    return plan, None


def _only_end(plan: Lifetime) -> bool:
    """Return whether a step changes nothing but the ends of rows."""
    return plan.time == plan.input.time and all(e == Column(n) for n, e in plan.outputs if n != plan.end)
