"""The operator of each node of the temporal algebra. Each is imported when a plan has such a node."""

from __future__ import annotations

from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, Any

from tidemill.local.operator import Operator
from tidemill.local.thread_safety import threadsafe
from tidemill.local.tuning import DEFAULT, Tuning
from tidemill.plan.as_of import as_of, until_next
from tidemill.plan.intervals import IntervalJoin
from tidemill.plan.nodes import unknown_node
from tidemill.plan.properties import looks_up
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
)

if TYPE_CHECKING:
    from tidemill.local.temporal_operator import TemporalOperator


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
        from tidemill.local.arrival_operator import ArrivalOperator
        from tidemill.local.indexed_operator import IndexedOperator, indexed

        if (kept := indexed(plan)) is not None:
            return IndexedOperator(
                plan, kept, tuning, lateness=on_arrival, joiners=joiners, pool=pool, **options
            )
        return ArrivalOperator(plan, tuning, lateness=on_arrival, **options)
    if isinstance(plan, (Lifetime, Unnest)) or (isinstance(plan, Edges) and not plan.changes):
        return _row_operator(plan)
    if isinstance(plan, (Join, Cut)) and looks_up(plan):
        from tidemill.local.lookup_operator import LookupOperator

        return LookupOperator(plan, tuning, threads=lanes if pool is None else 1, **options)
    if isinstance(plan, IntervalJoin) and ahead and lanes > 1 and threadsafe(plan):
        from tidemill.local.interval_operator import IntervalOperator

        return IntervalOperator(plan, tuning, ahead=lanes, **options)
    if few and isinstance(plan, IntervalJoin):
        from tidemill.local.indexed_exact import IndexedExactOperator, indexed_exactly

        if (exact := indexed_exactly(plan)) is not None:
            return IndexedExactOperator(plan, tuning, kept=exact, joiners=joiners, pool=pool, **options)
    kind = _keeping(plan)
    if isinstance(plan, Edges):
        return kind(plan, tuning, **options)
    make = partial(kind, plan, tuning, **options)
    keys = _keys(plan) if lanes > 1 else None
    if keys is None or not threadsafe(plan):
        return make()
    from tidemill.local.keyed_lanes import KeyedLanes

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


def _row_operator(plan: Lifetime | Unnest | Edges) -> Operator:
    from tidemill.local.lifetime_operator import EdgesOperator, LifetimeOperator, UnnestOperator

    if isinstance(plan, Lifetime):
        return LifetimeOperator(plan)
    return UnnestOperator(plan) if isinstance(plan, Unnest) else EdgesOperator(plan)


def _keeping(plan: Temporal) -> type[TemporalOperator]:
    """Return the operator of a node that keeps rows."""
    if until_next(plan) is not None:
        from tidemill.local.next_operator import NextOperator

        return NextOperator
    if as_of(plan) is not None:
        from tidemill.local.as_of_operator import AsOfOperator

        return AsOfOperator
    if isinstance(plan, IntervalJoin):
        from tidemill.local.interval_operator import IntervalOperator

        return IntervalOperator
    if isinstance(plan, Join):
        from tidemill.local.join_operator import JoinOperator

        return JoinOperator
    if isinstance(plan, Cut):
        from tidemill.local.cut_operator import CutOperator

        return CutOperator
    if isinstance(plan, SnapshotAggregate):
        from tidemill.local.snapshot_operator import SnapshotOperator

        return SnapshotOperator
    from tidemill.local import rows_by_key

    by_key: dict[type[Temporal], type[TemporalOperator]] = {
        Chop: rows_by_key.ChopOperator, Edges: rows_by_key.ChangesOperator,
        FromEdges: rows_by_key.FromEdgesOperator, Neighbours: rows_by_key.NeighboursOperator,
        Stitch: rows_by_key.StitchOperator, TopRows: rows_by_key.TopOperator,
        UntilSessionEnd: rows_by_key.SessionEndOperator,
    }  # fmt: skip
    if type(plan) not in by_key:
        raise unknown_node(plan, "local", "local/temporal.py")
    return by_key[type(plan)]
