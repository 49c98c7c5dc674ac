"""The nodes of interval joins (paper 004): base rows, and the probe rows in an interval around their time."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Union

from tidemill.aggregates.algebra import Aggregate
from tidemill.aggregates.layout import Layout, layout
from tidemill.core.schema import Schema
from tidemill.core.time import FOREVER, Domain, format_duration
from tidemill.expr.nodes import Node, columns_of
from tidemill.plan.nodes import Plan, asked
from tidemill.plan.temporal import Match, Temporal

Bound = Union[int, Node]
"""Ticks, `FOREVER` for no bound, or an expression over the base row that gives ticks."""


@dataclass(frozen=True)
class Interval:
    """Which probe rows of its key belong to a base row, by time (DESIGN 4.5).

    The interval of a base row at `t` is `[t - offset - preceding, t - offset + following]`, without its start
    or its end if that is open. Rows are in order of their time, then of their other columns from left to
    right. A row whose bound is null or negative has no interval, so nothing belongs to it.
    """

    preceding: Bound = 0
    following: Bound = 0
    offset: int = 0
    """So much before the base row: the value at a lag."""
    open_start: bool = False
    open_end: bool = False
    max_rows: int | None = None
    """Only so many rows, the nearest ones in time. Of two that are as near, the earlier one."""
    without_current: bool = False
    """Leave out rows at the very instant `t - offset`."""
    prevailing: bool = False
    """The last row before the interval belongs to it, too."""
    since_previous: bool = False
    """Only rows after the last base row of the key that is earlier than this one."""

    @property
    def bounds(self) -> tuple[Bound, Bound]:
        return self.preceding, self.following

    @property
    def computed(self) -> tuple[Node, ...]:
        """The bounds that depend on the base row."""
        return tuple(b for b in self.bounds if isinstance(b, Node))

    @property
    def in_row_order(self) -> bool:
        """Whether the order of rows of one time decides which of them belong to a base row."""
        return self.max_rows is not None or self.prevailing

    @property
    def has_hole(self) -> bool:
        """Whether rows at the very instant are left out, although rows before and after it are not."""
        return self.without_current and self.following != 0 and (self.preceding != 0 or self.prevailing)

    @property
    def leaks(self) -> bool:
        """Whether rows after the base row may belong to it."""
        return isinstance(self.following, Node) or self.following > self.offset

    @property
    def waits(self) -> int | None:
        """How many ticks after the base row all of its rows are there; None if that depends on the row."""
        if isinstance(self.following, Node):
            return None
        return FOREVER if self.following == FOREVER else max(self.following - self.offset, 0)

    @property
    def reach(self) -> int | None:
        """How many ticks before the base row its rows begin at most; None if nobody knows."""
        if isinstance(self.preceding, Node) or self.prevailing or self.preceding == FOREVER:
            return None
        return self.preceding + self.offset

    def over(self, change: Callable[[Node], Node]) -> Interval:
        """The same interval with every expression rewritten."""
        low, high = (change(b) if isinstance(b, Node) else b for b in self.bounds)
        return replace(self, preceding=low, following=high)

    def shown(self, domain: Domain) -> str:
        """Describe the interval for people."""

        def length(ticks: Bound) -> str:
            if isinstance(ticks, Node):
                return str(ticks)
            if ticks == FOREVER:
                return "forever"
            return format_duration(ticks) if ticks and domain is Domain.CLOCK else str(ticks)

        at = f"t-{length(self.offset)}" if self.offset else "t"
        low = at if self.preceding == 0 else f"{at}-{length(self.preceding)}"
        high = at if self.following == 0 else f"{at}+{length(self.following)}"
        words = [f"{'(' if self.open_start else '['}{low}, {high}{')' if self.open_end else ']'}"]
        words += [f"max_rows={self.max_rows}"] if self.max_rows is not None else []
        flags = {
            "exclude_current_time": self.without_current, "prevailing": self.prevailing,
            "since_previous": self.since_previous,
        }  # fmt: skip
        return " ".join([*words, *(name for name, given in flags.items() if given)])


@dataclass(frozen=True)
class IntervalJoin(Temporal):
    """Base rows, each with what the probe rows of its interval say. No base row is lost."""

    base: Plan
    probe: Plan
    match: Match
    interval: Interval
    lateness: int
    """How late rows may come to a live query that answers on arrival, in ticks."""

    @property
    def time(self) -> str:
        return self.base.time

    @property
    def end(self) -> str | None:
        return self.base.end

    def _joined(self) -> str:
        on = f" {self.match}" if str(self.match) else ""
        return f"interval_join{on} in {self.interval.shown(self.domain)}"


@dataclass(frozen=True)
class IntervalAggregate(IntervalJoin):
    """Each base row with aggregates of its probe rows."""

    aggregates: tuple[tuple[str, Aggregate], ...]

    @functools.cached_property
    def layout(self) -> Layout:
        return layout(self.aggregates, self.probe.schema, frozenset({self.probe.time}))

    @functools.cached_property
    def schema(self) -> Schema:
        results = tuple((r.name, r.type) for r in self.layout.results)
        return Schema((*self.base.schema.fields, *results))

    def __str__(self) -> str:
        what = asked(self.aggregates)
        return f"{self._joined()} {what}".rstrip()


@dataclass(frozen=True)
class IntervalPairs(IntervalJoin):
    """Each base row with the columns of each of its probe rows, once with nulls if it has none."""

    columns: tuple[tuple[str, str], ...]
    """The columns of the probe row in the result, with their names there."""
    kind: Literal["inner", "left"] = "left"
    """`inner` leaves base rows out that have none."""

    @functools.cached_property
    def schema(self) -> Schema:
        source = self.probe.schema
        return Schema((*self.base.schema.fields, *((name, source[of]) for name, of in self.columns)))

    def __str__(self) -> str:
        kind = "" if self.kind == "left" else f"{self.kind} "
        return f"{self._joined()} {kind}pairs"


def copied(plan: IntervalAggregate) -> bool:
    """Return whether the probe rows of a base row need not be a range of them, in the order that matters."""
    in_order = not plan.layout.commutative and plan.interval.in_row_order
    return plan.match.where is not None or plan.interval.has_hole or in_order


def kept_rows(plan: IntervalJoin) -> str:
    """Describe which probe rows an interval join keeps."""
    asked, by_condition = plan.interval, plan.match.where is not None

    def length(ticks: int) -> str:
        return format_duration(ticks) if plan.domain is Domain.CLOCK else str(ticks)

    if asked.max_rows is not None and not by_condition:
        rows = "probe row" if asked.max_rows == 1 else f"{asked.max_rows} probe rows"
        return f"the last {rows} of each key"
    if asked.reach is not None:
        return f"probe rows of the last {length(asked.reach)}" if asked.reach else "probe rows that wait"
    if asked.prevailing and isinstance(asked.preceding, int) and asked.preceding < FOREVER:
        kept = f"probe rows of the last {length(asked.preceding)}, and the one before them of each key"
        return "all probe rows" if by_condition else kept
    if asked.since_previous and not asked.prevailing:
        return "the last base row of each key with the probe rows after it"
    return "all probe rows"


def read_of_base(node: IntervalJoin) -> frozenset[str]:
    """Return the columns that bounds read."""
    return frozenset().union(*map(columns_of, node.interval.computed))
