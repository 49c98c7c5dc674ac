"""Operations that create or keep an order: sort, merge, concat, rebalance (Table 3.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill.core.errors import UserError
from tidemill.core.types import BOOL
from tidemill.expr.fluent import Expr
from tidemill.expr.nodes import Call, Column
from tidemill.expr.nodes import Node as Expression
from tidemill.spark.dia.capture import captured
from tidemill.spark.dia.elements import columns_of
from tidemill.spark.dia.folds import A, B
from tidemill.spark.dia.group import takes_two
from tidemill.spark.dia.keys import Key, key_of, restored, with_key
from tidemill.spark.dia.local import same_kind
from tidemill.spark.dia.operation import ARROW, BESIDE, NOWHERE, Operation, all_settled, described
from tidemill.spark.dia.partitions import INDEX, in_blocks, indexed, pinned
from tidemill.spark.dia.sort_by_comparison import sorted_by
from tidemill.spark.dia.tracing import Function, Opaque, Traced, trace
from tidemill.spark.expr.values import named
from tidemill.spark.private import partition_count

_FROM = f"{BESIDE}from"


def sort(
    parent: Operation, by: Function | None = None, *, descending: bool = False, key_returns: Any = None
) -> Operation:
    """Sort by a key, or by a less-than comparison; the sort is stable."""
    if by is not None and not callable(by):
        raise UserError("sort", expected="a key or a comparison, a function", got=repr(by))
    if by is not None and takes_two(by):
        if key_returns is not None:
            raise UserError("sort", "a comparison has no key whose type could be given")
        return _sort_by_comparison(parent, by, descending)
    key = key_of(parent, by or _itself, key_returns, step="sort", hashed=False)
    return _sort_by_key(parent, key, descending)


def _itself(element: Any) -> Any:
    return element


def _sort_by_key(parent: Operation, key: Key, descending: bool) -> Operation:
    def build() -> DataFrame:
        # The id increases with (partition, position), so ties keep their order.
        rows = with_key(parent, key, step="sort").select(
            "*", F.monotonically_increasing_id().alias(INDEX)
        )
        return rows.orderBy(*_directed(key, descending), INDEX).select(*restored(parent.kind))

    return Operation(
        "sort", (parent,), parent.kind, parent.session, build, settled=parent.settled,
        moves="all elements, by ranges of the key", **_said(key.function, descending),
    )  # fmt: skip


def _directed(key: Key, descending: bool) -> list[SparkColumn]:
    return [F.desc(k) if descending else F.asc(k) for k in key.names]


def _said(function: Traced | Opaque, descending: bool) -> dict[str, Any]:
    said = described(function)
    return {**said, "function": f"by {function}{', descending' if descending else ''}"}


def _sort_by_comparison(parent: Operation, less: Function, descending: bool) -> Operation:
    """Sort by a comparison: one of an expression with itself becomes a key; others run in Python."""
    traced = trace(less, [parent.kind, parent.kind], [A, B])
    if isinstance(traced, Traced) and traced.type == BOOL and isinstance(traced.out, Call):
        found = _compared(traced.out)
        if found is not None:
            side, upwards = found
            key = key_of(parent, lambda e: Expr(side), step="sort", hashed=False)
            if isinstance(key.function, Traced):
                return _sort_by_key(parent, key, descending == upwards)
    less = captured(less)
    why = traced.why if isinstance(traced, Opaque) else "it compares no expression with itself"
    return Operation(
        "sort", (parent,), parent.kind, parent.session,
        lambda: sorted_by(parent, less, descending), f"by {Opaque(less, why)}", runs=ARROW, why=why,
        moves="all elements, by ranges", settled=parent.settled,
    )  # fmt: skip


def _compared(out: Call) -> tuple[Expression, bool] | None:
    """The key of a comparison such as `a.x < b.x`, over columns without prefix, and its direction."""
    if out.function not in ("lt", "le", "gt", "ge"):
        return None
    sides = [_without_prefix(side) for side in out.args]
    if sides[0] is None or sides[1] is None:
        return None
    (first, own), (second, other) = sides[0], sides[1]
    if first != second or {own, other} != {A, B}:
        return None
    return first, (out.function in ("lt", "le")) == (own == A)


def _without_prefix(side: Expression) -> tuple[Expression, str] | None:
    prefixes = {n.name[: len(A)] for n in side.walk() if isinstance(n, Column)}
    if len(prefixes) != 1:
        return None
    shorter = lambda n: Column(n.name[len(A) :]) if isinstance(n, Column) else n
    return side.transform(shorter), prefixes.pop()


def merge(parents: Sequence[Operation], by: Function | None = None, *, descending: bool = False) -> Operation:
    """Merge sorted DIAs by a key or a comparison; of equal elements, those of earlier DIAs come first."""
    first = same_kind(parents, step="merge")[0]
    if by is not None and takes_two(by):
        # The sort is stable, so equal elements keep the order of the DIAs.
        return replace(_sort_by_comparison(concat(parents), by, descending), op="merge")
    keys = [key_of(p, by or _itself, step="merge", hashed=False) for p in parents]

    def build() -> DataFrame:
        tagged = [
            with_key(p, key, step="merge").select(
                "*", F.lit(i).alias(_FROM), F.monotonically_increasing_id().alias(INDEX)
            )
            for i, (p, key) in enumerate(zip(parents, keys))
        ]
        rows = tagged[0]
        for other in tagged[1:]:
            rows = rows.union(other)
        order = [*_directed(keys[0], descending), F.col(_FROM), F.col(INDEX)]
        return rows.orderBy(*order).select(*restored(first.kind))

    return Operation(
        "merge", tuple(parents), first.kind, first.session, build, settled=all_settled(parents),
        moves="all elements, by ranges of the key", **_said(keys[0].function, descending),
    )  # fmt: skip


def concat(parents: Sequence[Operation]) -> Operation:
    """Concatenate DIAs."""
    first, *others = same_kind(parents, step="concat")

    def build() -> DataFrame:
        # Spark would merge frames with equal partitioning partition by partition; for pinned frames it
        # does not know the partitioning, so it appends the partitions.
        df = pinned(first, twice=False)
        for other in others:
            df = df.union(pinned(other, twice=False))
        return df

    return Operation(
        "concat", tuple(parents), first.kind, first.session, build, runs=NOWHERE,
        settled=all_settled(parents),
    )  # fmt: skip


def rebalance(parent: Operation, parts: int | None = None) -> Operation:
    """Distribute the elements evenly over partitions (± 1), in the same order."""
    if parts is not None and parts < 1:
        raise UserError("rebalance", expected="at least one partition", got=repr(parts))

    def build() -> DataFrame:
        df, total = indexed(parent)
        blocks = parts or max(1, partition_count(parent.frame))
        even = in_blocks(df, total, blocks)
        return even.select(*map(named, columns_of(parent.kind).names))

    return Operation(
        "rebalance", (parent,), parent.kind, parent.session, build, runs=NOWHERE,
        moves="elements to an even place", settled=True,
    )  # fmt: skip
