"""The reference engine evaluates plans row by row. It is slow and short, and defines the correct result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tidemill.core.time import BEGINNING
from tidemill.expr.evaluate import evaluate
from tidemill.plan.faults import unordered_time
from tidemill.plan.nodes import Filter, Plan, Project, Source, Union, WindowAggregate, require_known
from tidemill.plan.temporal import Temporal
from tidemill.reference.temporal import rows_of
from tidemill.reference.windows import window_aggregate

Row = dict[str, Any]


def run(plan: Plan, inputs: Mapping[str, list[Row]]) -> list[Row]:
    """Compute the rows of a plan. Inputs are rows in order of arrival; instants are ticks."""
    known = (Source, Filter, Project, Union, WindowAggregate, Temporal)
    require_known(plan, known, "reference", "reference/run.py, or run it on the local engine")
    return plan.fold(lambda node, below: list(rows_of_node(node, below, inputs)))


def rows_of_node(
    plan: Plan, below: list[list[Row]], inputs: Mapping[str, list[Row]]
) -> Iterator[Row]:
    """Yield the rows of a node, given the rows of its inputs."""
    if isinstance(plan, Source):
        rows: Iterable[Row] = _in_order(plan, inputs[plan.name]) if plan.ordered else inputs[plan.name]
        yield from rows
    elif isinstance(plan, Filter):
        schema = plan.input.schema
        for row in below[0]:
            if evaluate(plan.predicate, row, schema) is True:
                yield row
    elif isinstance(plan, Project):
        schema = plan.input.schema
        for row in below[0]:
            yield {n: evaluate(e, row, schema) for n, e in plan.outputs}
    elif isinstance(plan, Union):
        for rows in below:
            yield from ({n: row[n] for n in plan.schema.names} for row in rows)
    elif isinstance(plan, WindowAggregate):
        yield from window_aggregate(plan, below[0])
    elif isinstance(plan, Temporal):
        yield from rows_of(plan, below)


def _in_order(source: Source, rows: Iterable[Row]) -> Iterator[Row]:
    before = BEGINNING
    for row in rows:
        time = row[source.time]
        if time is not None:
            if time < before:
                raise unordered_time(source, before, time)
            before = time
        yield row
