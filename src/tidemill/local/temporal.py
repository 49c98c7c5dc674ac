"""The operator of each node of the temporal algebra."""

from __future__ import annotations

from typing import Any

from tidemill.local.cut_operator import CutOperator
from tidemill.local.join_operator import JoinOperator
from tidemill.local.lifetime_operator import EdgesOperator, LifetimeOperator, UnnestOperator
from tidemill.local.lookup_operator import LookupOperator, looks_up
from tidemill.local.operator import Operator
from tidemill.local.rows_by_key import (
    ChangesOperator,
    ChopOperator,
    FromEdgesOperator,
    NeighboursOperator,
    SessionEndOperator,
    StitchOperator,
    TopOperator,
)
from tidemill.local.snapshot_operator import SnapshotOperator
from tidemill.local.temporal_operator import TemporalOperator
from tidemill.local.tuning import DEFAULT, Tuning
from tidemill.plan.nodes import unknown_node
from tidemill.plan.temporal import (
    Chop,
    Cut,
    Edges,
    FromEdges,
    Join,
    Lifetime,
    Neighbours,
    SnapshotAggregate,
    Stitch,
    Temporal,
    TopRows,
    Unnest,
    UntilSessionEnd,
)

_KEEPING: dict[type[Temporal], type[TemporalOperator]] = {
    Chop: ChopOperator, Cut: CutOperator, FromEdges: FromEdgesOperator, Join: JoinOperator,
    Neighbours: NeighboursOperator, SnapshotAggregate: SnapshotOperator, Stitch: StitchOperator,
    TopRows: TopOperator, UntilSessionEnd: SessionEndOperator,
}  # fmt: skip


def temporal_operator(plan: Temporal, tuning: Tuning = DEFAULT, **options: Any) -> Operator:
    """Return the operator of a node, on one thread."""
    if isinstance(plan, Lifetime):
        return LifetimeOperator(plan)
    if isinstance(plan, Unnest):
        return UnnestOperator(plan)
    if isinstance(plan, Edges):
        return ChangesOperator(plan, tuning, **options) if plan.changes else EdgesOperator(plan)
    if isinstance(plan, (Join, Cut)) and looks_up(plan):
        return LookupOperator(plan, tuning, **options)
    if type(plan) not in _KEEPING:
        raise unknown_node(plan, "local", "local/temporal.py")
    return _KEEPING[type(plan)](plan, tuning, **options)
