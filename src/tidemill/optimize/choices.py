"""The physical choices of a node, derived from the node alone: equal nodes have equal choices."""

from __future__ import annotations

from tidemill.optimize.choose_sliding import choose_sliding
from tidemill.optimize.share_panes import share_panes
from tidemill.plan.nodes import Plan, WindowAggregate
from tidemill.plan.physical import WindowChoices


def choices_of(node: WindowAggregate) -> WindowChoices:
    """How to compute a window aggregate. Engines ask once and hand the answer on."""
    panes = share_panes(node)
    return WindowChoices(panes, choose_sliding(node, panes))


def with_choices(node: Plan) -> str:
    """A node as `explain` shows it in the optimised plan: what it computes, then the choices."""
    return f"{node} {choices_of(node)}" if isinstance(node, WindowAggregate) else str(node)
