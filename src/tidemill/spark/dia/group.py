"""Group the elements of each key: group_by_key, group_to_index (Table 3.3)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from tidemill.core.errors import UserError
from tidemill.core.floats import order_key
from tidemill.core.types import DataType
from tidemill.spark import exchange
from tidemill.spark.dia.capture import captured
from tidemill.spark.dia.elements import infer, parse_element
from tidemill.spark.dia.fill_indexes import filled
from tidemill.spark.dia.folds import group_task, keyed_elements
from tidemill.spark.dia.keys import (
    Key,
    carried,
    checked_index,
    index_of,
    key_of,
    restored,
    with_key,
)
from tidemill.spark.dia.opaque_batches import mapped, raised
from tidemill.spark.dia.operation import ARROW, HEAD, Operation
from tidemill.spark.dia.task_errors import clear_errors
from tidemill.spark.dia.tracing import Function, function_name
from tidemill.spark.expr.schemas import user_schema
from tidemill.spark.settings import ansi

Group = Callable[[Any, list[Any]], Any]


def group_by_key(
    parent: Operation, key: Function, function: Function, returns: Any = None, *,
    key_returns: Any = None, detect: str = "auto",
) -> Operation:  # fmt: skip
    """Make one element for each key from the list of its elements."""
    step = "group_by_key"
    found = key_of(parent, key, key_returns, step=step)
    group = grouping(function, step=step)
    kind = _result(parent, found, group, returns, step)
    build = lambda: _grouped(parent, found, group, kind, None, detect, step).select(*restored(kind))
    return Operation(
        step, (parent,), kind, parent.session, build, ordered=False, settled=False,
        moves="all elements, by key", detect=detect, **_said(found, function),
    )  # fmt: skip


def group_to_index(
    parent: Operation, index: Function, function: Function, n: int, neutral: Any = None,
    returns: Any = None, *, detect: str = "auto",
) -> Operation:  # fmt: skip
    """Make n elements: at each index the result of a function of the list of its elements."""
    step = "group_to_index"
    found = index_of(parent, index, n, step=step)
    group = grouping(function, step=step)
    kind = _result(parent, found, group, returns, step)
    build = lambda: filled(
        parent, _grouped(parent, found, group, kind, n, detect, step), kind, n, neutral, step
    )
    return Operation(
        step, (parent,), kind, parent.session, build,
        moves="all elements, by index, then results to their place", detect=detect,
        **_said(found, function),
    )  # fmt: skip


def grouping(function: Function, *, step: str) -> Group:
    """Wrap a function of a list, or of a list and its key, as a function of key and list."""
    if not callable(function):
        raise UserError(step, expected="a function of a list of elements", got=repr(function))
    with_key, function = takes_two(function), captured(function)

    def group(key: Any, elements: list[Any]) -> Any:
        try:
            return function(elements, key) if with_key else function(elements)
        except Exception as failed:
            raise raised(function, failed, elements[:3], step=f"{step} of key {key!r}") from failed

    return group


def takes_two(function: Function) -> bool:
    """Whether a function has to be called with two arguments."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some functions written in C have no signature
        return False
    free = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p for p in parameters if p.kind in free and p.default is inspect.Parameter.empty]
    return len(needed) == 2


def _result(parent: Operation, key: Key, group: Group, returns: Any, step: str) -> DataType:
    """The declared type, or the type inferred from groups of the first elements."""
    if returns is not None:
        return parse_element(returns, step=step)
    groups: dict[Any, tuple[Any, list[Any]]] = {}
    with clear_errors(step, parent), ansi(parent.session):
        some = with_key(parent, key, step=step).limit(HEAD).toArrow()
    for k, element in keyed_elements(some, key.type, parent.kind):
        groups.setdefault(order_key(k), (k, []))[1].append(element)
    try:
        made = [group(k, elements) for k, elements in groups.values()]
    except UserError as failed:
        raise UserError(
            f"{step}, on groups of the first {HEAD} elements, to read a type off its results", str(failed),
            hint="if it would not fail on whole groups, declare the type with returns=",
        ) from failed  # fmt: skip
    return infer(made, step=step)


def _said(key: Key, function: Function) -> dict[str, Any]:
    return {
        "function": f"key {key.function}, {function_name(function)}",
        "runs": ARROW,
        "why": "it sees all elements of a key",
    }


def _grouped(
    parent: Operation, key: Key, group: Group, kind: DataType, n: int | None, detect: str, step: str
) -> DataFrame:
    shape = T.StructType([*user_schema(key.schema).fields, *user_schema(carried(kind)).fields])
    keyed = with_key(parent, key, step=step)
    if n is not None:
        keyed = checked_index(keyed, n, step=step)
    together = exchange.colocate(keyed, key.names, detect=detect).sortWithinPartitions(*key.names)
    task = group_task(group, key.type, parent.kind, kind, step=step)
    return mapped(together, task, shape)
