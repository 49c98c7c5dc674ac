"""Compute aggregates of hopping lifetimes as hopping windows (paper 000, constant hop).

A row with the lifetime `quantised(size, every)` holds from `w` to `w + every` if and only if the window of
`hopping(size, every)` that ends at `w` has it. So the aggregate over what holds there is that of the window.
Aggregates that see the times of rows stay as they are: the windows have the times before `quantised`.
"""

from __future__ import annotations

from tidemill.core.time import Domain, Duration
from tidemill.core.types import DURATION, INT64
from tidemill.expr.nodes import Call, Column, Literal, Node, columns_of
from tidemill.optimize.rule import rule
from tidemill.plan.nodes import (
    WINDOW_END,
    WINDOW_START,
    Filter,
    NamedWindow,
    Plan,
    Project,
    Source,
    Union,
    WheelWindows,
    WindowAggregate,
)
from tidemill.plan.sharing import used_often
from tidemill.plan.stages import Stage, stage_of
from tidemill.plan.temporal import (
    Hops,
    Lifetime,
    Move,
    SnapshotAggregate,
    Stitch,
    Temporal,
    lifetime,
)
from tidemill.windows.spec import Sliding


@rule(Source, Filter, Project, Union, WindowAggregate, WheelWindows, Temporal)
def hops_as_windows(plan: Plan) -> Plan:
    often = used_often(plan)  # a shared stream is computed once, and stays what it is

    def change(node: Plan) -> Plan:
        if (
            not isinstance(node, SnapshotAggregate)
            or not node.aggregates
            or not node.layout.commutative
        ):
            return node
        stage = stage_of(node.input, often)
        below = stage.base
        if not isinstance(below, Lifetime) or below.hops is None or id(below) in often:
            return node
        if below.hops.every > below.hops.size or _sees_lifetimes(node, stage, below):
            return node
        return _windows(node, stage, below, below.hops)

    return plan.transform(change)


def _sees_lifetimes(node: SnapshotAggregate, stage: Stage, below: Lifetime) -> bool:
    """Return whether anything but the lifetimes themselves depends on them."""
    own = lifetime(below)
    computed = [e for n, e in stage.outputs if n not in own]
    arguments = [
        a for _, aggregate in node.aggregates for part in aggregate.parts for a in part.args
    ]
    if any(columns_of(e) & own for e in (*stage.predicates, *computed, *arguments)):
        return True
    taken = {*node.keys, *(name for name, _ in node.aggregates)}
    return bool(taken & (own | {WINDOW_START, WINDOW_END}))


def _windows(node: SnapshotAggregate, stage: Stage, below: Lifetime, hops: Hops) -> Plan:
    rows: Plan = below.input
    for predicate in stage.predicates:
        rows = Filter(rows, predicate)
    outputs = [(n, e) for n, e in stage.outputs if n not in lifetime(below)]
    rows = Project(rows, ((rows.time, Column(rows.time)), *outputs,
                          *(((rows.end, Column(rows.end)),) if rows.end else ())))  # fmt: skip
    size, every = (Duration(ticks, rows.domain) for ticks in (hops.size, hops.every))
    spec = Sliding(size, every, origin=hops.origin)
    windows = WindowAggregate(rows, node.keys, (NamedWindow(None, spec),), node.aggregates)
    later = Literal(hops.every, INT64 if rows.domain is Domain.LOGICAL else DURATION)
    end: Node = Column(WINDOW_END)
    bounds = {node.time: end, node.end: Call("add", (end, later))}
    outputs = [(n, bounds.get(n, Column(n))) for n in node.schema.names]
    # A window starts `size` before its end.
    held = Lifetime(
        windows,
        tuple(outputs),
        node.time,
        node.end,
        Move(hops.size),
        f"each window holds for {every}",
        hops,
    )
    return Stitch(held)
