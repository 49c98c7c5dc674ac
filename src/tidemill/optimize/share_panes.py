"""Give all windows of a query one grid of panes, so that each row is aggregated once.

The size of a pane is the gcd of every range and slide, and of the distances between origins and starts. Only
a start that all windows share may lie within a pane, because no row before it is aggregated. Windows that
depend on the data (per_event, session) and aggregates that need time order have panes of one tick.

Calendar windows of one zone have panes of their own: the days or months that all of them consist of. Beside
other windows, panes have a length that divides all instants at which days of the zone begin; this may be
seconds.
"""

from __future__ import annotations

import math

from tidemill.core.zones import grain
from tidemill.plan.nodes import WindowAggregate
from tidemill.plan.physical import Panes
from tidemill.windows.calendar_units import common_axis
from tidemill.windows.spec import Calendar, GridWindow


def share_panes(node: WindowAggregate) -> Panes:
    specs = [w.spec for w in node.windows]
    grids = [s for s in specs if isinstance(s, GridWindow)]
    calendars = [s for s in specs if isinstance(s, Calendar)]
    if len(grids) + len(calendars) < len(specs):
        return Panes(0, 1)
    origin = grids[0].origin if grids else 0
    if not node.layout.commutative:
        return Panes(origin, 1)
    if not grids and (axis := common_axis(calendars)) is not None:
        return Panes(0, 1, axis)
    cuts: list[int | None] = [0 for _ in calendars]
    cuts += [g.origin for g in grids] + [g.start for g in grids if g.start not in (None, node.start)]
    lengths = [g.pane for g in grids] + [grain(c.tz) for c in calendars]
    size = math.gcd(*lengths, *(c - origin for c in cuts if c is not None))
    return Panes(origin, size)
