"""Expressions on one row of Python values: the definition, short and slow.

Timestamps and durations are ints (ticks) here, as everywhere below the surface.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tidemill.core.errors import InternalError, UserError
from tidemill.core.schema import Schema
from tidemill.core.types import DataType
from tidemill.expr.casts import cast_value
from tidemill.expr.functions import FUNCTIONS, checked
from tidemill.expr.nodes import Call, Cast, Column, Literal, Node, Udf, udf_name
from tidemill.expr.typing import type_of


def evaluate(node: Node, row: Mapping[str, Any], schema: Schema) -> Any:
    """The value of a resolved expression on one row; `None` is null.

    >>> from tidemill.expr.fluent import col
    >>> from tidemill.core.schema import schema
    >>> evaluate((col.a // 4).node, {"a": -7}, schema({"a": "int64"}))
    -2
    """
    known: dict[int, Any] = {}
    waiting = [node]
    while waiting:
        one = waiting[-1]
        missing = next((a for a in _wanted(one, known) if id(a) not in known), None)
        if missing is not None:
            waiting.append(missing)
            continue
        waiting.pop()
        known[id(one)] = _value(one, row, schema, known)
    return known[id(node)]


_DECIDED_BY_LEFT = {"and": False, "or": True}


def _wanted(node: Node, known: dict[int, Any]) -> Iterator[Node]:
    """The arguments that a node needs next, given those that are known.

    A branch that is not taken must not fail, nor may the right side of `&` or `|` where the left decides.
    """
    args = node.children()
    if not isinstance(node, Call):
        yield from args
    elif node.function == "if_else":
        yield args[0]
        yield args[1] if known[id(args[0])] is True else args[2]
    elif node.function == "coalesce":
        for arg in args:
            yield arg
            if known[id(arg)] is not None:
                return
    elif node.function in _DECIDED_BY_LEFT:
        yield args[0]
        if known[id(args[0])] is not _DECIDED_BY_LEFT[node.function]:
            yield args[1]
    else:
        yield from args


def _value(node: Node, row: Mapping[str, Any], schema: Schema, known: dict[int, Any]) -> Any:
    """The value of a node from those of its arguments."""
    if isinstance(node, Column):
        return row[node.name]
    if isinstance(node, Literal):
        return node.value
    if isinstance(node, Cast):
        value = known[id(node.arg)]
        return cast_value(value, type_of(node.arg, schema), node.to, strict=node.strict)
    if isinstance(node, Udf):
        return call_udf(node.function, node.returns, [known[id(a)] for a in node.args])
    if isinstance(node, Call):
        args = [known[id(a)] for a in _wanted(node, known)]
        if node.function in ("if_else", "coalesce"):
            return args[-1]
        if node.function in _DECIDED_BY_LEFT and len(args) == 1:
            return args[0]
        function = FUNCTIONS[node.function]
        if not function.lazy and any(a is None for a in args):
            return None
        return function.define(*args)
    raise InternalError(f"no definition for {node!r}")


def call_udf(function: Callable[..., Any], returns: DataType, args: list[Any]) -> Any:
    """Call an opaque function on one row. A null argument gives null; what it raises is a `UserError`."""
    if any(a is None for a in args):
        return None
    try:
        value = function(*args)
    except Exception as failed:
        raise UserError(
            f"udf {udf_name(function)}", f"raised {type(failed).__name__}: {failed}",
            got=f"arguments {args!r}",
        ) from failed  # fmt: skip
    return returned(value, returns, f"udf {udf_name(function)}")


_CONVERT: dict[str, Callable[[Any], Any]] = {
    "bool": bool, "int64": int, "float64": float, "string": str,
    "timestamp": int, "duration": int, "binary": bytes,
}  # fmt: skip


def returned(value: Any, returns: DataType, step: str) -> Any:
    """The result of a user's function, converted to the type that it declares; null stays null."""
    if returns.kind == "list" and isinstance(value, (list, tuple)):
        return [returned(item, returns.of[0], step) for item in value]
    convert = _CONVERT.get(returns.kind)
    if convert is None or value is None:
        return value
    try:
        converted = convert(value)
        if convert is int:
            checked(converted)
        return converted
    except (TypeError, ValueError, ArithmeticError, UserError) as bad:
        raise UserError(step, expected=f"a {returns!r}, as returns= says", got=repr(value)) from bad
