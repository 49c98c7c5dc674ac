"""The reference engine: plans row by row. Slow, short, and the definition of truth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tidemill.core.errors import UnsupportedError
from tidemill.core.time import BEGINNING
from tidemill.expr.evaluate import evaluate
from tidemill.plan.checks import unordered_time
from tidemill.plan.nodes import Filter, Plan, Project, Source, WindowAggregate
from tidemill.reference.windows import window_aggregate

Row = dict[str, Any]


def run(plan: Plan, inputs: Mapping[str, list[Row]]) -> list[Row]:
    """The rows of a plan. Inputs are rows in order of arrival; instants are ticks."""
    return list(_rows(plan, inputs))


def _rows(plan: Plan, inputs: Mapping[str, list[Row]]) -> Iterator[Row]:
    if isinstance(plan, Source):
        yield from _in_order(plan, inputs[plan.name]) if plan.ordered else inputs[plan.name]
    elif isinstance(plan, Filter):
        schema = plan.input.schema
        for row in _rows(plan.input, inputs):
            if evaluate(plan.predicate, row, schema) is True:
                yield row
    elif isinstance(plan, Project):
        schema = plan.input.schema
        for row in _rows(plan.input, inputs):
            yield {n: evaluate(e, row, schema) for n, e in plan.outputs}
    elif isinstance(plan, WindowAggregate):
        yield from window_aggregate(plan, list(_rows(plan.input, inputs)))
    else:
        raise UnsupportedError("reference", str(plan), instead="run it on the local engine")


def _in_order(source: Source, rows: list[Row]) -> Iterator[Row]:
    before = BEGINNING
    for row in rows:
        time = row[source.time]
        if time is not None:
            if time < before:
                raise unordered_time(source, before, time)
            before = time
        yield row
