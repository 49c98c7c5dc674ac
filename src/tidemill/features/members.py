"""The members of a feature set: what each adds to a row of the entity, and what each feature is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tidemill.core.errors import UserError
from tidemill.core.schema import internal
from tidemill.core.time import FOREVER, Domain, format_duration
from tidemill.core.types import DataType
from tidemill.expr.nodes import Column, Node, columns_of
from tidemill.plan.foresight import foresight, future_of
from tidemill.plan.intervals import (
    Bound,
    IntervalAggregate,
    IntervalJoin,
    IntervalPairs,
    kept_rows,
    read_of_base,
)
from tidemill.plan.nodes import Filter, Plan, Project, sources
from tidemill.plan.temporal import LEFT, RIGHT


@dataclass(frozen=True)
class Feature:
    """A column of a feature set."""

    name: str
    type: DataType
    what: str
    """The aggregate, the column that is looked up, or the expression."""
    joins: tuple[IntervalJoin, ...]
    """The joins that it depends on."""
    domain: Domain
    doc: str = ""

    @property
    def waits(self) -> int | None:
        """How many ticks after its row all rows are there that count; None if that depends on the row."""
        found = [future_of(join, foresight(join.probe)) for join in self.joins]
        return None if None in found else max((ticks for ticks in found if ticks is not None), default=0)

    @property
    def leaks(self) -> bool:
        """Whether it depends on events after its row."""
        return self.waits != 0

    @property
    def future(self) -> str:
        """How far it looks past its row, for people; empty if it does not."""
        return "" if not self.leaks else self.wait

    @property
    def wait(self) -> str:
        """How long after its row it is known for certain, for people."""
        ticks = self.waits
        return "as long as the row says" if ticks is None else _length(ticks, self.domain)

    @property
    def shown(self) -> str:
        """What it is, in a line."""
        where = [f"{_sources(j)}{_on(j)}{_within(j)}" for j in self.joins]
        return f"{self.what} of {'; '.join(where)}" if where else self.what

    def row(self) -> dict[str, object]:
        """Return what there is to say about it, by what it is about."""

        def each(of: Callable[[IntervalJoin], str]) -> str | None:
            return "; ".join(dict.fromkeys(filter(None, map(of, self.joins)))) or None

        return {
            "feature": self.name, "type": repr(self.type), "aggregate": self.what, "source": each(_sources),
            "keys": each(lambda j: ", ".join(_keys(j))),
            "window": each(lambda j: j.interval.shown(j.domain)),
            "preceding": each(lambda j: _length(j.interval.preceding, j.domain)),
            "following": each(lambda j: _length(j.interval.following, j.domain)),
            "where": each(lambda j: "" if j.match.where is None else j.match.condition),
            "leaks": self.leaks, "waits": self.wait, "state": each(kept_rows), "doc": self.doc or None,
        }  # fmt: skip


def _length(ticks: Bound, domain: Domain) -> str:
    if isinstance(ticks, Node):
        return str(ticks)
    if ticks == FOREVER:
        return "forever"
    return format_duration(ticks) if domain is Domain.CLOCK else str(ticks)


def _sources(join: IntervalJoin) -> str:
    return ", ".join(source.name for source in sources(join.probe))


def _keys(join: IntervalJoin) -> list[str]:
    """The columns that are equal: names of the base rows, and of the probe rows where they differ."""
    return [
        a if a == b else f"{a}={b}" for a, b in zip(join.match.left_keys, join.match.right_keys)
    ]


def _on(join: IntervalJoin) -> str:
    return f" {join.match}" if str(join.match) else ""


def _within(join: IntervalJoin) -> str:
    if isinstance(join, IntervalPairs):  # the word before the column says the rest
        plain = replace(join.interval, max_rows=None)
        if plain.bounds in ((FOREVER, 0), (0, FOREVER), (FOREVER, FOREVER)) and not plain.offset:
            return " before it" if plain.without_current and plain.following == 0 else ""
        return f" in {plain.shown(join.domain)}"
    return f" in {join.interval.shown(join.domain)}"


# --- the steps of a member --------------------------------------------------------------------------

Step = IntervalJoin | Project


def steps_of(member: Plan, entity: Plan, step: str) -> tuple[Step, ...]:
    """Return what a member does to the rows of the entity, in order; raise an error if rows go or come."""
    found: list[Step] = []
    node = member
    while node is not entity and node != entity:
        if isinstance(node, IntervalPairs) and (node.kind != "left" or node.interval.max_rows != 1):
            raise UserError(
                step, expected="one row for each row of the entity", got=f"a row for each pair: {node}",
                hint="ask for .agg(...), or for .last_join(...)",
            )  # fmt: skip
        if isinstance(node, IntervalJoin):
            found.append(node)
            node = node.base
        elif isinstance(node, Project):
            _require_kept(node, entity, step)
            found.append(node)
            node = node.input
        else:
            raise _other_step(node, entity, step)
    if not found:
        raise UserError(
            step, expected="joins of the entity stream", got="the entity stream itself",
            hint='entity.interval_join(probe, on="user", preceding="1h").agg(n=tm.count())',
        )  # fmt: skip
    return tuple(reversed(found))


def _require_kept(node: Project, entity: Plan, step: str) -> None:
    for name, output in node.outputs:
        if name in entity.schema and output != Column(name):
            raise UserError(
                step, expected=f"the column {name!r} of the entity as it is", got=f"{name}={output}",
                hint="give the computed column another name",
            )  # fmt: skip


def _other_step(node: Plan, entity: Plan, step: str) -> UserError:
    if isinstance(node, Filter):
        return UserError(
            step, expected="one row for each row of the entity", got=f"a filter of them: {node}",
            hint="filter the entity stream, or the probe stream before the join",
        )  # fmt: skip
    return UserError(
        step, expected=f"interval joins of the entity stream, {entity}", got=f"{node}",
        hint="begin with the stream that is given as entity=, and end with .agg(...) or .last_join(...)",
    )  # fmt: skip


def require_no_hidden_future(steps: Iterable[Step], step: str) -> None:
    """Raise an error if a join knows events after its row, and its interval does not say so."""
    for join in steps:
        if not isinstance(join, IntervalJoin) or join.interval.leaks:
            continue
        known = foresight(join.probe)
        if future_of(join, known) != 0:
            raise UserError(
                step, expected="probe rows that know nothing after their time, unless following= says so",
                got=f"rows of {known.because}",
                hint="shift them to when they are known: .shift('1h') after windows of an hour",
            )  # fmt: skip
        late = sorted(_read_of_probe(join) & known.ends)
        if late:
            raise UserError(
                step, expected="probe columns that are known at their time", got=f"{late}, which end later",
                hint="leave the ends of lifetimes out: .at_start() before the join",
            )  # fmt: skip


def _read_of_probe(join: IntervalJoin) -> frozenset[str]:
    where = frozenset() if join.match.where is None else columns_of(join.match.where)
    found = {n[len(RIGHT) :] for n in where if n.startswith(RIGHT)} | set(join.match.right_keys)
    if isinstance(join, IntervalAggregate):
        return frozenset(found).union(
            *(columns_of(a) for _, one in join.aggregates for a in one.args)
        )
    assert isinstance(join, IntervalPairs)
    return frozenset(found) | {of for _, of in join.columns}


# --- features ---------------------------------------------------------------------------------------


def features_of(
    steps: Iterable[Step], entity: Plan, docs: Mapping[str, str]
) -> tuple[Feature, ...]:
    """Return the features that the steps of a member give."""
    known: dict[str, Feature] = {}
    for step in steps:
        if isinstance(step, Project):
            outputs = ((n, e) for n, e in step.outputs if n not in entity.schema)
            known = {n: _computed(n, e, step, known) for n, e in outputs}
            continue
        joins = (*_joins_of(_read_of_base(step), known), step)
        for name, what in _asked(step):
            known[name] = Feature(name, step.schema[name], what, joins, entity.domain)
    return tuple(replace(f, doc=docs.get(f.name, "")) for f in known.values())


def _asked(join: IntervalJoin) -> list[tuple[str, str]]:
    if isinstance(join, IntervalAggregate):
        return [(name, str(aggregate)) for name, aggregate in join.aggregates]
    assert isinstance(join, IntervalPairs)
    asked = join.interval
    word = "last" if asked.following == 0 else "next" if asked.preceding == 0 else "nearest"
    return [(name, f"{word} {of}") for name, of in join.columns]


def _computed(name: str, node: Node, step: Project, known: Mapping[str, Feature]) -> Feature:
    if isinstance(node, Column) and node.name in known:
        return replace(known[node.name], name=name)
    return Feature(
        name, step.schema[name], str(node), _joins_of(columns_of(node), known), step.domain
    )


def _joins_of(names: Iterable[str], known: Mapping[str, Feature]) -> tuple[IntervalJoin, ...]:
    asked = frozenset(names)
    found = {id(j): j for n, feature in known.items() if n in asked for j in feature.joins}
    return tuple(found.values())


def _read_of_base(join: IntervalJoin) -> frozenset[str]:
    where = frozenset() if join.match.where is None else columns_of(join.match.where)
    return (
        read_of_base(join)
        | frozenset(join.match.left_keys)
        | {n[len(LEFT) :] for n in where if n.startswith(LEFT)}
    )


# --- one query --------------------------------------------------------------------------------------


def chained(entity: Plan, members: Sequence[Sequence[Step]], labels: Sequence[str] = ()) -> Plan:
    """Return one plan in which the steps of all members follow each other on the rows of the entity.

    A column that a member needs on its way only may have the name of a feature of another member, or of a
    label: a column of the entity that members do not know.
    """
    plan, hidden = entity, dict[str, str]()
    own = set(entity.schema.names) - set(labels)
    for steps in members:
        there = plan.schema.names
        on_the_way = {n for step in steps for n in step.schema.names if n not in own}
        for name in sorted(on_the_way & set(there)):
            hidden[name] = internal(f"feature {name}")
        if hidden.keys() & set(there):
            plan = Project(plan, tuple((hidden.get(n, n), Column(n)) for n in there))
        kept = plan.schema.names
        for step in steps:
            if isinstance(step, IntervalJoin):
                plan = replace(step, base=plan)
            else:
                added = ((n, e) for n, e in step.outputs if n not in own)
                plan = Project(plan, (*((n, Column(n)) for n in kept), *added))
    if not hidden:
        return plan
    shown = {internal_name: name for name, internal_name in hidden.items()}
    return Project(plan, tuple((shown.get(n, n), Column(n)) for n in plan.schema.names))
