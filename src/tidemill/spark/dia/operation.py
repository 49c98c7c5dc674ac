"""The data-flow graph: frozen nodes, compiled to one DataFrame each when an action needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidemill.core.errors import UserError
from tidemill.core.types import DataType
from tidemill.spark.dia.elements import conformed, decode
from tidemill.spark.dia.opaque_batches import OnElements
from tidemill.spark.dia.task_errors import clear_errors
from tidemill.spark.dia.tracing import INSIDE, Opaque, Out, Traced, TracedList, nodes_of
from tidemill.spark.expr.functions import outside_java
from tidemill.spark.names import OURS, alike, folded
from tidemill.spark.settings import ansi

BESIDE = "__dia_"
"""The prefix of internal columns; fields of elements must not start with it."""

HEAD = 20
"""The number of first elements from which a type is inferred."""

JVM, ARROW, NOWHERE = "JVM", "Arrow batches", ""
"""Where a function runs: as Spark columns, or in Python on Arrow batches."""



@dataclass(frozen=True, eq=False)
class Operation:
    """An operation: how its result is computed from its parents, and what holds for the result."""

    op: str
    parents: tuple[Operation, ...]
    kind: DataType
    """The type of the elements."""
    session: SparkSession
    build: Callable[[], DataFrame]
    """Builds the DataFrame, whose partitions and rows are in the order of the DIA."""
    function: str = ""
    runs: str = JVM
    why: str = ""
    """Why a function, or a pattern in it, cannot run in the JVM."""
    moves: str = ""
    """What is shuffled; if empty, the operation is chained to its parents."""
    detect: str = ""
    """`detect=` of the exchange, if the operation uses `tidemill.spark.exchange`."""
    ordered: bool = True
    """Whether the result has an order: that of the parents, or a new one."""
    settled: bool = True
    """Whether elements have the same order each time they are computed."""
    python: OnElements | None = None
    """A local operation on elements in Python, which can be fused with its neighbours."""

    def __post_init__(self) -> None:
        _check_names(self.kind, self.op)

    @cached_property
    def frame(self) -> DataFrame:
        """The DataFrame of this node. Operations with two passes run the first one here."""
        with ansi(self.session):
            return self.build()

    @cached_property
    def head(self) -> list[Any]:
        """Some first elements, from which types are inferred. It may start a Spark job."""
        if self.python is not None:
            found = self.python(self.parents[0].head)
            if found:
                return conformed(found[:HEAD], self.kind, step=self.op)
        return self.first(HEAD)

    def first(self, n: int) -> list[Any]:
        """The first n elements, by a Spark job."""
        with clear_errors(self.op, self):
            return decode(self.frame.limit(n).toArrow(), self.kind)

    def fix(self, df: DataFrame, *, keep: bool = False) -> None:
        """Read this node from `df` from now on: it has the same elements in fixed partitions."""
        self.__dict__.update(frame=df, is_fixed=True, is_kept=keep)

    @cached_property
    def is_fixed(self) -> bool:
        """Whether the partitions of the frame are the same in every plan."""
        return False

    @cached_property
    def is_kept(self) -> bool:
        """Whether elements are cached once they have been computed."""
        return False

    def walk(self) -> Iterator[Operation]:
        """Yield this node and all its ancestors, each once, parents first."""
        seen: set[int] = set()
        # An explicit stack: loops make graphs deeper than Python's recursion limit.
        stack: list[tuple[Operation, bool]] = [(self, False)]
        while stack:
            node, ready = stack.pop()
            if ready:
                yield node
            elif id(node) not in seen:
                seen.add(id(node))
                stack.append((node, True))
                stack.extend((p, False) for p in reversed(node.parents))


def _check_names(kind: DataType, op: str) -> None:
    """Raise for names that differ only by case, which Spark ignores, and for reserved names."""
    if alike(kind.names):
        raise UserError(
            op, expected="fields that differ by more than case", got=f"{list(kind.names)}"
        )
    for name in kind.names:
        if INSIDE in name or folded(name).startswith((BESIDE, OURS)):
            what = f"fields without {INSIDE!r} that do not start with {BESIDE!r} or {OURS!r}"
            raise UserError(op, expected=what, got=repr(name))
    for inner in kind.of:
        _check_names(inner, op)


def all_settled(parents: Sequence[Operation]) -> bool:
    """Whether all parents have the same order each time."""
    return all(p.settled for p in parents)


def is_steady(*functions: Traced | TracedList | Opaque) -> bool:
    """Whether all functions are deterministic."""
    return all(f.steady for f in functions if isinstance(f, Opaque))


def described(*functions: Traced | TracedList | Opaque) -> dict[str, Any]:
    """The fields of a node that describe its functions and where they run."""
    opaque = [f for f in functions if isinstance(f, Opaque)]
    why = opaque[0].why if opaque else ""
    if not opaque:
        outside = (outside_java(n) for f in functions for out in _outs(f) for n in nodes_of(out))
        why = next(filter(None, outside), "")
    return {"function": ", ".join(map(str, functions)), "runs": ARROW if opaque else JVM, "why": why}


def _outs(function: Traced | TracedList | Opaque) -> Sequence[Out]:
    if isinstance(function, Opaque):
        return ()
    return (function.out,) if isinstance(function, Traced) else function.items
