"""Scalar expressions as frozen trees; the fluent surface over them is in `fluent`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidemill.core.errors import UserError
from tidemill.core.schema import is_internal, users_part
from tidemill.core.tree import Tree
from tidemill.core.types import DataType

MOST_LEVELS = 500
"""The most levels of an expression; what is made from expressions has room for no more."""


class Node(Tree):
    """Base of scalar expression nodes; compared by value.

    Comparing, hashing, showing and pickling take no call of Python for each level.
    """

    __slots__ = ()
    levels: int
    size: int
    """How many nodes there are where those that are shared are written out."""
    _hash: int

    def __post_init__(self) -> None:
        levels = 1 + max((c.levels for c in self.children()), default=0)
        if levels > MOST_LEVELS:
            raise UserError(
                "expression", expected=f"at most {MOST_LEVELS} levels of expressions in each other",
                got="more", hint="name a part of it with .select(...), and go on from there",
            )  # fmt: skip
        object.__setattr__(self, "levels", levels)
        object.__setattr__(self, "size", 1 + sum(c.size for c in self.children()))

    def own(self) -> tuple[Any, ...]:
        """The fields of the node that are not children."""
        raise NotImplementedError

    def shown(self, children: list[str]) -> str:
        """The node as text, given its children as text."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Node):
            return NotImplemented
        waiting: list[tuple[Node, Node]] = [(self, other)]
        seen = set()
        while waiting:
            a, b = waiting.pop()
            if a is b or (id(a), id(b)) in seen:
                continue
            seen.add((id(a), id(b)))
            if type(a) is not type(b) or hash(a) != hash(b) or a.own() != b.own():
                return False
            waiting.extend(zip(a.children(), b.children(), strict=True))
        return True

    def __hash__(self) -> int:
        if "_hash" not in self.__dict__:
            self.fold(_hashed, lambda node: node.__dict__.get("_hash"))
        return self._hash

    def __str__(self) -> str:
        return self.fold(lambda node, children: _cut(node.shown(children)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"

    def __reduce__(self) -> Any:
        flat: list[tuple[Any, ...]] = []

        def note(node: Node, children: list[int]) -> int:
            flat.append((type(node), node.parts(), children))
            return len(flat) - 1

        self.fold(note)
        return _from_flat, (flat,)

    def parts(self) -> tuple[Any, ...]:
        """The arguments of the constructor that are not nodes, in order."""
        return self.own()


MOST_TEXT = 1_000


def _cut(text: str) -> str:
    """Text for people, cut when it is long: a node that is shared would be written out each time."""
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…"


def _hashed(node: Node, children: list[int]) -> int:
    found = hash((type(node).__name__, node.own(), *children))
    object.__setattr__(node, "_hash", found)
    return found


def _from_flat(flat: list[tuple[Any, ...]]) -> Node:
    made: list[Node] = []
    for kind, parts, places in flat:
        made.append(kind.of(parts, tuple(made[p] for p in places)))
    return made[-1]


Node.family = Node


@dataclass(frozen=True, eq=False, repr=False)
class Column(Node):
    """The value of a column in the current row."""

    name: str

    @classmethod
    def of(cls, parts: Any, children: tuple[Node, ...]) -> Column:
        return cls(*parts)

    def children(self) -> tuple[Any, ...]:
        return ()

    def own(self) -> tuple[Any, ...]:
        return (self.name,)

    def shown(self, children: list[str]) -> str:
        if is_internal(self.name):  # an expression that was computed below, as its text
            return users_part(self.name)
        return f"col.{self.name}" if self.name.isidentifier() else f"col[{self.name!r}]"


@dataclass(frozen=True, eq=False, repr=False)
class Literal(Node):
    """A constant. Ticks (ints) stand for timestamps and durations."""

    value: Any
    type: DataType

    @classmethod
    def of(cls, parts: Any, children: tuple[Node, ...]) -> Literal:
        return cls(*parts)

    def children(self) -> tuple[Any, ...]:
        return ()

    def own(self) -> tuple[Any, ...]:
        # Zeros of two signs are two constants, and NaN is one.
        bits = self.value.hex() if isinstance(self.value, float) else self.value
        return bits, self.type

    def parts(self) -> tuple[Any, ...]:
        return self.value, self.type

    def shown(self, children: list[str]) -> str:
        return repr(self.value)


@dataclass(frozen=True, eq=False, repr=False)
class Call(Node):
    """A function of `functions.FUNCTIONS` applied to arguments."""

    function: str
    args: tuple[Node, ...]

    @classmethod
    def of(cls, parts: Any, children: tuple[Node, ...]) -> Call:
        return cls(parts[0], children)

    def children(self) -> tuple[Any, ...]:
        return self.args

    def own(self) -> tuple[Any, ...]:
        return self.function, len(self.args)

    def shown(self, children: list[str]) -> str:
        symbol = _INFIX.get(self.function)
        if symbol and len(children) == 2:
            return f"({children[0]} {symbol} {children[1]})"
        return f"{self.function}({', '.join(children)})"


@dataclass(frozen=True, eq=False, repr=False)
class Cast(Node):
    """A value as another type; where it does not fit: an error when strict, else null."""

    arg: Node
    to: DataType
    strict: bool = True

    @classmethod
    def of(cls, parts: Any, children: tuple[Node, ...]) -> Cast:
        return cls(children[0], *parts)

    def children(self) -> tuple[Any, ...]:
        return (self.arg,)

    def own(self) -> tuple[Any, ...]:
        return self.to, self.strict

    def shown(self, children: list[str]) -> str:
        return f"{'cast' if self.strict else 'try_cast'}({children[0]} as {self.to!r})"


@dataclass(frozen=True, eq=False, repr=False)
class Udf(Node):
    """An opaque Python function of scalars. Any null argument gives null."""

    function: Callable[..., Any]
    returns: DataType
    args: tuple[Node, ...]

    @classmethod
    def of(cls, parts: Any, children: tuple[Node, ...]) -> Udf:
        return cls(parts[0], parts[1], children)

    def children(self) -> tuple[Any, ...]:
        return self.args

    def own(self) -> tuple[Any, ...]:
        return self.function, self.returns, len(self.args)

    def shown(self, children: list[str]) -> str:
        return f"udf:{udf_name(self.function)}({', '.join(children)})"


@dataclass(frozen=True, eq=False, repr=False)
class ResultOf(Node):
    """The result of an aggregate, in arithmetic between aggregates: a column once it is computed
    (`plan.asked`)."""

    aggregate: Any

    @classmethod
    def of(cls, parts: Any, children: tuple[Node, ...]) -> ResultOf:
        return cls(*parts)

    def children(self) -> tuple[Any, ...]:
        return ()

    def own(self) -> tuple[Any, ...]:
        return (self.aggregate,)

    def shown(self, children: list[str]) -> str:
        return str(self.aggregate)


def udf_name(function: Callable[..., Any]) -> str:
    """What to call a user's function in messages and plans."""
    return getattr(function, "__name__", type(function).__name__)


_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "and": "&", "or": "|",
}  # fmt: skip


def columns_of(node: Node) -> frozenset[str]:
    """The columns an expression reads.

    >>> sorted(columns_of(Call("add", (Column("a"), Column("b")))))
    ['a', 'b']
    """
    return frozenset(n.name for n in node.walk() if isinstance(n, Column))


def substitute(node: Node, columns: dict[str, Node]) -> Node:
    """The expression with columns replaced by expressions: how projections are fused."""
    return node.transform(lambda n: columns.get(n.name, n) if isinstance(n, Column) else n)
