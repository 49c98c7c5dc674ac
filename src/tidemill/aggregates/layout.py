"""The state that several aggregates keep together: equal parts once, a column for each field.

Every engine works from this layout: it fixes the names of state columns (`s<part>_<field>`), so
that a partial made by one engine can be combined and lowered by another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Union

from tidemill.aggregates import holistic, sketches
from tidemill.aggregates.algebra import (
    Aggregate,
    Algebra,
    Form,
    Multiset,
    NamedLower,
    ObjectForm,
    OpaqueForm,
    Part,
    Sketch,
    form_of,
    lower_node,
)  # fmt: skip
from tidemill.aggregates.basic import COUNT
from tidemill.aggregates.containers import Containers
from tidemill.core.errors import TidemillError, UserError
from tidemill.core.schema import Schema
from tidemill.core.types import DataType, parse_type
from tidemill.expr.nodes import Cast, Column, Literal, Node, substitute
from tidemill.expr.typing import type_of


@dataclass(frozen=True)
class StatePart:
    """One part with its state columns. Multisets have a column for each argument."""

    part: Part
    types: tuple[DataType, ...]
    form: Union[Form, OpaqueForm, None]
    columns: Schema

    @property
    def compiled(self) -> bool:
        """Whether its state is a fixed number of scalars that were recorded."""
        return isinstance(self.form, Form)


@dataclass(frozen=True)
class Result:
    """One output column and where it comes from."""

    name: str
    type: DataType
    parts: tuple[int, ...]
    lower: Union[Node, NamedLower, Callable[..., Any]]
    present: int | None
    """The part whose count says whether there was anything to aggregate; None: always."""
    empty: Any
    shown: str


@dataclass(frozen=True)
class Layout:
    """All parts and results of a query's aggregates."""

    parts: tuple[StatePart, ...]
    results: tuple[Result, ...]

    @property
    def fixed(self) -> tuple[int, ...]:
        """Positions of the parts whose state is a fixed number of scalars."""
        return tuple(i for i, p in enumerate(self.parts) if isinstance(p.part.algebra, Algebra))

    @property
    def multisets(self) -> tuple[int, ...]:
        return tuple(i for i, p in enumerate(self.parts) if isinstance(p.part.algebra, Multiset))

    @property
    def sketches(self) -> tuple[int, ...]:
        return tuple(i for i, p in enumerate(self.parts) if isinstance(p.part.algebra, Sketch))

    @property
    def commutative(self) -> bool:
        return all(p.part.algebra.commutative for p in self.parts)

    def essence(self, result: Result) -> tuple[Any, ...]:
        """What a result is, whatever it is called and whatever it shares its parts with: results of two
        layouts over the same columns are the same if these are equal."""
        own = [self.parts[p] for p in result.parts]
        places = {n: Column(f"{i}.{j}") for i, p in enumerate(own) for j, n in enumerate(p.columns.names)}
        lower = result.lower
        if isinstance(lower, Node):
            lower = substitute(lower, dict(places))
        present = None if result.present is None else self.parts[result.present].part
        return tuple(p.part for p in own), lower, result.type, present, result.empty

    def derived(self, other: Layout, result: Result) -> Result | None:
        """A result of another layout over the same columns, made of these parts; None if it cannot be.

        A mean is made of a sum and the count of the same values. The count of rows is another part, and a
        count that is only kept as whether it is 0 is none.

        >>> from tidemill.aggregates.basic import count, mean, sum
        >>> from tidemill.core.schema import schema
        >>> from tidemill.expr.fluent import col
        >>> s = schema({"x": "float64"})
        >>> asked = layout((("m", mean(col.x)),), s)
        >>> held = layout((("t", sum(col.x)), ("n", count(col.x))), s)
        >>> held.derived(asked, asked.results[0]).parts
        (0, 1)
        >>> held = layout((("t", sum(col.x)), ("rows", count())), s)
        >>> held.derived(asked, asked.results[0]) is None
        True
        """
        at = {p.part: i for i, p in enumerate(self.parts)}
        wanted = [other.parts[p] for p in result.parts]
        found = tuple(at.get(p.part, -1) for p in wanted)
        if -1 in found or not set(found).isdisjoint(self.presence_only):
            return None
        present = None if result.present is None else at.get(other.parts[result.present].part)
        if present is None and result.present is not None:
            return None
        lower = result.lower
        if isinstance(lower, Node):
            own = [n for i in found for n in self.parts[i].columns.names]
            names = [n for p in wanted for n in p.columns.names]
            lower = substitute(lower, {n: Column(o) for n, o in zip(names, own)})
        return replace(result, parts=found, lower=lower, present=present)

    @property
    def presence_only(self) -> tuple[int, ...]:
        """Positions of the counts that are only compared with 0."""
        asked = {i for r in self.results for i in r.parts}
        counts = (i for i, p in enumerate(self.parts) if p.part.algebra == COUNT)
        return tuple(i for i in counts if i not in asked)


def layout(
    aggregates: tuple[tuple[str, Aggregate], ...],
    schema: Schema,
    never_null: Collection[str] = (),
) -> Layout:
    """Lay out aggregates whose arguments are resolved over `schema`.

    Columns that are `never_null` need not be counted to know whether a row took part.

    >>> from tidemill.aggregates.basic import count, mean, sum
    >>> from tidemill.core.schema import schema
    >>> from tidemill.expr.fluent import col
    >>> s = schema({"x": "float64"})
    >>> [str(p.part) for p in layout((("m", mean(col.x)), ("t", sum(col.x))), s).parts]
    ['sum(col.x)', 'count(col.x)']
    """
    parts: list[Part] = []

    def place(part: Part) -> int:
        if part not in parts:
            parts.append(part)
        return parts.index(part)

    placed = []
    for name, aggregate in aggregates:
        positions = tuple(place(p) for p in aggregate.parts)
        present = None
        if aggregate.empty is None:
            counted = tuple(a for a in aggregate.parts[0].args if not _sure(a, never_null))
            present = place(Part(COUNT, counted))
        placed.append((name, aggregate, positions, present))
    states = tuple(_state(i, part, schema) for i, part in enumerate(parts))
    return Layout(states, tuple(_result(*p, states) for p in placed))


def _sure(node: Node, never_null: Collection[str]) -> bool:
    inner = node.arg if isinstance(node, Cast) and node.strict else node
    return isinstance(inner, Column) and inner.name in never_null


def _state(index: int, part: Part, schema: Schema) -> StatePart:
    types = tuple(type_of(a, schema) for a in part.args)
    for kind, arg in zip(types, part.args):
        if kind.kind in ("list", "struct", "binary", "decimal", "null"):
            raise UserError(
                str(part), expected="an argument that is a number, bool, string or timestamp",
                got=f"{kind!r} in {arg}",
            )  # fmt: skip
    form: Form | OpaqueForm | None = None
    if isinstance(part.algebra, Algebra):
        form = form_of(part.algebra, types)
        if isinstance(form, ObjectForm):
            Containers(part.algebra)  # checks the identity
        fields = form.fields
    elif isinstance(part.algebra, Multiset):
        fields = types
    else:
        sketches.check_argument(part.algebra, types[0], step=str(part))
        fields = (parse_type("binary"),)
    columns = Schema(tuple((f"s{index}_{j}", t) for j, t in enumerate(fields)))
    return StatePart(part, types, form, columns)


def _result(
    name: str, aggregate: Aggregate, positions: tuple[int, ...], present: int | None,
    states: tuple[StatePart, ...],
) -> Result:  # fmt: skip
    lower: Node | NamedLower | Callable[..., Any] = aggregate.lower
    own = [states[p] for p in positions]
    if isinstance(aggregate.lower, NamedLower):
        how = aggregate.lower
        rules = holistic.DEFINITIONS.get(how.name)
        kind = rules[1](own[0].types, how.params) if rules else sketches.RESULT[how.name]
    else:  # that lift is opaque does not mean that lower is
        lower, kind = _recorded(aggregate, own)
    return Result(name, kind, positions, lower, present, aggregate.empty, str(aggregate))


def _recorded(aggregate: Aggregate, own: list[StatePart]) -> tuple[Any, DataType]:
    everything = Schema(tuple(f for s in own for f in s.columns.fields))
    if any(isinstance(s.form, ObjectForm) for s in own):  # its column is not what `lower` is given
        return aggregate.lower, aggregate.returns or _opaque_type(aggregate, own)
    try:
        node = lower_node(aggregate, tuple(s.columns for s in own))
    except (TidemillError, TypeError, AttributeError, ValueError):
        return aggregate.lower, aggregate.returns or _opaque_type(aggregate, own)
    return node, type_of(node, everything)


def _opaque_type(aggregate: Aggregate, own: list[StatePart]) -> DataType:
    identities = [_plain_identity(s) for s in own]
    try:
        assert callable(aggregate.lower)
        return parse_type(type(aggregate.lower(*identities)))
    except Exception as failed:  # the user's function, on the one state we know
        raise UserError(
            str(aggregate), expected="returns= to name the type of the result",
            got=f"a lower function that cannot be recorded and fails on identity: {failed}",
        ) from failed  # fmt: skip


def _plain_identity(state: StatePart) -> tuple[Any, ...]:
    assert state.form is not None
    if isinstance(state.form, ObjectForm):
        assert isinstance(state.part.algebra, Algebra)
        return (Containers(state.part.algebra).identity(),)
    return tuple(v.value if isinstance(v, Literal) else v for v in state.form.identity)
