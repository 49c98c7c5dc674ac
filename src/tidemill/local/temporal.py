"""The operator of each node of the temporal algebra."""

from __future__ import annotations

from concurrent.futures import Executor
from functools import partial
from typing import Any

from tidemill.codegen.state_plan import plan_states
from tidemill.core.schema import Schema
from tidemill.expr.nodes import Node
from tidemill.local.arrival_operator import ArrivalOperator
from tidemill.local.as_of_operator import AsOfOperator
from tidemill.local.cut_operator import CutOperator
from tidemill.local.expressions import row_by_row
from tidemill.local.indexed_exact import IndexedExactOperator, indexed_exactly
from tidemill.local.indexed_operator import IndexedOperator, indexed
from tidemill.local.interval_operator import IntervalOperator
from tidemill.local.join_operator import JoinOperator
from tidemill.local.keyed_lanes import KeyedLanes
from tidemill.local.lifetime_operator import EdgesOperator, LifetimeOperator, UnnestOperator
from tidemill.local.lookup_operator import LookupOperator, looks_up
from tidemill.local.next_operator import NextOperator
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
from tidemill.plan.as_of import as_of, until_next
from tidemill.plan.intervals import IntervalAggregate, IntervalJoin, IntervalPairs
from tidemill.plan.nodes import Filter, Plan, Project, WindowAggregate, unknown_node
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
    payload,
    sided,
)

_KEEPING: dict[type[Temporal], type[TemporalOperator]] = {
    Chop: ChopOperator, Cut: CutOperator, FromEdges: FromEdgesOperator, Join: JoinOperator,
    IntervalAggregate: IntervalOperator, IntervalPairs: IntervalOperator, Neighbours: NeighboursOperator,
    SnapshotAggregate: SnapshotOperator, Stitch: StitchOperator, TopRows: TopOperator,
    UntilSessionEnd: SessionEndOperator,
}  # fmt: skip


def temporal_operator(
    plan: Temporal, tuning: Tuning = DEFAULT, *, lanes: int = 1, pool: Executor | None = None,
    ahead: bool = False, on_arrival: int | None = None, few: bool = False, joiners: int = 1, **options: Any,
) -> Operator:  # fmt: skip
    """Return the operator of a node. With several `lanes`, each has a thread, where there are keys.

    So many `joiners`, each on a thread, share the work where interval joins are answered from an index.
    Where results may come later than they are complete (`ahead`), threads may take turns in place of keys.
    With `on_arrival`, the lateness in ticks, interval joins answer base rows when they come. `few` says that
    rows come a few at a time, and their results soon.
    """
    if on_arrival is not None and isinstance(plan, IntervalJoin):
        if (kept := indexed(plan)) is not None:
            return IndexedOperator(
                plan, kept, tuning, lateness=on_arrival, joiners=joiners, pool=pool, **options
            )
        return ArrivalOperator(plan, tuning, lateness=on_arrival, **options)
    if isinstance(plan, Lifetime):
        return LifetimeOperator(plan)
    if isinstance(plan, Unnest):
        return UnnestOperator(plan)
    if isinstance(plan, Edges):
        return ChangesOperator(plan, tuning, **options) if plan.changes else EdgesOperator(plan)
    if isinstance(plan, (Join, Cut)) and looks_up(plan):
        return LookupOperator(plan, tuning, threads=lanes if pool is None else 1, **options)
    if type(plan) not in _KEEPING:
        raise unknown_node(plan, "local", "local/temporal.py")
    if isinstance(plan, IntervalJoin) and ahead and lanes > 1 and threadsafe(plan):
        return IntervalOperator(plan, tuning, ahead=lanes, **options)
    kind = _KEEPING[type(plan)]
    if until_next(plan) is not None:
        kind = NextOperator
    elif as_of(plan) is not None:
        kind = AsOfOperator
    elif few and isinstance(plan, IntervalJoin) and (kept := indexed_exactly(plan)) is not None:
        return IndexedExactOperator(plan, tuning, kept=kept, joiners=joiners, pool=pool, **options)
    make = partial(kind, plan, tuning, **options)
    keys = _keys(plan) if lanes > 1 else None
    if keys is None or not threadsafe(plan):
        return make()
    return KeyedLanes(make, keys, lanes, tuning.few_waiting // lanes // 2, pool)


def _keys(plan: Temporal) -> tuple[str, ...] | None:
    """Return a key column of each input by which rows can be divided; None if there is none."""
    if isinstance(plan, (Join, Cut, IntervalJoin)):
        left, right = plan.match.left_keys, plan.match.right_keys
        if not left:
            return None
        return (left[0], right[0]) if until_next(plan) is None else (right[0],)
    keys = payload(plan) if isinstance(plan, Stitch) else getattr(plan, "keys", ())
    source = plan.children()[0].schema
    keys = [k for k in keys if source[k].is_fixed or source[k].kind in ("string", "binary")]
    return (keys[0],) if keys else None


def threadsafe(plan: Plan) -> bool:
    """Return whether an operator calls no Python function of a user, which may not be."""
    if isinstance(plan, (Join, Cut)):
        where = plan.match.where
        return where is None or not row_by_row(where, Schema(sided(plan.left, plan.right)))
    if isinstance(plan, IntervalJoin):
        where, pairs = plan.match.where, Schema(sided(plan.base, plan.probe))
        computed = any(row_by_row(bound, plan.base.schema) for bound in plan.interval.computed)
        if computed or (where is not None and row_by_row(where, pairs)):
            return False
        if isinstance(plan, IntervalPairs):
            return True
    if isinstance(plan, (SnapshotAggregate, WindowAggregate, IntervalAggregate)):
        arguments = [a for part in plan.layout.parts for a in part.part.args]
        in_python = plan_states(plan.layout).in_python
        return not in_python and not any(row_by_row(a, plan.children()[-1].schema) for a in arguments)
    expressions: list[Node] = []
    if isinstance(plan, Filter):
        expressions = [plan.predicate]
    elif isinstance(plan, (Project, Lifetime)):
        expressions = [e for _, e in plan.outputs]
    elif isinstance(plan, FromEdges):
        expressions = [plan.starts]
    return not any(row_by_row(e, below.schema) for e in expressions for below in plan.children())
