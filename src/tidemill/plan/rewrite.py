"""Rewrite the expressions inside plan nodes, for all rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tidemill.expr.nodes import Node
from tidemill.plan.intervals import IntervalAggregate, IntervalJoin
from tidemill.plan.nodes import (
    Filter,
    Plan,
    Project,
    Source,
    Union,
    WheelWindows,
    WindowAggregate,
    unknown_node,
)  # fmt: skip
from tidemill.plan.temporal import (
    Cut,
    Edges,
    FromEdges,
    Join,
    Lifetime,
    Pieces,
    SnapshotAggregate,
    Unnest,
)


def map_expressions(plan: Plan, change: Callable[[Node], Node]) -> Plan:
    """Return the node with `change` applied to each of its expressions; its inputs stay the same."""
    if isinstance(plan, Filter):
        return replace(plan, predicate=change(plan.predicate))
    if isinstance(plan, Project):
        return replace(plan, outputs=tuple((n, change(e)) for n, e in plan.outputs))
    if isinstance(plan, WindowAggregate):
        aggregates = tuple((n, a.over(change)) for n, a in plan.aggregates)
        return replace(plan, aggregates=aggregates)
    if isinstance(plan, Lifetime):
        return replace(plan, outputs=tuple((n, change(e)) for n, e in plan.outputs))
    if isinstance(plan, SnapshotAggregate):
        return replace(plan, aggregates=tuple((n, a.over(change)) for n, a in plan.aggregates))
    if isinstance(plan, (Join, Cut)):
        where = plan.match.where
        return plan if where is None else replace(plan, match=replace(plan.match, where=change(where)))
    if isinstance(plan, IntervalJoin):
        return _in_intervals(plan, change)
    if isinstance(plan, FromEdges):
        return replace(plan, starts=change(plan.starts))
    if isinstance(plan, (Source, Union, WheelWindows, Pieces, Unnest, Edges)):
        return plan
    raise unknown_node(plan, "the function map_expressions", "plan/rewrite.py")


def _in_intervals(plan: IntervalJoin, change: Callable[[Node], Node]) -> Plan:
    where = plan.match.where
    match = plan.match if where is None else replace(plan.match, where=change(where))
    plan = replace(plan, match=match, interval=plan.interval.over(change))
    if isinstance(plan, IntervalAggregate):
        return replace(plan, aggregates=tuple((n, a.over(change)) for n, a in plan.aggregates))
    return plan
