"""Choose, by traits alone, how each part of the state moves from one window to the next.

- `single`: windows do not overlap, nothing moves;
- `subtract`: take out what leaves (exact inverse);
- `two_stacks`: combine only, amortised one combine a step;
- `merge`: combine the few panes of a window again, cheaper than stacks when there are few;
- `recompute`: look at all rows of the window (holistic), or combine objects (sketches).
"""

from __future__ import annotations

from tidemill.aggregates.algebra import Algebra, Form
from tidemill.aggregates.layout import StatePart
from tidemill.plan.nodes import WindowAggregate
from tidemill.plan.physical import Panes
from tidemill.windows.spec import GridWindow, Session

FEW = 8
"""Up to this many panes a window, merging them again beats keeping stacks."""


def choose_sliding(node: WindowAggregate, panes: Panes) -> tuple[str, ...]:
    most = _panes_per_window(node, panes)
    return tuple(_choose(part, most) for part in node.layout.parts)


def _choose(state: StatePart, panes: int | None) -> str:
    if not isinstance(state.part.algebra, Algebra):
        return "recompute"
    if panes == 1:
        return "single"
    if isinstance(state.form, Form) and state.form.subtracts:
        return "subtract"
    return "merge" if panes is not None and panes <= FEW else "two_stacks"


def _panes_per_window(node: WindowAggregate, panes: Panes) -> int | None:
    """The most panes any window has; `None` when the data decides."""
    most = 1
    for window in node.windows:
        spec = window.spec
        if isinstance(spec, Session):
            continue  # sessions are disjoint: each pane is combined once
        if not isinstance(spec, GridWindow) or spec.length is None:
            return None
        most = max(most, spec.length // panes.size)
    return most
