"""Stages: the filters and projections between a base (source, aggregate, union) and its consumer."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from tidemill.expr.nodes import Column, Node, substitute
from tidemill.plan.nodes import (
    Filter,
    Plan,
    Project,
    Source,
    Union,
    WheelWindows,
    WindowAggregate,
    unknown_node,
)  # fmt: skip
from tidemill.plan.temporal import Temporal


@dataclass(frozen=True)
class Stage:
    """A sequence of filters and projections, as expressions over the columns of `base`.

    Predicates apply in order. Each predicate is evaluated only on rows that passed those before it, and
    outputs only on rows that passed all.
    """

    base: Plan
    predicates: tuple[Node, ...]
    outputs: tuple[tuple[str, Node], ...]

    def output(self, name: str) -> Node:
        return dict(self.outputs)[name]

    def rewrite(self, node: Node) -> Node:
        """Rewrite an expression over the stage's outputs as one over the columns of its base."""
        return substitute(node, dict(self.outputs))


def stage_of(plan: Plan, stop: Set[int] = frozenset()) -> Stage:
    """Return the filters and projections at the top of a plan, down to a node whose `id` is in `stop`.

    >>> from tidemill.plan.build import source, where
    >>> from tidemill.expr.fluent import col
    >>> s = source("s", "t", {"t": "int64", "x": "int64"})
    >>> print(*stage_of(where(s, col.x > 1)).predicates)
    (col.x > 1)
    """
    known: dict[Set[int], Stage] = plan.__dict__.setdefault("_stages", {})
    if stop not in known:
        known[stop] = _stage_of(plan, stop)
    return known[stop]


def _stage_of(plan: Plan, stop: Set[int]) -> Stage:
    if isinstance(plan, Filter) and id(plan) not in stop:
        below = stage_of(plan.input, stop)
        return Stage(below.base, (*below.predicates, below.rewrite(plan.predicate)), below.outputs)
    if isinstance(plan, Project) and id(plan) not in stop:
        below = stage_of(plan.input, stop)
        outputs = tuple((n, below.rewrite(e)) for n, e in plan.outputs)
        return Stage(below.base, below.predicates, outputs)
    if not isinstance(plan, (Filter, Project, Source, Union, WheelWindows, WindowAggregate, Temporal)):
        raise unknown_node(plan, "the function stage_of", "plan/stages.py")
    return Stage(plan, (), tuple((n, Column(n)) for n in plan.schema.names))
