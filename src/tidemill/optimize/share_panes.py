"""Give all windows of a query one grid of panes, so that each row is aggregated once.

The size of a pane is the gcd of every range and slide, and of the distances between origins and starts. Only
a start that all windows share may lie within a pane, because no row before it is aggregated. Windows that
depend on the data (per_event, session) and aggregates that need time order have panes of one tick.
"""

from __future__ import annotations

import math

from tidemill.plan.nodes import WindowAggregate
from tidemill.plan.physical import Panes
from tidemill.windows.spec import GridWindow


def share_panes(node: WindowAggregate) -> Panes:
    specs = [w.spec for w in node.windows]
    grids = [s for s in specs if isinstance(s, GridWindow)]
    if len(grids) < len(specs):
        return Panes(0, 1)
    origin = grids[0].origin
    if not node.layout.commutative:
        return Panes(origin, 1)
    cuts = [g.origin for g in grids] + [g.start for g in grids if g.start not in (None, node.start)]
    size = math.gcd(*(g.pane for g in grids), *(c - origin for c in cuts if c is not None))
    return Panes(origin, size)
