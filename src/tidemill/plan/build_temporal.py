"""Build the nodes of the temporal algebra from a user's query, as `plan.build` does for the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidemill.aggregates.algebra import Aggregate
from tidemill.core.errors import UserError
from tidemill.core.schema import Schema, users_name, users_part
from tidemill.core.time import FARTHEST, FOREVER, Domain, duration
from tidemill.core.types import BOOL, DURATION, INT64, NULL, TIMESTAMP, DataType
from tidemill.expr.fluent import Expr, condition, recording, traced
from tidemill.expr.nodes import Call, Cast, Column, Literal, Node
from tidemill.expr.typing import resolve, type_of
from tidemill.plan import build
from tidemill.plan.asked import split
from tidemill.plan.build import bind, flat
from tidemill.plan.nodes import Filter, Plan, Project, Source, sources
from tidemill.plan.temporal import (
    ALWAYS,
    ALWAYS_END,
    ALWAYS_START,
    CHANGE,
    EDGE,
    LEFT,
    RIGHT,
    VALID_TO,
    Chop,
    Cut,
    Edges,
    FromEdges,
    Hops,
    Join,
    Kind,
    Lifetime,
    Match,
    Move,
    Neighbour,
    Neighbours,
    SnapshotAggregate,
    Stitch,
    TopRows,
    Unnest,
    UntilSessionEnd,
    bounds_of,
    payload,
    sided,
)  # fmt: skip
from tidemill.windows.spec import GridWindow, hopping, tumbling

# --- lengths and instants ---------------------------------------------------------------------------


def _length(plan: Plan, value: Any, step: str, *, least: int | None = 1) -> int:
    """Read a duration in the time of a plan."""
    _require_times(plan, step)
    given = duration(value, step=step)
    if given.domain is not plan.domain:
        want = "text or a timedelta" if plan.domain is Domain.CLOCK else "ints"
        raise UserError(
            step, expected=f"a duration in {plan.domain.value} ({want})",
            got=f"{value!r}, in {given.domain.value}", hint="logical and clock time never mix",
        )  # fmt: skip
    if least is not None and given.ticks < least:
        raise UserError(
            step, expected="a positive duration" if least == 1 else f"a duration of at least {least}",
            got=repr(value),
        )  # fmt: skip
    if abs(given.ticks) > FARTHEST:
        raise UserError(step, expected="a duration within 2**61 ticks", got=f"{value!r:.80}")
    return given.ticks


def _forever(given: Any) -> bool:
    return isinstance(given, int) and given == FOREVER


def _require_times(plan: Plan, step: str) -> None:
    if is_table(plan):
        raise UserError(
            step, expected="a stream, whose rows have a time", got="a table, whose rows hold for ever",
            hint="join a stream with the table first",
        )  # fmt: skip


def _ticks(plan: Plan, ticks: int) -> Literal:
    """A distance in the time of a plan, as a constant."""
    return Literal(ticks, DURATION if plan.domain is Domain.CLOCK else INT64)


def _later(plan: Plan, node: Node, ticks: int) -> Node:
    return node if ticks == 0 else Call("add", (node, _ticks(plan, ticks)))


def _bound(plan: Plan) -> DataType:
    return plan.schema[plan.time]


def _start(plan: Plan) -> Node:
    return Column(plan.time)


def _end(plan: Plan) -> Node:
    """The end of a lifetime; a point holds for one tick."""
    return Column(plan.end) if plan.end else _later(plan, _start(plan), 1)


def or_length(plan: Plan, given: Any, step: str, *, least: int = 1) -> Node | int:
    """Read a duration that is constant, or an expression of a row that gives one."""
    if isinstance(given, Expr) or (callable(given) and not isinstance(given, type)):
        node = resolve(traced(given, step=step), plan.schema, step=step)
        wanted = DURATION if plan.domain is Domain.CLOCK else INT64
        if (kind := type_of(node, plan.schema)) not in (wanted, NULL):
            ticks = (wanted, kind) == (DURATION, INT64)
            raise UserError(
                step, expected=f"an expression of type {wanted!r}", got=f"{kind!r} in {node}",
                hint="microseconds are col.us.cast('duration')" if ticks else "",
            )  # fmt: skip
        return node
    if isinstance(given, str) and given in plan.schema:
        raise UserError(
            step, expected="a duration, or an expression", got=repr(given), hint=f"write col.{given}"
        )
    return _length(plan, given, step, least=least)


# --- lifetimes --------------------------------------------------------------------------------------

_STAYS = Move()


def _lifetime(
    plan: Plan, says: str, *, start: Node | None = None, end: Node | None = None, move: Move | None = _STAYS,
    may_be_empty: bool = False, hops: Hops | None = None,
) -> Plan:  # fmt: skip
    """Return the rows with another start and end; without an `end` they become points.

    Rows whose lifetime is empty hold at no instant: they are dropped.
    """
    outputs: dict[str, Node] = {n: Column(n) for n in plan.schema.names if n != plan.end}
    outputs[plan.time] = start or _start(plan)
    name = None
    if end is not None:
        name = end_name(plan, says)
        outputs[name] = end
    resolved = {n: resolve(e, plan.schema, step=says) for n, e in outputs.items()}
    if name is not None and type_of(resolved[name], plan.schema) == NULL:
        resolved[name] = Literal(None, _bound(plan))
    made = Lifetime(plan, tuple(resolved.items()), plan.time, name, move, says, hops)
    if not may_be_empty:
        return made
    if name is None:
        return Filter(made, Call("is_not_null", (Column(made.time),)))
    some: Node = Call("or", (Call("is_null", (Column(name),)), Call("gt", (Column(name), Column(made.time)))))
    if start is not None:
        some = Call("and", (Call("is_not_null", (Column(made.time),)), some))
    return Filter(made, some)


def end_name(plan: Plan, step: str) -> str:
    """Return the name of the end of lifetimes: the one there is, or `valid_to`."""
    if plan.end is None and VALID_TO in plan.schema:
        raise UserError(
            step, expected=f"no column {VALID_TO!r}, which is the end of lifetimes", got=str(plan.schema),
            hint="give it another name with .select(...)",
        )  # fmt: skip
    return plan.end or VALID_TO


def lasting(plan: Plan, given: Any) -> Plan:
    _require_times(plan, "lasting")
    if _forever(given):
        return _lifetime(plan, "lasting forever", end=Literal(None, _bound(plan)))
    length = or_length(plan, given, "lasting")
    if isinstance(length, int):
        return _lifetime(plan, f"lasting {given}", end=_later(plan, _start(plan), length))
    return _lifetime(
        plan, f"lasting {length}", end=Call("add", (_start(plan), length)), may_be_empty=True
    )


def until(plan: Plan, given: Any) -> Plan:
    _require_times(plan, "until")
    node = resolve(traced(given, step="until") if not isinstance(given, str) else Column(given),
                   plan.schema, step="until")  # fmt: skip
    if (kind := type_of(node, plan.schema)) not in (_bound(plan), NULL):
        raise UserError(
            "until", expected=f"an expression of type {_bound(plan)!r}", got=f"{kind!r} in {node}"
        )
    return _lifetime(plan, f"until {node}", end=node, may_be_empty=True)


def starting(plan: Plan, given: Any) -> Plan:
    """Set the start by an expression. Nobody knows how a watermark goes through it."""
    _require_times(plan, "starting")
    node = resolve(traced(given, step="starting"), plan.schema, step="starting")
    if (kind := type_of(node, plan.schema)) != _bound(plan):
        raise UserError(
            "starting", expected=f"an expression of type {_bound(plan)!r}", got=f"{kind!r} in {node}"
        )
    end = Column(plan.end) if plan.end else None
    return _lifetime(plan, f"starting {node}", start=node, end=end, move=None, may_be_empty=True)


def extend(plan: Plan, given: Any) -> Plan:
    _require_times(plan, "extend")
    if _forever(given):
        return _lifetime(plan, "extend forever", end=Literal(None, _bound(plan)))
    length = or_length(plan, given, "extend")
    if isinstance(length, int):
        return _lifetime(plan, f"extend {given}", end=_later(plan, _end(plan), length))
    return _lifetime(plan, f"extend {length}", end=Call("add", (_end(plan), length)), may_be_empty=True)


def shift(plan: Plan, given: Any) -> Plan:
    ticks = _length(plan, given, "shift", least=None)
    end = _later(plan, Column(plan.end), ticks) if plan.end else None
    start = _later(plan, _start(plan), ticks)
    return _lifetime(plan, f"shift {given}", start=start, end=end, move=Move(ticks))


def at_most(plan: Plan, given: Any) -> Plan:
    _require_times(plan, "at_most")
    if _forever(given):
        return plan if plan.end else lasting_one_tick(plan)
    ticks = _length(plan, given, "at_most")
    end = Call("least", (_end(plan), _later(plan, _start(plan), ticks)))
    return _lifetime(plan, f"at_most {given}", end=end)


def at_start(plan: Plan) -> Plan:
    _require_times(plan, "at_start")
    return plan if plan.end is None else _lifetime(plan, "at_start")


def at_end(plan: Plan) -> Plan:
    _require_times(plan, "at_end")
    if plan.end is None:
        return _lifetime(plan, "at_end", start=_end(plan), move=Move(1))
    some = Filter(plan, Call("is_not_null", (Column(plan.end),)))
    return _lifetime(some, "at_end", start=Column(plan.end))


def quantised(plan: Plan, size: Any, every: Any, origin: Any) -> Plan:
    step = "quantised"
    for given in (size, every):
        _length(plan, given, step)
    spec = hopping(size, every, **({} if origin is None else {"origin": origin}))
    assert isinstance(spec, GridWindow) and spec.length is not None
    reach, slide, begin = spec.length, spec.slide, spec.origin

    def bound_above(node: Node, ticks: int) -> Node:
        """The first bound of the grid after so many ticks."""
        whole = node if plan.domain is Domain.LOGICAL else Cast(node, INT64, True)
        moved = Call("add", (whole, Literal(ticks - begin, INT64)))
        count = Call("add", (Call("floordiv", (moved, Literal(slide, INT64))), Literal(1, INT64)))
        found: Node = Call("add", (Call("mul", (count, Literal(slide, INT64))), Literal(begin, INT64)))
        return found if plan.domain is Domain.LOGICAL else Cast(found, TIMESTAMP, True)

    says = f"quantised {size} every={every}" + (f" origin={origin}" if origin is not None else "")
    return _lifetime(
        plan, says, start=bound_above(_start(plan), 0), end=bound_above(_start(plan), reach),
        move=Move(grid=(begin, slide)), may_be_empty=slide > reach, hops=Hops(reach, slide, begin),
    )  # fmt: skip


def until_session_end(plan: Plan, keys: tuple[str, ...], gap: Any) -> Plan:
    step = "until_session_end"
    return UntilSessionEnd(plan, keys, _length(plan, gap, step), end_name(plan, step))


def chop(plan: Plan, every: Any, origin: Any) -> Plan:
    _length(plan, every, "chop")
    spec: Any = tumbling(every, **({} if origin is None else {"origin": origin}))
    return plan if plan.end is None else Chop(plan, spec.origin, spec.slide)


def sample(plan: Plan, every: Any, origin: Any) -> Plan:
    """Return points at the bounds of a grid: the pieces of lifetimes that start there."""
    _length(plan, every, "sample")
    spec: Any = tumbling(every, **({} if origin is None else {"origin": origin}))
    pieces = chop(plan, every, origin)
    whole = _start(pieces) if plan.domain is Domain.LOGICAL else Cast(_start(pieces), INT64, True)
    place = Call("mod", (Call("sub", (whole, Literal(spec.origin, INT64))), Literal(spec.slide, INT64)))
    return at_start(Filter(pieces, Call("eq", (place, Literal(0, INT64)))))


def stitch(plan: Plan) -> Plan:
    return Stitch(plan if plan.end else lasting_one_tick(plan))


def lasting_one_tick(plan: Plan) -> Plan:
    """Points with their ends, for operators that make intervals."""
    return _lifetime(plan, "lasting one tick", end=_end(plan))


# --- snapshots --------------------------------------------------------------------------------------


def snapshot_aggregate(plan: Plan, keys: tuple[str, ...], aggregates: Mapping[str, Any]) -> Plan:
    asked = split("agg", aggregates)
    own = [*bounds_of(plan), *keys]
    for name in aggregates:
        if name in own:
            raise UserError("agg", expected=f"a name not taken by {own}", got=repr(name))
    node = _snapshot(plan, keys, {n: bind(plan, n, a) for n, a in asked.aggregates.items()})
    results = asked.results_of(node)
    # A quotient may stay the same while its parts change.
    return results if results is node or is_table(plan) else Stitch(results)


def _snapshot(plan: Plan, keys: tuple[str, ...], bound: Mapping[str, Aggregate]) -> Plan:
    for name in keys:
        if name in bounds_of(plan):
            wanted = f"no key {name!r}, which is the lifetime of results"
            raise UserError("agg", expected=wanted, got=repr(name))
    node = SnapshotAggregate(plan, keys, tuple(bound.items()))
    node.schema  # noqa: B018  (types of all results are checked here, at plan time)
    return node


def distinct(plan: Plan, scope: tuple[str, ...], names: Sequence[Any]) -> Plan:
    nodes = [Column(n) if isinstance(n, str) else traced(n, step="distinct") for n in flat(names)]
    for node in nodes:
        if not isinstance(node, Column):
            raise UserError(
                "distinct", expected="columns", got=str(node),
                hint="compute it first: .with_columns(value=...)",
            )  # fmt: skip
    given = [n.name for n in nodes if isinstance(n, Column)] or list(payload(plan))
    keys = (*scope, *(n for n in given if n not in scope))
    for key in keys:
        kind = plan.schema.type_of(key, step="distinct")
        if key in (plan.time, plan.end, *bounds_of(plan)):
            raise UserError("distinct", expected="columns other than the lifetime", got=repr(key))
        if not kind.is_comparable:
            raise UserError("distinct", expected=f"a column {key!r} that can be compared", got=repr(kind))
    return _snapshot(plan, keys, {})


def top(plan: Plan, keys: tuple[str, ...], count: Any, by: Any, least: bool) -> Plan:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise UserError("top", expected="a positive number of rows", got=repr(count))
    node = Column(by) if isinstance(by, str) else traced(by, step="top by=")
    if not isinstance(node, Column):
        raise UserError(
            "top", expected="by= a column", got=str(node), hint="compute it first: .with_columns(rank=...)"
        )
    kind = plan.schema.type_of(node.name, step="top")
    if not kind.is_ordered:
        raise UserError("top", expected=f"a column {node.name!r} that is ordered", got=repr(kind))
    below = plan if plan.end else lasting_one_tick(plan)
    return TopRows(below, keys, count, node.name, least)


# --- two streams ------------------------------------------------------------------------------------


def match(
    left: Plan, right: Plan, on: Any, where: Any, scope: tuple[str, ...], step: str
) -> Match:
    """Read which rows belong together."""
    if left.domain is not right.domain:
        raise UserError(
            step, expected=f"streams in {left.domain.value}, like the left one",
            got=f"one in {right.domain.value}", hint="logical and clock time never mix",
        )  # fmt: skip
    names = [] if on is None or isinstance(on, Mapping) else flat([on])
    pairs = list(on.items()) if isinstance(on, Mapping) else [(n, n) for n in names]
    keys = []
    for one, other in pairs:
        if not isinstance(one, str) or not isinstance(other, str):
            raise UserError(
                step, expected="on= names of columns, or a dict of them", got=f"{on!r:.80}",
                hint="compute a key first with .with_columns(key=...)",
            )  # fmt: skip
        a, b = left.schema.type_of(one, step=f"{step} on="), right.schema.type_of(other, step=f"{step} on=")
        if a != b:
            raise UserError(
                step, expected=f"keys of one type, {one!r} is {a!r}", got=f"{other!r}, which is {b!r}",
                hint="cast one of them: .with_columns(key=col.key.cast('int64'))",
            )  # fmt: skip
        if not a.is_comparable:
            raise UserError(step, expected=f"a key {one!r} that can be compared", got=repr(a))
        if one in scope and other != one:
            raise UserError(
                step, expected=f"the key {one!r} of the groups equal to itself in on=",
                got=f"{{{one!r}: {other!r}}}", hint=f"write where=lambda l, r: l.{one} == r.{other}",
            )  # fmt: skip
        if (one, other) not in keys:
            keys.append((one, other))
    # A key of the groups that is named in on= is as others there: null is equal to nothing.
    scope = tuple(name for name in scope if (name, name) not in keys)
    found = None if where is None else _pair_condition(left, right, where, step)
    return Match(tuple(keys), scope, found)


class _Side:
    """The columns of one side in a condition on pairs."""

    _prefix: str
    _schema: Schema
    _step: str

    def __init__(self, prefix: str, schema: Schema, step: str) -> None:
        self.__dict__.update(_prefix=prefix, _schema=schema, _step=step)

    def __getattr__(self, name: str) -> Expr:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Expr:
        self._schema.type_of(name, step=f"{self._step} where=")
        return Expr(Column(self._prefix + name))


def _pair_condition(left: Plan, right: Plan, where: Callable[..., Any], step: str) -> Node:
    step_where = f"{step} where="
    if not callable(where) or isinstance(where, Expr):
        raise UserError(
            step_where, expected="a function of two rows", got=f"{where!r:.80}",
            hint="write where=lambda l, r: l.value > r.limit",
        )  # fmt: skip
    try:
        with recording():
            made = where(_Side(LEFT, left.schema, step), _Side(RIGHT, right.schema, step))
    except (TypeError, AttributeError, LookupError, ValueError) as wrong:
        raise UserError(
            step_where, f"the lambda failed while it was traced: {wrong}",
            hint="it takes two rows: lambda l, r: l.value > r.limit; wrap other Python in tm.udf",
        ) from wrong  # fmt: skip
    schema = Schema(sided(left, right))
    node = resolve(condition(made, step=step_where), schema, step=step_where)
    kind = type_of(node, schema)
    if kind not in (BOOL, NULL):
        raise UserError(step_where, expected="a condition (bool)", got=f"{kind!r} in {node}")
    return Literal(None, BOOL) if kind == NULL else node


_KINDS = ("inner", "left", "right", "outer")


def join(left: Plan, right: Plan, how: Any, matching: Match, suffix: str) -> Plan:
    step = "join"
    if how not in _KINDS:
        raise UserError(step, expected=f"how= one of {_KINDS}", got=repr(how))
    keys = {other for _, other in matching.keys} | set(matching.scope)
    columns = [(n, LEFT + n) for n in payload(left)]
    taken = {n for n, _ in columns} | set(bounds_of(left, right))
    for name in payload(right):
        if name in keys:
            continue
        shown = name if name not in taken else f"{name}{suffix}"
        if shown in taken:
            raise UserError(
                step, expected=f"a name for the right column {name!r} that is not taken", got=repr(shown),
                hint="rename it first with .select(...), or give another suffix=",
            )  # fmt: skip
        taken.add(shown)
        columns.append((shown, RIGHT + name))
    for name in bounds_of(left, right):
        if name in payload(left):
            raise UserError(
                step, expected=f"no column {name!r}, which is the lifetime of results", got=str(left.schema),
                hint="give it another name with .select(...)",
            )  # fmt: skip
    kind: Kind = how
    node = Join(left, right, matching, kind, tuple(columns))
    sources(node)
    return node


def cut(left: Plan, right: Plan, kind: Any, matching: Match) -> Plan:
    node = Cut(left, right, matching, kind)
    sources(node)
    return node


def until_next(plan: Plan, keys: tuple[str, ...]) -> Plan:
    """End each row at the next start of its key. Null is a key like any other."""
    _require_times(plan, "until_next")
    return cut(lasting(plan, FOREVER), plan, "clip", Match(scope=keys))


# --- rows before and after --------------------------------------------------------------------------


def neighbours(plan: Plan, keys: tuple[str, ...], named: Mapping[str, tuple[Any, int]], step: str) -> Plan:
    asked = []
    for name, (column, back) in named.items():
        users_name(name, step=step)
        node = Column(column) if isinstance(column, str) else traced(column, step=f"{step} {name}")
        if not isinstance(node, Column):
            plan = Project(plan, (
                *((n, Column(n)) for n in plan.schema.names),
                (hidden := f"\0{step} {node}", resolve(node, plan.schema, step=f"{step} {name}")),
            ))  # fmt: skip
            node = Column(hidden)
        plan.schema.type_of(node.name, step=f"{step} {name}")
        if name in plan.schema:
            wanted = f"a name that is not a column of {list(plan.schema.names)}"
            raise UserError(step, expected=wanted, got=repr(name))
        if isinstance(back, bool) or not isinstance(back, int) or back == 0:
            raise UserError(step, expected="a number of rows, 1 or more", got=repr(back))
        asked.append(Neighbour(name, node.name, back))
    found: Plan = Neighbours(plan, keys, tuple(asked))
    own = (found.time, found.end)
    shown = tuple((n, Column(n)) for n in found.schema.names if users_part(n) == n or n in own)
    return found if len(shown) == len(found.schema.names) else Project(found, shown)


# --- rows from lists, edges -------------------------------------------------------------------------


def select_many(plan: Plan, unnamed: Sequence[Any], named: Mapping[str, Any]) -> Plan:
    step = "select_many"
    if len(unnamed) + len(named) != 1:
        raise UserError(
            step, expected="one list", got=f"{len(unnamed) + len(named)}",
            hint="select_many(word=col.text.split(' '))",
        )  # fmt: skip
    asked_for: list[tuple[str | None, Any]] = [(None, one) for one in unnamed]
    [(name, given)] = asked_for + [*named.items()]
    if name is not None:
        users_name(name, step=step)
    asked = Column(given) if isinstance(given, str) else traced(given, step=step)
    node = resolve(asked, plan.schema, step=step)
    kind = type_of(node, plan.schema, step=step)
    if kind.kind != "list":
        raise UserError(step, expected=f"a list in {node}", got=repr(kind))
    inner = kind.of[0]
    if name is None and inner.kind != "struct":
        raise UserError(
            step, expected=f"a list of structs in {node}, whose fields are columns", got=repr(kind),
            hint=f"give the elements a name: select_many(x={node})",
        )  # fmt: skip
    own = node.name if isinstance(node, Column) else None
    for one in inner.names if name is None else (name,):
        if one in plan.schema and one != own:
            raise UserError(step, expected="a name that is not a column", got=repr(one))
    if isinstance(node, Column):
        return Unnest(plan, node.name, name)
    hidden = f"\0{step} {node}"
    outputs = (*((n, Column(n)) for n in plan.schema.names), (hidden, node))
    return Unnest(Project(plan, outputs), hidden, name)


def edges(plan: Plan, *, changes: bool) -> Plan:
    name, step = (CHANGE, "changes") if changes else (EDGE, "edges")
    _require_times(plan, step)
    if name in plan.schema:
        raise UserError(
            step, expected=f"no column {name!r}", got=str(plan.schema),
            hint="give it another name with .select(...)",
        )  # fmt: skip
    return Edges(plan if plan.end else lasting_one_tick(plan), changes)


def from_edges(plan: Plan, keys: tuple[str, ...], start: Any) -> Plan:
    step = "from_edges"
    if not keys:
        raise UserError(
            step, expected="the columns that a start and its end have in common", got="none",
            hint="write .from_edges('id', start=col.kind == 'start')",
        )  # fmt: skip
    if plan.end is not None:
        raise UserError(step, expected="points", got=f"lifetimes that end in {plan.end!r}")
    node = resolve(condition(start, step=f"{step} start="), plan.schema, step=f"{step} start=")
    if (kind := type_of(node, plan.schema)) != BOOL:
        raise UserError(step, expected="start= a condition (bool)", got=f"{kind!r} in {node}")
    return FromEdges(plan, keys, node, end_name(plan, step))


# --- tables -----------------------------------------------------------------------------------------


def table(name: str, declared: Any) -> Plan:
    """Declare rows that hold for ever; their lifetime is in columns that users do not see."""
    rows = build.table(name, declared)
    outputs = ((n, Column(n)) for n in rows.declared.names)
    return Lifetime(rows, (*outputs, *_always(TIMESTAMP)), ALWAYS, ALWAYS_END, None, "always")


def _always(kind: DataType) -> tuple[tuple[str, Node], ...]:
    return (ALWAYS, Literal(ALWAYS_START, kind)), (ALWAYS_END, Literal(None, kind))


def in_domain(plan: Plan, domain: Domain) -> Plan:
    """Return a query on tables alone in another kind of time: their rows hold for ever in both."""
    if not is_table(plan) or plan.domain is domain:
        return plan
    always = _always(TIMESTAMP if domain is Domain.CLOCK else INT64)

    def change(node: Plan) -> Plan:
        if isinstance(node, Lifetime) and isinstance(node.input, Source) and node.input.table:
            return replace(node, outputs=(*node.outputs[:-2], *always))
        return node

    return plan.transform(change)


def shown(plan: Plan) -> Plan:
    """Return what users see of a result: that of a query on tables alone has no lifetimes."""
    if not is_table(plan):
        return plan
    return Project(plan, tuple((n, Column(n)) for n in payload(plan)))


def is_table(plan: Plan) -> bool:
    """Return whether all rows of a plan hold for ever."""
    return plan.time == ALWAYS


def in_scope(plan: Plan, keys: Sequence[str], step: str) -> None:
    """Raise an error if a query that runs for each group does not have the keys any more."""
    lost = [k for k in keys if k not in plan.schema]
    if lost:
        raise UserError(
            step, expected=f"the keys {list(keys)} in the result of the sub-query",
            got=str(list(plan.schema.names)),
            hint="start from the stream that apply(...) gives, and keep its keys in select(...)",
        )  # fmt: skip
