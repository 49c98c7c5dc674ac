"""Columns that rows of an entity carry besides: labels, which are no features, and numbers of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.expr.nodes import Column
from tidemill.features.members import Step
from tidemill.plan.intervals import IntervalJoin
from tidemill.plan.nodes import Filter, Plan, Project, Source, Union
from tidemill.plan.temporal import Lifetime


def with_labels(
    entity: Plan, members: tuple[tuple[Step, ...], ...], labels: Schema, step: str
) -> tuple[Plan, tuple[tuple[Step, ...], ...]]:
    """Return the entity with more columns in its rows, and members that fit it.

    Streams that the entity is made of have these columns, too; where a member joins one of them, it does not
    see them.
    """
    wider: dict[str, Source] = {}
    entity = entity.fold(lambda node, below: _carrying(node.with_children(below), labels, wider, step))

    def as_before(node: Plan) -> Plan:
        if not isinstance(node, Source) or node.name not in wider:
            return node
        return Project(wider[node.name], tuple((n, Column(n)) for n in node.schema.names))

    return entity, tuple(tuple(_joining(one, as_before) for one in steps) for steps in members)


def _joining(step: Step, change: Callable[[Plan], Plan]) -> Step:
    return replace(step, probe=step.probe.transform(change)) if isinstance(step, IntervalJoin) else step


def _carrying(node: Plan, labels: Schema, wider: dict[str, Source], step: str) -> Plan:
    """Return a step of the entity in which the labels pass through; its inputs have them already."""
    if isinstance(node, Source):
        for name in labels.names:
            if name in node.declared:
                raise UserError(
                    step, expected=f"a column that the stream {node.name!r} does not declare", got=repr(name)
                )
        return wider.setdefault(node.name, replace(node, declared=Schema((*node.declared.fields, *labels))))
    if isinstance(node, (Filter, Union)):
        return node
    if isinstance(node, (Project, Lifetime)):
        return replace(node, outputs=(*node.outputs, *((n, Column(n)) for n in labels.names)))
    raise UserError(
        step, expected="an entity stream as it is declared, or after where, select and the like",
        got=str(node),
        hint="write its rows to a table, and declare a stream for that",
    )  # fmt: skip


def entity_streams(entity: Plan) -> Mapping[str, Source]:
    """Return the streams that an entity is made of."""
    return {node.name: node for node in entity.walk() if isinstance(node, Source)}
