"""How far after the time of a row the events are that its values depend on.

A stream as it is declared knows nothing of events to come. Windows do: a row has the time at which its window
starts, and counts events up to its end. A feature that joins such rows would know the future, although its
interval ends at the time of its row.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.core.time import FOREVER
from tidemill.expr.nodes import Node, columns_of
from tidemill.plan.intervals import IntervalJoin, IntervalPairs
from tidemill.plan.nodes import Filter, Plan, Project, Source, Union, WindowAggregate
from tidemill.plan.temporal import (
    Cut,
    FromEdges,
    Join,
    Lifetime,
    Neighbours,
    Pieces,
    SnapshotAggregate,
    Unnest,
    UntilSessionEnd,
)
from tidemill.windows.spec import PerEvent, Sliding


@dataclass(frozen=True)
class Foresight:
    """What the rows of a plan know of events after their time."""

    ticks: int | None = 0
    """So far after a row events may lie that its values depend on; None if nobody knows how far."""
    because: str = ""
    """The step that knows of them."""
    ends: frozenset[str] = frozenset()
    """The columns with ends of lifetimes, which later events decide; they are not meant above."""


def foresight(plan: Plan) -> Foresight:
    """Return what the rows of a plan know of events after their time.

    >>> import tidemill as tm
    >>> s = tm.stream("s", time="t", schema={"t": "int64", "k": "int64"})
    >>> hours = s.group_by("k").window(tm.tumbling(60)).agg(n=tm.count())
    >>> foresight(s.plan).ticks, foresight(hours.plan).ticks, foresight(hours.shift(60).plan).ticks
    (0, 60, 0)
    >>> foresight(s.until_next("k").plan).ends
    frozenset({'valid_to'})
    """
    return plan.fold(_derived)


def _derived(plan: Plan, below: list[Foresight]) -> Foresight:
    if isinstance(plan, Source):
        return Foresight()
    if isinstance(plan, (Filter, Unnest)):
        return below[0]
    if isinstance(plan, Project):
        return _renamed(plan.outputs, below[0])
    if isinstance(plan, Union):
        most = max(below, key=_far)
        return Foresight(most.ticks, most.because, frozenset().union(*(b.ends for b in below)))
    if isinstance(plan, WindowAggregate):
        return _of_windows(plan, below[0])
    if isinstance(plan, Lifetime):
        return _of_lifetimes(plan, below[0])
    if isinstance(plan, IntervalJoin):
        return _of_interval_join(plan, *below)
    if isinstance(plan, Neighbours) and plan.looks_ahead:
        return Foresight(None, str(plan), below[0].ends)
    if isinstance(plan, (Pieces, SnapshotAggregate, Join, Cut, FromEdges, UntilSessionEnd)):
        most = max(below, key=_far)  # values are known at the start of a lifetime, its end is not
        ends = frozenset() if plan.end is None else frozenset({plan.end})
        return Foresight(
            most.ticks, most.because, ends | below[0].ends & frozenset(plan.schema.names)
        )
    return Foresight(None, str(plan))


def _far(one: Foresight) -> int:
    return FOREVER if one.ticks is None else one.ticks


def _renamed(outputs: tuple[tuple[str, Node], ...], below: Foresight) -> Foresight:
    ends = frozenset(name for name, node in outputs if columns_of(node) & below.ends)
    return Foresight(below.ticks, below.because, ends)


def _of_windows(plan: WindowAggregate, below: Foresight) -> Foresight:
    most: int | None = below.ticks
    for window in plan.windows:
        spec = window.spec
        on_time = isinstance(spec, (Sliding, PerEvent)) and plan.attribute == plan.input.time
        if most is None or not on_time or not isinstance(spec, (Sliding, PerEvent)):
            return Foresight(None, f"windows {window}")
        most = max(most, _far(below) + spec.range.ticks)
    return Foresight(
        most, f"windows {plan.windows[0]}, whose rows have the time at which they start"
    )


def _of_lifetimes(plan: Lifetime, below: Foresight) -> Foresight:
    renamed = _renamed(plan.outputs, below)
    if plan.move is None or plan.time in renamed.ends:
        return Foresight(None, str(plan), renamed.ends - {plan.time})
    if below.ticks is None:
        return renamed
    ticks = max(below.ticks - plan.move.shift, 0)
    return Foresight(
        ticks, below.because if below.ticks else str(plan) if ticks else "", renamed.ends
    )


def future_of(join: IntervalJoin, probe: Foresight) -> int | None:
    """Return how many ticks after a row the events may lie that a join shows it; None if nobody knows."""
    following = join.interval.following
    if probe.ticks is None or isinstance(following, Node):
        return None
    return (
        FOREVER if following == FOREVER else max(following - join.interval.offset + probe.ticks, 0)
    )


def _of_interval_join(plan: IntervalJoin, base: Foresight, probe: Foresight) -> Foresight:
    own = future_of(plan, probe)
    ends = base.ends
    if isinstance(plan, IntervalPairs):
        ends |= {name for name, of in plan.columns if of in probe.ends}
    if own is None or base.ticks is None or own > base.ticks:
        because = base.because if base.ticks is None else str(plan)
        return Foresight(None if own is None or base.ticks is None else own, because, ends)
    return Foresight(base.ticks, base.because, ends)
