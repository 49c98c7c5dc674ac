"""What a plan says about the lifetimes of its rows (paper 000, section 5.3).

Engines use it to choose how they compute an operator; it never changes an answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.core.time import FOREVER, Domain, format_duration
from tidemill.expr.nodes import Call, Column, Literal, Node
from tidemill.plan.intervals import IntervalJoin
from tidemill.plan.nodes import Filter, Plan, Project, Source, Union, WheelWindows, WindowAggregate
from tidemill.plan.temporal import (
    ALWAYS,
    Cut,
    Edges,
    Hops,
    Join,
    Lifetime,
    Neighbours,
    SnapshotAggregate,
    Unnest,
)
from tidemill.windows.spec import LastRange


@dataclass(frozen=True)
class Properties:
    """The lifetimes of a stream."""

    duration: int | None = None
    """How long each row holds, in ticks: 1 for points, `FOREVER` if no row ends; None if that differs."""
    everlasting: bool = False
    """Whether all rows hold for ever, from before the first event."""
    hops: Hops | None = None
    """The hopping windows that lifetimes are those of."""

    @property
    def in_turn(self) -> bool:
        """Whether rows end in the order in which they start."""
        return self.duration is not None

    def shown(self, domain: Domain) -> str:
        """Describe the lifetimes for people."""
        if self.everlasting:
            return "rows that hold for ever"
        if self.duration == FOREVER:
            return "rows that never end"
        if self.hops is not None:
            return "hopping lifetimes"
        if self.duration == 1:
            return "points"
        if self.duration is not None:
            length = format_duration(self.duration) if domain is Domain.CLOCK else str(self.duration)
            return f"lifetimes of {length} each"
        return "lifetimes of any length"


POINTS = Properties(1)
_ANY = Properties()


def properties(plan: Plan) -> Properties:
    """Derive the properties of a plan.

    >>> import tidemill as tm
    >>> s = tm.stream("s", time="t", schema={"t": "int64", "k": "int64"})
    >>> properties(s.lasting(10).where(lambda e: e.k > 1).plan).duration
    10
    >>> properties(s.lasting(10).join(s, on="k").plan).shown(Domain.LOGICAL)
    'points'
    """
    return plan.fold(_derived)


def _derived(plan: Plan, below: list[Properties]) -> Properties:
    if isinstance(plan, (Source, WindowAggregate, WheelWindows, Edges)):
        return POINTS if plan.end is None else _ANY
    if isinstance(plan, (Filter, Project, Neighbours, Unnest, IntervalJoin)):
        return below[0]
    if isinstance(plan, Union):
        return below[0] if all(one == below[0] for one in below) else _ANY
    if isinstance(plan, Lifetime):
        return _of_lifetimes(plan, below[0])
    if isinstance(plan, SnapshotAggregate) and below[0].everlasting:
        return below[0]
    if isinstance(plan, Cut) and (below[0].duration == 1 or (below[1].everlasting and plan.kind != "clip")):
        return below[0]  # a row stays whole, or goes
    if isinstance(plan, Join):
        return _of_pairs(plan, *below)
    return _ANY


def _of_lifetimes(plan: Lifetime, before: Properties) -> Properties:
    if plan.end is None:
        return POINTS
    outputs = dict(plan.outputs)
    start, end = outputs[plan.time], outputs[plan.end]
    if isinstance(end, Literal) and end.value is None:
        return Properties(FOREVER, everlasting=plan.time == ALWAYS and isinstance(start, Literal))
    ticks = _distance(start, end)
    if ticks is None and plan.input.end is not None and before.duration is not None:
        moved = [_distance(Column(n), e) for n, e in ((plan.input.time, start), (plan.input.end, end))]
        if None not in moved:  # both bounds are shifted
            ticks = before.duration + moved[1] - moved[0]  # type: ignore[operator]
    return Properties(ticks, hops=plan.hops)


def _distance(low: Node, high: Node) -> int | None:
    """Return by how many ticks an expression is always above another one, if that is plain to see."""
    if high == low:
        return 0
    if isinstance(high, Call) and high.function == "add" and high.args[0] == low:
        by = high.args[1]
        return by.value if isinstance(by, Literal) and isinstance(by.value, int) else None
    return None


def _of_pairs(plan: Join, left: Properties, right: Properties) -> Properties:
    if left.everlasting and right.everlasting:
        return left
    if plan.kind == "inner" and (right.everlasting or left.everlasting):
        return left if right.everlasting else right
    if plan.kind == "left" and right.everlasting:
        return left
    points = {"inner": 1 in (left.duration, right.duration), "left": left.duration == 1,
              "right": right.duration == 1, "outer": left.duration == right.duration == 1}  # fmt: skip
    if points[plan.kind]:
        return POINTS
    both = left.duration == right.duration == FOREVER
    return Properties(FOREVER) if both and plan.kind == "inner" else _ANY


def looks_up(plan: Join | Cut) -> bool:
    """Return whether the right side is a table, and rows of the left side have at most its columns added."""
    return properties(plan.right).everlasting and plan.kind in (
        "inner",
        "left",
        "exists",
        "not_exists",
    )


def slides_over_another(plan: WindowAggregate) -> bool:
    """Return whether windows range over one attribute and slide over another."""
    return isinstance(plan.windows[0].spec, LastRange)
