"""Describe a plan as steps, first to last; `explain` of every engine uses this."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tidemill.core.types import TIMESTAMP
from tidemill.plan.nodes import Filter, Plan, Project, Union, WindowAggregate
from tidemill.plan.sharing import share, used_often
from tidemill.plan.stages import Stage, stage_of
from tidemill.plan.temporal import Temporal

Lines = list[str]


def describe(
    plan: Plan, windows: Callable[[WindowAggregate], Lines], stage: Callable[[Stage], Lines],
    temporal: Callable[[Temporal], Lines],
) -> str:  # fmt: skip
    """Describe the steps in the order in which they run; an engine passes functions for its nodes.

    A sub-plan that is used several times is described once.
    """
    plan = share(plan)
    shared, seen = used_often(plan), set[int]()

    def base(node: Plan) -> Lines:
        if id(node) in seen:
            return [f"the result, computed once, of {node}"]
        if id(node) in shared and node.children():
            seen.add(id(node))
        if isinstance(node, WindowAggregate):
            return [*steps(node.input), *windows(node), *notes(node)]
        if isinstance(node, Union):
            return [*inputs(node), "union: the rows of all inputs"]
        if isinstance(node, Temporal):
            return [*inputs(node), *temporal(node)]
        return steps(node) if isinstance(node, (Filter, Project)) else [str(node)]

    def inputs(node: Plan) -> Lines:
        children = node.children()
        if len(children) == 1:
            return steps(children[0])
        below = []
        for at, one in enumerate(children, 1):
            below += [f"input {at} of {len(children)}:", *(f"  {line}" for line in steps(one))]
        return below

    def steps(node: Plan) -> Lines:
        top = stage_of(node, shared - {id(node)})
        return [*base(top.base), *stage(top)]

    return "\n".join(steps(plan))


def notes(plan: WindowAggregate) -> Lines:
    """What people may not expect of the windows of a query."""
    if plan.bound_type != TIMESTAMP:
        return []
    specs = [replace(window.spec, on=None) for window in plan.windows]
    return [f"  note: {spec!r}" for spec in specs if spec.note]
