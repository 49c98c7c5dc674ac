"""Elements of a DIA, and the columns that store them.

The type of an element is a `DataType`. A scalar is stored in one column, `value`. A tuple is a struct
with the fields `f0, f1, …`, a record is a struct with other names, and each field has a column.
Inside a column, tuples and records are structs by the same rule, so they nest.
"""

from __future__ import annotations

import difflib
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.core.types import (
    BINARY,
    BOOL,
    DURATION,
    FLOAT64,
    INT64,
    NULL,
    STRING,
    TIMESTAMP,
    DataType,
    list_of,
    parse_type,
    struct_of,
    to_arrow,
)  # fmt: skip
from tidemill.expr.functions import TypeMismatch, unify

VALUE = "value"
"""The column of a scalar."""


class NoField(UserError, AttributeError, KeyError):
    """A record has no such field."""

    __str__ = Exception.__str__  # KeyError would quote the message


class Record(dict[str, Any]):
    """An element with named fields: `e.name` or `e["name"]`; a dict in every other way.

    >>> Record(a=1).a, Record(a=1)["a"], Record(a=1) == {"a": 1}
    (1, 1, True)
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __missing__(self, name: str) -> Any:
        near = difflib.get_close_matches(str(name), list(self), n=1)
        raise NoField(
            "record", expected=f"a field of {list(self)}", got=repr(name),
            hint=f"did you mean {near[0]!r}?" if near else "check the name",
        )  # fmt: skip


# --- types ----------------------------------------------------------------------------------------


def tuple_of(kinds: Iterable[DataType]) -> DataType:
    """The type of a tuple.

    >>> tuple_of([INT64, STRING])
    struct<f0: int64, f1: string>
    """
    return struct_of({f"f{i}": kind for i, kind in enumerate(kinds)})


def is_tuple(kind: DataType) -> bool:
    """Whether a struct is a tuple: its fields are named `f0, f1, …`."""
    return kind.kind == "struct" and kind.names == tuple(f"f{i}" for i in range(len(kind.of)))


def columns_of(kind: DataType) -> Schema:
    """The columns of an element.

    >>> columns_of(INT64), columns_of(tuple_of([INT64]))
    (Schema(value: int64), Schema(f0: int64))
    """
    if kind.kind == "struct":
        return Schema(tuple(zip(kind.names, kind.of)))
    return Schema(((VALUE, kind),))


def type_of_columns(schema: Schema) -> DataType:
    """The element type for these columns; a single column `value` is a scalar."""
    if schema.names == (VALUE,):
        return schema[VALUE]
    return struct_of(dict(schema.fields))


def spelled(kind: DataType) -> str:
    """Format a type for people.

    >>> spelled(tuple_of([INT64, list_of(STRING)])), spelled(struct_of({"a": BOOL}))
    ('(int64, [string])', '{a: bool}')
    """
    if kind.kind == "list":
        return f"[{spelled(kind.of[0])}]"
    if is_tuple(kind):
        return f"({', '.join(map(spelled, kind.of))}{',' if len(kind.of) == 1 else ''})"
    if kind.kind == "struct":
        return "{" + ", ".join(f"{n}: {spelled(t)}" for n, t in zip(kind.names, kind.of)) + "}"
    return repr(kind)


def parse_element(returns: Any, *, step: str) -> DataType:
    """Parse `returns=`: a type, a tuple, a dict or a list of types.

    >>> parse_element((str, {"a": "float"}, [int]), step="map")
    struct<f0: string, f1: struct<a: float64>, f2: list<int64>>
    >>> parse_element(tuple[str, list[int]], step="map")
    struct<f0: string, f1: list<int64>>
    """
    generic, inside = typing.get_origin(returns), typing.get_args(returns)
    if generic in (tuple, list) and Ellipsis not in inside:
        returns = inside if generic is tuple else list(inside)
    if isinstance(returns, tuple) and returns:
        return tuple_of(parse_element(r, step=step) for r in returns)
    if isinstance(returns, Mapping) and returns:
        return struct_of({str(n): parse_element(r, step=step) for n, r in returns.items()})
    if isinstance(returns, list) and len(returns) == 1:
        return list_of(parse_element(returns[0], step=step))
    if isinstance(returns, type) and returns in _CLASSES:
        return _CLASSES[returns]
    return parse_type(returns, step=step)


_CLASSES: dict[type, DataType] = {
    bool: BOOL, int: INT64, float: FLOAT64, str: STRING, bytes: BINARY, datetime: TIMESTAMP,
    date: TIMESTAMP, timedelta: DURATION,
}  # fmt: skip


_SAY = "declare it with returns=, such as returns=int or returns=(str, float)"


def infer(values: Sequence[Any], *, step: str, say: str = _SAY) -> DataType:
    """Infer the type of elements from some of them.

    >>> infer([("a", 1), ("b", 2.5)], step="map")
    struct<f0: string, f1: float64>
    """
    try:
        kind = common(map(_type_of_value, values))
    except TypeMismatch as unknown:
        raise UserError(
            step, expected="elements of one type that Tidemill has", got=str(unknown), hint=say
        ) from None
    if _holds_null(kind):
        shown = f"only {list(values[:3])!r}" if values else "no element to look at"
        raise UserError(step, expected="to read the type off elements", got=shown, hint=say)
    return kind


def common(kinds: Iterable[DataType]) -> DataType:
    """The common type of several types, field by field."""
    result = NULL
    for kind in kinds:
        result = _both(result, kind)
    return result


def _both(a: DataType, b: DataType) -> DataType:
    if a == b or b == NULL:
        return a
    if a == NULL:
        return b
    if a.kind == b.kind == "list" or (a.kind == b.kind == "struct" and a.names == b.names):
        return DataType(a.kind, tuple(_both(x, y) for x, y in zip(a.of, b.of)), a.names)
    try:
        return unify((a, b))
    except TypeMismatch:
        raise TypeMismatch(f"{spelled(a)} and {spelled(b)}") from None


def _type_of_value(value: Any) -> DataType:
    if value is None:
        return NULL
    if isinstance(value, Mapping) and value:
        return struct_of({str(n): _type_of_value(v) for n, v in value.items()})
    if isinstance(value, tuple) and value:
        return tuple_of(map(_type_of_value, value))
    if isinstance(value, (list, set, frozenset)):
        return list_of(common(map(_type_of_value, value)))
    if hasattr(value, "item") and hasattr(value, "dtype"):  # a NumPy scalar
        return _type_of_value(value.item())
    for known, kind in _CLASSES.items():
        if isinstance(value, known):
            return kind
    raise TypeMismatch(f"{value!r} ({type(value).__name__})")


def _holds_null(kind: DataType) -> bool:
    return kind == NULL or any(map(_holds_null, kind.of))


# --- Arrow to elements ----------------------------------------------------------------------------


def decode(batch: pa.RecordBatch | pa.Table, kind: DataType, prefix: str = "") -> list[Any]:
    """Decode the rows of a batch to elements; other columns of the batch are ignored.

    >>> decode(pa.table({"f0": [1, 2], "f1": ["a", None]}), tuple_of([INT64, STRING]))
    [(1, 'a'), (2, None)]
    """
    columns = [
        _values(batch.column(batch.schema.get_field_index(prefix + n)), t)
        for n, t in columns_of(kind)
    ]
    if kind.kind != "struct":
        return columns[0]
    if is_tuple(kind):
        return list(zip(*columns))
    return [Record(zip(kind.names, row)) for row in zip(*columns)]


def _values(column: Any, kind: DataType) -> list[Any]:
    wanted = to_arrow(kind)
    if column.type != wanted:  # Spark's timestamps carry the zone of the session
        column = column.cast(wanted)
    values: list[Any] = column.to_pylist()
    dress = dressing(kind)
    return values if dress is None else list(map(dress, values))


def dressing(kind: DataType) -> Callable[[Any], Any] | None:
    """A function that converts plain dicts and lists to tuples and records; None if none is needed."""
    if kind.kind == "list":
        inner = dressing(kind.of[0])
        if inner is None:
            return None
        return lambda v: None if v is None else [inner(x) for x in v]
    if kind.kind != "struct":
        return None
    fields = [dressing(t) or _same for t in kind.of]
    if is_tuple(kind):
        return lambda v: v if v is None else tuple(f(x) for f, x in zip(fields, _fields(v)))
    return lambda v: v if v is None else Record((n, f(v[n])) for n, f in zip(kind.names, fields))


def _same(value: Any) -> Any:
    return value


def _fields(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


# --- elements to Arrow ----------------------------------------------------------------------------


def encode(elements: Sequence[Any], kind: DataType, *, step: str) -> pa.RecordBatch:
    """Encode elements as a batch; raises a `UserError` that shows an element that does not fit.

    >>> encode([(1, 2.0)], tuple_of([INT64, FLOAT64]), step="map").to_pydict()
    {'f0': [1], 'f1': [2.0]}
    >>> encode([1, "x"], INT64, step="map")
    Traceback (most recent call last):
    ...
    tidemill.core.errors.UserError: map: expected elements of int64, got 'x' — ...
    """
    schema = columns_of(kind).to_arrow()
    try:
        return pa.RecordBatch.from_arrays(_arrays(elements, kind), schema=schema)
    except _MISFITS as failed:
        for element in elements:
            try:
                _arrays([element], kind)
            except _MISFITS as misfit:
                raise UserError(
                    step, expected=f"elements of {spelled(kind)}", got=repr(element),
                    hint="declare another type with returns=, or convert it in the function",
                ) from misfit  # fmt: skip
        raise UserError(step, f"elements do not fit {spelled(kind)}: {failed}") from failed


def conformed(elements: list[Any], kind: DataType, *, step: str) -> list[Any]:
    """Convert elements as encoding and decoding would: 1 becomes 1.0 among floats.

    >>> conformed([1, 2.5, None], FLOAT64, step="map")
    [1.0, 2.5, None]
    """
    if _is_exact(elements, kind):
        return elements
    return decode(encode(elements, kind, step=step), kind)


_EXACT = {"int64": int, "float64": float, "string": str, "bool": bool, "binary": bytes}


def _is_exact(values: Sequence[Any], kind: DataType) -> bool:
    """Whether all values are None or of the class that decoding gives for this type."""
    classes = set(map(type, values))
    if kind.kind in _EXACT:
        return classes <= {_EXACT[kind.kind], type(None)}
    if not is_tuple(kind) or not classes <= {tuple}:
        return not values
    if set(map(len, values)) - {len(kind.of)}:
        return False
    return all(_is_exact(column, t) for column, t in zip(zip(*values), kind.of))


_MISFITS = (pa.ArrowException, TypeError, ValueError, OverflowError, KeyError, AttributeError)


def _arrays(elements: Sequence[Any], kind: DataType) -> list[pa.Array]:
    if kind.kind != "struct":
        return [_array(elements, kind)]
    width = len(kind.of)
    if any(len(e) != width for e in elements):
        raise ValueError("an element with another number of fields")
    if is_tuple(kind):
        columns: Iterable[Sequence[Any]] = zip(*elements) if elements else [()] * width
    else:
        columns = [[e[n] for e in elements] for n in kind.names]
    return [_array(column, t) for column, t in zip(columns, kind.of)]


def _array(values: Sequence[Any], kind: DataType) -> pa.Array:
    undress = _undressing(kind)
    if undress is not None:
        values = list(map(undress, values))
    return pa.array(values, to_arrow(kind))


def _undressing(kind: DataType) -> Callable[[Any], Any] | None:
    """A function that converts tuples to the dicts that Arrow takes for structs; None if none is needed."""
    if kind.kind == "list":
        inner = _undressing(kind.of[0]) or _same
        return lambda v: None if v is None else [inner(x) for x in v]
    if kind.kind == "timestamp":  # a date is its midnight, UTC
        return lambda v: datetime(v.year, v.month, v.day) if type(v) is date else v
    if kind.kind != "struct":
        return None
    fields = [(n, _undressing(t) or _same) for n, t in zip(kind.names, kind.of)]

    def undress(value: Any) -> Any:
        if value is None:
            return None
        if len(value) != len(fields):
            raise ValueError("another number of fields")
        if isinstance(value, Mapping):
            return {n: f(value[n]) for n, f in fields}
        return {n: f(x) for (n, f), x in zip(fields, value)}

    return undress
