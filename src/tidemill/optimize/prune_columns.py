"""Read and compute only the columns that the nodes above need."""

from __future__ import annotations

from dataclasses import replace

from tidemill.expr.nodes import Column, columns_of
from tidemill.optimize.rule import rule
from tidemill.plan.nodes import Filter, Plan, Project, Source, Union, WheelWindows, WindowAggregate
from tidemill.windows.spec import LastRows, PerEvent, Rows


@rule(Source, Filter, Project, Union, WindowAggregate, WheelWindows)
def prune_columns(plan: Plan) -> Plan:
    needed: dict[int, frozenset[str]] = {id(plan): frozenset(plan.schema.names)}
    for node in reversed(plan.upward()):  # every user of a node comes before the node
        names = needed[id(node)] = needed[id(node)] | {node.time}
        for child in node.children():
            needed[id(child)] = needed.get(id(child), frozenset()) | _asked_of_inputs(node, names)
    return plan.fold(lambda node, children: _narrowed(node, children, needed[id(node)]))


def _asked_of_inputs(node: Plan, names: frozenset[str]) -> frozenset[str]:
    """Return the columns that a node reads to compute the columns `names`."""
    if isinstance(node, Filter):
        return names | columns_of(node.predicate)
    if isinstance(node, Project):
        return frozenset().union(*(columns_of(e) for n, e in node.outputs if n in names))
    return _read_by(node) if isinstance(node, WindowAggregate) else names


def _narrowed(node: Plan, children: list[Plan], names: frozenset[str]) -> Plan:
    if isinstance(node, Union):
        # Another node may need more columns of a shared input.
        kept = tuple((n, Column(n)) for n in node.schema.names if n in names)
        same = tuple(n for n, _ in kept)
        return Union(tuple(c if c.schema.names == same else Project(c, kept) for c in children))
    node = node.with_children(children)
    if isinstance(node, Source):
        return replace(node, columns=tuple(n for n in node.declared.names if n in names))
    if isinstance(node, Project):
        return replace(node, outputs=tuple((n, e) for n, e in node.outputs if n in names))
    return node


def _read_by(plan: WindowAggregate) -> frozenset[str]:
    found = {plan.attribute, plan.range_attribute, *plan.group_keys}
    for _, aggregate in plan.aggregates:
        for part in aggregate.parts:
            found.update(*(columns_of(a) for a in part.args))
    for window in plan.windows:
        ordered = isinstance(window.spec, (Rows, PerEvent)) and window.spec.order_by is not None
        if ordered or isinstance(window.spec, LastRows):
            # Every other column breaks ties in the order, so all of them are needed.
            found.update(plan.input.schema.names)
    return frozenset(found)
