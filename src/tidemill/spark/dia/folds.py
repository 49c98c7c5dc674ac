"""Reduce functions r(a, b): sums, minima and maxima become Spark aggregates.

Others are folded in Python, element by element; they only have to be independent of the order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidemill.aggregates.algebra import Aggregate
from tidemill.aggregates.registry import AGGREGATES
from tidemill.core.floats import order_key
from tidemill.core.schema import Schema
from tidemill.core.types import DataType
from tidemill.expr.evaluate import evaluate
from tidemill.expr.fluent import Expr, col
from tidemill.expr.nodes import Call, Column
from tidemill.expr.typing import resolve
from tidemill.spark.dia.capture import captured
from tidemill.spark.dia.elements import columns_of, decode, encode
from tidemill.spark.dia.opaque_batches import BATCH, raised
from tidemill.spark.dia.tracing import (
    INSIDE,
    Function,
    Opaque,
    Out,
    Traced,
    TracedStruct,
    readable,
    repeats,
    trace,
)
from tidemill.spark.workers import Batches

A, B = "a.", "b."
"""The prefixes of the columns of the two arguments."""

MOST_KEYS = 500_000
"""The most partials that a task holds before it emits them."""


@dataclass(frozen=True)
class Aggregated:
    """A reduce function by field: unchanged keys, and aggregates of the other fields."""

    leaves: tuple[tuple[str, str], ...]
    """For each field the path in the element, and "key", "sum", "min" or "max"."""

    def __str__(self) -> str:
        return ", ".join(f"{how} of {path}" for path, how in self.leaves if how != "key")


_COMBINES = {"add": "sum", "least": "min", "greatest": "max"}


def recognised(
    reduce: Function, kind: DataType, keys: tuple[str | None, ...]
) -> tuple[Traced, Aggregated] | Opaque:
    """Recognize a reduce function as aggregates, over elements with these key columns; else it is opaque.

    >>> from tidemill.core.types import INT64
    >>> recognised(lambda a, b: a + b, INT64, ())[1].leaves
    (('value', 'sum'),)
    >>> recognised(lambda a, b: a * b, INT64, ()).why
    'it is no sum, min or max: (a * b)'
    """
    traced = trace(reduce, [kind, kind], [A, B])
    if isinstance(traced, Opaque):
        return Opaque(captured(reduce), traced.why)
    if traced.type != kind:
        return Opaque(captured(reduce), "it returns elements of another type")
    if isinstance(traced.out, TracedStruct):
        parts = list(zip(traced.out.names, traced.out.parts))
    else:
        parts = [("value", traced.out)]
    found: list[tuple[str, str]] = []
    for name, part in parts:
        problem = _leaf_by_leaf(name, part, keys, found)
        if problem is not None:
            return Opaque(captured(reduce), f"it is no sum, min or max: {readable(str(problem))}")
    return traced, Aggregated(tuple(found))


def _leaf_by_leaf(
    path: str, out: Out, keys: tuple[str | None, ...], found: list[tuple[str, str]]
) -> Out | None:
    """Record how each field below a path is combined; returns the first that is no sum, min or max."""
    if path in keys and (repeats(out, A + path) or repeats(out, B + path)):
        found.append((path, "key"))
        return None
    if isinstance(out, TracedStruct):
        for name, part in zip(out.names, out.parts):
            problem = _leaf_by_leaf(f"{path}{INSIDE}{name}", part, keys, found)
            if problem is not None:
                return problem
        return None
    both = {Column(A + path), Column(B + path)}
    if isinstance(out, Call) and out.function in _COMBINES and set(out.args) == both:
        found.append((path, _COMBINES[out.function]))
    else:
        return out
    return None


def aggregate(how: str, column: str) -> Aggregate:
    """Make an aggregate of a column by the aggregate's name."""
    return AGGREGATES[how].make(col[column])


# --- folding in Python ----------------------------------------------------------------------------


def fold_two(reduce: Function, a: Any, b: Any, *, step: str) -> Any:
    """Compute r(a, b); an error shows both elements."""
    try:
        return _valued(reduce(a, b))
    except Exception as failed:
        raise raised(reduce, failed, (a, b), step=step) from failed


def _valued(result: Any) -> Any:
    """Evaluate the expressions in a result: `tm.greatest(1, 2)` is an expression over constants."""
    if isinstance(result, Expr):
        return evaluate(resolve(result.node, _NO_COLUMNS, step="fold"), {}, _NO_COLUMNS)
    if isinstance(result, tuple) and any(isinstance(part, (Expr, tuple)) for part in result):
        return tuple(map(_valued, result))
    if isinstance(result, dict) and any(isinstance(part, (Expr, tuple, dict)) for part in result.values()):
        return type(result)((name, _valued(part)) for name, part in result.items())
    return result


_NO_COLUMNS = Schema(())


def fold_here(reduce: Function, keys: DataType, kind: DataType, *, step: str) -> Any:
    """A task that folds elements of equal keys within a partition, and yields keys and partials."""

    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        held: dict[Any, tuple[Any, Any]] = {}
        for batch in batches:
            for key, element in keyed_elements(batch, keys, kind):
                same = order_key(key)
                before = held.get(same)
                if before is not None:
                    element = fold_two(reduce, before[1], element, step=step)
                held[same] = (key, element)
            if len(held) > MOST_KEYS:
                yield from _keyed(list(held.values()), keys, kind, step)
                held.clear()
        yield from _keyed(list(held.values()), keys, kind, step)

    return task


def _keyed(
    pairs: list[tuple[Any, Any]], keys: DataType, kind: DataType, step: str
) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(pairs), BATCH):
        some = pairs[start : start + BATCH]
        left = encode([k for k, _ in some], keys, step=step).columns
        right = encode([e for _, e in some], kind, step=step).columns
        names = [f"k{i}" for i in range(len(left))] + [f"c{i}" for i in range(len(right))]
        yield pa.RecordBatch.from_arrays([*left, *right], names)


def runs(batches: Batches, keys: DataType, kind: DataType) -> Iterator[tuple[Any, list[Any]]]:
    """Yield each key and its elements from a partition that is sorted by key."""
    current: Any = None
    held: list[Any] = []
    for batch in batches:
        for key, element in keyed_elements(batch, keys, kind):
            if held and order_key(key) != order_key(current):
                yield current, held
                held = []
            current = key
            held.append(element)
    if held:
        yield current, held


def group_task(
    group: Callable[[Any, list[Any]], Any], keys: DataType, kind: DataType, result: DataType,
    *, step: str,
) -> Any:  # fmt: skip
    """A task that makes one element of each run of equal keys, and yields keys and elements."""

    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        made: list[tuple[Any, Any]] = []
        for key, elements in runs(batches, keys, kind):
            made.append((key, group(key, elements)))
            if len(made) == BATCH:
                yield from _keyed(made, keys, result, step)
                made = []
        yield from _keyed(made, keys, result, step)

    return task


def keyed_elements(
    batch: pa.RecordBatch | pa.Table, keys: DataType, kind: DataType
) -> Iterator[tuple[Any, Any]]:
    """Decode a batch with columns of keys and elements to pairs."""
    return zip(_read(batch, keys, "k"), _read(batch, kind, "c"))


def _read(batch: pa.RecordBatch | pa.Table, kind: DataType, letter: str) -> list[Any]:
    names = columns_of(kind).names
    columns = batch.select([f"{letter}{i}" for i in range(len(names))])
    return decode(columns.rename_columns(list(names)), kind)
