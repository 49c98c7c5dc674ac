"""Expressions as JSON, for files: no code is ever read from one."""

from __future__ import annotations

from typing import Any

from tidemill.core.errors import UnsupportedError, UserError
from tidemill.core.types import DataType, parse_type
from tidemill.expr.nodes import Call, Cast, Column, Literal, Node, Udf, udf_name

Json = Any


def to_json(node: Node) -> Json:
    """A tree of lists and dicts.

    >>> from tidemill.expr.fluent import col
    >>> to_json((col.x > 1).node)
    {'call': 'gt', 'args': [{'column': 'x'}, {'literal': 1, 'type': 'int64'}]}
    """
    if isinstance(node, Column):
        return {"column": node.name}
    if isinstance(node, Literal):
        value = repr(node.value) if isinstance(node.value, float) else node.value
        return {"literal": value, "type": repr(node.type)}
    if isinstance(node, Call):
        return {"call": node.function, "args": [to_json(a) for a in node.args]}
    if isinstance(node, Cast):
        return {"cast": to_json(node.arg), "to": repr(node.to), "strict": node.strict}
    shown = udf_name(node.function) if isinstance(node, Udf) else repr(node)
    raise UnsupportedError("save", f"the Python function {shown}", instead="give it again on opening")


def from_json(value: Json) -> Node:
    """What `to_json` made.

    >>> print(from_json({"call": "gt", "args": [{"column": "x"}, {"column": "y"}]}))
    (col.x > col.y)
    """
    if isinstance(value, dict):
        if "column" in value:
            return Column(value["column"])
        if "literal" in value:
            kind: DataType = parse_type(value["type"])
            found = value["literal"]
            return Literal(float(found) if kind.kind == "float64" and found is not None else found, kind)
        if "call" in value:
            return Call(value["call"], tuple(from_json(a) for a in value["args"]))
        if "cast" in value:
            return Cast(from_json(value["cast"]), parse_type(value["to"]), value["strict"])
    raise UserError("open", expected="an expression", got=repr(value))
