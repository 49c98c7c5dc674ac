"""Choose the algorithm that moves each part of the state from one window to the next, by its traits.

- `single`: windows do not overlap, and each pane is used once;
- `subtract`: subtract the panes that leave (exact inverse);
- `subtract_rows`: take out the rows that leave, one by one, where windows follow the rows;
- `two_stacks`: combine only, one combine per step amortised;
- `merge`: combine all panes of each window, which is cheaper than two stacks if they are few;
- `recompute`: read all rows of the window (holistic), or combine objects (sketches).
"""

from __future__ import annotations

from tidemill.aggregates.algebra import Algebra, ObjectForm
from tidemill.aggregates.layout import StatePart
from tidemill.plan.nodes import WindowAggregate
from tidemill.plan.physical import Panes
from tidemill.windows.spec import Calendar, GridWindow, PerEvent, Rows, Session

FEW = 8
"""Up to this many panes per window, `merge` is faster than `two_stacks` and `subtract`."""


def choose_sliding(node: WindowAggregate, panes: Panes) -> tuple[str, ...]:
    most = _panes_per_window(node, panes)
    by_rows = all(isinstance(w.spec, (PerEvent, Rows)) for w in node.windows)
    return tuple(_choose(part, most, by_rows) for part in node.layout.parts)


def _choose(state: StatePart, panes: int | None, by_rows: bool) -> str:
    if not isinstance(state.part.algebra, Algebra):
        return "recompute"
    if panes == 1:
        return "single"
    if panes is not None and panes <= FEW:
        return "merge"
    assert state.form is not None
    if state.form.subtracts:
        return "subtract"
    by_rows = by_rows and isinstance(state.form, ObjectForm) and state.form.by_rows
    return "subtract_rows" if by_rows else "two_stacks"


def _panes_per_window(node: WindowAggregate, panes: Panes) -> int | None:
    """Return the maximum number of panes in a window; None if it depends on the data."""
    most = 1
    for window in node.windows:
        spec = window.spec
        if isinstance(spec, (Session, Calendar)):
            continue  # these do not overlap: each pane is combined once
        if not isinstance(spec, GridWindow) or spec.length is None:
            return None
        most = max(most, spec.length // panes.size)
    return most
