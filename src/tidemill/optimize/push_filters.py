"""Push filters below projections and unions, and below an aggregate if they only read its keys."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from tidemill.expr.nodes import Column, Node, Udf, columns_of, substitute
from tidemill.optimize.rule import rule
from tidemill.plan.intervals import IntervalJoin
from tidemill.plan.nodes import Filter, Plan, Project, Source, Union, WheelWindows, WindowAggregate
from tidemill.plan.sharing import used_often
from tidemill.plan.temporal import (
    LEFT,
    RIGHT,
    Cut,
    Join,
    Lifetime,
    SnapshotAggregate,
    Temporal,
    lifetime,
)
from tidemill.windows.spec import Window


@rule(Source, Filter, Project, Union, WindowAggregate, WheelWindows, Temporal)
def push_filters(plan: Plan) -> Plan:
    # A filter pushed below a shared node would create a second copy of that node.
    often = set(used_often(plan))

    def push(node: Plan, children: list[Plan]) -> Plan:
        after = node.with_children(children)
        after = _pushed(after, often) if isinstance(after, Filter) else after
        if id(node) in often:
            often.add(id(after))
        return after

    return plan.fold(push)


def _pushed(node: Filter, often: Set[int]) -> Plan:
    below, predicate = node.input, node.predicate
    if id(below) in often:
        return node
    if isinstance(below, (Project, Lifetime)):
        over = substitute(predicate, dict(below.outputs))
        if any(isinstance(n, Udf) for n in over.walk()):
            return node  # a Python function would run twice for each row
        return replace(below, input=_pushed(Filter(below.input, over), often))
    if isinstance(below, WindowAggregate) and _only_keys(node, below):
        return replace(below, input=_pushed(Filter(below.input, predicate), often))
    asked = columns_of(predicate)
    if isinstance(below, SnapshotAggregate) and asked and asked <= set(below.keys):
        return replace(below, input=_pushed(Filter(below.input, predicate), often))
    if isinstance(below, Cut) and not asked & lifetime(below):
        return replace(below, left=_pushed(Filter(below.left, predicate), often))
    if isinstance(below, IntervalJoin) and _of_base(node, below):
        return replace(below, base=_pushed(Filter(below.base, predicate), often))
    if isinstance(below, Join) and below.kind in ("inner", "left"):
        return _into_side(node, below, often)
    if isinstance(below, Union):
        return Union(tuple(_pushed(Filter(i, predicate), often) for i in below.inputs))
    return node


def _into_side(node: Filter, below: Join, often: Set[int]) -> Plan:
    """Push a filter into the side of a join whose columns it reads; an outer side must keep its rows."""
    of, asked = dict(below.columns), columns_of(node.predicate)
    for side, prefix in (("left", LEFT), ("right", RIGHT)):
        if below.kind == "left" and side == "right":
            continue
        if asked and all(of.get(n, "").startswith(prefix) for n in asked):
            names: dict[str, Node] = {n: Column(of[n].removeprefix(prefix)) for n in asked}
            rows = Filter(getattr(below, side), substitute(node.predicate, names))
            return replace(below, **{side: _pushed(rows, often)})  # type: ignore[arg-type]
    return node


def _of_base(node: Filter, below: IntervalJoin) -> bool:
    """Return whether a filter says which base rows to ask for, and no other row depends on those."""
    asked = columns_of(node.predicate)
    apart = set(below.match.left_keys) if below.interval.since_previous else set(below.base.schema.names)
    return bool(asked) and asked <= apart


def _only_keys(filter: Filter, below: WindowAggregate) -> bool:
    """Return whether a filter only reads keys, and its windows do not depend on rows of other keys."""
    asked = columns_of(filter.predicate)
    return all(
        asked <= set(below.group_keys) and _independent(asked, w.spec, below) for w in below.windows
    )


def _independent(asked: frozenset[str], spec: Window, below: WindowAggregate) -> bool:
    # Filled and landmark windows continue until the last row of the whole stream.
    if spec.until_end:
        return False
    return not spec.follows_rows or (bool(asked) and asked <= set(below.partition_of(spec)))
