"""The nodes of the temporal algebra (paper 000): operators on events with lifetimes.

A lifetime is half-open, `[start, end)`. The start is in the time column of a plan. The end is in its end
column, where null is an end that never comes; a plan without an end column has points, `[t, t + 1)`.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any, Literal

from tidemill.aggregates.algebra import Aggregate
from tidemill.aggregates.layout import Layout, layout
from tidemill.core.schema import Schema, internal, users_part
from tidemill.core.time import FARTHEST, FIRST_SHOWN, FOREVER, Domain, format_duration
from tidemill.core.types import INT64, STRING, DataType
from tidemill.expr.nodes import Node
from tidemill.expr.typing import type_of
from tidemill.plan.nodes import Plan, asked

VALID_FROM, VALID_TO = "valid_from", "valid_to"
ALWAYS, ALWAYS_END = internal("since"), internal("until")
"""The lifetime of rows of a table, which hold for ever."""
ALWAYS_START = -FARTHEST
"""Where it starts."""
_FIRST_INT = -FARTHEST // 2
"""Where it starts in results on logical time, so that it can be shifted."""
LEFT, RIGHT = "left.", "right."
"""What the columns of both sides begin with in a condition on pairs."""
EDGE, CHANGE = "edge", "change"
_SIDED = re.compile(r"col\['((?:left|right)\.\w+)'\]")


class Temporal(Plan):
    """The base class of these nodes, for rules that treat all of them alike."""

    __slots__ = ()

    @property
    def sees_lifetimes(self) -> bool:
        return True


@dataclass(frozen=True)
class Move:
    """How starts move: by a distance, then up to the next bound of a grid that is above.

    >>> Move(shift=3).of(10), Move(grid=(0, 10)).of(10), Move(grid=(0, 10)).of(19)
    (13, 20, 20)
    """

    shift: int = 0
    grid: tuple[int, int] | None = None
    """Its origin and the distance of its bounds."""

    def of(self, tick: int) -> int:
        """Return where no start below a tick goes: the watermark behind it."""
        if abs(tick) > FOREVER // 2:
            return tick  # before the first and after the last row
        tick += self.shift
        if self.grid is None:
            return tick
        origin, every = self.grid
        return ((tick - origin) // every + 1) * every + origin


@dataclass(frozen=True)
class Hops:
    """Hopping windows: a row holds while one of those that have it is the last one that has ended."""

    size: int
    every: int
    origin: int


@dataclass(frozen=True)
class Lifetime(Temporal):
    """Each row with another lifetime. Rows whose lifetime is empty are dropped by a filter above it."""

    input: Plan
    outputs: tuple[tuple[str, Node], ...]
    time_column: str
    end_column: str | None
    move: Move | None
    """How a watermark goes through. With `Move()`, no start is below what it was; None if nobody knows."""
    says: str
    """The step as the user wrote it."""
    hops: Hops | None = None
    """The windows that lifetimes are those of."""

    @functools.cached_property
    def schema(self) -> Schema:
        return Schema(tuple((n, type_of(e, self.input.schema)) for n, e in self.outputs))

    @property
    def time(self) -> str:
        return self.time_column

    @property
    def end(self) -> str | None:
        return self.end_column

    def __str__(self) -> str:
        return self.says


@dataclass(frozen=True)
class SnapshotAggregate(Temporal):
    """Aggregates of the rows that hold at each instant, by key: a row for each longest interval of one value.

    Without aggregates, the intervals in which a key has rows.
    """

    input: Plan
    keys: tuple[str, ...]
    aggregates: tuple[tuple[str, Aggregate], ...]

    @functools.cached_property
    def layout(self) -> Layout:
        return layout(self.aggregates, self.input.schema, frozenset({self.input.time}))

    @functools.cached_property
    def schema(self) -> Schema:
        source = self.input.schema
        bound = source[self.input.time]
        results = tuple((r.name, r.type) for r in self.layout.results)
        keys = tuple((k, source[k]) for k in self.keys)
        begins, ends = bounds_of(self.input)
        return Schema((*keys, (begins, bound), (ends, bound), *results))

    @property
    def time(self) -> str:
        return bounds_of(self.input)[0]

    @property
    def end(self) -> str | None:
        return bounds_of(self.input)[1]

    def __str__(self) -> str:
        by = f" by {', '.join(self.keys)}" if self.keys else ""
        what = asked(self.aggregates)
        return f"snapshot {what}{by}" if what else f"distinct{by}"


Kind = Literal["inner", "left", "right", "outer"]


@dataclass(frozen=True)
class Match:
    """Which rows of two streams belong together: equal keys, and a condition on pairs."""

    keys: tuple[tuple[str, str], ...] = ()
    """Columns of the left and of the right side. Null is equal to nothing."""
    scope: tuple[str, ...] = ()
    """Columns of both sides, of groups that a query runs in (`plan.scoping`). Null is a group like others."""
    where: Node | None = None
    """Over the columns of both sides, with `LEFT` and `RIGHT` before their names."""

    @property
    def left_keys(self) -> tuple[str, ...]:
        return (*self.scope, *(left for left, _ in self.keys))

    @property
    def right_keys(self) -> tuple[str, ...]:
        return (*self.scope, *(right for _, right in self.keys))

    def __str__(self) -> str:
        names = [*self.scope, *(a if a == b else f"{a}={b}" for a, b in self.keys)]
        parts = [f"on {', '.join(names)}"] if names else []
        parts += [f"where {self.condition}"] if self.where is not None else []
        return " ".join(parts)

    @property
    def condition(self) -> str:
        """The condition as text, with `left.v` and `right.v` for the columns of both sides."""
        return _SIDED.sub(r"\1", str(self.where))


@dataclass(frozen=True)
class Join(Temporal):
    """Pairs of rows that match, while both hold; with `kind`, also one side while nothing matches it."""

    left: Plan
    right: Plan
    match: Match
    kind: Kind
    columns: tuple[tuple[str, str], ...]
    """The columns of the result before its lifetime, with what `sided` names them. A key is one column."""

    @functools.cached_property
    def schema(self) -> Schema:
        both = dict(sided(self.left, self.right))
        bound = self.left.schema[self.left.time]
        return Schema((*((n, both[s]) for n, s in self.columns), (self.time, bound), (self.end, bound)))

    @property
    def time(self) -> str:
        return bounds_of(self.left, self.right)[0]

    @property
    def end(self) -> str:
        return bounds_of(self.left, self.right)[1]

    def __str__(self) -> str:
        return f"{'' if self.kind == 'inner' else f'{self.kind} '}join {self.match}".rstrip()


def sided(left: Plan, right: Plan) -> tuple[tuple[str, DataType], ...]:
    """Return the columns of both sides as a condition on pairs names them."""
    return (
        *((LEFT + n, t) for n, t in left.schema),
        *((RIGHT + n, t) for n, t in right.schema),
    )


@dataclass(frozen=True)
class Cut(Temporal):
    """The rows of the left side in the part of their lifetimes that the right side leaves.

    `exists`: while a row matches. `not_exists`: while none does. `clip`: until a match starts after them.
    """

    left: Plan
    right: Plan
    match: Match
    kind: Literal["exists", "not_exists", "clip"]

    @property
    def schema(self) -> Schema:
        return self.left.schema

    @property
    def time(self) -> str:
        return self.left.time

    @property
    def end(self) -> str | None:
        return self.left.end

    def __str__(self) -> str:
        name = self.kind if self.kind == "clip" else f"where_{self.kind}"
        return f"{name} {self.match}".rstrip()


@dataclass(frozen=True)
class Pieces(Temporal):
    """One input whose rows keep their columns while lifetimes are cut or put together."""

    input: Plan

    @property
    def schema(self) -> Schema:
        return self.input.schema

    @property
    def time(self) -> str:
        return self.input.time

    @property
    def end(self) -> str | None:
        return self.input.end


@dataclass(frozen=True)
class Chop(Pieces):
    """Lifetimes cut at the bounds of a grid."""

    origin: int
    every: int

    def __str__(self) -> str:
        shown = format_duration(self.every) if self.domain is Domain.CLOCK else self.every
        return f"chop every={shown}"


@dataclass(frozen=True)
class Stitch(Pieces):
    """Rows that are equal but for their lifetimes, put together where one ends as another starts."""

    def __str__(self) -> str:
        return "stitch"


@dataclass(frozen=True)
class TopRows(Pieces):
    """The rows with the greatest values that hold at each instant, by key. Other columns break ties."""

    keys: tuple[str, ...]
    count: int
    by: str
    least: bool = False

    def __str__(self) -> str:
        by = f" for each {', '.join(self.keys)}" if self.keys else ""
        return f"top {self.count} by {users_part(self.by)}{' least first' if self.least else ''}{by}"


@dataclass(frozen=True)
class UntilSessionEnd(Pieces):
    """Each row until no other of its key came for so long."""

    keys: tuple[str, ...]
    gap: int
    end_column: str

    @functools.cached_property
    def schema(self) -> Schema:
        source = self.input.schema
        if self.end_column in source:
            return source
        return Schema((*source.fields, (self.end_column, source[self.input.time])))

    @property
    def end(self) -> str | None:
        return self.end_column

    def __str__(self) -> str:
        by = f" for each {', '.join(self.keys)}" if self.keys else ""
        shown = format_duration(self.gap) if self.domain is Domain.CLOCK else self.gap
        return f"until_session_end {shown}{by}"


@dataclass(frozen=True)
class Neighbour:
    """A column of the row so many places before this one, of the same key; after it, if negative."""

    name: str
    column: str
    back: int

    def __str__(self) -> str:
        word = "lag" if self.back > 0 else "lead"
        return f"{self.name}={word}({users_part(self.column)}, {abs(self.back)})"


@dataclass(frozen=True)
class Neighbours(Pieces):
    """Each row with columns of rows before or after it, by key, in order of start. Other columns break ties.

    A column is null where there is no such row.
    """

    keys: tuple[str, ...]
    asked: tuple[Neighbour, ...]

    @functools.cached_property
    def schema(self) -> Schema:
        source = self.input.schema
        return Schema((*source.fields, *((a.name, source[a.column]) for a in self.asked)))

    @property
    def looks_ahead(self) -> bool:
        return any(a.back < 0 for a in self.asked)

    def __str__(self) -> str:
        by = f" for each {', '.join(self.keys)}" if self.keys else ""
        return f"neighbours {', '.join(map(str, self.asked))}{by}"


@dataclass(frozen=True)
class Unnest(Temporal):
    """A row for each element of a list column; none for an empty list and null."""

    input: Plan
    column: str
    element: str | None
    """The name of the column with the elements, in the place of the list; None if they are structs of which
    the fields are columns."""

    @functools.cached_property
    def schema(self) -> Schema:
        inner = self.input.schema[self.column].of[0]
        own = ((self.element, inner),) if self.element else tuple(zip(inner.names, inner.of))
        fields = (own if n == self.column else ((n, t),) for n, t in self.input.schema)
        return Schema(tuple(field for each in fields for field in each))

    @property
    def time(self) -> str:
        return self.input.time

    @property
    def end(self) -> str | None:
        return self.input.end

    def __str__(self) -> str:
        column = users_part(self.column).removeprefix("select_many ")
        return f"select_many {self.element}={column}" if self.element else f"select_many {column}"


@dataclass(frozen=True)
class Edges(Temporal):
    """Where lifetimes start and end, as points. With `changes`, an end where an equal row starts is none.

    The first column says which: "start" or "end", or 1 and -1 in a list of changes.
    """

    input: Plan
    changes: bool

    @functools.cached_property
    def schema(self) -> Schema:
        first = (CHANGE, INT64) if self.changes else (EDGE, STRING)
        return Schema((first, *((n, t) for n, t in self.input.schema if n != self.input.end)))

    @property
    def time(self) -> str:
        return self.input.time

    def __str__(self) -> str:
        return "changes" if self.changes else "edges"


@dataclass(frozen=True)
class FromEdges(Temporal):
    """Lifetimes from the rows at which they start and end, which have the same values in some columns.

    The columns are those of the row at the start. A second start while one is open, and an end without a
    start, are errors (`faults`).
    """

    input: Plan
    keys: tuple[str, ...]
    starts: Node
    """True for a row at the start, false at the end."""
    end_column: str

    @functools.cached_property
    def schema(self) -> Schema:
        source = self.input.schema
        return Schema((*source.fields, (self.end_column, source[self.input.time])))

    @property
    def time(self) -> str:
        return self.input.time

    @property
    def end(self) -> str | None:
        return self.end_column

    def __str__(self) -> str:
        return f"from_edges {', '.join(self.keys)} start={self.starts}"


def start_alone(plan: Join, side: Plan) -> int | None:
    """Return where the row of a join starts that has a row of one side alone which holds since ever.

    Rows of a table have no start. In a result with times they start at the first instant that its kind of
    time can show, and what is over by then is not there. None if rows of the side have starts.
    """
    if side.time != ALWAYS or plan.time == ALWAYS:
        return None
    return FIRST_SHOWN if plan.domain is Domain.CLOCK else _FIRST_INT


def lifetime(plan: Plan) -> frozenset[str]:
    """Return the columns with the lifetimes of rows."""
    return frozenset({plan.time, plan.end} - {None})  # type: ignore[arg-type]


def payload(plan: Plan) -> tuple[str, ...]:
    """Return the columns of a plan other than its lifetime."""
    return tuple(n for n in plan.schema.names if n not in (plan.time, plan.end))


def compares_payloads(node: Any) -> bool:
    """Return whether a node compares whole payloads, so that no column of its input may be left out."""
    return isinstance(node, (Stitch, TopRows, Neighbours)) or (isinstance(node, Edges) and node.changes)


def bounds_of(*inputs: Plan) -> tuple[str, str]:
    """Return the names of the lifetime that an operator makes: hidden ones if all inputs are tables."""
    if all(i.time == ALWAYS for i in inputs):
        return ALWAYS, ALWAYS_END
    return VALID_FROM, VALID_TO
