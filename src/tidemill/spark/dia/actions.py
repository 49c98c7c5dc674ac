"""Actions: start a computation and return its result to the driver (Table 3.4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from tidemill.core.errors import UserError
from tidemill.spark.caching import kept
from tidemill.spark.dia.elements import VALUE, columns_of, decode, encode, spelled
from tidemill.spark.dia.folds import Aggregated, fold_two, recognised
from tidemill.spark.dia.opaque_batches import in_arrow
from tidemill.spark.dia.operation import BESIDE, NOWHERE, Operation
from tidemill.spark.dia.partitions import fixed
from tidemill.spark.dia.task_errors import clear_errors
from tidemill.spark.dia.traced_columns import ElementColumns, constant
from tidemill.spark.dia.tracing import INSIDE, Function, Opaque, reachable
from tidemill.spark.expr.values import named
from tidemill.spark.settings import ansi
from tidemill.spark.workers import Batches

_COUNT = f"{BESIDE}count"


def execute(node: Operation) -> Operation:
    """Compute and cache all elements; returns a node that starts from them."""
    with clear_errors("execute", node):
        df = kept(fixed(node.frame))
        df.count()
    node.fix(df, keep=True)
    # Without parents, so that a loop that executes each round does not hold earlier rounds.
    done = Operation("execute", (), node.kind, node.session, lambda: df, f"of {node.op}", runs=NOWHERE)
    done.fix(df, keep=True)
    return done


def size(node: Operation) -> int:
    """The number of elements."""
    with clear_errors("size", node):
        return int(node.frame.count())


def to_arrow(node: Operation, *, step: str = "to_arrow") -> pa.Table:
    """All elements as a table, in order."""
    with clear_errors(step, node):
        return node.frame.toArrow()


def all_gather(node: Operation) -> list[Any]:
    """All elements as a list, in order."""
    return decode(to_arrow(node, step="all_gather"), node.kind)


# --- folds ----------------------------------------------------------------------------------------


def all_reduce(
    node: Operation, reduce: Function, initial: Any = None, *, step: str = "all_reduce"
) -> Any:
    """Fold all elements into one, in order: the function need not be commutative."""
    if initial is not None:
        initial = decode(encode([initial], node.kind, step=f"{step} initial"), node.kind)[0]
    first = () if initial is None else (initial,)
    how = recognised(reduce, node.kind, ())
    if isinstance(how, Opaque):
        found = [*first, *_folded(node, reduce, step)]
    else:
        found = _aggregated(node, how[1], first, step)
    if not found:
        raise UserError(step, "no elements", hint="initial= is what a fold of nothing gives")
    result = found[0]
    for partial in found[1:]:
        result = fold_two(reduce, result, partial, step=step)
    # Encode and decode, so that a result that does not fit the type is an error here, too.
    return decode(encode([result], node.kind, step=step), node.kind)[0]


def _aggregated(node: Operation, how: Aggregated, first: tuple[Any, ...], step: str) -> list[Any]:
    """Fold by Spark aggregates, which skip nulls: returns one element, or none if there are no rows."""
    calls = {"sum": F.sum, "min": F.min, "max": F.max}
    flat = ElementColumns.of(node.kind)
    ways = dict(how.leaves)

    def rebuilt(path: str) -> Any:
        if path in ways:
            return calls[ways[path]](flat.reference(path))
        inner = flat.schema[path].names
        return F.struct(*(rebuilt(f"{path}{INSIDE}{n}").alias(n) for n in inner))

    names = columns_of(node.kind).names
    with clear_errors(step, node), ansi(node.session):
        rows = node.frame
        for element in first:
            rows = rows.union(node.session.range(1).select(*constant(element, node.kind)))
        df = rows.agg(F.count(F.lit(1)).alias(_COUNT), *(rebuilt(n).alias(n) for n in names))
        table = df.toArrow()
    return decode(table, node.kind) if table.column(_COUNT)[0].as_py() else []


def _folded(node: Operation, reduce: Function, step: str) -> list[Any]:
    """The fold of each partition that has elements, in order."""
    kind = node.kind

    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        held: tuple[Any, ...] = ()
        for batch in batches:
            for element in decode(batch, kind):
                held = (fold_two(reduce, held[0], element, step=step) if held else element,)
        if held:
            yield encode(list(held), kind, step=step)

    with clear_errors(step, node):
        return decode(in_arrow(node.frame, task, kind).toArrow(), kind)


def sum_(node: Operation, function: Function | None = None, initial: Any = None) -> Any:
    """The sum of all elements; of none, the initial value."""
    if function is None and not node.kind.is_numeric:
        raise UserError(
            "sum", expected="numbers", got=spelled(node.kind),
            hint="give a function that adds elements: sum(lambda a, b: …, initial=…)",
        )  # fmt: skip
    if initial is None and node.kind.is_numeric:
        initial = 0
    return all_reduce(node, function or (lambda a, b: a + b), initial, step="sum")


def extreme(node: Operation, how: str) -> Any:
    """The smallest or greatest element; tuples compare by their first difference. None if there are none."""
    call = F.min if how == "min" else F.max
    names = columns_of(node.kind).names
    whole = F.struct(*(named(n).alias(n) for n in names)) if names != (VALUE,) else named(VALUE)
    with clear_errors(how, node):
        table = node.frame.agg(call(whole).alias("found")).toArrow()
    found = table.column("found").combine_chunks()
    if not found.is_valid()[0].as_py():
        return None
    if names == (VALUE,):
        return decode(pa.RecordBatch.from_arrays([found], [VALUE]), node.kind)[0]
    return decode(pa.RecordBatch.from_arrays(found.flatten(), list(names)), node.kind)[0]


def hyperloglog(node: Operation, lg_k: int = 12) -> int:
    """Estimate the number of distinct elements, with a sketch of 2**lg_k counters."""
    if not 4 <= lg_k <= 21:
        raise UserError("hyperloglog", expected="lg_k from 4 to 21", got=repr(lg_k))
    # The sketch takes ints and text; other elements are hashed to 64 bits.
    value = named(VALUE) if node.kind.kind in ("int64", "string", "binary") else _hashed(node)
    estimate = F.hll_sketch_estimate(F.hll_sketch_agg(value, lg_k))
    with clear_errors("hyperloglog", node):
        return int(node.frame.agg(estimate).collect()[0][0] or 0)


def _hashed(node: Operation) -> SparkColumn:
    """A hash of elements. Spark's hash skips nulls, so null flags of all fields are hashed, too."""
    flat = ElementColumns.of(node.kind)
    nulls = [flat.reference(path).isNull() for path in reachable(node.kind).names]
    return F.xxhash64(*(named(n) for n in columns_of(node.kind).names), *nulls)
