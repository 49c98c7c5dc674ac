"""Types of expressions: `resolve` checks a tree against a schema and makes every cast explicit.

After `resolve` the arguments of each function have exactly the types its rule asks for, so no
engine ever promotes anything by itself.
"""

from __future__ import annotations

from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.core.time import instant
from tidemill.core.types import STRING, TIMESTAMP, DataType
from tidemill.expr.casts import cast_value, castable
from tidemill.expr.functions import FUNCTIONS, OF_ZONES, TypeMismatch
from tidemill.expr.nodes import Call, Cast, Column, Literal, Node, ResultOf, Udf


def resolve(node: Node, schema: Schema, *, step: str) -> Node:
    """The tree with casts made explicit, or a `UserError` that names step and expression."""
    return _resolve(node, schema, step)[0]


def type_of(node: Node, schema: Schema, *, step: str = "expression") -> DataType:
    """The type of an expression over a schema."""
    if isinstance(node, (Column, Literal)):  # most are, and a fold takes longer
        return _resolved(node, [], schema, step)[1]
    return _resolve(node, schema, step)[1]


Typed = tuple[Node, DataType]
_HINTS = {
    "float64": "format numbers outside the query",
    "duration": "write .cast('int64') for its microseconds",
    "timestamp": "write .cast('int64') for its microseconds since the epoch",
}
"""What to do about a type that cannot become another one."""


def _resolve(root: Node, schema: Schema, step: str) -> Typed:
    return root.fold(lambda node, args: _resolved(node, args, schema, step))


def _resolved(node: Node, children: list[Typed], schema: Schema, step: str) -> Typed:
    if isinstance(node, Column):
        return node, schema.type_of(node.name, step=step)
    if isinstance(node, Literal):
        return node, node.type
    if isinstance(node, Udf):
        return Udf(node.function, node.returns, tuple(a for a, _ in children)), node.returns
    if isinstance(node, Cast):
        arg, have = children[0]
        return _cast(arg, have, node.to, node, step)
    if isinstance(node, Call):
        return _resolve_call(node, children, step)
    if isinstance(node, ResultOf):
        raise UserError(
            step, expected="an expression of a row", got=f"the aggregate {node}",
            hint="aggregates go into .agg(...); a step after it computes with their results",
        )  # fmt: skip
    raise UserError(step, expected="an expression", got=repr(node))


def _cast(
    arg: Node, have: DataType, want: DataType, shown: Node, step: str
) -> tuple[Node, DataType]:
    if have == want:
        return arg, want
    if isinstance(arg, Literal) and arg.value is None:
        return Literal(None, want), want
    if not castable(have, want):
        raise UserError(
            step, expected=f"something that can become {want!r}", got=f"{have!r} in {shown}",
            hint=_HINTS.get(have.kind, ""),
        )  # fmt: skip
    strict = shown.strict if isinstance(shown, Cast) else True
    return Cast(arg, want, strict), want


def _resolve_call(node: Call, children: list[Typed], step: str) -> Typed:
    resolved = children if node.function in OF_ZONES else _read_instants(children, step)
    have = tuple(t for _, t in resolved)
    if node.function == "add" and STRING in have:  # `+` puts strings together
        node = Call("concat", node.args)
    function = FUNCTIONS[node.function]
    try:
        want, result = function.types(have)
    except TypeMismatch as expected:
        raise UserError(
            step,
            expected=f"{expected} in {node}",
            got=", ".join(map(repr, have)),
            hint="use .cast(...)" if any(t.is_numeric for t in have) else "",
        ) from None
    args = tuple(_coerce(arg, t, w) for (arg, t), w in zip(resolved, want))
    if function.literal_from is not None:
        for arg in args[function.literal_from :]:
            if not isinstance(arg, Literal) or arg.value is None:
                raise UserError(
                    step, expected=f"a constant as the last argument of {node.function}",
                    got=str(arg), hint="patterns, digits and sets are fixed when the query is built",
                )  # fmt: skip
        if function.check is not None:
            function.check(*(a.value for a in args[function.literal_from :] if isinstance(a, Literal)))
    return Call(node.function, args), result


def _coerce(arg: Node, have: DataType, want: DataType) -> Node:
    if have == want:
        return arg
    if isinstance(arg, Literal):
        return Literal(cast_value(arg.value, have, want, strict=True), want)
    return Cast(arg, want)


def _read_instants(
    resolved: list[tuple[Node, DataType]], step: str
) -> list[tuple[Node, DataType]]:
    """Let ISO text stand for an instant beside a timestamp: `col.ts >= "2026-01-01"`."""
    if not any(t == TIMESTAMP for _, t in resolved):
        return resolved
    return [
        (Literal(instant(n.value, step=step), TIMESTAMP), TIMESTAMP)
        if isinstance(n, Literal) and isinstance(n.value, str)
        else (n, t)
        for n, t in resolved
    ]
