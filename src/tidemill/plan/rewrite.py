"""Rewrite the expressions inside plan nodes, for all rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tidemill.expr.nodes import Node
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


def map_expressions(plan: Plan, change: Callable[[Node], Node]) -> Plan:
    """Return the node with `change` applied to each of its expressions; its inputs stay the same."""
    if isinstance(plan, Filter):
        return replace(plan, predicate=change(plan.predicate))
    if isinstance(plan, Project):
        return replace(plan, outputs=tuple((n, change(e)) for n, e in plan.outputs))
    if isinstance(plan, WindowAggregate):
        aggregates = tuple((n, a.over(change)) for n, a in plan.aggregates)
        return replace(plan, aggregates=aggregates)
    if isinstance(plan, (Source, Union, WheelWindows)):
        return plan
    raise unknown_node(plan, "the function map_expressions", "plan/rewrite.py")
