"""The data types, and their conversion from and to Arrow types.

There is one integer type (int64), one float type (float64) and one string type. Narrower columns are widened
when they are read, so that arithmetic has one rule everywhere. A date is read as its midnight, UTC; a
timestamp of any unit is read in microseconds, UTC (finer digits are floored).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

from tidemill.core.errors import UserError


@dataclass(frozen=True)
class DataType:
    """A data type; compared by value.

    >>> list_of(INT64)
    list<int64>
    """

    kind: str
    of: tuple[DataType, ...] = ()
    names: tuple[str, ...] = ()

    def __repr__(self) -> str:
        if self.kind == "list":
            return f"list<{self.of[0]!r}>"
        if self.kind == "struct":
            inside = ", ".join(f"{n}: {t!r}" for n, t in zip(self.names, self.of))
            return f"struct<{inside}>"
        if self.kind == "decimal":
            return f"decimal({', '.join(self.names)})"
        return self.kind

    @property
    def is_numeric(self) -> bool:
        return self.kind in ("int64", "float64")

    @property
    def is_ordered(self) -> bool:
        """Whether values can be compared with `<`."""
        return self.kind in ("bool", "int64", "float64", "string", "timestamp", "duration")

    @property
    def is_comparable(self) -> bool:
        """Whether values can be keys. Lists, structs and decimals only pass through a query."""
        return self.kind not in ("list", "struct", "decimal", "null")

    @property
    def is_ticks(self) -> bool:
        """Whether values are int64 ticks of a time, logical or of the clock."""
        return self.kind in ("int64", "timestamp")

    @property
    def has_distance(self) -> bool:
        """Whether two values have a distance, so that windows can be defined on them."""
        return self.kind in ("int64", "timestamp", "duration", "float64")

    @property
    def is_fixed(self) -> bool:
        """Whether a value fits one machine word, so that compiled kernels can use it."""
        return self.kind in ("bool", "int64", "float64", "timestamp", "duration")


NULL = DataType("null")
BOOL = DataType("bool")
INT64 = DataType("int64")
FLOAT64 = DataType("float64")
STRING = DataType("string")
BINARY = DataType("binary")
TIMESTAMP = DataType("timestamp")
DURATION = DataType("duration")


def list_of(item: DataType) -> DataType:
    return DataType("list", (item,))


def struct_of(fields: dict[str, DataType]) -> DataType:
    return DataType("struct", tuple(fields.values()), tuple(fields))


def decimal_of(precision: int, scale: int) -> DataType:
    """The type of decimals with so many digits, of which some are behind the point."""
    return DataType("decimal", names=(str(precision), str(scale)))


_NAMES = {
    "bool": BOOL, "boolean": BOOL,
    "int8": INT64, "int16": INT64, "int32": INT64, "int64": INT64, "int": INT64, "integer": INT64,
    "long": INT64, "bigint": INT64, "short": INT64, "byte": INT64,
    "uint8": INT64, "uint16": INT64, "uint32": INT64, "uint64": INT64,
    "float": FLOAT64, "float32": FLOAT64, "float64": FLOAT64, "double": FLOAT64,
    "string": STRING, "str": STRING, "utf8": STRING, "varchar": STRING,
    "binary": BINARY, "bytes": BINARY,
    "timestamp": TIMESTAMP, "datetime": TIMESTAMP, "timestamp_ntz": TIMESTAMP, "date": TIMESTAMP,
    "duration": DURATION, "timedelta": DURATION,
}  # fmt: skip
_DECIMAL = re.compile(r"decimal\((\d+)(?:, *(\d+))?\)")
_PYTHON = {bool: BOOL, int: INT64, float: FLOAT64, str: STRING, bytes: BINARY}


def parse_type(value: object, *, step: str = "schema", column: str = "") -> DataType:
    """Read a type from a name, a Python type, a pyarrow type or a `DataType`.

    >>> parse_type("int32"), parse_type("list<string>"), parse_type(pa.float32())
    (int64, list<string>, float64)
    """
    if isinstance(value, DataType):
        return value
    if isinstance(value, pa.DataType):
        return from_arrow(value, step=step, column=column)
    if isinstance(value, type) and value in _PYTHON:
        return _PYTHON[value]
    if isinstance(value, str):
        name = value.strip().lower()
        if name in _NAMES:
            return _NAMES[name]
        if digits := _DECIMAL.fullmatch(name):
            return decimal_of(int(digits[1]), int(digits[2] or 0))
        if name.startswith("list<") and name.endswith(">"):
            return list_of(parse_type(name[5:-1], step=step, column=column))
    where = f"column {column!r}: " if column else ""
    raise UserError(
        step,
        expected=f"{where}a type such as 'int64', 'float64', 'string', 'bool', 'timestamp'",
        got=repr(value),
    )


def from_arrow(kind: pa.DataType, *, step: str = "schema", column: str = "") -> DataType:
    """Return the type as which a column of this Arrow type is read."""
    t = pa.types
    if t.is_dictionary(kind):
        return from_arrow(kind.value_type, step=step, column=column)
    if t.is_boolean(kind):
        return BOOL
    if t.is_integer(kind):
        return INT64
    if t.is_floating(kind):
        return FLOAT64
    if t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind):
        return STRING
    if t.is_binary(kind) or t.is_large_binary(kind) or t.is_binary_view(kind):
        return BINARY
    if t.is_timestamp(kind) or t.is_date(kind):
        return TIMESTAMP
    if t.is_duration(kind):
        return DURATION
    if t.is_null(kind):
        return NULL
    if t.is_decimal(kind):
        return decimal_of(kind.precision, kind.scale)
    if t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind):
        return list_of(from_arrow(kind.value_type, step=step, column=column))
    if t.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return struct_of({f.name: from_arrow(f.type, step=step, column=column) for f in fields})
    raise UserError(
        step,
        expected=f"column {column!r}: a type Tidemill reads (numbers, bool, string, binary, "
        "decimal, timestamp, date, duration, lists and structs of these)",
        got=str(kind),
        hint="cast or drop the column before it reaches the stream",
    )


_ARROW = {
    "null": pa.null(), "bool": pa.bool_(), "int64": pa.int64(), "float64": pa.float64(),
    "string": pa.string(), "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"), "duration": pa.duration("us"),
}  # fmt: skip


def to_arrow(kind: DataType) -> pa.DataType:
    """Return the Arrow type of this type.

    >>> to_arrow(TIMESTAMP)
    TimestampType(timestamp[us, tz=UTC])
    """
    if kind.kind == "list":
        return pa.list_(to_arrow(kind.of[0]))
    if kind.kind == "struct":
        return pa.struct([pa.field(n, to_arrow(t)) for n, t in zip(kind.names, kind.of)])
    if kind.kind == "decimal":
        precision, scale = map(int, kind.names)
        return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    return _ARROW[kind.kind]
