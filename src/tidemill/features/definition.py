"""What a feature set is: a name, a version, and features of the rows of an entity stream, as one plan."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.core.tables import html_table
from tidemill.features.fingerprint import fingerprint
from tidemill.features.labels import with_labels
from tidemill.features.members import (
    Feature,
    Step,
    chained,
    features_of,
    require_no_hidden_future,
    steps_of,
)
from tidemill.plan.build_temporal import is_table
from tidemill.plan.nodes import Plan, sources


@dataclass(frozen=True)
class Member:
    """What a user lists: a stream with joins of the entity, and what its columns are about."""

    plan: Plan
    docs: Mapping[str, str]


@dataclass(frozen=True)
class Definition:
    """Named features of the rows of an entity stream."""

    name: str
    version: int
    doc: str
    entity: Plan
    features: tuple[Feature, ...]
    members: tuple[tuple[Step, ...], ...]
    """The steps of each member, on rows of the entity."""
    fingerprint: str = ""
    """A hash of what the features are: the same wherever they are computed in the same way."""
    labels: tuple[str, ...] = ()
    """Columns that rows of the entity carry besides."""

    @functools.cached_property
    def plan(self) -> Plan:
        """One plan that adds all features to the rows of the entity."""
        return chained(self.entity, self.members, self.labels)

    def with_labels(self, labels: Schema, *, step: str) -> Definition:
        """Return the set for rows of the entity that carry more columns; these are no features."""
        taken = {*self.entity.schema.names, *(f.name for f in self.features)}
        for name in labels.names:
            if name in taken:
                raise UserError(step, expected=f"a name not taken by {sorted(taken)}", got=repr(name))
        entity, members = with_labels(self.entity, self.members, labels, step)
        return replace(self, entity=entity, members=members, labels=(*self.labels, *labels.names))

    @property
    def title(self) -> str:
        return f"{self.name} version {self.version}"

    @property
    def leaking(self) -> tuple[Feature, ...]:
        """The features that depend on events after their row."""
        return tuple(f for f in self.features if f.leaks)

    @property
    def entity_shown(self) -> str:
        """The streams that the rows of the entity come from."""
        return ", ".join(source.name for source in sources(self.entity))

    def __str__(self) -> str:
        rows = [(f.name, repr(f.type), self.said(f)) for f in self.features]
        widths = [max(len(row[i]) for row in rows) for i in (0, 1)]
        count = f"{len(rows)} feature{'s' if len(rows) > 1 else ''} of {self.entity_shown}"
        lines = [
            f"{self.title}: {count}, {self.fingerprint}",
            *([f"  {self.doc}"] if self.doc else []),
        ]
        return "\n".join(
            [
                *lines,
                *(f"  {n:<{widths[0]}}  {kind:<{widths[1]}}  {said}" for n, kind, said in rows),
            ]
        )

    def said(self, feature: Feature) -> str:
        """Describe a feature in a line."""
        leaks = f"; LEAKS the future: {feature.future}" if feature.leaks else ""
        return f"{feature.shown}{leaks}" + (f" — {feature.doc}" if feature.doc else "")

    def as_html(self) -> str:
        """Return a table for notebooks."""
        heads = ("feature", "type", "what", "about")
        rows = [
            (
                f.name,
                repr(f.type),
                f.shown + (f" (leaks the future: {f.future})" if f.leaks else ""),
                f.doc,
            )
            for f in self.features
        ]
        return html_table(f"{self.title}: {self.doc}" if self.doc else self.title, heads, rows)

    # -- what results say about themselves

    @property
    def about(self) -> dict[str, str]:
        """What tables and servers of the set say about themselves."""
        found = {
            "features": self.name,
            "version": str(self.version),
            "fingerprint": self.fingerprint,
        }
        leaking = ", ".join(f.name for f in self.leaking)
        return found | ({"leaks": leaking} if leaking else {})

    def columns(self) -> dict[str, dict[str, str]]:
        """What the columns of a result say about themselves: those that leak the future say how far."""
        return {
            f.name: {"tidemill.feature": f"{self.name}.{f.name}: {f.shown}"}
            | ({"tidemill.leaks": f.future} if f.leaks else {})
            | ({"comment": f.doc} if f.doc else {})
            for f in self.features
        }

    def marked(self, schema: pa.Schema) -> pa.Schema:
        """Return a schema whose columns and whose metadata say what they are."""
        columns = self.columns()
        fields = [f.with_metadata(columns[f.name]) if f.name in columns else f for f in schema]
        about = {f"tidemill.{name}": value for name, value in self.about.items()}
        known = {k.decode(): v.decode() for k, v in (schema.metadata or {}).items()}
        return pa.schema(fields, known | about)


def define(
    name: Any, entity: Plan, members: Sequence[Member], version: Any, doc: Any
) -> Definition:
    """Check what a user gave, and put it together."""
    step = f"features {name!r}"
    if not isinstance(name, str) or not name.isidentifier():
        raise UserError(
            "features", expected="a name of letters, digits and underscores", got=repr(name)
        )
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise UserError(step, expected="version= 1, 2, 3 …", got=repr(version))
    if not isinstance(doc, str):
        raise UserError(step, expected="doc= text about the set", got=f"{doc!r:.80}")
    if is_table(entity):
        raise UserError(
            step,
            expected="entity= a stream, whose rows have a time",
            got="a table, whose rows have none",
        )
    if not members:
        raise UserError(
            step, expected="features=, a list of joins of the entity stream", got="none",
            hint='entity.interval_join(probe, on="user", preceding="1h").agg(n=tm.count())',
        )  # fmt: skip
    taken, features = list[tuple[Step, ...]](), list[Feature]()
    for number, member in enumerate(members, 1):
        own = f"{step}, member {number}"
        steps = steps_of(member.plan, entity, own)
        require_no_hidden_future(steps, own)
        taken.append(steps)
        found = features_of(steps, entity, member.docs)
        _require_known(member.docs, found, own)
        features += found
    _require_unique(features, step)
    made = Definition(name, version, doc, entity, tuple(features), tuple(taken))
    sources(made.plan)  # checks that each name stands for one stream
    return replace(made, fingerprint=fingerprint(made.plan))


def _require_known(docs: Mapping[str, str], found: Iterable[Feature], step: str) -> None:
    names = [f.name for f in found]
    for name, text in docs.items():
        if name not in names:
            raise UserError(
                step, expected=f"text about one of its features {names}", got=f"text about {name!r}"
            )
        if not isinstance(text, str):
            raise UserError(step, expected=f"text about {name!r}", got=f"{text!r:.80}")


def _require_unique(features: Iterable[Feature], step: str) -> None:
    for name, count in Counter(f.name for f in features).items():
        if count > 1:
            raise UserError(
                step, expected="a name of its own for each feature", got=f"{name!r} {count} times",
                hint="name aggregates otherwise, give .last_join(...) another suffix=, or choose columns: "
                ".last_join(...).select('price')",
            )  # fmt: skip


def described(definition: Definition) -> pa.Table:
    """Return a table with a row for each feature."""
    rows = [f.row() for f in definition.features]
    names = list(rows[0])
    kinds = {"leaks": pa.bool_()}
    columns = [pa.array([row[n] for row in rows], kinds.get(n, pa.string())) for n in names]
    return pa.table(dict(zip(names, columns)), metadata=definition.about)
