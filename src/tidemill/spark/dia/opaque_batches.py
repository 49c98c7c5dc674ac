"""Run opaque functions on Arrow batches: decode rows to elements, and encode the results.

Tasks are made on the driver and shipped with their plan. Each reads the rows of one partition, in
order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from tidemill.core.errors import UserError
from tidemill.core.types import DataType
from tidemill.spark.dia.elements import columns_of, decode, encode
from tidemill.spark.dia.tracing import function_name
from tidemill.spark.expr.schemas import user_schema
from tidemill.spark.workers import Batches, Task, map_batches

OnElements = Callable[[list[Any]], list[Any]]

BATCH = 10_000
"""The most elements in a batch that a task yields."""


def in_arrow(df: DataFrame, task: Task, kind: DataType) -> DataFrame:
    """Run a task on each partition; it yields the columns of elements of type `kind`."""
    return mapped(df, task, user_schema(columns_of(kind)))


def mapped(df: DataFrame, task: Task, result: T.StructType | str) -> DataFrame:
    """`mapInArrow` for any column names: it fails on names with a dot."""
    names = df.columns
    if not any("." in n or "`" in n for n in names):
        return map_batches(df, task, result)

    def named_again(batches: Batches) -> Iterator[pa.RecordBatch]:
        return task(b.rename_columns(names) for b in batches)

    return map_batches(df.toDF(*(f"x{i}" for i in range(len(names)))), named_again, result)


def element_task(rows: OnElements, kind: DataType, result: DataType, *, step: str) -> Task:
    """A task that applies a function to the elements of each batch."""

    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from encoded(rows(decode(batch, kind)), result, step=step)

    return task


def encoded(elements: Sequence[Any], kind: DataType, *, step: str) -> Iterator[pa.RecordBatch]:
    """Encode elements in batches of at most `BATCH`."""
    for start in range(0, len(elements), BATCH):
        yield encode(elements[start : start + BATCH], kind, step=step)


# --- functions on lists of elements ---------------------------------------------------------------


def mapping(function: Callable[..., Any], *, step: str) -> OnElements:
    """`map` on a list; an error shows the element on which the function failed."""
    return lambda elements: called(function, elements, step=step)


def flat_mapping(function: Callable[..., Any], *, step: str) -> OnElements:
    """`flat_map` on a list."""

    def listed(element: Any) -> list[Any]:
        return list(function(element))

    listed.__name__ = getattr(function, "__name__", type(function).__name__)

    return lambda elements: [x for items in called(listed, elements, step=step) for x in items]


def filtering(function: Callable[..., Any], *, step: str) -> OnElements:
    """`filter` on a list."""

    def run(elements: list[Any]) -> list[Any]:
        kept = called(function, elements, step=step)
        return [e for e, keep in zip(elements, kept) if keep]

    return run


def called(function: Callable[..., Any], elements: Sequence[Any], *, step: str) -> list[Any]:
    """Call the function on each element; an exception becomes a `UserError` that shows the element."""
    made: list[Any] = []
    try:
        for element in elements:
            made.append(function(element))
    except Exception as failed:
        raise raised(function, failed, elements[len(made)], step=step) from failed
    return made


def raised(
    function: Callable[..., Any], failed: Exception, element: Any, *, step: str
) -> UserError:
    """Convert an exception of a user's function to an error that names the step and the element."""
    if isinstance(failed, UserError):
        return failed
    text = f"{function_name(function)} raised {type(failed).__name__}: {failed}"
    shown = repr(element)
    return UserError(step, text, got=f"element {shown if len(shown) < 200 else shown[:200] + '…'}")
