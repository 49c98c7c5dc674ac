"""Trace functions of elements to expressions if possible; others stay opaque Python.

A function is called with elements whose values are expressions: an `Expr` for a scalar, a tuple of
them, a `Record` of them. If the result consists of expressions and constants, it represents the
function, and Spark computes it in the JVM. If the function looks at values (`if`, `in`, `len`, a
library), it cannot be traced, and the reason is kept for `explain`.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import GeneratorType
from typing import Any, Union

from tidemill.core.schema import Schema
from tidemill.core.types import FLOAT64, INT64, NULL, DataType, struct_of
from tidemill.expr.fluent import Expr, greatest, least, lit, recording
from tidemill.expr.nodes import Call, Cast, Column, Node, udf_name
from tidemill.expr.typing import resolve, type_of
from tidemill.spark.dia.elements import NoField, Record, columns_of, is_tuple
from tidemill.spark.dia.untraceable import CHANGES, asks

Function = Callable[..., Any]

INSIDE = "::"
"""Separates the names of a column and of the fields inside it: `f0::f1`."""


@dataclass(frozen=True)
class TracedStruct:
    """A traced tuple or record: the name and the traced value of each field."""

    names: tuple[str, ...]
    parts: tuple[Out, ...]

    def __str__(self) -> str:
        if self.names == tuple(f"f{i}" for i in range(len(self.names))):
            return f"({', '.join(map(str, self.parts))})"
        return "{" + ", ".join(f"{n}: {p}" for n, p in zip(self.names, self.parts)) + "}"


Out = Union[Node, TracedStruct]


def nodes_of(out: Out) -> Iterator[Node]:
    """All expressions in a traced result, including subexpressions."""
    if isinstance(out, TracedStruct):
        for part in out.parts:
            yield from nodes_of(part)
    else:
        yield from out.walk()


@dataclass(frozen=True)
class Traced:
    """A function as expressions over the columns of its arguments."""

    out: Out
    type: DataType

    def __str__(self) -> str:
        return readable(str(self.out))


@dataclass(frozen=True)
class TracedList:
    """A function that returns a fixed number of elements, each as expressions of one type."""

    items: tuple[Out, ...]
    type: DataType

    def __str__(self) -> str:
        return readable(f"[{', '.join(map(str, self.items))}]")


@dataclass(frozen=True)
class Opaque:
    """A function that Python has to run, element by element."""

    function: Function
    why: str

    @property
    def steady(self) -> bool:
        """Whether the function is deterministic, as far as its code shows."""
        return self.why != CHANGES

    def __str__(self) -> str:
        return function_name(self.function)


def readable(text: str) -> str:
    """Format columns of arguments and fields inside columns for people.

    >>> readable("(col['a.f0'] + col['in::f1'])")
    '(a.f0 + col.in.f1)'
    """
    inside = re.sub(r"col\['([\w:]+)'\]", lambda m: f"col.{m[1].replace(INSIDE, '.')}", text)
    return re.sub(
        r"col\['(\w+\.[\w:]+)'\]",
        lambda m: m[1].replace(INSIDE, ".").removesuffix(".value"),
        inside,
    )


def function_name(function: Function) -> str:
    """The name of a function in plans and messages."""
    return "a lambda" if udf_name(function) == "<lambda>" else udf_name(function)


def argument(kind: DataType, prefix: str = "") -> Any:
    """An element made of expressions over the columns that start with `prefix`."""
    if kind.kind != "struct":
        return Expr(Column(f"{prefix}value"))
    return _proxy(kind, [prefix + n for n in kind.names])


def _proxy(kind: DataType, names: Sequence[str]) -> Any:
    parts = [
        _proxy(t, [f"{name}{INSIDE}{n}" for n in t.names]) if t.kind == "struct" else _expr(name)
        for name, t in zip(names, kind.of)
    ]
    return tuple(parts) if is_tuple(kind) else Record(zip(kind.names, parts))


def _expr(name: str) -> Expr:
    return Expr(Column(name))


def reachable(kind: DataType, prefix: str = "") -> Schema:
    """The columns of an element, and the fields inside them by their joined names."""
    found: list[tuple[str, DataType]] = []

    def visit(name: str, t: DataType) -> None:
        found.append((name, t))
        for inner, of in zip(t.names, t.of):
            visit(f"{name}{INSIDE}{inner}", of)

    for name, t in columns_of(kind):
        visit(prefix + name, t)
    return Schema(tuple(found))


def trace(
    function: Function, kinds: Sequence[DataType], prefixes: Sequence[str] = ("",),
    returns: DataType | None = None,
) -> Traced | Opaque:  # fmt: skip
    """Trace a function of one or several elements, over columns with these prefixes.

    >>> from tidemill.core.types import INT64
    >>> print(trace(lambda x: (x, x % 2 == 0), [INT64]))
    (col.value, ((col.value % 2) == 0))
    >>> trace(lambda x: "odd" if x % 2 else "even", [INT64]).why
    'expression: (col.value % 2) has no truth value until it meets a row'
    """
    schema = _schema(kinds, prefixes)
    try:
        given = _call_twice(function, kinds, prefixes, schema)
        if isinstance(given, list):
            raise _Untraceable("it returns a list")
        return _typed(given, schema, returns)
    except NoField:
        raise
    except Exception as refused:
        return Opaque(function, _reason(refused))


def trace_list(
    function: Function, kinds: Sequence[DataType], prefixes: Sequence[str] = ("",),
    returns: DataType | None = None,
) -> Traced | TracedList | Opaque:  # fmt: skip
    """Trace a function that returns elements: a list of known length, or one expression of list type."""
    schema = _schema(kinds, prefixes)
    try:
        given = _call_twice(function, kinds, prefixes, schema)
        if isinstance(given, list) and given:
            items = [_typed(item, schema, returns) for item in given]
            if len({i.type for i in items}) > 1:
                raise _Untraceable("it returns elements of several types")
            return TracedList(tuple(i.out for i in items), items[0].type)
        traced = _typed(given, schema, None)
        if traced.type.kind != "list" or returns not in (None, traced.type.of[0]):
            raise _Untraceable("it returns no list of that type")
        return traced
    except NoField:
        raise
    except Exception as refused:
        return Opaque(function, _reason(refused))


class _Untraceable(Exception):
    """The function cannot be traced."""


def _reason(refused: Exception) -> str:
    text = str(refused).split(" — ")[0].splitlines()[0] if str(refused) else ""
    return text or type(refused).__name__


def _schema(kinds: Sequence[DataType], prefixes: Sequence[str]) -> Schema:
    return Schema(tuple(f for k, p in zip(kinds, prefixes) for f in reachable(k, p).fields))


def _call_twice(
    function: Function, kinds: Sequence[DataType], prefixes: Sequence[str], schema: Schema
) -> Any:
    why = asks(function, kinds)
    if why is not None:
        raise _Untraceable(why)
    function = spelled_out(function)
    seen = []
    for _ in range(2):
        with recording():
            result = function(*(argument(k, p) for k, p in zip(kinds, prefixes)))
            if isinstance(result, GeneratorType):
                result = list(result)
        seen.append(_read(result))
    if seen[0] != seen[1]:  # a counter, for instance: one call does not represent all
        raise _Untraceable(CHANGES)
    return seen[0]


def _either(ours: Function, python: Function) -> Function:
    """Use `ours` for several arguments with an expression; otherwise Python's, as for letters of a word."""
    return lambda *args: (ours if len(args) > 1 and any(isinstance(a, Expr) for a in args) else python)(*args)


_SPELLED: tuple[tuple[Any, Function], ...] = (
    (builtins.min, _either(least, builtins.min)),
    (builtins.max, _either(greatest, builtins.max)),
)


def spelled_out(function: Function) -> Function:
    """Replace `min` and `max` by functions that work on values and on expressions."""
    for known, ours in _SPELLED:
        if function is known:
            return ours
    return function


def _read(result: Any) -> Any:
    """Convert a function's result to `Out` or a list of them."""
    if isinstance(result, Expr):
        return result.node
    if isinstance(result, tuple) and result:
        return TracedStruct(tuple(f"f{i}" for i in range(len(result))), tuple(map(_read_part, result)))
    if isinstance(result, dict) and result:
        return TracedStruct(tuple(map(str, result)), tuple(map(_read_part, result.values())))
    if isinstance(result, list):
        return list(map(_read_part, result))
    return lit(result).node


def _read_part(value: Any) -> Any:
    if isinstance(value, list):
        raise _Untraceable("it returns a list inside an element")
    return _read(value)


def _typed(out: Out, schema: Schema, returns: DataType | None) -> Traced:
    if isinstance(out, TracedStruct):
        wanted = returns.of if returns is not None else [None] * len(out.parts)
        if returns is not None and returns.names != out.names:
            raise _Untraceable("returns= says something else")
        parts = [_typed(p, schema, w) for p, w in zip(out.parts, wanted)]
        kind = struct_of({n: p.type for n, p in zip(out.names, parts)})
        return Traced(TracedStruct(out.names, tuple(p.out for p in parts)), kind)
    if returns is not None:
        out = _as(out, type_of(out, schema), returns)
    if any(_is_power_of_ints(n, schema) for n in out.walk()):
        raise _Untraceable("** of whole numbers would be a float")
    node = resolve(out, schema, step="expression")
    kind = type_of(node, schema)
    if kind == NULL:
        raise _Untraceable("it returns None")
    return Traced(node, kind)


def _as(out: Node, given: DataType, wanted: DataType) -> Node:
    """Cast an expression to the type that the user declared, if every value fits."""
    if given == wanted:
        return out
    if given == NULL or (given, wanted) == (INT64, FLOAT64):
        return Cast(out, wanted)
    raise _Untraceable(f"it gives {given}, and returns= says {wanted}")


def _is_power_of_ints(node: Node, schema: Schema) -> bool:
    return (
        isinstance(node, Call)
        and node.function == "pow"
        and all(type_of(a, schema) == INT64 for a in node.args)
    )


def leaves(out: Out) -> list[Node]:
    """The expressions of a traced function."""
    if isinstance(out, TracedStruct):
        return [node for part in out.parts for node in leaves(part)]
    return [out]


def repeats(out: Out, name: str) -> bool:
    """Whether a part of a traced function is the column of this name, unchanged."""
    if isinstance(out, TracedStruct):
        return all(repeats(p, f"{name}{INSIDE}{n}") for n, p in zip(out.names, out.parts))
    return out == Column(name)


def repeated(out: Out, schema: Schema) -> str | None:
    """The column or field that a part of a traced function returns unchanged; None if it computes."""
    if isinstance(out, Column):
        return out.name
    if not isinstance(out, TracedStruct):
        return None
    first = leaves(out)[0]
    name = first.name if isinstance(first, Column) else ""
    while INSIDE in name:
        name = name.rpartition(INSIDE)[0]
        if name in schema and schema[name].names == out.names and repeats(out, name):
            return name
    return None


def parts_of(out: Out) -> tuple[Out, ...]:
    """The traced value of each column of an element."""
    return out.parts if isinstance(out, TracedStruct) else (out,)
