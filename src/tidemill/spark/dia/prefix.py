"""Prefix sums in two passes: fold each partition, then the elements in it (Table 3.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemill.core.errors import UserError
from tidemill.core.types import DataType
from tidemill.expr.functions import checked
from tidemill.spark.dia.capture import captured
from tidemill.spark.dia.elements import columns_of, decode, encode, spelled
from tidemill.spark.dia.folds import fold_two, recognised
from tidemill.spark.dia.opaque_batches import in_arrow, mapped
from tidemill.spark.dia.operation import ARROW, Operation
from tidemill.spark.dia.partitions import PART, pinned
from tidemill.spark.dia.task_errors import clear_errors
from tidemill.spark.dia.tracing import Function, Opaque
from tidemill.spark.expr.schemas import user_schema
from tidemill.spark.private import partition_count
from tidemill.spark.workers import Batches, Task

STEP = "prefix_sum"


def prefix_sum(parent: Operation, function: Function | None = None, initial: Any = None) -> Operation:
    """Replace each element by the fold of all elements up to it, in order."""
    kind = parent.kind
    if function is None and not kind.is_numeric:
        raise UserError(
            STEP, expected="numbers", got=spelled(kind),
            hint="give a function that adds elements: prefix_sum(lambda a, b: …)",
        )  # fmt: skip
    if initial is not None:  # raises now if it does not fit
        initial = decode(encode([initial], kind, step=f"{STEP} initial"), kind)[0]
    how = recognised(function or _plus, kind, ())
    known = None if isinstance(how, Opaque) else _KNOWN.get((kind.kind, how[1].leaves[0][1]))
    add = known[0] if known else captured(function or _plus)
    kernel = known[1] if known else None
    start = () if initial is None else (initial,)

    def build() -> DataFrame:
        df = pinned(parent).select("*", F.spark_partition_id().alias(PART))
        totals = _totals(df, kind, add, kernel)
        carry, held = {}, start
        for part in range(partition_count(parent.frame)):
            carry[part] = held
            if part in totals:
                held = (fold_two(add, held[0], totals[part], step=STEP) if held else totals[part],)
        return in_arrow(df, _running(kind, add, kernel, carry), kind)

    return Operation(
        STEP, (parent,), kind, parent.session, build, runs=ARROW, settled=True,
        function=str(how if isinstance(how, Opaque) else how[0]),
        why="" if kernel else "it goes from element to element",
    )  # fmt: skip


Carry = Mapping[int, tuple[Any, ...]]
"""The fold of everything before each partition: one element, or none."""

Kernel = Callable[[pa.Array], pa.Array]


def _running(kind: DataType, add: Function, kernel: Kernel | None, carry: Carry) -> Task:
    """A task that replaces each element of a partition by the fold up to it."""

    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        held: tuple[Any, ...] | None = None
        for batch in batches:
            if not batch.num_rows:
                continue
            if held is None:
                held = carry.get(_part(batch), ())
            column = batch.column(0)
            if kernel is not None and not column.null_count and None not in held:
                made = _by_kernel(kernel, column, held)
            else:
                made = encode(_by_element(add, decode(batch, kind), held), kind, step=STEP)
            yield made
            held = (decode(made.slice(made.num_rows - 1), kind)[0],)

    return task


def _by_kernel(kernel: Kernel, column: pa.Array, held: tuple[Any, ...]) -> pa.RecordBatch:
    before = pa.array(held, column.type)
    try:
        made = kernel(pa.concat_arrays([before, column]))
    except pa.ArrowInvalid as overflow:
        raise UserError(STEP, expected="sums within int64", got=str(overflow)) from overflow
    return pa.RecordBatch.from_arrays([made.slice(len(held))], ["value"])


def _by_element(add: Function, elements: list[Any], held: tuple[Any, ...]) -> list[Any]:
    made = []
    for element in elements:
        held = (fold_two(add, held[0], element, step=STEP) if held else element,)
        made.append(held[0])
    return made


def _totals(df: DataFrame, kind: DataType, add: Function, kernel: Kernel | None) -> dict[int, Any]:
    """The fold of each partition that has elements."""
    run = _running(kind, add, kernel, {})

    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        part, last = 0, None

        def seen() -> Iterator[pa.RecordBatch]:
            nonlocal part
            for batch in batches:
                if batch.num_rows:
                    part = _part(batch)
                    yield batch

        for made in run(seen()):
            last = made.slice(made.num_rows - 1)
        if last is not None:
            columns = [*last.columns, pa.array([part], pa.int32())]
            yield pa.RecordBatch.from_arrays(columns, [*last.schema.names, PART])

    fields = [*user_schema(columns_of(kind)).fields, T.StructField(PART, T.IntegerType())]
    with clear_errors(STEP):
        table = mapped(df, task, T.StructType(fields)).toArrow()
    return dict(zip(table.column(PART).to_pylist(), decode(table, kind)))


def _part(batch: pa.RecordBatch) -> int:
    return int(batch.column(batch.schema.get_field_index(PART))[0].as_py())


# --- sums, minima and maxima by the rules of expressions, and Arrow's kernels for them -------------


def _plus(a: Any, b: Any) -> Any:
    return a + b


def _sum_of_ints(a: Any, b: Any) -> Any:
    return None if a is None or b is None else checked(a + b)


def _sum_of_floats(a: Any, b: Any) -> Any:
    return None if a is None or b is None else a + b


def _least(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else min(a, b)


def _greatest(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else max(a, b)


_KNOWN: dict[tuple[str, str], tuple[Function, Kernel]] = {
    ("int64", "sum"): (_sum_of_ints, pc.cumulative_sum_checked),
    ("float64", "sum"): (_sum_of_floats, pc.cumulative_sum_checked),
    ("int64", "min"): (_least, pc.cumulative_min),
    ("int64", "max"): (_greatest, pc.cumulative_max),
}
"""Without the minimum and maximum of floats: NaN is the greatest number here, but not in Arrow."""
