"""Aggregate rows of tables in one window: they hold for ever, so nothing changes from instant to instant."""

from __future__ import annotations

from tidemill.aggregates.basic import count
from tidemill.core.schema import internal
from tidemill.expr.nodes import Column, Literal, Node
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
from tidemill.plan.temporal import (
    ALWAYS,
    ALWAYS_END,
    ALWAYS_START,
    Lifetime,
    SnapshotAggregate,
    Temporal,
)
from tidemill.windows.spec import tumbling

_COUNT = internal("count")
_ONE_INSTANT = tumbling(1, origin=ALWAYS_START)
"""All rows of tables start in its first window."""


@rule(Source, Filter, Project, Union, WindowAggregate, WheelWindows, Temporal)
def group_tables(plan: Plan) -> Plan:
    return plan.transform(_grouped)


def _grouped(node: Plan) -> Plan:
    if not isinstance(node, SnapshotAggregate) or node.input.time != ALWAYS:
        return node
    if {WINDOW_START, WINDOW_END} & set(node.schema.names):
        return node  # windows would have two columns of one name
    # Without aggregates they are the keys that there are.
    aggregates = node.aggregates or ((_COUNT, count()),)
    window = NamedWindow(None, _ONE_INSTANT)
    inside = WindowAggregate(node.input, node.keys, (window,), aggregates)
    always: dict[str, Node] = {
        ALWAYS: Literal(ALWAYS_START, node.schema[ALWAYS]),
        ALWAYS_END: Literal(None, node.schema[ALWAYS_END]),
    }
    outputs = tuple((n, always.get(n, Column(n))) for n in node.schema.names)
    return Lifetime(inside, outputs, ALWAYS, ALWAYS_END, None, "always")
