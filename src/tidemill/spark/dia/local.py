"""Local operations: without a shuffle, so that a chain of them is one Spark stage (Table 3.2)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill.core.errors import UserError
from tidemill.core.types import BOOL, DataType
from tidemill.spark.caching import kept
from tidemill.spark.dia.capture import captured
from tidemill.spark.dia.elements import columns_of, conformed, infer, parse_element, spelled
from tidemill.spark.dia.opaque_batches import (
    OnElements,
    called,
    element_task,
    filtering,
    flat_mapping,
    in_arrow,
    mapping,
)
from tidemill.spark.dia.operation import NOWHERE, Operation, all_settled, described, is_steady
from tidemill.spark.dia.partitions import fixed, pinned
from tidemill.spark.dia.traced_columns import ElementColumns
from tidemill.spark.dia.tracing import (
    Function,
    Opaque,
    Traced,
    TracedList,
    leaves,
    trace,
    trace_list,
)


def map_(parent: Operation, function: Function, returns: Any = None) -> Operation:
    """Apply a function to each element."""
    declared = None if returns is None else parse_element(returns, step="map")
    traced = trace(function, [parent.kind], returns=declared)
    if isinstance(traced, Traced):
        columns = ElementColumns.of(parent.kind)
        return _jvm(
            "map", parent, traced.type, traced, lambda df: df.select(*columns.element(traced))
        )
    kind = declared or infer(called(function, parent.head, step="map"), step="map")
    rows = mapping(captured(function), step="map")
    return _python("map", parent, kind, traced, rows)


def flat_map(parent: Operation, function: Function, returns: Any = None) -> Operation:
    """Apply a function that returns a list to each element, and flatten."""
    declared = None if returns is None else parse_element(returns, step="flat_map")
    traced = trace_list(function, [parent.kind], returns=declared)
    if isinstance(traced, (Traced, TracedList)):
        columns = ElementColumns.of(parent.kind)
        kind = traced.type if isinstance(traced, TracedList) else traced.type.of[0]
        return _jvm("flat_map", parent, kind, traced, lambda df: exploded(df, traced, columns))
    if declared is None:
        made = called(lambda e: list(function(e)), parent.head, step="flat_map")
        declared = infer([x for items in made for x in items], step="flat_map")
    rows = flat_mapping(captured(function), step="flat_map")
    return _python("flat_map", parent, declared, traced, rows)


def exploded(df: DataFrame, traced: Traced | TracedList, columns: ElementColumns) -> DataFrame:
    """The elements of a traced list, one per row, in order."""
    if isinstance(traced, Traced):
        kind, items = traced.type.of[0], columns.user(traced.out)
    else:
        kind = traced.type
        items = F.array(*(columns.user(item) for item in traced.items))
    flat = df.select(F.explode(items).alias("item"))
    if kind.kind != "struct":
        return flat.select(F.col("item").alias(columns_of(kind).names[0]))
    return flat.select(*(F.col("item").getField(n).alias(n) for n in kind.names))


def filter_(parent: Operation, function: Function) -> Operation:
    """Keep the elements for which a condition is true."""
    traced = trace(function, [parent.kind])
    if isinstance(traced, Traced) and traced.type == BOOL:
        (node,) = leaves(traced.out)
        columns = ElementColumns.of(parent.kind)
        return _jvm(
            "filter", parent, parent.kind, traced, lambda df: df.filter(columns.column(node))
        )
    if isinstance(traced, Traced):
        traced = Opaque(function, f"its result is {spelled(traced.type)}, no bool")
    return _python(
        "filter", parent, parent.kind, traced, filtering(captured(function), step="filter")
    )


def bernoulli_sample(parent: Operation, p: float, seed: int | None = None) -> Operation:
    """Keep each element with probability p."""
    if not 0 <= p <= 1:
        raise UserError("bernoulli_sample", expected="a probability in [0, 1]", got=repr(p))
    drawn = random.getrandbits(31) if seed is None else seed

    def build() -> DataFrame:
        # Spark draws by partition: after a shuffle, partitions must be fixed to be equal in every plan.
        df = pinned(parent, twice=False) if any(n.moves for n in parent.walk()) else parent.frame
        return df.sample(False, float(p), drawn)

    return Operation(
        "bernoulli_sample", (parent,), parent.kind, parent.session, build, f"p={p}",
        settled=parent.settled,
    )  # fmt: skip


def union(parents: Sequence[Operation]) -> Operation:
    """Unite the elements of several DIAs, without an order."""
    first, *others = same_kind(parents, step="union")

    def build() -> DataFrame:
        df = first.frame
        for other in others:
            df = df.union(other.frame)
        return df

    return Operation(
        "union", tuple(parents), first.kind, first.session, build, runs=NOWHERE, ordered=False,
        settled=all_settled(parents),
    )  # fmt: skip


def same_kind(parents: Sequence[Operation], *, step: str) -> Sequence[Operation]:
    """Require that all DIAs have the same element type."""
    for other in parents[1:]:
        if other.kind != parents[0].kind:
            raise UserError(
                step, expected=f"elements of {spelled(parents[0].kind)}, as in the first DIA",
                got=spelled(other.kind), hint="map one of them to the type of the other",
            )  # fmt: skip
    return parents


def cache(parent: Operation) -> Operation:
    """Compute elements once, when first needed; then read them from memory or disk."""
    build = lambda: kept(fixed(parent.frame))
    return replace(_passed_on("cache", parent), build=build, settled=True)


def collapse(parent: Operation) -> Operation:
    """End a chain: Spark starts a new plan here."""
    return replace(_passed_on("collapse", parent), build=lambda: pinned(parent, twice=False))


def keep(parent: Operation) -> Operation:
    """Return the same DIA: on Spark, reading does not consume it."""
    return _passed_on("keep", parent)


def _passed_on(op: str, parent: Operation) -> Operation:
    return Operation(
        op, (parent,), parent.kind, parent.session, lambda: parent.frame, runs=NOWHERE,
        settled=parent.settled,
    )  # fmt: skip


def _jvm(
    op: str, parent: Operation, kind: DataType, traced: Traced | TracedList,
    change: Callable[[DataFrame], DataFrame],
) -> Operation:  # fmt: skip
    return Operation(
        op, (parent,), kind, parent.session, lambda: change(parent.frame), settled=parent.settled,
        **described(traced),
    )  # fmt: skip


def _python(op: str, parent: Operation, kind: DataType, opaque: Opaque, rows: OnElements) -> Operation:
    def build() -> DataFrame:
        base, before = fused(parent)
        task = element_task(one_after_another(before, rows), base.kind, kind, step=op)
        return in_arrow(base.frame, task, kind)

    return Operation(
        op, (parent,), kind, parent.session, build, settled=parent.settled and is_steady(opaque), python=rows,
        **described(opaque),
    )  # fmt: skip


def fused(node: Operation) -> tuple[Operation, list[Operation]]:
    """The start of a chain of opaque operations, and its steps, which run in one pass over a batch."""
    steps: list[Operation] = []
    while node.python is not None and not node.is_fixed:
        steps.append(node)
        node = node.parents[0]
    return node, steps[::-1]


def one_after_another(before: Sequence[Operation], last: OnElements) -> OnElements:
    """Compose functions on lists of elements; elements in between are converted as columns would do."""
    steps = [(n.python, n.kind, n.op) for n in before]  # without the nodes, which cannot be pickled

    def run(elements: list[Any]) -> list[Any]:
        for rows, kind, op in steps:
            assert rows is not None
            elements = conformed(rows(elements), kind, step=op)
        return last(elements)

    return run
