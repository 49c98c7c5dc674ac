"""Make equal sub-plans one object, so that engines compute them once."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

from tidemill.plan.intervals import IntervalAggregate
from tidemill.plan.nodes import Plan, WindowAggregate
from tidemill.plan.temporal import SnapshotAggregate


def share(plan: Plan) -> Plan:
    """Return the same plan with equal sub-plans as one object.

    >>> from tidemill.plan.build import source, union
    >>> s, again = (source("s", "t", {"t": "int64"}) for _ in range(2))
    >>> one = share(union([s, again]))
    >>> one.inputs[0] is one.inputs[1]
    True
    """
    known: dict[Any, Plan] = {}

    def one_object(node: Plan, children: list[Plan]) -> Plan:
        node = node.with_children(children)
        return known.setdefault((type(node), *map(_by_identity, _says(node))), node)

    return plan.fold(one_object)


def _says(node: Plan) -> list[Any]:
    """Return the values by which nodes of a class are equal."""
    if isinstance(node, WindowAggregate):
        # Equal aggregates may have different function objects: the layout compares what they compute.
        results = [(r.name, node.layout.essence(r)) for r in node.layout.results]
        return [node.input, node.keys, node.windows, node.ids, *results]
    if isinstance(node, IntervalAggregate):
        results = [(r.name, node.layout.essence(r)) for r in node.layout.results]
        return [node.base, node.probe, node.match, node.interval, node.lateness, *results]
    if isinstance(node, SnapshotAggregate):
        return [node.input, node.keys, *((r.name, node.layout.essence(r)) for r in node.layout.results)]
    return [getattr(node, f.name) for f in dataclasses.fields(node)]  # type: ignore[arg-type]


def _by_identity(value: Any) -> Any:
    """Replace inputs by their `id`: equal inputs are already one object, and comparing values is slow."""
    if isinstance(value, Plan):
        return id(value)
    return tuple(map(_by_identity, value)) if isinstance(value, tuple) else value


def used_often(plan: Plan) -> frozenset[int]:
    """Return the `id` of each node that is an input more than once, in a plan after `share`."""
    uses = Counter(id(child) for node in plan.walk() for child in node.children())
    return frozenset(node for node, count in uses.items() if count > 1)
