"""The answer to one row, as Python values: to make arrays takes longer than to find it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from tidemill.core.schema import Schema
from tidemill.core.time import FARTHEST
from tidemill.core.types import TIMESTAMP, to_arrow
from tidemill.expr.evaluate import evaluate
from tidemill.expr.nodes import Column, Node
from tidemill.local.graph import Graph
from tidemill.local.indexed_operator import IndexedOperator
from tidemill.local.interval_ranges import FAR, ends, ticks_of
from tidemill.plan.intervals import Interval, IntervalJoin
from tidemill.plan.nodes import Filter, Plan, Project, Source

_Row = dict[str, Any]
_Step = Callable[[_Row], bool]
"""Adds columns to a row, or replaces all of them; returns whether the row is still there."""
_EPOCH: datetime = pa.scalar(0, to_arrow(TIMESTAMP)).as_py()
"""In the zone object that tables give."""
_NAIVE_EPOCH = datetime(1970, 1, 1)
_TICK = timedelta(microseconds=1)
_TYPES = {
    "int64": int, "float64": float, "bool": bool, "string": str, "timestamp": datetime, "duration": timedelta,
}  # fmt: skip
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


class Unlike(Exception):
    """A row whose values are not just as the stream declares them: it is read as a batch."""


class RowLookup:
    """Answers one row of a base stream from the indexes of all joins."""

    def __init__(self, source: Source, steps: list[_Step], schema: Schema) -> None:
        self._steps, self._names = steps, schema.names
        self._inputs = [(n, _TYPES[k.kind], _into_ticks.get(k.kind)) for n, k in source.schema]
        self._time = source.time
        self._outputs = [(n, _from_ticks[k.kind]) for n, k in schema if k.kind in _from_ticks]

    @staticmethod
    def of(graph: Graph, source: Source) -> RowLookup | None:
        """Return what answers rows of a stream; None if that takes more than indexes."""
        if source.reading.zoned or any(kind.kind not in _TYPES for _, kind in source.schema):
            return None
        steps: list[_Step] = []
        node = graph.plan
        while not isinstance(node, Source):
            step = _step_of(node, graph)
            if step is None:
                return None
            steps.append(step)
            node = node.base if isinstance(node, IntervalJoin) else node.children()[0]
        return RowLookup(source, steps[::-1], graph.plan.schema)

    def __call__(self, row: Mapping[str, Any], least: int) -> _Row | None:
        """Return the row with its answer; None if a filter leaves it out.

        Raises `Unlike` if it must be read as a batch: also if its time is null or below an instant.
        """
        found: _Row = {}
        for name, kind, convert in self._inputs:
            value: Any = row.get(name, Unlike)
            if value is not None:
                if type(value) is not kind:
                    raise Unlike
                if convert is not None:
                    value = convert(value)
                elif kind is int and not _LEAST <= int(row[name]) <= _MOST:
                    raise Unlike
            found[name] = value
        time = found[self._time]
        if time is None or not max(least, -FARTHEST) <= time <= FARTHEST:
            raise Unlike
        for step in self._steps:
            if not step(found):
                return None
        for name, restore in self._outputs:
            if (value := found[name]) is not None:
                found[name] = restore(value)
        return found


def _step_of(node: Plan, graph: Graph) -> _Step | None:
    if isinstance(node, IntervalJoin):
        operator = graph.operator_of(node)
        return _joining(node, operator) if isinstance(operator, IndexedOperator) else None
    if isinstance(node, Filter):
        predicate, schema = node.predicate, node.input.schema
        return lambda row: evaluate(predicate, row, schema) is True
    return _projecting(node) if isinstance(node, Project) else None


def _joining(plan: IntervalJoin, operator: IndexedOperator) -> _Step:
    asked, time, schema = plan.interval, plan.base.time, plan.base.schema
    names, added = plan.match.left_keys, plan.schema.names[len(schema.names) :]
    [single] = names if len(names) == 1 else [None]
    prevailing, most = asked.prevailing, asked.max_rows
    fixed = _fixed(asked)

    def join(row: _Row) -> bool:
        key = operator.id_of(row[single] if single is not None else tuple(row[n] for n in names))
        bounds = fixed or _bounds(asked, row, schema)
        if bounds is None:
            key, bounds = -1, (0, 0)
        at, low, high = ends(asked, row[time], *bounds)
        row.update(zip(added, operator.index.answer(
            key, int(low), int(high), prevailing=prevailing, max_rows=most, at=None if most is None else at)))
        return True

    return join


def _fixed(asked: Interval) -> tuple[int, int] | None:
    """Return the bounds in ticks if they are the same for all rows."""
    preceding, following = asked.bounds
    if isinstance(preceding, Node) or isinstance(following, Node):
        return None
    return min(preceding, FAR), min(following, FAR)


def _bounds(asked: Interval, row: _Row, schema: Schema) -> tuple[int, int] | None:
    """Return the bounds of a row in ticks; None if one is null or negative, or fails."""
    found = []
    for bound in asked.bounds:
        ticks = ticks_of(bound, row, schema) if isinstance(bound, Node) else bound
        if ticks is None or ticks < 0:
            return None
        found.append(min(ticks, FAR))
    return found[0], found[1]


def _projecting(plan: Project) -> _Step:
    schema = plan.input.schema
    kept = [(n, node.name) for n, node in plan.outputs if isinstance(node, Column)]
    computed = [(n, node) for n, node in plan.outputs if not isinstance(node, Column)]

    def project(row: _Row) -> bool:
        found = {n: row[of] for n, of in kept}
        for name, node in computed:
            found[name] = evaluate(node, row, schema)
        row.clear()
        row.update(found)
        return True

    return project


def _ticks_of(value: datetime) -> int:
    return (value - (_NAIVE_EPOCH if value.tzinfo is None else _EPOCH)) // _TICK


_into_ticks: dict[str, Callable[[Any], int]] = {
    "timestamp": _ticks_of,
    "duration": lambda value: value // _TICK,
}
_from_ticks: dict[str, Callable[[int], Any]] = {
    "timestamp": lambda ticks: _EPOCH + timedelta(microseconds=ticks),
    "duration": lambda ticks: timedelta(microseconds=ticks),
}
