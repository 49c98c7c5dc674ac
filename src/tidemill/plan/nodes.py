"""The nodes of logical plans. Nodes are frozen; each has a schema and a time column.

A node has any number of inputs: its fields that hold plans, or tuples of plans (`core/tree.py`). A rule or an
engine lists the nodes that it supports, and rejects a plan with any other (`require_known`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidemill.aggregates.algebra import Aggregate
from tidemill.aggregates.layout import Layout, layout
from tidemill.core.errors import InternalError, UnsupportedError, UserError
from tidemill.core.schema import Schema, is_internal, users_part
from tidemill.core.text_form import PLAIN_TEXT, TextForm
from tidemill.core.time import Domain, to_datetime
from tidemill.core.time_reading import PLAIN, Reading
from tidemill.core.tree import Tree
from tidemill.core.types import INT64, STRING, TIMESTAMP, DataType
from tidemill.expr.nodes import Node
from tidemill.expr.typing import type_of
from tidemill.windows.spec import GridWindow, LastRange, LastRows, PerEvent, Rows, Session, Window

WINDOW_START, WINDOW_END, WINDOW = "window_start", "window_end", "window"
WINDOW_ID = "window_id"


class Plan(Tree):
    """The base class of plan nodes; compared by value."""

    __slots__ = ()

    def walk(self) -> Iterator[Plan]:
        known: tuple[Plan, ...] | None = self.__dict__.get("_nodes")  # each run asks several times
        if known is None:
            known = tuple(super().walk())
            object.__setattr__(self, "_nodes", known)
        return iter(known)

    @property
    def schema(self) -> Schema:
        raise NotImplementedError

    @property
    def time(self) -> str:
        """The column with the time of each row, the start of its lifetime."""
        raise NotImplementedError

    @property
    def end(self) -> str | None:
        """The column with the end of each lifetime, where null never comes; None if rows are points."""
        return None

    @property
    def sees_lifetimes(self) -> bool:
        """Whether it is an operator on lifetimes (`plan.temporal`)."""
        return False

    @property
    def domain(self) -> Domain:
        return Domain.CLOCK if self.schema[self.time] == TIMESTAMP else Domain.LOGICAL


Plan.family = Plan


@dataclass(frozen=True)
class Source(Plan):
    """A named stream; `columns` are the columns that the query needs, set by the optimizer."""

    name: str
    declared: Schema
    time_column: str
    columns: tuple[str, ...] | None = None
    ordered: bool = False
    """Whether rows are sorted by time."""
    step: str = ""
    """The step that errors in its rows name; by default `run` and the name of the stream."""
    reading: Reading = PLAIN
    """How numbers, text and naive times are converted to the declared instants."""
    text: TextForm = PLAIN_TEXT
    """How the fields of text files are written."""
    end_column: str | None = None
    """The end of each lifetime; without one, rows are points."""
    table: bool = False
    """Whether rows have no time. The node above it says when they hold (`plan.temporal.ALWAYS`)."""
    held: Any = field(default=None, repr=False, metadata={"is_data": True})
    """The rows, where the stream was made of them (`io.data.Data`): its input unless a run gives another."""

    @property
    def domain(self) -> Domain:
        return Domain.CLOCK if self.table else super().domain

    @property
    def schema(self) -> Schema:
        return self.declared if self.columns is None else self.declared.select(self.columns)

    @property
    def time(self) -> str:
        return self.time_column

    @property
    def end(self) -> str | None:
        return self.end_column

    def __str__(self) -> str:
        read = "" if self.columns is None else f" read={list(map(users_part, self.columns))}"
        if self.table:
            return f"table {self.name}{read}"
        ordered = " ordered" if self.ordered else ""
        end = f" end={self.end_column}" if self.end_column else ""
        return f"source {self.name} time={users_part(self.time_column)}{end}{ordered}{read}"


@dataclass(frozen=True)
class Filter(Plan):
    """The rows for which a predicate is true; rows for which it is false or null are dropped."""

    input: Plan
    predicate: Node

    @property
    def schema(self) -> Schema:
        return self.input.schema

    @property
    def time(self) -> str:
        return self.input.time

    @property
    def end(self) -> str | None:
        return self.input.end

    def __str__(self) -> str:
        return f"where {self.predicate}"


@dataclass(frozen=True)
class Project(Plan):
    """Computed columns of each row. The columns of the lifetime are always among them."""

    input: Plan
    outputs: tuple[tuple[str, Node], ...]

    @functools.cached_property
    def schema(self) -> Schema:
        return Schema(tuple((n, type_of(e, self.input.schema)) for n, e in self.outputs))

    @property
    def time(self) -> str:
        return self.input.time

    @property
    def end(self) -> str | None:
        return self.input.end

    def __str__(self) -> str:
        shown = [n if str(e) == f"col.{n}" else f"{users_part(n)}={e}" for n, e in self.outputs]
        return f"select {', '.join(shown)}"


@dataclass(frozen=True)
class Union(Plan):
    """The rows of several inputs as one stream; all have the same schema and the same lifetime columns."""

    inputs: tuple[Plan, ...]

    def __post_init__(self) -> None:
        if len({(i.time, i.end, i.schema) for i in self.inputs}) != 1:
            shown = "; ".join(f"{i.schema} time={i.time} end={i.end}" for i in self.inputs)
            raise InternalError(f"a union of inputs that differ: {shown}")

    @property
    def schema(self) -> Schema:
        return self.inputs[0].schema

    @property
    def time(self) -> str:
        return self.inputs[0].time

    @property
    def end(self) -> str | None:
        return self.inputs[0].end

    def __str__(self) -> str:
        return f"union of {len(self.inputs)}"


@dataclass(frozen=True)
class NamedWindow:
    """A window of a query, with a label if the query has several."""

    label: str | None
    spec: Window

    def __str__(self) -> str:
        return f"{self.label}={self.spec}" if self.label else str(self.spec)


@dataclass(frozen=True)
class WindowAggregate(Plan):
    """Aggregates of the rows of each window, by key. Arguments are resolved over the input."""

    input: Plan
    keys: tuple[str, ...]
    windows: tuple[NamedWindow, ...]
    aggregates: tuple[tuple[str, Aggregate], ...]
    ids: bool = False
    """Whether the result has a column with the ids of the windows, without their partition."""

    @functools.cached_property
    def layout(self) -> Layout:
        return layout(self.aggregates, self.input.schema, self.never_null)

    @functools.cached_property
    def group_keys(self) -> tuple[str, ...]:
        """The keys of the result: the partition columns of the windows, then the group keys."""
        found = list(self.keys)
        for window in self.windows:
            found = [p for p in window.spec.partition or () if p not in found] + found
        return tuple(found)

    def partition_of(self, spec: Window) -> tuple[str, ...]:
        """Return the columns that partition the stream for this window."""
        if spec.partition is not None:
            return spec.partition
        return self.keys if isinstance(spec, (Rows, LastRows, LastRange, PerEvent, Session)) else ()

    @property
    def partition(self) -> tuple[str, ...]:
        """The columns that partition the stream for its windows.

        Windows on a grid of time do not depend on it: if there are others too, it is the partition of those.
        """
        specs = [w.spec for w in self.windows]
        asking = [s for s in specs if s.follows_rows]
        return self.partition_of((asking or specs)[0])

    @functools.cached_property
    def schema(self) -> Schema:
        source = self.input.schema
        label: tuple[tuple[str, DataType], ...] = ()
        if len(self.windows) > 1:
            label = ((WINDOW, STRING),)
        bound = self.bound_type
        return Schema(
            (
                *((k, source[k]) for k in self.group_keys),
                *label,
                (WINDOW_START, bound),
                (WINDOW_END, bound),
                *(((WINDOW_ID, self.id_type),) if self.ids else ()),
                *((r.name, r.type) for r in self.layout.results),
            )
        )

    @property
    def bound_type(self) -> DataType:
        spec = self.windows[0].spec
        return INT64 if isinstance(spec, Rows) else self.input.schema[self.attribute]

    @property
    def id_type(self) -> DataType:
        """The type of window ids: a value of the attribute where a row makes the window, otherwise an int."""
        return self.bound_type if isinstance(self.windows[0].spec, (PerEvent, Session)) else INT64

    @property
    def attribute(self) -> str:
        """The column with the windowing attribute; row windows do not read it.

        Where there are two, it is the one that windows slide over.
        """
        spec = self.windows[0].spec
        on = spec.slide_on if isinstance(spec, LastRange) else spec.on
        assert on is None or isinstance(on, str), "expressions are columns of the input (`plan.build`)"
        return on or self.input.time

    @property
    def range_attribute(self) -> str:
        """The column with the attribute that ranges are over."""
        spec = self.windows[0].spec
        if not isinstance(spec, LastRange):
            return self.attribute
        assert spec.on is None or isinstance(spec.on, str), "expressions are columns of the input"
        return spec.on or self.input.time

    @property
    def never_null(self) -> frozenset[str]:
        """The columns that are never null in a row of a window, because a null there is an error."""
        by_number = isinstance(self.windows[0].spec, Rows)
        return frozenset() if by_number else frozenset({self.attribute, self.range_attribute})

    @property
    def start(self) -> int | None:
        """The earliest start of all windows, before which rows are in no window; None if one has no start."""
        starts = [w.spec.start if isinstance(w.spec, GridWindow) else None for w in self.windows]
        given = [s for s in starts if s is not None]
        return min(given) if len(given) == len(starts) else None

    @property
    def time(self) -> str:
        return WINDOW_START

    def __str__(self) -> str:
        ids = " with ids" if self.ids else ""
        return f"aggregate {_asked(self.aggregates, self.group_keys, self.windows)}{ids}"


@dataclass(frozen=True)
class WheelWindows(Plan):
    """The windows of an aggregate, read from a wheel instead of rows (rule `use_wheel`).

    Keys and aggregates are pairs of the name in the result and the name in the wheel. An aggregate that the
    wheel does not have, but that can be computed from its partials, has the aggregate instead of a name.
    """

    stream: str
    """The name of the input, which is a wheel."""
    result: Schema
    windows: tuple[NamedWindow, ...]
    keys: tuple[tuple[str, str], ...]
    aggregates: tuple[tuple[str, str | Aggregate], ...]
    since: int | None = None
    until: int | None = None
    """Only rows in `[since, until)` count. Both are in ticks, at bounds of slots."""

    @property
    def schema(self) -> Schema:
        return self.result

    @property
    def time(self) -> str:
        return WINDOW_START

    def __str__(self) -> str:
        keys = [k for k, _ in self.keys]
        text = f"wheel {self.stream}: {_asked(self.aggregates, keys, self.windows)}"
        for word, tick in (("since", self.since), ("until", self.until)):
            if tick is not None:
                text += f" {word}={to_datetime(tick) if self.domain is Domain.CLOCK else tick}"
        return text


def leaves_of(plan: Plan) -> dict[str, Source | WheelWindows]:
    """Return the inputs of a plan: streams by name, windows of wheels by name and a number."""
    found: dict[str, Source | WheelWindows] = {}
    for node in plan.walk():
        if isinstance(node, Source):
            found[node.name] = node
        elif isinstance(node, WheelWindows):
            found[f"{node.stream}.{len(found)}"] = node
    return found


def closings_of(plan: Plan) -> tuple[tuple[int, int], ...] | None:
    """Return the grids, `(origin, slide)`, on which the windows of a plan end; None if they end anywhere.

    With operators on lifetimes, results may be complete at any time.
    """
    found = []
    for node in plan.walk():
        if node.sees_lifetimes:
            return None
        for window in node.windows if isinstance(node, WindowAggregate) else ():
            if not isinstance(window.spec, GridWindow) or isinstance(window.spec, Rows):
                return None
            found.append((window.spec.origin, window.spec.slide))
    return tuple(found)


def closes_by_rows(plan: Plan) -> bool:
    """Return whether windows of a plan become complete as rows arrive, whatever the watermark is."""
    found = [node.windows[0].spec for node in plan.walk() if isinstance(node, WindowAggregate)]
    return any(isinstance(spec, Rows) and spec.order_by is None for spec in found)


def _asked(
    aggregates: Iterable[tuple[str, Any]], keys: Sequence[str], windows: Iterable[NamedWindow]
) -> str:
    """Format aggregates, keys and windows."""
    by = f" by {', '.join(keys)}" if keys else ""
    return f"{asked(aggregates)}{by} over {'; '.join(map(str, windows))}"


def asked(aggregates: Iterable[tuple[str, Any]]) -> str:
    """Format aggregates by name. Those that something is computed with have none but their text."""
    return ", ".join(str(value) if is_internal(name) else f"{name}={value}" for name, value in aggregates)


def sources(plan: Plan) -> tuple[Source, ...]:
    """Return the streams that a plan reads, each once, in the order of the plan.

    Raises an error if one name has two declarations that differ.
    """
    known_ones: tuple[Source, ...] | None = plan.__dict__.get("_sources")
    if known_ones is not None:
        return known_ones
    found: dict[str, Source] = {}
    for node in plan.walk():
        if isinstance(node, Source):
            known = found.setdefault(node.name, node)
            if known is not node and replace(known, columns=None) != replace(node, columns=None):
                raise UserError(
                    f"stream {node.name!r}", expected="one declaration for each name",
                    got=f"{known} of {known.declared} and {node} of {node.declared}",
                    hint="give one of the streams another name",
                )  # fmt: skip
    known_ones = tuple(found.values())
    object.__setattr__(plan, "_sources", known_ones)
    return known_ones


def with_held(plan: Plan, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of a run: those given, and the rows that streams were made of."""
    held = {source.name: source.held for source in sources(plan) if source.held is not None}
    return {**held, **inputs}


def without_held(plan: Plan) -> Plan:
    """Return the plan without the rows that its streams were made of, so that it can be sent anywhere."""
    if all(source.held is None for source in sources(plan)):
        return plan
    return plan.transform(lambda node: replace(node, held=None) if isinstance(node, Source) else node)


def require_known(plan: Plan, known: tuple[type[Plan], ...], who: str, where: str) -> None:
    """Raise an error if `who` does not support a node of the plan; `where` is the file to extend."""
    for node in plan.walk():
        if not isinstance(node, known):
            raise unknown_node(node, who, where)


def unknown_node(node: Plan, who: str, where: str) -> UnsupportedError:
    what = f"the plan node {type(node).__name__} ({node})"
    return UnsupportedError(who, what, instead=f"add a case for {type(node).__name__} to {where}")
