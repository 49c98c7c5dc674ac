"""Expressions as JSON, for files: no code is ever read from one."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from tidemill.core.errors import UnsupportedError, UserError
from tidemill.core.types import NULL, DataType, list_of, parse_type, struct_of
from tidemill.expr.nodes import Call, Cast, Column, Literal, Node, Udf, udf_name

Json = Any


def to_json(node: Node) -> Json:
    """A tree of lists and dicts.

    >>> from tidemill.expr.fluent import col
    >>> to_json((col.x > 1).node)
    {'call': 'gt', 'args': [{'column': 'x'}, {'literal': 1, 'type': 'int64'}]}
    """
    if node.levels <= MOST_NESTED and node.size <= MOST_WRITTEN_OUT:
        return node.fold(_record)
    order = _leaves_first(node)
    place = {id(n): i for i, n in enumerate(order)}
    return {"deep": [_record(n, [place[id(c)] for c in n.children()]) for n in order]}


MOST_NESTED, MOST_WRITTEN_OUT = 100, 10_000
"""Levels of JSON in JSON that any reader takes, and nodes; trees beyond are lists, with numbers in place of
branches."""


def _leaves_first(node: Node) -> list[Node]:
    """All nodes of a tree, children before parents, each once."""
    found: dict[int, Node] = {}
    waiting = [(node, False)]
    while waiting:
        each, below_done = waiting.pop()
        if id(each) in found:
            continue
        if below_done:
            found[id(each)] = each
        else:
            waiting.append((each, True))
            waiting.extend((c, False) for c in each.children())
    return list(found.values())


def _record(node: Node, below: list[Json]) -> Json:
    """One node, with what stands for the nodes below it."""
    if isinstance(node, Column):
        return {"column": node.name}
    if isinstance(node, Literal):
        return {"literal": _value_to_json(node.value), "type": type_to_json(node.type)}
    if isinstance(node, Call):
        return {"call": node.function, "args": below}
    if isinstance(node, Cast):
        return {"cast": below[0], "to": type_to_json(node.to), "strict": node.strict}
    shown = udf_name(node.function) if isinstance(node, Udf) else repr(node)
    raise UnsupportedError("save", f"the Python function {shown}", instead="give it again on opening")


def from_json(value: Json) -> Node:
    """The expression that `to_json` was given.

    >>> print(from_json({"call": "gt", "args": [{"column": "x"}, {"column": "y"}]}))
    (col.x > col.y)
    """
    if isinstance(value, dict) and isinstance(listed := value.get("deep"), list):
        made: list[Node] = []
        for each in listed:
            made.append(_node(each, lambda at: _at(made, at)))
        return _at(made, len(made) - 1)
    return _node(value, from_json)


def _at(made: list[Node], at: Json) -> Node:
    if type(at) is not int or not 0 <= at < len(made):
        raise _not("an expression that was told before", at)
    return made[at]


def _node(value: Json, below: Callable[[Json], Node]) -> Node:
    """One node; what stands for those below it is read by another function."""
    if isinstance(value, dict):
        if isinstance(name := value.get("column"), str):
            return Column(name)
        if "literal" in value:
            return _literal(value["literal"], type_from_json(value.get("type")))
        if isinstance(name := value.get("call"), str) and isinstance(value.get("args"), list):
            return Call(name, tuple(below(a) for a in value["args"]))
        if "cast" in value and isinstance(strict := value.get("strict"), bool):
            return Cast(below(value["cast"]), type_from_json(value.get("to")), strict)
    raise _not("an expression", value)


def type_to_json(kind: DataType) -> Json:
    """A name, or what a list or a struct is made of.

    >>> type_to_json(list_of(struct_of({"a, b": NULL})))
    {'list': {'struct': [['a, b', 'null']]}}
    """
    if kind.kind == "list":
        return {"list": type_to_json(kind.of[0])}
    if kind.kind == "struct":
        return {"struct": [[n, type_to_json(t)] for n, t in zip(kind.names, kind.of)]}
    return kind.kind


def type_from_json(value: Json) -> DataType:
    """What `type_to_json` was given."""
    if value == NULL.kind:
        return NULL
    if isinstance(value, dict) and "list" in value:
        return list_of(type_from_json(value["list"]))
    fields = value.get("struct") if isinstance(value, dict) else None
    if isinstance(fields, list) and all(isinstance(f, list) and len(f) == 2 for f in fields):
        return struct_of({str(name): type_from_json(kind) for name, kind in fields})
    if isinstance(value, str):
        return parse_type(value, step="open")
    raise _not("a type", value)


_PLAIN = {"bool": bool, "string": str, "int64": int, "timestamp": int, "duration": int}
"""Constants that are in JSON what they are in Python."""
_INT64 = range(-(1 << 63), 1 << 63)


def _value_to_json(value: Any) -> Json:
    """JSON has no NaN, and no bytes."""
    if isinstance(value, float):
        return repr(value)
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _literal(found: Json, kind: DataType) -> Literal:
    """A constant, checked to be of its type, because kernels do not check it."""
    if found is None:
        return Literal(None, kind)
    if type(found) is _PLAIN.get(kind.kind) and (type(found) is not int or found in _INT64):
        return Literal(found, kind)
    try:
        if kind.kind == "float64" and isinstance(found, (str, float)):
            return Literal(float(found), kind)
        if kind.kind == "binary" and isinstance(found, str):
            return Literal(base64.b64decode(found, validate=True), kind)
    except ValueError as none:
        raise _not(f"a constant of type {kind!r}", found) from none
    raise _not(f"a constant of type {kind!r}", found)


def _not(expected: str, found: Json) -> UserError:
    return UserError("open", expected=expected, got=f"{found!r:.200}")
