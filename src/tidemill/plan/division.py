"""Where a plan can be divided by a key: the rows of some keys give the results of these keys.

Every operator of such a plan meets rows by a key that is a column of each stream, so shares of the rows are
computed apart, from the streams to the results. It is what `group_by(key).apply(query)` says (paper 000,
section 6.1), found also where nobody said it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemill.core.schema import Schema
from tidemill.expr.nodes import Column
from tidemill.plan.intervals import IntervalJoin
from tidemill.plan.nodes import Filter, Plan, Project, Source, Union, WindowAggregate
from tidemill.plan.properties import properties
from tidemill.plan.temporal import (
    LEFT,
    Cut,
    Edges,
    FromEdges,
    Join,
    Lifetime,
    Match,
    Neighbours,
    SnapshotAggregate,
    Stitch,
    TopRows,
    Unnest,
    UntilSessionEnd,
    payload,
)


@dataclass(frozen=True)
class Division:
    """A plan, and the column of each stream by whose values its rows are divided."""

    plan: Plan
    columns: Mapping[str, str]
    """By the name of the stream. Streams that are not here are read whole by every share: tables."""

    @property
    def shown(self) -> str:
        """The columns, for people."""
        return ", ".join(f"{stream}.{column}" for stream, column in sorted(self.columns.items()))


_Below = list[tuple[Plan, str | None]]
"""Inputs, each with the column that divides it, None for one that each share reads whole."""


def division(plan: Plan) -> Division | None:
    """Return how a plan can be divided, None if it cannot.

    >>> import tidemill as tm
    >>> a, b = (tm.stream(n, time="t", schema={"t": "int64", "k": "int64", "v": "int64"}) for n in "ab")
    >>> division(a.lasting(5).join(b, on={"k": "v"}).plan).shown
    'a.k, b.v'
    >>> division(a.agg(n=tm.count()).plan)
    """
    root = plan
    while isinstance(root, (Filter, Project, Lifetime, Unnest)):
        root = root.input
    for keys in _choices(root):
        if (columns := _traced(keys)) is not None:
            return Division(plan, columns)
    return None


def _choices(plan: Plan) -> list[_Below]:
    """Return the ways to divide the inputs of an operator by a key of its own."""
    if isinstance(plan, (Join, Cut, IntervalJoin)):
        return [found for pair in _pairs(plan.match) if (found := _sides(plan, *pair)) is not None]
    keys = _keys(plan)
    return [[(plan.children()[0], key)] for key in keys or () if _hashed(plan.children()[0].schema, key)]


def _keys(plan: Plan) -> tuple[str, ...] | None:
    """Return the columns by which an operator with one input keeps rows apart; None if it keeps none."""
    if isinstance(plan, (SnapshotAggregate, TopRows, UntilSessionEnd, Neighbours, FromEdges)):
        return plan.keys
    if isinstance(plan, Stitch) or (isinstance(plan, Edges) and plan.changes):
        return payload(plan.children()[0])
    if isinstance(plan, WindowAggregate):
        apart = [set(plan.keys if w.spec.partition is None else w.spec.partition) for w in plan.windows]
        empty = any(getattr(w.spec, "fill_empty", False) for w in plan.windows)
        return () if empty else tuple(k for k in plan.keys if all(k in one for one in apart))
    return None


def _pairs(match: Match) -> tuple[tuple[str, str], ...]:
    return (*((name, name) for name in match.scope), *match.keys)


def _sides(plan: Join | Cut | IntervalJoin, left: str, right: str) -> _Below | None:
    one, other = plan.children()
    hashed = _hashed(one.schema, left) and _hashed(other.schema, right)
    return [(one, left), (other, right)] if hashed else None


def _hashed(schema: Schema, name: str) -> bool:
    return schema[name].is_fixed or schema[name].kind in ("string", "binary")


def _traced(first: _Below) -> dict[str, str] | None:
    """Follow the columns that divide the inputs of an operator down to the streams."""
    found: dict[str, str | None] = {}
    chosen: dict[int, str | None] = {}
    waiting = list(first)
    while waiting:
        node, column = waiting.pop()
        if id(node) in chosen:
            if chosen[id(node)] != column:
                return None
            continue
        chosen[id(node)] = column
        if isinstance(node, Source):
            if found.setdefault(node.name, column) != column:
                return None
            continue
        below: _Below | None
        below = [(n, None) for n in node.children()] if column is None else _below(node, column)
        if not below:
            return None
        waiting += below
    return {name: column for name, column in found.items() if column is not None}


def _below(node: Plan, column: str) -> _Below | None:
    """Return what divides the inputs of a node whose results are divided by a column."""
    if isinstance(node, Union):
        return [(one, column) for one in node.inputs]
    if isinstance(node, (Join, Cut)):
        return _below_match(node, column)
    if isinstance(node, IntervalJoin):
        pairs = (pair for pair in _pairs(node.match) if pair[0] == column)
        return next((_sides(node, *pair) for pair in pairs), None)
    [below] = node.children() or (None,)
    if below is None:
        return None
    if isinstance(node, Filter):
        return [(below, column)]
    if isinstance(node, (Project, Lifetime)):
        given = dict(node.outputs)[column]
        return [(below, given.name)] if isinstance(given, Column) else None
    if isinstance(node, Unnest):
        same = column in below.schema and column != node.column
        return [(below, column)] if same and column != node.element else None
    if isinstance(node, Edges) and not node.changes:
        return [(below, column)] if column in payload(below) else None
    return [(below, column)] if column in (_keys(node) or ()) else None


def _below_match(node: Join | Cut, column: str) -> _Below | None:
    if isinstance(node, Join):
        of = dict(node.columns).get(column, "")
        column = of.removeprefix(LEFT) if of.startswith(LEFT) else ""
    if column not in payload(node.left):
        return None
    for left, right in _pairs(node.match):
        if left == column:
            return _sides(node, left, right)
    if properties(node.right).everlasting and node.kind in ("inner", "left", "exists", "not_exists"):
        return [(node.left, column), (node.right, None)]
    return None
