"""Derive the physical choices of a node from the node alone: equal nodes have equal choices."""

from __future__ import annotations

from tidemill.optimize.choose_sliding import choose_sliding
from tidemill.optimize.share_panes import share_panes
from tidemill.plan.nodes import Plan, WindowAggregate
from tidemill.plan.physical import WindowChoices


def choices_of(node: WindowAggregate) -> WindowChoices:
    """Choose how to compute a window aggregate. Call this once and pass the result on."""
    panes = share_panes(node)
    return WindowChoices(panes, choose_sliding(node, panes))


def with_choices(node: Plan) -> str:
    """Format a node and its choices, as `explain` shows them in the optimised plan."""
    return f"{node} {choices_of(node)}" if isinstance(node, WindowAggregate) else str(node)
