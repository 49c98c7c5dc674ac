"""Interval joins by definition: look at every probe row for each base row (paper 004, definition 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tidemill.core.time import BEGINNING, FOREVER
from tidemill.expr.evaluate import evaluate
from tidemill.expr.nodes import Node
from tidemill.plan.intervals import Bound, IntervalAggregate, IntervalJoin, IntervalPairs
from tidemill.plan.temporal import payload
from tidemill.reference.aggregates import Row, aggregate
from tidemill.reference.lifetimes import in_order, key_of, life, matching


def interval_join(plan: IntervalJoin, base: list[Row], probe: list[Row]) -> Iterator[Row]:
    """Yield each base row beside what its probe rows say."""
    for row in base:
        yield from answer(plan, row, base, probe)


def answer(plan: IntervalJoin, row: Row, base: list[Row], probe: list[Row]) -> Iterator[Row]:
    """Yield one of the base rows beside what its probe rows say."""
    names = [n for n in payload(plan.probe) if plan.probe.schema[n].is_ordered]
    probe = sorted(probe, key=lambda row: (life(plan.probe, row), in_order(row, names)))
    own = _chosen(plan, row, base, probe, matching(plan.match, plan.base, plan.probe))
    if isinstance(plan, IntervalAggregate):
        placed = [(other[plan.probe.time], other) for other in own]
        yield row | aggregate(plan.layout, placed, plan.probe.schema)
        return
    assert isinstance(plan, IntervalPairs)
    for other in own or ([{}] if plan.kind == "left" else []):
        yield row | {name: other.get(of) for name, of in plan.columns}


def _chosen(
    plan: IntervalJoin, row: Row, base: list[Row], probe: list[Row], matches: Callable[[Row, Row], bool]
) -> list[Row]:
    """Return the probe rows of a base row, in order."""
    asked, time = plan.interval, plan.probe.time
    (t, _), at = life(plan.base, row), row[plan.base.time] - asked.offset
    preceding, following = (_ticks(plan, bound, row) for bound in asked.bounds)
    if preceding is None or following is None or preceding < 0 or following < 0:
        return []
    low = BEGINNING if preceding == FOREVER else at - preceding + asked.open_start
    high = FOREVER if following == FOREVER else at + following - asked.open_end
    if asked.since_previous:
        before = [b[plan.base.time] for b in base if b[plan.base.time] < t and _same_key(plan, row, b)]
        low = max([low, *(b + 1 for b in before)])
    there = [p for p in probe if matches(row, p) and not (asked.without_current and p[time] == at)]
    own = [p for p in there if low <= p[time] <= high]
    if asked.prevailing:
        own = [p for p in there if p[time] < low][-1:] + own
    if asked.max_rows is not None:

        def nearness(place: int) -> Any:
            when = own[place][time]
            return abs(when - at), when > at, -place if when <= at else place

        nearest = sorted(range(len(own)), key=nearness)[: asked.max_rows]
        own = [own[place] for place in sorted(nearest)]
    return own


def _ticks(plan: IntervalJoin, bound: Bound, row: Row) -> int | None:
    found: int | None = evaluate(bound, row, plan.base.schema) if isinstance(bound, Node) else bound
    return found


def _same_key(plan: IntervalJoin, row: Row, other: Row) -> bool:
    names = plan.match.left_keys
    return key_of(row, names) == key_of(other, names)
