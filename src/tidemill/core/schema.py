"""The names and types of a stream's columns, in order."""

from __future__ import annotations

import difflib
import functools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.core.types import (
    DURATION,
    DataType,
    from_arrow,
    list_of,
    parse_type,
    struct_of,
    to_arrow,
)

_INTERNAL = "\0"


def internal(name: str) -> str:
    """Return a name for an internal column, which `users_name` rejects for columns of users."""
    return _INTERNAL + name


def is_internal(name: str) -> bool:
    """Whether a name is that of an internal column."""
    return name.startswith(_INTERNAL)


def users_part(name: str) -> str:
    """Return a name for people: that of an internal column without its mark."""
    return name.removeprefix(_INTERNAL)


def users_name(name: str, *, step: str) -> str:
    """Check the name that a user gives to a column, and return it."""
    if is_internal(name):
        raise UserError(step, expected="a column name that does not start with NUL", got=repr(name))
    return name


@dataclass(frozen=True)
class Schema:
    """An ordered set of named, typed columns; compared by value.

    >>> s = schema({"ts": "timestamp", "price": "float32"})
    >>> s
    Schema(ts: timestamp, price: float64)
    >>> s["price"]
    float64
    """

    fields: tuple[tuple[str, DataType], ...]

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        return hash(self.fields)

    def __repr__(self) -> str:
        return f"Schema({', '.join(f'{n}: {t!r}' for n, t in self.fields)})"

    def __contains__(self, name: object) -> bool:
        return any(n == name for n, _ in self.fields)

    def __iter__(self) -> Iterator[tuple[str, DataType]]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __getitem__(self, name: str) -> DataType:
        return self.type_of(name, step="schema")

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(n for n, _ in self.fields)

    def type_of(self, name: str, *, step: str) -> DataType:
        """Return the type of a column, or raise a `UserError` that lists the columns."""
        for n, t in self.fields:
            if n == name:
                return t
        near = _nearest(name, self.names)
        raise UserError(
            step,
            expected=f"a column of {list(self.names)}",
            got=repr(name),
            hint=f"did you mean {near!r}?" if near else "check the name or the schema",
        )

    def select(self, names: tuple[str, ...]) -> Schema:
        return Schema(tuple((n, self[n]) for n in names))

    def to_arrow(self) -> pa.Schema:
        return self._arrow

    @functools.cached_property
    def _arrow(self) -> pa.Schema:
        return pa.schema([pa.field(n, to_arrow(t)) for n, t in self.fields])

    def __reduce__(self) -> tuple[Any, ...]:
        return Schema, (self.fields,)  # the hash is that of this process


def _nearest(name: Any, names: tuple[str, ...]) -> str | None:
    """Return the name that is spelled most like one: first without regard to case, and as a part.

    >>> _nearest("DATE", ("rate", "Date")), _nearest("time", ("tile", "time (UTC)")), _nearest("ad", ("x",))
    ('Date', 'time (UTC)', None)
    """
    if not isinstance(name, str):
        return None
    folded = {one.strip().lower(): one for one in reversed(names)}
    plain = name.strip().lower()
    if plain in folded:
        return folded[plain]
    begun = [one for one in names if plain and re.match(rf"{re.escape(plain)}\W", one.strip().lower())]
    near = difflib.get_close_matches(plain, folded, n=1)
    return begun[0] if begun else folded[near[0]] if near else None


def schema(value: Any, *, step: str = "schema") -> Schema:
    """Read a schema from a dict, a pyarrow schema, a Spark StructType or a `Schema`."""
    if isinstance(value, Schema):
        return value
    if isinstance(value, pa.Schema):
        pairs = [(f.name, from_arrow(f.type, step=step, column=f.name)) for f in value]
    elif isinstance(value, Mapping):
        pairs = [(str(n), parse_type(t, step=step, column=str(n))) for n, t in value.items()]
    elif hasattr(value, "jsonValue") and hasattr(value, "fields"):
        # Spark's StructType is read through its JSON form, so that pyspark is not imported here.
        described = json.loads(json.dumps(value.jsonValue()))
        pairs = [(f["name"], _from_spark(f["type"], step, f["name"])) for f in described["fields"]]
    else:
        raise UserError(
            step,
            expected="a dict of names to types, a pyarrow.Schema or a Spark StructType",
            got=type(value).__name__,
        )
    names = [users_name(n, step=step) for n, _ in pairs]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise UserError(step, expected="each column once", got=f"{twice} more than once")
    return Schema(tuple(pairs))


_DAY_TIME = re.compile(r"interval (day|hour|minute|second)( to (hour|minute|second))?")
"""Spark's intervals of fixed length; months and years vary."""


def _from_spark(described: Any, step: str, column: str) -> DataType:
    if isinstance(described, str):
        if _DAY_TIME.fullmatch(described):
            return DURATION
        return parse_type(described, step=step, column=column)
    if described["type"] == "array":
        return list_of(_from_spark(described["elementType"], step, column))
    if described["type"] == "struct":
        inner = {f["name"]: _from_spark(f["type"], step, column) for f in described["fields"]}
        return struct_of(inner)
    raise UserError(
        step,
        expected=f"column {column!r}: a type Tidemill reads",
        got=str(described["type"]),
        hint="cast or drop the column before it reaches the stream",
    )
