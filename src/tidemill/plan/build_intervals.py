"""Build the nodes of interval joins from a user's query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from tidemill.aggregates.ordered import last as last_value
from tidemill.core.errors import UserError
from tidemill.core.schema import users_name
from tidemill.core.time import FOREVER, Domain, format_duration
from tidemill.core.types import INT64
from tidemill.expr import nodes
from tidemill.expr.fluent import Expr
from tidemill.expr.nodes import Cast, Column, Node
from tidemill.plan.asked import split
from tidemill.plan.build import bind, union
from tidemill.plan.build_temporal import is_table, match, or_length
from tidemill.plan.intervals import Bound, Interval, IntervalAggregate, IntervalPairs
from tidemill.plan.nodes import Plan, Project, sources
from tidemill.plan.temporal import Lifetime, Match, Move
from tidemill.windows.spec import PerEvent

CLOSED = ("both", "left", "right", "neither")
DIRECTIONS = ("backward", "forward", "nearest")


@dataclass(frozen=True)
class Asked:
    """Both streams of an interval join, which rows match, and the interval."""

    base: Plan
    probe: Plan
    match: Match
    interval: Interval
    lateness: int
    step: str


def interval(
    base: Plan, step: str, *, preceding: Any, following: Any, closed: str, max_rows: Any, prevailing: bool,
    exclude_current_time: bool, since_previous: bool,
) -> Interval:  # fmt: skip
    """Read the options of an interval join."""
    since_previous = flag(step, "since_previous", since_previous)
    if preceding is None and following is None and not since_previous:
        raise UserError(
            step, expected="preceding= or following=, or both", got="none of them",
            hint="preceding='1h' is the hour before each base row; tm.FOREVER is all of the time before",
        )  # fmt: skip
    if closed not in CLOSED:
        raise UserError(step, expected=f"closed= one of {CLOSED}", got=repr(closed))
    if max_rows is not None and (isinstance(max_rows, bool) or not isinstance(max_rows, int) or max_rows < 1):
        raise UserError(step, expected="max_rows= a positive number of rows", got=repr(max_rows))
    if preceding is None:
        preceding = FOREVER if since_previous else 0
    return Interval(
        _bound(base, preceding, f"{step} preceding="),
        _bound(base, 0 if following is None else following, f"{step} following="),
        open_start=closed in ("right", "neither"), open_end=closed in ("left", "neither"),
        max_rows=max_rows, without_current=flag(step, "exclude_current_time", exclude_current_time),
        prevailing=flag(step, "prevailing", prevailing), since_previous=since_previous,
    )  # fmt: skip


def flag(step: str, name: str, given: Any) -> bool:
    """Read an option that is on or off."""
    if not isinstance(given, bool):
        raise UserError(step, expected=f"{name}= True or False", got=repr(given))
    return given


def lengths(base: Plan, given: Any, step: str) -> list[tuple[str, Any]]:
    """Return the lengths of one interval or of several, with what names of their aggregates end in.

    The names of one have no such end.
    """
    if not isinstance(given, (list, tuple)):
        return [("", given)]
    found = [_bound(base, one, f"{step} preceding=") for one in given]
    ticks = [one for one in found if not isinstance(one, Node)]
    if not found or len(set(ticks)) < len(found):
        raise UserError(f"{step} preceding=", expected="durations that differ", got=f"{given!r:.80}")
    return [(_ending(base, one), value) for one, value in zip(ticks, given)]


def _ending(base: Plan, ticks: int) -> str:
    """Return what the names of columns end in that are about so many ticks: `_1h30m`."""
    if ticks == FOREVER:
        return "_forever"
    return f"_{format_duration(ticks) if base.domain is Domain.CLOCK and ticks else ticks}"


def _bound(base: Plan, given: Any, step: str) -> Bound:
    if isinstance(given, int) and not isinstance(given, bool) and given in (0, FOREVER):
        return given
    found = or_length(base, given, step, least=0)
    if not isinstance(found, Node):
        return found
    return found if base.domain is Domain.LOGICAL else Cast(found, INT64, True)


def require_times(base: Plan, probe: Plan, step: str) -> None:
    """Raise an error if a side is a table: its rows have no time."""
    for name, plan in (("base", base), ("probe", probe)):
        if is_table(plan):
            raise UserError(
                step, expected=f"a {name} stream, whose rows have a time", got="a table",
                hint="join a table with .join(table, on=...)",
            )  # fmt: skip


def aggregates(several: Iterable[tuple[str, Asked]], named: Mapping[str, Any]) -> Plan:
    """Return base rows with aggregates of each of several intervals, whose names have the ends given."""
    plan: Plan | None = None
    for end, asked in several:
        own = asked if plan is None else replace(asked, base=plan)
        plan = aggregate(own, {f"{name}{end}": one for name, one in named.items()})
    assert plan is not None
    return plan


def aggregate(asked: Asked, aggregates: Mapping[str, Any]) -> Plan:
    what = split(f"{asked.step} agg", aggregates)
    bound = tuple((n, bind(asked.probe, n, a)) for n, a in what.aggregates.items())
    for name in aggregates:
        users_name(name, step=f"{asked.step} agg")
        if name in asked.base.schema:
            wanted = f"a name that is not a column of the base rows, {list(asked.base.schema.names)}"
            raise UserError(f"{asked.step} agg", expected=wanted, got=repr(name))
    node = IntervalAggregate(asked.base, asked.probe, asked.match, asked.interval, asked.lateness, bound)
    node.schema  # noqa: B018  (types of all results are checked here, at plan time)
    sources(node)
    return what.results_of(node)


def beside(plan: Plan, keys: tuple[str, ...], window: PerEvent, named: Mapping[str, Any]) -> Plan:
    """Return each row with aggregates of the rows with the same keys in its window, `(t - range, t]`.

    Keys are equal as they are in groups, where null is a key like any other.
    """
    step = f"window {window}"
    require_times(plan, plan, step)
    for name in window.partition or ():
        plan.schema.type_of(name, step=step)
    keys = (*keys, *(name for name in window.partition or () if name not in keys))
    own = interval(
        plan, step, preceding=window.range, following=None, closed="right", max_rows=None, prevailing=False,
        exclude_current_time=False, since_previous=False,
    )  # fmt: skip
    matching = match(plan, plan, None, None, keys, step)
    return aggregate(Asked(plan, plan, matching, own, lateness(plan, None, step), step), named)


def pairs(asked: Asked, kind: Any, suffix: str) -> Plan:
    """Return base rows beside columns of their probe rows: by default all but the keys."""
    if kind not in ("left", "inner"):
        raise UserError(asked.step, expected="how= 'left' or 'inner'", got=repr(kind))
    keys = {other for _, other in asked.match.keys} | set(asked.match.scope)
    taken = asked.base.schema
    names = [n for n in asked.probe.schema.names if n not in keys]
    return _pairs(asked, [(n, f"{n}{suffix}" if n in taken else n) for n in names], kind)


def _pairs(asked: Asked, named: Iterable[tuple[str, str]], kind: Literal["inner", "left"]) -> Plan:
    """Return base rows beside columns of their probe rows, each with the name that it gets."""
    taken = set(asked.base.schema.names)
    for name, shown in named:
        if shown in taken:
            raise UserError(
                asked.step, expected=f"a name for the probe column {name!r} that is not taken",
                got=repr(shown), hint="rename it first with .select(...), or give another suffix=",
            )  # fmt: skip
        taken.add(shown)
    columns = tuple((shown, name) for name, shown in named)
    node = IntervalPairs(
        asked.base, asked.probe, asked.match, asked.interval, asked.lateness, columns, kind
    )
    sources(node)
    return node


def last_interval(
    base: Plan, direction: str, tolerance: Any, exclude_current_time: bool, step: str
) -> Interval:
    """Return the interval of an as-of join: the nearest row before, after, or on either side."""
    if direction not in DIRECTIONS:
        raise UserError(step, expected=f"direction= one of {DIRECTIONS}", got=repr(direction))
    if isinstance(tolerance, Expr) or callable(tolerance):
        raise UserError(step, expected="tolerance= a duration", got=f"{tolerance!r:.80}")
    far = _bound(base, FOREVER if tolerance is None else tolerance, f"{step} tolerance=")
    return Interval(
        far if direction != "forward" else 0, far if direction != "backward" else 0, max_rows=1,
        without_current=flag(step, "exclude_current_time", exclude_current_time),
    )  # fmt: skip


def lateness(base: Plan, given: Any, step: str) -> int:
    """Read how late base rows may come."""
    found = _bound(base, 0 if given is None else given, f"{step} lateness=")
    if isinstance(found, Node) or found == FOREVER:
        raise UserError(f"{step} lateness=", expected="a duration", got=f"{given!r:.80}")
    return found


def last(asked: Asked, lags: Any, suffix: str, *, skip_nulls: bool) -> Plan:
    """Return base rows beside the columns of the nearest probe row: at their time, or before it by lags."""
    skip_nulls = flag(asked.step, "skip_nulls", skip_nulls)
    if lags is None and not skip_nulls:
        return pairs(asked, "left", suffix)
    keys = {other for _, other in asked.match.keys} | set(asked.match.scope)
    names = [n for n in asked.probe.schema.names if n not in keys]
    if lags is None:
        taken = asked.base.schema
        return _looked_up(asked, {n: f"{n}{suffix}" if n in taken else n for n in names}, skip_nulls)
    plan = asked.base
    for end, ticks in _lags(asked, lags):
        at = replace(asked, base=plan, interval=replace(asked.interval, offset=ticks))
        plan = _looked_up(at, {n: f"{n}{end}" for n in names}, skip_nulls)
    return plan


def _looked_up(asked: Asked, named: Mapping[str, str], skip_nulls: bool) -> Plan:
    if not skip_nulls:
        return _pairs(asked, named.items(), "left")
    if asked.interval.leaks:
        raise UserError(
            asked.step, expected="skip_nulls=True with direction='backward'", got="another direction",
            hint="filter the probe stream first: .where(col.x.is_not_null())",
        )  # fmt: skip
    # The last value of a column may be of an earlier row than the last row.
    every = replace(asked, interval=replace(asked.interval, max_rows=None))
    return aggregate(every, {shown: last_value(Expr(Column(name))) for name, shown in named.items()})


def _lags(asked: Asked, given: Any) -> list[tuple[str, int]]:
    """Read the lags of an as-of join: how names of columns end, and ticks."""
    step, found = f"{asked.step} lags=", []
    for one in given if isinstance(given, (list, tuple)) else [given]:
        ticks = _bound(asked.base, one, step)
        if isinstance(ticks, Node) or ticks == FOREVER:
            raise UserError(step, expected="durations", got=f"{one!r:.80}")
        found.append((_ending(asked.base, ticks), ticks))
    if not found or len(dict(found)) < len(found):
        raise UserError(step, expected="durations that differ", got=f"{given!r:.80}")
    return found


def with_base(asked: Asked) -> Asked:
    """Return the join whose probe rows are those of the probe and of the base stream together.

    Base rows have null where they lack a column of the probe rows.
    """
    base, probe, step = asked.base, asked.probe, asked.step
    key_of = {other: own for own, other in asked.match.keys}
    outputs: list[tuple[str, Node]] = []
    for name, kind in probe.schema:
        own = base.time if name == probe.time else key_of.get(name, name)
        there = own in base.schema and name != probe.end
        if there and base.schema[own] != kind:
            raise UserError(
                step, expected=f"{name!r} of one type in both streams, {kind!r}",
                got=f"{base.schema[own]!r} in the base stream", hint="cast it, or leave it out with .select",
            )  # fmt: skip
        outputs.append((name, Column(own) if there else nodes.Literal(None, kind)))
    rows: Plan
    if probe.time == base.time and probe.end is None and base.end is None:
        rows = Project(base, tuple(outputs))
    else:
        rows = Lifetime(base, tuple(outputs), probe.time, probe.end, Move(), "base rows as probe rows")
    return replace(asked, probe=union([probe, rows]))
