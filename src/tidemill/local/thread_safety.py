"""Which operators may be called on several threads."""

from __future__ import annotations

from tidemill.codegen.state_plan import plan_states
from tidemill.core.schema import Schema
from tidemill.expr.nodes import Node
from tidemill.local.expressions import row_by_row
from tidemill.plan.intervals import IntervalAggregate, IntervalJoin, IntervalPairs
from tidemill.plan.nodes import Filter, Plan, Project, WindowAggregate
from tidemill.plan.temporal import Cut, FromEdges, Join, Lifetime, SnapshotAggregate, sided


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
