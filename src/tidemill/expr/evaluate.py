"""Expressions on one row of Python values: the definition, short and slow.

Timestamps and durations are ints (ticks) here, as everywhere below the surface.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    if isinstance(node, Column):
        return row[node.name]
    if isinstance(node, Literal):
        return node.value
    if isinstance(node, Cast):
        value = evaluate(node.arg, row, schema)
        return cast_value(value, type_of(node.arg, schema), node.to, strict=node.strict)
    if isinstance(node, Udf):
        return call_udf(node.function, node.returns, [evaluate(a, row, schema) for a in node.args])
    if isinstance(node, Call):
        if node.function == "if_else":  # the branch not taken must not fail
            taken = 1 if evaluate(node.args[0], row, schema) is True else 2
            return evaluate(node.args[taken], row, schema)
        if node.function == "coalesce":
            values = (evaluate(a, row, schema) for a in node.args)
            return next((v for v in values if v is not None), None)
        if node.function in _DECIDED_BY_LEFT:  # nor may a right side that decides nothing
            left = evaluate(node.args[0], row, schema)
            if left is _DECIDED_BY_LEFT[node.function]:
                return left
        function = FUNCTIONS[node.function]
        args = [evaluate(a, row, schema) for a in node.args]
        if not function.lazy and any(a is None for a in args):
            return None
        return function.define(*args)
    raise InternalError(f"no definition for {node!r}")


_DECIDED_BY_LEFT = {"and": False, "or": True}


def call_udf(function: Callable[..., Any], returns: DataType, args: list[Any]) -> Any:
    """An opaque function on one row: null in, null out; what it raises is the user's to see."""
    if any(a is None for a in args):
        return None
    try:
        value = function(*args)
    except Exception as failed:
        raise UserError(
            f"udf {udf_name(function)}", f"raised {type(failed).__name__}: {failed}",
            got=f"arguments {args!r}",
        ) from failed  # fmt: skip
    return value if value is None else _returned(value, returns, function)


_CONVERT: dict[str, Callable[[Any], Any]] = {
    "bool": bool, "int64": int, "float64": float, "string": str,
    "timestamp": int, "duration": int, "binary": bytes,
}  # fmt: skip


def _returned(value: Any, returns: DataType, function: Callable[..., Any]) -> Any:
    convert = _CONVERT.get(returns.kind)
    if convert is None:
        return value
    try:
        converted = convert(value)
        if convert is int:
            checked(converted)
        return converted
    except (TypeError, ValueError, UserError) as bad:
        raise UserError(
            f"udf {udf_name(function)}", expected=f"a {returns!r}, as returns= says", got=repr(value)
        ) from bad
