"""Scalar expressions as frozen trees; the fluent surface over them is in `fluent`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidemill.core.tree import Tree
from tidemill.core.types import DataType


class Node(Tree):
    """Base of scalar expression nodes; compared by value."""

    __slots__ = ()


Node.family = Node


@dataclass(frozen=True)
class Column(Node):
    """The value of a column in the current row."""

    name: str

    def __str__(self) -> str:
        return f"col.{self.name}" if self.name.isidentifier() else f"col[{self.name!r}]"


@dataclass(frozen=True)
class Literal(Node):
    """A constant. Ticks (ints) stand for timestamps and durations."""

    value: Any
    type: DataType

    def __post_init__(self) -> None:
        if self.value != self.value:  # nodes are compared by value, and one NaN is another
            object.__setattr__(self, "value", math.nan)

    def __str__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True)
class Call(Node):
    """A function of `functions.FUNCTIONS` applied to arguments."""

    function: str
    args: tuple[Node, ...]

    def __str__(self) -> str:
        symbol = _INFIX.get(self.function)
        if symbol and len(self.args) == 2:
            return f"({self.args[0]} {symbol} {self.args[1]})"
        return f"{self.function}({', '.join(map(str, self.args))})"


@dataclass(frozen=True)
class Cast(Node):
    """A value as another type; where it does not fit: an error when strict, else null."""

    arg: Node
    to: DataType
    strict: bool = True

    def __str__(self) -> str:
        return f"{'cast' if self.strict else 'try_cast'}({self.arg} as {self.to!r})"


@dataclass(frozen=True)
class Udf(Node):
    """An opaque Python function of scalars. Any null argument gives null."""

    function: Callable[..., Any]
    returns: DataType
    args: tuple[Node, ...]

    def __str__(self) -> str:
        return f"udf:{udf_name(self.function)}({', '.join(map(str, self.args))})"


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
