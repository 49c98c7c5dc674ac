"""Read and compute only the columns that the nodes above need."""

from __future__ import annotations

from dataclasses import replace

from tidemill.expr.nodes import Column, columns_of
from tidemill.optimize.rule import rule
from tidemill.plan.intervals import IntervalAggregate, IntervalJoin, IntervalPairs, read_of_base
from tidemill.plan.nodes import Filter, Plan, Project, Source, Union, WheelWindows, WindowAggregate
from tidemill.plan.temporal import (
    LEFT,
    RIGHT,
    Cut,
    Edges,
    FromEdges,
    Join,
    Lifetime,
    Match,
    SnapshotAggregate,
    Temporal,
    Unnest,
    compares_payloads,
    lifetime,
)
from tidemill.windows.spec import LastRows, PerEvent, Rows


@rule(Source, Filter, Project, Union, WindowAggregate, WheelWindows, Temporal)
def prune_columns(plan: Plan) -> Plan:
    needed: dict[int, frozenset[str]] = {id(plan): frozenset(plan.schema.names)}
    for node in reversed(plan.upward()):  # every user of a node comes before the node
        names = needed[id(node)] = needed[id(node)] | lifetime(node)
        for port, child in enumerate(node.children()):
            needed[id(child)] = needed.get(id(child), frozenset()) | _asked_of_input(node, port, names)
    return plan.fold(lambda node, children: _narrowed(node, children, needed[id(node)]))


def _asked_of_input(node: Plan, port: int, names: frozenset[str]) -> frozenset[str]:
    """Return the columns of an input that a node reads to compute the columns `names`."""
    if isinstance(node, Filter):
        return names | columns_of(node.predicate)
    if isinstance(node, (Project, Lifetime)):
        return frozenset().union(*(columns_of(e) for n, e in node.outputs if n in names))
    if isinstance(node, WindowAggregate):
        return _read_by(node)
    return _asked_by_temporal(node, port, names) if isinstance(node, Temporal) else names


def _asked_by_temporal(node: Temporal, port: int, names: frozenset[str]) -> frozenset[str]:
    source = node.children()[port]
    if compares_payloads(node):
        return frozenset(source.schema.names)
    if isinstance(node, SnapshotAggregate):
        return frozenset(node.keys) | _arguments(node)
    if isinstance(node, IntervalJoin):
        return _asked_by_interval_join(node, port, names)
    if isinstance(node, (Join, Cut)):
        asked = _read_by_match(node.match, port)
        if isinstance(node, Join):
            side = (LEFT, RIGHT)[port]
            read = (of for n, of in node.columns if n in names)
            asked |= {of.removeprefix(side) for of in read if of.startswith(side)}
        return asked | (names if isinstance(node, Cut) and port == 0 else frozenset())
    if isinstance(node, Unnest):
        return (names & frozenset(source.schema.names)) | {node.column}
    if isinstance(node, FromEdges):
        names |= columns_of(node.starts)
    keys = () if isinstance(node, (Unnest, Edges)) else getattr(node, "keys", ())
    return (names | frozenset(keys)) & frozenset(source.schema.names)


def _read_by_match(match: Match, port: int) -> frozenset[str]:
    side = (LEFT, RIGHT)[port]
    read = frozenset() if match.where is None else columns_of(match.where)
    own = frozenset(n.removeprefix(side) for n in read if n.startswith(side))
    return own | frozenset((match.left_keys, match.right_keys)[port])


def _asked_by_interval_join(node: IntervalJoin, port: int, names: frozenset[str]) -> frozenset[str]:
    asked = _read_by_match(node.match, port)
    if port == 0:
        return asked | (names & frozenset(node.base.schema.names)) | read_of_base(node)
    if node.interval.in_row_order:  # every column breaks ties in the order of rows
        return frozenset(node.probe.schema.names)
    if isinstance(node, IntervalPairs):
        return asked | {of for n, of in node.columns if n in names}
    assert isinstance(node, IntervalAggregate)
    return asked | _arguments(node)


def _narrowed(node: Plan, children: list[Plan], names: frozenset[str]) -> Plan:
    if isinstance(node, Union):
        # Another node may need more columns of a shared input.
        kept = tuple((n, Column(n)) for n in node.schema.names if n in names)
        same = tuple(n for n, _ in kept)
        return Union(tuple(c if c.schema.names == same else Project(c, kept) for c in children))
    node = node.with_children(children)
    if isinstance(node, Source):
        read = tuple(n for n in node.declared.names if n in names)
        return replace(node, columns=read or node.declared.names[:1])  # without a column nobody counts rows
    if isinstance(node, (Join, IntervalPairs)):
        return replace(node, columns=tuple((n, of) for n, of in node.columns if n in names))
    if isinstance(node, (Project, Lifetime)):
        return replace(node, outputs=tuple((n, e) for n, e in node.outputs if n in names))
    return node


def _arguments(plan: WindowAggregate | SnapshotAggregate | IntervalAggregate) -> frozenset[str]:
    parts = [part for _, aggregate in plan.aggregates for part in aggregate.parts]
    return frozenset().union(*(columns_of(a) for part in parts for a in part.args))


def _read_by(plan: WindowAggregate) -> frozenset[str]:
    found = {plan.attribute, plan.range_attribute, *plan.group_keys, *_arguments(plan)}
    for window in plan.windows:
        ordered = isinstance(window.spec, (Rows, PerEvent)) and window.spec.order_by is not None
        if ordered or isinstance(window.spec, LastRows):
            # Every other column breaks ties in the order, so all of them are needed.
            found.update(plan.input.schema.names)
    return frozenset(found)
