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
"""Columns of ours that stand beside the fields of elements begin so; no field does."""

HEAD = 20
"""So many first elements are looked at where a type has to be found out."""

JVM, ARROW, NOWHERE = "JVM", "Arrow batches", ""
"""Where a function runs: as Spark's own columns, or in Python, batch by batch."""



@dataclass(frozen=True, eq=False)
class Operation:
    """One operation: what it makes of its parents, and what it promises about it."""

    op: str
    parents: tuple[Operation, ...]
    kind: DataType
    """The type of the elements."""
    session: SparkSession
    build: Callable[[], DataFrame]
    """Plans the DataFrame, whose partitions and rows are in the order of the DIA."""
    function: str = ""
    runs: str = JVM
    why: str = ""
    """Why a function, or a pattern in it, cannot run in the JVM."""
    moves: str = ""
    """What travels between tasks; where nothing does, the operation is chained to its parents."""
    detect: str = ""
    """`detect=` of the exchange that moves it, if one of `tidemill.spark.exchange` does."""
    ordered: bool = True
    """Whether the order of the parents is kept, or a new one is made."""
    settled: bool = True
    """Whether elements come in the same order each time they are computed."""
    python: OnElements | None = None
    """A local operation on elements in Python, so that it can be fused with its neighbours."""

    def __post_init__(self) -> None:
        _check_names(self.kind, self.op)

    @cached_property
    def frame(self) -> DataFrame:
        """The DataFrame of this node. Operations that need two passes run the first one here."""
        with ansi(self.session):
            return self.build()

    @cached_property
    def head(self) -> list[Any]:
        """Some first elements, from which types are read. It may take a job of Spark."""
        if self.python is not None:
            found = self.python(self.parents[0].head)
            if found:
                return conformed(found[:HEAD], self.kind, step=self.op)
        return self.first(HEAD)

    def first(self, n: int) -> list[Any]:
        """The first n elements, by a job of Spark."""
        with clear_errors(self.op, self):
            return decode(self.frame.limit(n).toArrow(), self.kind)

    def fix(self, df: DataFrame, *, keep: bool = False) -> None:
        """From now on this node is read from here: the same elements, and partitions that stay."""
        self.__dict__.update(frame=df, is_fixed=True, is_kept=keep)

    @cached_property
    def is_fixed(self) -> bool:
        """Whether the partitions of the frame are the same in every plan."""
        return False

    @cached_property
    def is_kept(self) -> bool:
        """Whether elements are in memory or on disk once they have been computed."""
        return False

    def walk(self) -> Iterator[Operation]:
        """This node and all it is made from, each once, parents first."""
        seen: set[int] = set()
        # An explicit stack: loops make graphs deeper than Python's recursion goes.
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
    """Spark does not tell names apart by case, so a record must not either; some are the DIA's own."""
    if alike(kind.names):
        raise UserError(
            op, expected="fields that differ by more than case", got=f"{list(kind.names)}"
        )
    for name in kind.names:
        if INSIDE in name or folded(name).startswith((BESIDE, OURS)):
            what = f"fields without {INSIDE!r} that do not begin with {BESIDE!r} or {OURS!r}"
            raise UserError(op, expected=what, got=repr(name))
    for inner in kind.of:
        _check_names(inner, op)


def all_settled(parents: Sequence[Operation]) -> bool:
    """Whether the parents come in the same order each time."""
    return all(p.settled for p in parents)


def is_steady(*functions: Traced | TracedList | Opaque) -> bool:
    """Whether these give the same for the same elements each time."""
    return all(f.steady for f in functions if isinstance(f, Opaque))


def described(*functions: Traced | TracedList | Opaque) -> dict[str, Any]:
    """How a node says which functions it runs, and where."""
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
