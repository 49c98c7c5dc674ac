"""Window aggregates by definition: aggregate the rows of each group in the extent of each window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tidemill.core.floats import canonical
from tidemill.core.time import FARTHEST
from tidemill.plan.faults import far_time, null_time
from tidemill.plan.nodes import (
    WINDOW,
    WINDOW_END,
    WINDOW_ID,
    WINDOW_START,
    NamedWindow,
    WindowAggregate,
)  # fmt: skip
from tidemill.reference.aggregates import Row, aggregate
from tidemill.windows.semantics import bounds, extent, session_runs, taken_in_order, windows
from tidemill.windows.spec import (
    Calendar,
    GridWindow,
    LastRange,
    LastRows,
    PerEvent,
    Rows,
    Session,
    Window,
)


def window_aggregate(plan: WindowAggregate, rows: list[Row]) -> Iterator[Row]:
    for window in plan.windows:
        for row in _one_window(plan, window, rows):
            yield {**row, WINDOW: window.label} if len(plan.windows) > 1 else row


def _one_window(plan: WindowAggregate, window: NamedWindow, rows: list[Row]) -> Iterator[Row]:
    if not rows:
        return
    spec = _resolved(plan, window.spec)
    T = {name: [r[name] for r in rows] for name in plan.input.schema.names}
    for name in () if isinstance(spec, Rows) else (plan.attribute, plan.range_attribute):
        if any(t is None for t in T[name]):
            raise null_time(plan, name)
        if any(abs(t) > FARTHEST for t in T[name]):
            raise far_time(plan, name)
    order = taken_in_order(T, spec).tolist()
    seen: dict[Any, set[Any]] = {}
    for w in windows(T, spec):
        groups: dict[Any, list[tuple[int, Row]]] = {}
        for position in extent(w, T, spec).tolist():
            key = tuple(canonical(rows[position][k]) for k in plan.group_keys)
            groups.setdefault(key, []).append((order[position], rows[position]))
        partition = w[1] if spec.partition else ()
        if spec.fill_empty:
            for key in seen.get(partition, ()):
                groups.setdefault(key, [])
            seen.setdefault(partition, set()).update(groups)
        for key, members in groups.items():
            start, end = _bounds(w, T, plan, spec)
            results = aggregate(plan.layout, members, plan.input.schema)
            ident = {WINDOW_ID: int(w[0] if spec.partition else w)} if plan.ids else {}
            row = {WINDOW_START: start, WINDOW_END: end, **ident, **results}
            yield {**dict(zip(plan.group_keys, key)), **row}


def _resolved(plan: WindowAggregate, spec: Window) -> Window:
    """Return the specification with its defaults filled in from the query."""
    if isinstance(spec, Rows):
        return replace(spec, partition_by=plan.partition_of(spec))
    if isinstance(spec, (LastRows, PerEvent, Session)):
        return replace(spec, on=plan.attribute, partition_by=plan.partition_of(spec))
    if isinstance(spec, LastRange):
        over, slides = plan.range_attribute, plan.attribute
        return replace(spec, on=over, slide_on=slides, partition_by=plan.partition_of(spec))
    return replace(spec, on=plan.attribute)


def _bounds(w: Any, T: dict[str, list[Any]], plan: WindowAggregate, spec: Window) -> tuple[int, int]:
    ident = w[0] if spec.partition else w
    if isinstance(spec, (LastRows, LastRange)):
        start = min(T[plan.attribute][int(i)] for i in extent(w, T, spec))
        return start, spec.origin + (int(ident) + 1) * spec.every.ticks
    if isinstance(spec, Session):
        inside = np.asarray([T[plan.attribute][int(i)] for i in extent(w, T, spec)])
        first, last = session_runs(np.sort(inside), spec.gap.ticks)
        return int(first[0]), int(last[-1]) + spec.gap.ticks
    assert isinstance(spec, (GridWindow, Calendar, PerEvent))
    start, end = bounds([ident], spec)
    return int(start[0]), int(end[0])
