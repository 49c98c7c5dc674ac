"""Build plan nodes from a user's query: check names, resolve types, and report errors by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

from tidemill.aggregates.algebra import EVENT_TIME, Aggregate
from tidemill.aggregates.arguments import check_arguments, fitted
from tidemill.core.errors import UserError
from tidemill.core.schema import internal, is_internal, users_name, users_part
from tidemill.core.schema import schema as read_schema
from tidemill.core.text_form import text_form
from tidemill.core.time import Domain
from tidemill.core.time_reading import reading
from tidemill.core.types import BOOL, DURATION, FLOAT64, NULL, TIMESTAMP
from tidemill.expr.fluent import Expr, computed, condition, traced
from tidemill.expr.nodes import Call, Column, Literal, Node, substitute
from tidemill.expr.typing import resolve, type_of
from tidemill.plan.asked import no_aggregate, split
from tidemill.plan.nodes import (
    WINDOW,
    WINDOW_END,
    WINDOW_ID,
    WINDOW_START,
    Filter,
    NamedWindow,
    Plan,
    Project,
    Source,
    Union,
    WindowAggregate,
    sources,
)  # fmt: skip
from tidemill.plan.stages import stage_of
from tidemill.plan.temporal import ALWAYS
from tidemill.windows.real_grid import on_ticks, tick_of, value_of
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

_DOMAINS = {"int64": Domain.LOGICAL, "float64": Domain.REAL}
"""What the lengths of windows over a type are in; others are in clock time."""


def source(
    name: str, time: str, declared: Any, *, end: str | None = None, ordered: bool = False, unit: Any = None,
    tz: Any = None, format: Any = None, nulls: Any = None, delimiter: Any = None, decimal: Any = ".",
    columns: Any = None, encoding: Any = None, skip: int = 0,
) -> Source:  # fmt: skip
    step = f"stream {name!r}"
    if not isinstance(time, str):
        raise UserError(step, expected="time= to be the name of a column", got=repr(time))
    fields = read_schema(declared, step=step)
    if not fields.names:
        raise UserError(step, expected="at least one column", got="an empty schema")
    kind = fields.type_of(time, step=f"{step} time=")
    if not kind.is_ticks:
        raise UserError(
            step, expected=f"time column {time!r} of type timestamp (clock) or int64 (logical)",
            got=repr(kind),
        )  # fmt: skip
    if end is not None:
        if not isinstance(end, str) or end == time:
            raise UserError(step, expected="end= to be the name of another column than time=", got=repr(end))
        if (other := fields.type_of(end, step=f"{step} end=")) != kind:
            wanted = f"end column {end!r} of type {kind!r}, as the time is"
            raise UserError(step, expected=wanted, got=repr(other))
        if isinstance(unit, str) and other == TIMESTAMP:
            unit = {time: unit, end: unit}
        if isinstance(format, (str, list, tuple)) and other == TIMESTAMP:
            format = {time: format, end: format}
    how = reading(fields, time, unit, tz, format, step=step)
    text = text_form(fields, nulls, delimiter, decimal, columns, encoding, skip, step=step)
    return Source(name, fields, time, ordered=ordered, reading=how, end_column=end, text=text)


def table(name: str, declared: Any) -> Source:
    """Declare rows without a time."""
    step = f"table {name!r}"
    fields = read_schema(declared, step=step)
    if not fields.names:
        raise UserError(step, expected="at least one column", got="an empty schema")
    return Source(name, fields, internal("none"), table=True)


def where(plan: Plan, predicate: Any) -> Filter:
    node = resolve(condition(predicate, step="where"), plan.schema, step="where")
    kind = type_of(node, plan.schema)
    if kind == NULL:
        node = Literal(None, BOOL)
    elif kind != BOOL:
        raise UserError("where", expected="a condition (bool)", got=f"{kind!r} in {node}")
    return Filter(plan, node)


def select(
    plan: Plan, names: Sequence[Any], named: Mapping[str, Any], *, keep: bool, scope: Sequence[str] = ()
) -> Project:
    """Compute columns. With `keep`, all existing columns stay; otherwise only the lifetime and `scope` do."""
    outputs: dict[str, Node] = {n: Column(n) for n in plan.schema.names} if keep else {}
    lifetime = [plan.time, *([plan.end] if plan.end else [])]
    if not keep:
        outputs |= {n: Column(n) for n in (*scope, *lifetime)}
    for item in flat(names):
        node = Column(item) if isinstance(item, str) else traced(item, step="select")
        if not isinstance(node, Column):
            raise UserError(
                "select", expected="a name for a computed column", got=str(node),
                hint="write select(total=col.a + col.b)",
            )  # fmt: skip
        outputs[node.name] = node
    for name, value in named.items():
        node = Column(value) if isinstance(value, str) else computed(value, step=f"select {name}")
        if node == Column(name) and (name in lifetime or name in scope):
            continue  # it is there, as it was
        if name in lifetime or name in scope:
            what = "key" if name in scope else "time column" if name == plan.time else "end column"
            raise UserError(
                "select", expected=f"the {what} {name!r} unchanged", got=f"{name}={value!r}",
                hint="give the computed column another name",
            )  # fmt: skip
        users_name(name, step="select")
        outputs[name] = node
    resolved = {n: resolve(e, plan.schema, step=f"select {n}") for n, e in outputs.items()}
    return Project(plan, tuple(resolved.items()))


def union(plans: Sequence[Plan]) -> Union:
    """Return the union of the rows of all plans, with the column order of the first plan."""
    first = plans[0]
    if len(plans) < 2:
        raise UserError("union", expected="at least one other stream", got="none")
    for other in plans[1:]:
        if (other.time == ALWAYS) is not (first.time == ALWAYS):
            raise UserError(
                "union", expected="streams, or tables", got="a table, whose rows have no time, and a stream",
                hint="join the stream with the table",
            )  # fmt: skip
        if other.domain is not first.domain:
            raise UserError(
                "union", expected=f"streams in {first.domain.value}, like the first one",
                got=f"one in {other.domain.value}", hint="logical and clock time never mix",
            )  # fmt: skip
        if other.time != first.time:
            raise UserError(
                "union", expected=f"the time column {first.time!r} in every stream", got=repr(other.time),
                hint="declare the streams with one name for it",
            )  # fmt: skip
        if other.end != first.end:
            ends = ["points" if p.end is None else f"lifetimes that end in {p.end!r}" for p in (first, other)]
            raise UserError(
                "union", expected=f"{ends[0]} in every stream", got=ends[1],
                hint="write .lasting(...) for points, or .at_start() for lifetimes",
            )  # fmt: skip
        if dict(other.schema.fields) != dict(first.schema.fields):
            raise UserError(
                "union", expected=f"the columns of the first stream, {first.schema}", got=str(other.schema),
                hint="choose and cast columns with .select(...) first",
            )  # fmt: skip
    names = first.schema.names
    both = Union(tuple(p if p.schema.names == names else _ordered(p, names) for p in plans))
    sources(both)  # checks that each name stands for one stream
    return both


def _ordered(plan: Plan, names: Sequence[str]) -> Project:
    return Project(plan, tuple((n, Column(n)) for n in names))


def left_out(plan: Plan) -> Plan:
    """Return the rows that the last windows of a plan leave out because they lie before their start.

    So do rows without a place: windows over floats leave out null, NaN and what is not finite.
    """
    windows = stage_of(plan).base
    if not isinstance(windows, WindowAggregate):
        raise UserError("left_out", expected="a query with windows", got=str(windows))
    below: Node = Literal(False, BOOL)
    if windows.start is not None and not isinstance(windows.windows[0].spec, Rows):
        bound = Literal(windows.start, windows.input.schema[windows.attribute])
        below = Call("lt", (Column(windows.attribute), bound))
    rows = Filter(windows.input, below)
    names = [n for n in rows.schema.names if users_part(n) == n]
    return rows if len(names) == len(rows.schema.names) else _ordered(rows, names)


def flat(names: Sequence[Any]) -> list[Any]:
    """Flatten names of which some are given in lists."""
    return [n for item in names for n in (item if isinstance(item, (list, tuple)) else [item])]


def grouped(
    plan: Plan, names: Sequence[Any], named: Mapping[str, Any], scope: Sequence[str] = (),
    step: str = "group_by",
) -> tuple[Plan, tuple[str, ...]]:  # fmt: skip
    """Return the names of the key columns, after adding computed keys to the plan as columns.

    The keys of `scope`, of groups that the query runs in, come first.
    """
    keys: list[str] = []
    for item in flat(names):
        node = Column(item) if isinstance(item, str) else traced(item, step=step)
        if not isinstance(node, Column):
            raise UserError(
                step, expected="a name for a computed key", got=str(node),
                hint="write group_by(hour=col.ts.hour())" if step == "group_by" else
                "compute it first: .with_columns(key=...)",
            )  # fmt: skip
        keys.append(node.name)
    if named:
        plan = select(plan, (), named, keep=True, scope=scope)
        keys.extend(named)
    for key in keys:
        kind = plan.schema.type_of(key, step=step)
        if not kind.is_comparable:
            raise UserError(step, expected=f"a key {key!r} that can be compared", got=repr(kind))
    if len(set(keys)) != len(keys):
        raise UserError(step, expected="each key once", got=repr(keys))
    return plan, (*scope, *(k for k in keys if k not in scope))


def window_aggregate(
    plan: Plan,
    keys: tuple[str, ...],
    windows: tuple[NamedWindow, ...],
    aggregates: Mapping[str, Any],
    ids: bool = False,
) -> Plan:
    if plan.time == ALWAYS:
        raise UserError(
            "window", expected="a stream, whose rows have a time", got="a table, whose rows hold for ever",
            hint="join a stream with the table first; .agg(...) without a window takes all of its rows",
        )  # fmt: skip
    if not windows:
        raise UserError(
            "agg", expected=".window(...) before .agg(...)", got="no window",
            hint="for one result a day write .window(tm.tumbling('1d'))",
        )  # fmt: skip
    asked = split("agg", aggregates)
    for window in windows:
        if isinstance(window.spec, PerEvent) and window.spec.keep:
            raise UserError(
                f"window {window.spec}", expected="keep=True alone, and .agg(...) after it",
                got="; ".join(map(str, windows)) if len(windows) > 1 else "something else",
                hint="leave keep=True out, or use one query for each",
            )  # fmt: skip
        _check_window(plan, window.spec)
    _check_together(windows, ids)
    plan, windows, step = _with_attribute(plan, windows)
    bound = tuple((n, bind(plan, n, a)) for n, a in asked.aggregates.items())
    node = WindowAggregate(plan, keys, windows, bound, ids)
    own = [WINDOW_START, WINDOW_END, *([WINDOW] if len(windows) > 1 else []), *([WINDOW_ID] if ids else [])]
    for name, taken in (
        *((k, own) for k in node.group_keys),
        *((a, [*node.group_keys, *own]) for a in aggregates),
    ):
        if name in taken:
            raise UserError("agg", expected=f"a name not taken by {taken}", got=repr(name))
    node.schema  # noqa: B018  (types of all results are checked here, at plan time)
    return asked.results_of(node if step is None else _in_floats(node, step))


TOP = internal("top")
"""The list of the best rows of a window, before each of them is a row."""


def top_of_windows(
    plan: Plan, keys: tuple[str, ...], windows: tuple[NamedWindow, ...], best: Callable[..., Aggregate],
    ids: bool,
) -> Plan:  # fmt: skip
    """Return windows with a list of rows in `TOP`; `best` makes the aggregate of the columns."""
    by_key = {*keys, *(name for window in windows for name in window.spec.partition or ())}
    columns = [Expr(Column(n)) for n in plan.schema.names if n not in by_key and not is_internal(n)]
    return window_aggregate(plan, keys, windows, {TOP: best(*columns)}, ids)


def _with_attribute(
    plan: Plan, windows: tuple[NamedWindow, ...]
) -> tuple[Plan, tuple[NamedWindow, ...], Fraction | None]:
    """Compute the windowing attribute as a column, where it is an expression or a float.

    Engines see windows over int64 ticks. Over a float, these are steps of a grid, and the last result is the
    size of a step.
    """
    if isinstance(windows[0].spec, Rows):
        return plan, windows, None
    if isinstance(windows[0].spec, LastRange):
        return *_with_two_attributes(plan, windows), None
    on = windows[0].spec.on
    node = on if isinstance(on, Node) else Column(on or plan.time)
    real = type_of(node, plan.schema) == FLOAT64
    if isinstance(node, Column) and not real:
        return plan, windows, None
    name, step, specs = internal(str(node)), None, tuple(window.spec for window in windows)
    if real:
        step, specs = on_ticks(specs)
        name, node = internal(f"{node} in steps of {float(step)}"), tick_of(node, step)
    node = resolve(node, plan.schema, step=f"window {windows[0].spec} on=")
    outputs = (*((n, Column(n)) for n in plan.schema.names), (name, node))
    moved = (NamedWindow(w.label, replace(spec, on=name)) for w, spec in zip(windows, specs))
    return Project(plan, outputs), tuple(moved), step


def _with_two_attributes(
    plan: Plan, windows: tuple[NamedWindow, ...]
) -> tuple[Plan, tuple[NamedWindow, ...]]:
    """The same for an attribute of the range and one that windows slide over, which are not floats."""
    outputs: list[tuple[str, Node]] = [(n, Column(n)) for n in plan.schema.names]
    names: dict[str, Any] = {}
    for role in ("on", "slide_on"):
        node = getattr(windows[0].spec, role)
        if isinstance(node, Node):
            names[role] = internal(str(node))
            node = resolve(node, plan.schema, step=f"window {windows[0].spec} {role}=")
            outputs.append((names[role], node))
    if not names:
        return plan, windows
    moved = tuple(NamedWindow(w.label, replace(w.spec, **names)) for w in windows)
    return Project(plan, tuple(outputs)), moved


def _in_floats(windows: WindowAggregate, step: Fraction) -> Project:
    """Convert the bounds of windows over a float from steps to floats."""
    bounds = {name: value_of(Column(name), step) for name in (WINDOW_START, WINDOW_END)}
    outputs = tuple((n, bounds.get(n, Column(n))) for n in windows.schema.names)
    return Project(windows, outputs)


def _check_window(plan: Plan, spec: Window) -> None:
    step = f"window {spec}"
    schema = plan.schema
    numbered = spec.counts_arrivals and not getattr(spec, "order_by", None)
    base = stage_of(plan).base
    if numbered and not isinstance(base, Source):
        what = "a union" if isinstance(base, Union) else "windows"
        raise UserError(
            step, expected=f"order_by= over {what}, whose rows have no order of arrival", got="none",
            hint="name a column to number rows by: order_by='seq'",
        )  # fmt: skip
    for name in (*(spec.partition or ()), *((o,) if (o := getattr(spec, "order_by", None)) else ())):
        schema.type_of(name, step=step)
    if isinstance(spec, Rows):
        return
    if isinstance(spec, LastRange):
        _check_attribute(plan, spec, spec.on, spec.range.domain)
        _check_attribute(plan, spec, spec.slide_on, spec.every.domain, "slide_on")
        if spec.slide_on == (spec.on or plan.time):
            raise UserError(
                step, expected="another attribute than on= to slide over", got=repr(spec.slide_on),
                hint="leave slide_on= out",
            )  # fmt: skip
    else:
        _check_attribute(plan, spec, spec.on, spec.domain)
    if isinstance(spec, PerEvent) and spec.by == "rank" and spec.order_by:
        raise UserError(step, expected="either by='rank' or order_by", got="both")


def _check_attribute(
    plan: Plan, spec: Window, on: str | Node | None, written: Domain | None, role: str = "on"
) -> None:
    """Check an attribute of a window, over which lengths are `written` in a kind of time."""
    step, schema = f"window {spec}", plan.schema
    attribute = on if isinstance(on, Node) else Column(on or plan.time)
    kind = type_of(resolve(attribute, schema, step=f"{step} {role}="), schema, step=step)
    named = repr(attribute.name) if isinstance(attribute, Column) else str(attribute)
    if not kind.has_distance:
        raise UserError(
            step, expected=f"an int64, float64, timestamp or duration to window on, {named}",
            got=repr(kind), hint="cast or scale it to a number first",
        )  # fmt: skip
    domain = _DOMAINS.get(kind.kind, Domain.CLOCK)
    if isinstance(spec, LastRange) and domain is Domain.REAL:
        raise UserError(
            step, expected=f"ints, instants or durations in {named}, because there are two attributes",
            got=repr(kind), hint="scale it to an int first",
        )  # fmt: skip
    if isinstance(spec, Calendar) and kind.kind != "timestamp":
        raise UserError(
            step, expected=f"clock time, which calendars are of: a timestamp column {named}",
            got=f"{domain.value} ({kind!r})",
            hint="declare it as a timestamp, with unit= if it comes as ints",
        )  # fmt: skip
    if written is not domain and not (domain is Domain.REAL and written is Domain.LOGICAL):
        want = {Domain.CLOCK: "text or a timedelta", Domain.LOGICAL: "ints", Domain.REAL: "numbers"}[domain]
        raise UserError(
            step, expected=f"durations in {domain.value} ({want}), because {named} is {kind!r}",
            got=f"durations in {written.value if written else 'rows'}",
            hint="logical and clock time never mix" + (
                "" if domain is not Domain.LOGICAL
                else f"; unit='s' or format='%Y%m%d' makes ints in {named} clock time"
            ),
        )  # fmt: skip
    aligned = isinstance(spec, GridWindow) or (isinstance(spec, LastRange) and role == "slide_on")
    placed = getattr(spec, "placed", None) if aligned else None
    if placed in (datetime, timedelta) and (placed is timedelta) != (kind == DURATION):
        what = "durations" if kind == DURATION else "instants"
        raise UserError(
            step, expected=f"origin and start as {what}, because {named} is {kind!r}", got=str(spec)
        )


def _check_together(windows: tuple[NamedWindow, ...], ids: bool) -> None:
    if len(windows) < 2:
        return
    apart = (Rows, LastRows, LastRange)
    kinds = {
        (*(isinstance(s, n) for n in apart), s.on, getattr(s, "slide_on", None), s.partition)
        for s in (w.spec for w in windows)
    }
    if len(kinds) > 1:
        raise UserError(
            "window", expected="windows over one attribute and one partition",
            got="; ".join(map(str, windows)), hint="use one query for each",
        )  # fmt: skip
    if ids and len({isinstance(w.spec, (PerEvent, Session)) for w in windows}) > 1:
        raise UserError(
            "window", expected="windows whose ids are of one type, for window_id=True",
            got="; ".join(map(str, windows)), hint="use one query for each",
        )  # fmt: skip
    orders = {getattr(w.spec, "order_by", None) for w in windows if w.spec.counts_arrivals}
    if len(orders) > 1:
        raise UserError(
            "window", expected="windows that number rows in one order",
            got="; ".join(map(str, windows)), hint="use one query for each order_by",
        )  # fmt: skip


def bind(plan: Plan, name: str, aggregate: Any) -> Aggregate:
    """Bind an aggregate to the columns of a plan: resolve and check its arguments."""
    step = f"agg {users_part(name)}"
    if not isinstance(aggregate, Aggregate):
        raise no_aggregate(step, aggregate)

    def change(node: Node) -> Node:
        return resolve(
            substitute(node, {EVENT_TIME.name: Column(plan.time)}), plan.schema,
            step=f"{step} {aggregate}",
        )  # fmt: skip

    bound = aggregate.over(change)
    check_arguments(aggregate, plan.schema, plan.time, step=f"{step} {aggregate}")
    return fitted(bound, plan.schema)


