"""The one algebra of aggregates (papers 000 section 5.2, 001 section 3.1).

An aggregate keeps *partials*. `identity() → P`, `lift(x) → P`, `combine(P, P) → P`, and
`lower(P) → R`; where it can, `inverse(P, P) → P` takes a partial back out. Windows, snapshots,
interval joins and wheels all run on these functions and read nothing but the traits.

The functions are plain Python on scalars and small tuples. They are run once on expressions, which
records what they do (`form_of`); the record is compiled, and the reference engine evaluates it.
A function that cannot be recorded stays *opaque*: Numba compiles it whole, or it runs row by row.
A partial may also be a list or a map (`ObjectForm`): rows are then added in Python (`containers`).

An `Aggregate` is one or more `Part`s, partials over some arguments, and a way to lower them
together: `mean` is `sum` and `count`, and shares both with whoever else asks for them. A row in
which an argument is null is skipped; an aggregate of nothing is null unless `empty` says otherwise.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Union

from tidemill.core.brought_names import AGGREGATE, KnowsBroughtNames
from tidemill.core.errors import TidemillError, UserError
from tidemill.core.schema import Schema, internal
from tidemill.core.time import Duration
from tidemill.core.types import BOOL, FLOAT64, INT64, STRING, DataType
from tidemill.expr.fluent import Arithmetic, Expr, as_node, recording
from tidemill.expr.functions import TypeMismatch, unify
from tidemill.expr.nodes import Cast, Column, Literal, Node, ResultOf
from tidemill.expr.typing import resolve, type_of

EVENT_TIME = Column(internal("time"))
"""Stands for the stream's time column until the plan is bound."""


@dataclass(frozen=True)
class Algebra:
    """Partials of a fixed number of scalars. Built-in and user-defined ones look the same.

    `identity` is given the types of the arguments, because the neutral element of `min` depends
    on them.
    """

    name: str
    identity: Callable[[tuple[DataType, ...]], tuple[Any, ...]]
    lift: Callable[..., tuple[Any, ...]]
    combine: Callable[[Any, Any], tuple[Any, ...]]
    inverse: Callable[[Any, Any], tuple[Any, ...]] | None = None
    """Undoes `combine`: to the last bit where all fields are ints.

    Floats never do: a large value that came and went leaves its rounding behind. Windows therefore
    subtract only on ints; indexes may still choose to.
    """
    accumulate: Callable[..., tuple[Any, ...]] | None = None
    commutative: bool = True
    subtract: Callable[..., Any] | None = None
    """Takes one row out of a partial that `freeze` has not seen yet: the oldest one, where order matters."""
    freeze: Callable[[Any], Any] | None = None
    """Called once with a partial to which no more rows are added; `combine` and `lower` get its result."""
    typed: Callable[[tuple[DataType, ...]], Algebra | None] | None = None
    """Another algebra of the same meaning for arguments of some types, if it has one."""
    carries: frozenset[int] = frozenset()
    """Fields that are 0 unless the partial is too large for int64. A wheel refuses partials in which they are
    not 0, and keeps no column for them."""
    factory: tuple[Callable[..., Algebra], tuple[Any, ...]] | None = field(
        default=None, compare=False, repr=False
    )
    """How another process rebuilds this algebra when it is pickled, so that equal parts stay equal."""

    def __str__(self) -> str:
        return self.name

    own: Callable[..., Aggregate] | None = field(default=None, compare=False, repr=False)
    """What `tm.aggregate` returned, for a user's own: it has the functions as the user gave them."""

    def __reduce__(self) -> Any:
        if self.factory is not None:
            return self.factory
        if self.own is not None:
            return algebra_of, (self.own,)
        return (Algebra, tuple(getattr(self, f.name) for f in fields(self)))


def algebra_of(own: Any) -> Algebra:
    """The algebra of a user's own aggregate."""
    found: Algebra = own.algebra
    return found


def built_in(module: str, name: str) -> Any:
    """The algebra of a name in a module of this package; see `Algebra.factory`."""
    return getattr(importlib.import_module(module), name)


@dataclass(frozen=True)
class Multiset:
    """Partials that keep every row they saw, sorted: what holistic aggregates need.

    `distinct` keeps each row once. Lowering is by name, see `holistic`.
    """

    distinct: bool = False
    commutative = True

    @property
    def name(self) -> str:
        return "set" if self.distinct else "multiset"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Sketch:
    """Partials that are a DataSketches object: `hll` or `kll`, with its size parameter."""

    kind: str
    size: int
    commutative = True

    @property
    def name(self) -> str:
        return self.kind

    def __str__(self) -> str:
        return f"{self.kind}({self.size})"


AnyAlgebra = Union[Algebra, Multiset, Sketch]


@dataclass(frozen=True)
class Field:
    """A `lower` that gives one field of a state."""

    position: int = 0

    def __call__(self, state: Any) -> Any:
        return state[self.position]


@dataclass(frozen=True)
class Part:
    """Partials of one algebra over some arguments; equal parts of a query are kept once."""

    algebra: AnyAlgebra
    args: tuple[Node, ...]

    def __str__(self) -> str:
        return f"{self.algebra}({', '.join(map(str, self.args))})"


@dataclass(frozen=True)
class NamedLower:
    """How a multiset or a sketch becomes a result: the name of a function of its module, and constants."""

    name: str
    params: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Aggregate(KnowsBroughtNames, Arithmetic):
    """What a user writes in `.agg(...)`: parts, and how they are lowered together.

    Arithmetic between aggregates is an expression over their results (`plan.asked`).
    """

    _brought, _called = AGGREGATE, "an aggregate"

    name: str
    args: tuple[Node, ...]
    """The arguments as the user gave them, and `EVENT_TIME` last where the result depends on time."""
    parts: tuple[Part, ...]
    lower: Union[Callable[..., Any], NamedLower]
    empty: Any = None
    """The result over no rows: null, unless it says otherwise."""
    params: tuple[tuple[str, Any], ...] = ()
    returns: DataType | None = None
    """Type of the result, needed only where `lower` cannot be recorded."""

    def __reduce__(self) -> Any:
        own = getattr(self.parts[0].algebra, "own", None)
        if own is not None:  # functions around the user's have no name that pickle could refer to
            return own.over, (self.args,)
        return (Aggregate, tuple(getattr(self, f.name) for f in fields(self)))

    @property
    def node(self) -> Node:
        return ResultOf(self)

    @property
    def given(self) -> tuple[Node, ...]:
        """The arguments as the user gave them."""
        return tuple(a for a in self.args if a != EVENT_TIME)

    def __str__(self) -> str:
        shown = [str(a) for a in self.given]
        shown += [f"{n}={str(v) if isinstance(v, Duration) else repr(v)}" for n, v in self.params]
        return f"{self.name}({', '.join(shown)})"

    __repr__ = __str__

    def over(self, change: Callable[[Node], Node]) -> Aggregate:
        """The same aggregate with every argument rewritten."""
        return replace(
            self,
            args=tuple(change(a) for a in self.args),
            parts=tuple(Part(p.algebra, tuple(change(a) for a in p.args)) for p in self.parts),
        )


# --- recording plain functions as expressions -----------------------------------------------------


@dataclass(frozen=True)
class Form:
    """An algebra over given argument types, recorded: columns `x0…`, `a0…`, `b0…` are its inputs."""

    fields: tuple[DataType, ...]
    identity: tuple[Literal, ...]
    lift: tuple[Node, ...]
    combine: tuple[Node, ...]
    inverse: tuple[Node, ...] | None
    accumulate: tuple[Node, ...] | None
    carries: frozenset[int] = frozenset()

    @property
    def subtracts(self) -> bool:
        """Whether a window may subtract what leaves it and stay exact."""
        return self.inverse is not None and FLOAT64 not in self.fields


@dataclass(frozen=True)
class OpaqueForm:
    """An algebra whose functions could not be recorded; only the types of its state are known."""

    fields: tuple[DataType, ...]
    identity: tuple[Any, ...]
    reason: str = field(compare=False, default="")
    subtracts: bool = False
    """Whether a window may subtract what leaves it and stay exact."""


@dataclass(frozen=True)
class ObjectForm(OpaqueForm):
    """An algebra whose partials are lists, maps or other Python objects (`containers`).

    A partial is one field. In columns it is JSON, so that the columns do not depend on what is in it.
    """

    by_rows: bool = False
    """Whether windows that follow the rows can take single rows out."""


class _Misfit(UserError):
    """Functions of an algebra that contradict each other."""


def form_of(algebra: Algebra, types: tuple[DataType, ...]) -> Form | OpaqueForm:
    """Record an algebra over argument types.

    >>> from tidemill.aggregates.basic import SUM
    >>> print(form_of(SUM, (FLOAT64,)).combine[0])
    (col.a0 + col.b0)
    """
    algebra = (algebra.typed(types) if algebra.typed else None) or algebra
    bare = algebra.identity(types)
    if algebra.freeze is not None or holds_container(bare):
        why = "its partials are Python objects"
        by_rows = algebra.subtract is not None and algebra.inverse is None
        return ObjectForm((STRING,), Scalar((None,)), why, algebra.inverse is not None, by_rows)
    identity = as_state(bare)
    try:
        with recording():
            return _record(algebra, types, identity)
    except _Misfit:
        raise
    except (TidemillError, TypeMismatch, TypeError, AttributeError, ValueError) as untraceable:
        if algebra.factory is not None:  # built in: the types are wrong, not the functions
            raise UserError(
                f"aggregate {algebra.name}", expected="arguments it is defined for",
                got=", ".join(map(repr, types)),
            ) from untraceable  # fmt: skip
        kinds = tuple(_state_type(v, algebra) for v in identity)
        exact = algebra.inverse is not None and FLOAT64 not in kinds
        return OpaqueForm(kinds, identity, str(untraceable), exact)


def _record(algebra: Algebra, types: tuple[DataType, ...], identity: tuple[Any, ...]) -> Form:
    inputs = Schema(tuple((f"x{i}", t) for i, t in enumerate(types)))
    lifted = _nodes(algebra.lift(*[Expr(Column(n)) for n in inputs.names]), inputs)
    if len(identity) != len(lifted):
        raise _Misfit(
            f"aggregate {algebra.name}", expected=f"lift to give {len(identity)} fields, as identity",
            got=str(len(lifted)),
        )  # fmt: skip
    fields = tuple(_field(i, type_of(node, inputs)) for i, node in zip(identity, lifted))
    a, b = (Schema(tuple((f"{s}{i}", t) for i, t in enumerate(fields))) for s in "ab")
    both = Schema((*a.fields, *b.fields, *inputs.fields))

    def state(side: Schema) -> tuple[Expr, ...]:
        return tuple(Expr(Column(n)) for n in side.names)

    def record(function: Callable[..., Any] | None, *args: Any) -> tuple[Node, ...] | None:
        if function is None:
            return None
        nodes = _nodes(function(*args), both)
        return tuple(_as_type(n, t, both) for n, t in zip(nodes, fields, strict=True))

    combined = record(algebra.combine, _unwrap(state(a), identity), _unwrap(state(b), identity))
    assert combined is not None
    return Form(
        fields,
        tuple(Literal(_typed(v, t), t) for v, t in zip(identity, fields)),
        tuple(_as_type(n, t, inputs) for n, t in zip(lifted, fields)),
        combined,
        record(algebra.inverse, _unwrap(state(a), identity), _unwrap(state(b), identity)),
        record(
            algebra.accumulate, _unwrap(state(a), identity),
            *[Expr(Column(n)) for n in inputs.names],
        ),
        algebra.carries,
    )  # fmt: skip


def _field(identity: Any, lifted: DataType) -> DataType:
    """The type of a state field. An int may be the identity of instants too."""
    if isinstance(identity, int) and lifted.kind in ("timestamp", "duration"):
        return lifted
    return unify((type_of(as_node(identity), Schema(())), lifted))


class Scalar(tuple):  # type: ignore[type-arg]
    """Marks a state of one bare scalar, so that user functions see the scalar itself."""


def holds_container(value: Any) -> bool:
    """Whether a partial is a list, map or set, or a tuple that has one.

    >>> holds_container((0, [])), holds_container((0, 1.5))
    (True, False)
    """
    if isinstance(value, tuple):
        return any(map(holds_container, value))
    return isinstance(value, (list, dict, set, frozenset))


def as_state(value: Any) -> tuple[Any, ...]:
    """A state as a tuple, whether the functions work on a tuple or on one scalar."""
    return value if isinstance(value, tuple) else Scalar((value,))


def _unwrap(state: tuple[Any, ...], identity: tuple[Any, ...]) -> Any:
    return state[0] if isinstance(identity, Scalar) else state


def call_on_states(function: Callable[..., Any], identity: tuple[Any, ...], *states: Any) -> Any:
    """Call an algebra's function on states; a state of one scalar is passed as the scalar."""
    return function(*[_unwrap(s, identity) for s in states])


def _nodes(value: Any, schema: Schema) -> tuple[Node, ...]:
    return tuple(resolve(as_node(v), schema, step="aggregate") for v in as_state(value))


def _as_type(node: Node, want: DataType, schema: Schema) -> Node:
    have = type_of(node, schema)
    if have == want:
        return node
    if isinstance(node, Literal):
        return Literal(_typed(node.value, want), want)
    return resolve(Cast(node, want), schema, step="aggregate")


def _typed(value: Any, kind: DataType) -> Any:
    return float(value) if kind == FLOAT64 and value is not None else value


def _state_type(value: Any, algebra: Algebra) -> DataType:
    for python, kind in ((bool, BOOL), (int, INT64), (float, FLOAT64), (str, STRING)):
        if isinstance(value, python):
            return kind
    raise UserError(
        f"aggregate {algebra.name}", expected="identity made of bool, int, float, str, lists and maps",
        got=repr(value),
    )  # fmt: skip


def lower_node(aggregate: Aggregate, parts: tuple[Schema, ...]) -> Node:
    """The recorded `lower` of an aggregate, given the state columns of each of its parts."""
    assert callable(aggregate.lower)
    states = [tuple(Expr(Column(n)) for n in part.names) for part in parts]
    everything = Schema(tuple(f for part in parts for f in part.fields))
    with recording():
        lowered = as_node(aggregate.lower(*states))
    return resolve(lowered, everything, step=str(aggregate))
