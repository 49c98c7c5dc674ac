"""Scalar expressions as Spark columns: the rules of `expr.functions`, with Spark's own functions.

Inside, an int64 is a bigint and a float64 a double; timestamps and durations are bigint
microseconds, so that no rule depends on the session's time zone. `leaf` reads a raw column into
this form and `output` gives users Spark's own timestamps and intervals back.

Overflow is an error only where Spark plans in ANSI mode, which it decides when a DataFrame is
made: build inside `with settings.ansi(spark):`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

import pyarrow as pa
import pyspark
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemill.core.errors import InternalError, UserError
from tidemill.core.schema import Schema
from tidemill.core.time import to_datetime
from tidemill.core.types import (
    BOOL,
    FLOAT64,
    INT64,
    NULL,
    STRING,
    TIMESTAMP,
    DataType,
    list_of,
    struct_of,
    to_arrow,
)  # fmt: skip
from tidemill.expr.casts import FLOAT_TEXT, INT_TEXT, TIMESTAMP_TEXT
from tidemill.expr.evaluate import call_udf
from tidemill.expr.functions import (
    DAY,
    EXACT_FLOAT,
    FUNCTIONS,
    HOUR,
    INT_MAX,
    INT_MIN,
    MINUTE,
    SECOND,
    round_scale,
)  # fmt: skip
from tidemill.expr.nodes import Call, Cast, Column, Literal, Node, Udf
from tidemill.spark.regex import to_java
from tidemill.spark.sql import quoted


class Term(NamedTuple):
    """A compiled argument: its column, its type, and the expression it came from."""

    column: SparkColumn
    type: DataType
    node: Node

    @property
    def constant(self) -> Any:
        """The value of a literal; None otherwise."""
        return self.node.value if isinstance(self.node, Literal) else None


class SparkExpressions:
    """Compiles resolved expressions over one DataFrame.

    `raw` has the Spark type of each column of the DataFrame. Columns that are in the internal form
    already, as after an earlier step of Tidemill, are bigint and are read as they are.
    """

    def __init__(self, schema: Schema, raw: Mapping[str, T.DataType]) -> None:
        self.schema, self.raw = schema, raw

    def column(self, node: Node) -> SparkColumn:
        """A resolved expression in the internal form."""
        return self._term(node, None).column

    def leaf(self, name: str) -> SparkColumn:
        """A column of the DataFrame in the internal form."""
        kind = self.schema.type_of(name, step="spark")
        if name not in self.raw:
            raise UserError(
                "spark", expected=f"a column {name!r} of {kind!r}", got=f"columns {list(self.raw)}"
            )
        return _read(self.reference(name), self.raw[name], kind, name)

    def reference(self, name: str) -> SparkColumn:
        """The raw column of a name."""
        return named(name)

    def _term(self, node: Node, guard: SparkColumn | None) -> Term:
        """`guard` says for which rows an opaque function may run; see `_python`."""
        if isinstance(node, Column):
            return Term(self.leaf(node.name), self.schema.type_of(node.name, step="spark"), node)
        if isinstance(node, Literal):
            return Term(literal(node.value, node.type), node.type, node)
        if isinstance(node, Cast):
            return Term(_cast(self._term(node.arg, guard), node), node.to, node)
        if isinstance(node, Udf):
            columns = [self._term(a, guard).column for a in node.args]
            return Term(_python(node.function, node.returns, columns, guard), node.returns, node)
        if isinstance(node, Call):
            return self._call(node, guard)
        raise InternalError(f"no Spark form for {node!r}")

    def _call(self, node: Call, guard: SparkColumn | None) -> Term:
        args: list[Term] = []
        for position, arg in enumerate(node.args):
            args.append(self._term(arg, self._guarded(node, args, position, guard)))
        result = FUNCTIONS[node.function].types(tuple(a.type for a in args))[1]
        native = self._native(node)
        if native is None:
            native = SPARK_FUNCTIONS[node.function](*args)
        return Term(native, result, node)

    def _guarded(
        self, node: Call, before: list[Term], position: int, guard: SparkColumn | None
    ) -> SparkColumn | None:
        """The guard of an argument that the definition may leave unevaluated."""
        if position == 0 or not any(isinstance(n, Udf) for n in node.args[position].walk()):
            return guard
        first = before[0].column
        if node.function == "if_else":
            taken = F.coalesce(first, F.lit(False))
            mine = taken if position == 1 else ~taken
        elif node.function == "and":
            mine = F.coalesce(first, F.lit(True))
        elif node.function == "or":
            mine = ~F.coalesce(first, F.lit(False))
        else:
            return guard
        return mine if guard is None else guard & mine

    def _native(self, node: Call) -> SparkColumn | None:
        """A test of a raw column, in Spark's own types so that file readers can skip by it."""
        subject, *others = node.args if node.args else (None,)
        flipped = _FLIPPED.get(node.function)
        if isinstance(subject, Literal) and flipped and isinstance(others[0], Column):
            return self._native(Call(flipped, (others[0], subject)))
        if not isinstance(subject, Column) or subject.name not in self.raw:
            return None
        column, kind = self.reference(subject.name), self.raw[subject.name]
        if node.function in ("is_null", "is_not_null"):
            return column.isNull() if node.function == "is_null" else column.isNotNull()
        values = [o.value for o in others if isinstance(o, Literal) and o.type == TIMESTAMP]
        if None in values or len(values) != len(others) or not values:
            return None
        if node.function == "is_in":
            given = [_instant(v, kind) for v in values]
            return None if any(g is None for g in given) else column.isin(*given)
        if node.function not in _FLIPPED:
            return None
        ticks = values[0]
        if isinstance(kind, T.DateType) and ticks % DAY:
            # Midnight is below a time of a day unless its date is a later one.
            same = {"lt": "le", "ge": "gt"}.get(node.function, node.function)
            if same in ("eq", "ne"):
                return None
            return _COMPARE[same](column, _instant(ticks - ticks % DAY, kind))
        value = _instant(ticks, kind)
        return None if value is None else _COMPARE[node.function](column, value)


def output(column: SparkColumn, kind: DataType) -> SparkColumn:
    """The internal form as users get it: timestamps and day-time intervals."""
    if kind == TIMESTAMP:
        return F.timestamp_micros(column)
    if kind.kind == "duration":
        return F.lit(timedelta(microseconds=1)) * column
    if kind.kind == "list" and _holds_ticks(kind):
        return F.transform(column, lambda item: output(item, kind.of[0]))
    if kind.kind == "struct" and _holds_ticks(kind):
        fields = [output(column[n], t).alias(n) for n, t in zip(kind.names, kind.of)]
        return F.when(column.isNotNull(), F.struct(*fields))
    return column


# --- leaves ---------------------------------------------------------------------------------------


def named(name: str) -> SparkColumn:
    """A column by its exact name, also when it has dots in it."""
    return F.col(quoted(name))


def spark_type(kind: DataType, leaves: Mapping[str, T.DataType] | None = None) -> T.DataType:
    """The Spark type of the internal form, or of another that `leaves` gives."""
    if kind.kind == "list":
        return T.ArrayType(spark_type(kind.of[0], leaves))
    if kind.kind == "struct":
        fields = zip(kind.names, kind.of)
        return T.StructType([T.StructField(n, spark_type(t, leaves)) for n, t in fields])
    return (leaves or _SPARK_TYPES)[kind.kind]


_SPARK_TYPES: dict[str, T.DataType] = {
    "null": T.NullType(), "bool": T.BooleanType(), "int64": T.LongType(),
    "float64": T.DoubleType(), "string": T.StringType(), "binary": T.BinaryType(),
    "timestamp": T.LongType(), "duration": T.LongType(),
}  # fmt: skip
_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)


def _read(column: SparkColumn, raw: T.DataType, kind: DataType, name: str) -> SparkColumn:
    if raw == spark_type(kind):
        return column
    if isinstance(raw, T.NullType):
        return column.cast(spark_type(kind))
    if kind == INT64 and isinstance(raw, _INTEGERS):
        return column.cast("bigint")
    if kind == FLOAT64 and isinstance(raw, (*_INTEGERS, T.FloatType)):
        return column.cast("double")
    if kind == STRING and isinstance(raw, T.StringType):
        return F.collate(column, "UTF8_BINARY")
    if kind == TIMESTAMP and isinstance(raw, T.TimestampType):
        return F.unix_micros(column)
    if kind == TIMESTAMP and isinstance(raw, T.TimestampNTZType):
        return ntz_micros(column)
    if kind == TIMESTAMP and isinstance(raw, T.DateType):
        return F.unix_date(column).cast("bigint") * _int(DAY)
    if kind.kind == "duration" and isinstance(raw, T.DayTimeIntervalType):
        return _interval_micros(column)
    if kind.kind == "list" and isinstance(raw, T.ArrayType):
        inner = raw.elementType
        return F.transform(column, lambda item: _read(item, inner, kind.of[0], name))
    has_fields = isinstance(raw, T.StructType) and set(kind.names) <= set(raw.names)
    if kind.kind == "struct" and isinstance(raw, T.StructType) and has_fields:
        fields = [
            _read(column.getField(n), raw[n].dataType, t, name).alias(n)
            for n, t in zip(kind.names, kind.of)
        ]
        return F.when(column.isNotNull(), F.struct(*fields))
    raise UserError(
        "spark", expected=f"column {name!r} of type {kind!r}", got=raw.simpleString(),
        hint="fix the schema of the stream, or cast the column",
    )  # fmt: skip


def ntz_micros(column: SparkColumn) -> SparkColumn:
    """A timestamp without time zone as microseconds, read in UTC whatever the session's zone."""
    if _UNIX_MICROS_READS_NTZ:
        return F.unix_micros(column)
    return _interval_micros(column - F.lit("1970-01-01").cast("timestamp_ntz"))


# Before 4.3 `unix_micros` casts to a timestamp first, in the session's zone.
_UNIX_MICROS_READS_NTZ = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 3)


def _interval_micros(column: SparkColumn) -> SparkColumn:
    seconds = column.cast("interval second").cast("decimal(19,6)")
    return (seconds * F.lit(SECOND)).cast("bigint")


def _instant(ticks: int, kind: T.DataType) -> SparkColumn | None:
    """A constant instant of a raw type; None where there is none."""
    if isinstance(kind, T.TimestampType):
        return F.timestamp_micros(_int(ticks))
    try:
        text = to_datetime(ticks).strftime("%Y-%m-%d %H:%M:%S.%f").rjust(26, "0")
    except OverflowError:
        return None
    if isinstance(kind, T.TimestampNTZType):
        return F.lit(text).cast("timestamp_ntz")
    if isinstance(kind, T.DateType) and ticks % DAY == 0:
        return F.lit(text[:10]).cast("date")
    return None


def literal(value: Any, kind: DataType) -> SparkColumn:
    """A constant in the internal form."""
    if value is None:
        return F.lit(None) if kind == NULL else F.lit(None).cast(spark_type(kind))
    if kind.kind == "list":
        items = F.array(*(literal(v, kind.of[0]) for v in value))
        return items.cast(spark_type(kind))
    if spark_type(kind) == T.LongType():
        return _int(value)
    return F.lit(float(value) if kind == FLOAT64 else value)


def _int(value: int) -> SparkColumn:
    return F.lit(value).cast("bigint")


def _null(kind: DataType) -> SparkColumn:
    return literal(None, kind)


def _holds_ticks(kind: DataType) -> bool:
    return kind.kind in ("timestamp", "duration") or any(_holds_ticks(t) for t in kind.of)


def _plain(kind: DataType) -> DataType:
    """The type with ticks as the integers they are."""
    if kind.kind == "list":
        return list_of(_plain(kind.of[0]))
    if kind.kind == "struct":
        return struct_of({n: _plain(t) for n, t in zip(kind.names, kind.of)})
    return INT64 if _holds_ticks(kind) else kind


# --- opaque functions -----------------------------------------------------------------------------


def _python(
    function: Callable[..., Any],
    returns: DataType,
    args: list[SparkColumn],
    guard: SparkColumn | None,
) -> SparkColumn:
    # Spark runs Python before the rest of a projection, on every row. So a row whose branch is not
    # taken gets a null argument, for which the function is not called.
    if not args:
        args, function = [F.lit(0)], functools.wraps(function)(_without_argument(function))
    if guard is not None:
        args = [F.when(guard, args[0]), *args[1:]]
    run: Callable[..., SparkColumn] = F.arrow_udf(  # type: ignore[attr-defined]
        _row_by_row(function, returns), spark_type(returns)
    )
    return run(*args)


def _without_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _: function()


def _row_by_row(function: Callable[..., Any], returns: DataType) -> Callable[..., pa.Array]:
    kind = to_arrow(_plain(returns))

    def run(*columns: pa.Array) -> pa.Array:
        rows = zip(*(c.to_pylist() for c in columns))
        return pa.array([call_udf(function, returns, list(row)) for row in rows], kind)

    return run


# --- casts ----------------------------------------------------------------------------------------


def _cast(arg: Term, node: Cast) -> SparkColumn:
    source, target, x = arg.type, node.to, arg.column
    if source == NULL:
        return _null(target)
    if source == STRING:
        fitted = _PARSERS[target](x)
    elif source == FLOAT64 and target == INT64:
        # Spark lets 2^63 itself through and gives the greatest int for it. NaN is above all.
        inside = (x >= F.lit(float(INT_MIN))) & (x < F.lit(-float(INT_MIN)))
        fitted = F.when(inside, x.cast("bigint"))
    else:  # never fails
        if target == BOOL:
            return x != _int(0)
        same = spark_type(source) == spark_type(target)
        return x if same else x.cast(spark_type(target))
    if not node.strict:
        return fitted
    message = F.concat(
        F.lit(f"cast: expected a {source!r} that fits {target!r}, got '"), x.cast("string"),
        F.lit("' — use cast(..., strict=False) to get null instead"),
    )  # fmt: skip
    return F.coalesce(fitted, F.when(x.isNotNull(), F.raise_error(message)))


def _parse_timestamp(x: SparkColumn) -> SparkColumn:
    shaped = x.rlike(to_java(TIMESTAMP_TEXT)) & ~x.startswith("0000")  # Python counts from year 1
    return F.when(shaped, ntz_micros(F.rtrim(x, F.lit("Z")).try_cast("timestamp_ntz")))


_PARSERS: dict[DataType, Callable[[SparkColumn], SparkColumn]] = {
    INT64: lambda x: F.when(x.rlike(to_java(INT_TEXT)), F.trim(x).try_cast("bigint")),
    FLOAT64: lambda x: F.when(x.rlike(to_java(FLOAT_TEXT)), F.trim(x).try_cast("double")),
    TIMESTAMP: _parse_timestamp,
}


# --- arithmetic -----------------------------------------------------------------------------------


def _associative(name: str, combine: Callable[[Any, Any], SparkColumn]) -> Any:
    def apply(a: Term, b: Term) -> SparkColumn:
        whole = spark_type(a.type) == T.LongType()
        # Spark's optimizer turns (x + 1) + y into (x + y) + 1, and (x + 1) + 2 into x + 3, which
        # overflow elsewhere. `| 0` changes no value and hides the inner sum from it.
        if whole and any(_has_constant(t.node, name) for t in (a, b)):
            a, b = (_shielded(t, name) for t in (a, b))
        return combine(a.column, b.column)

    return apply


def _has_constant(node: Node, name: str) -> bool:
    """Whether a sum (or product), written without brackets, has a constant among its terms."""
    if isinstance(node, Call) and node.function == name:
        return any(_has_constant(a, name) for a in node.args)
    return not any(isinstance(n, (Column, Udf)) for n in node.walk())


def _shielded(term: Term, name: str) -> Term:
    inner = isinstance(term.node, Call) and term.node.function == name
    return term._replace(column=term.column.bitwiseOR(F.lit(0))) if inner else term


def _div(a: SparkColumn, b: SparkColumn) -> SparkColumn:
    """Integer division toward zero; an error by zero in ANSI mode."""
    return F.call_function("div", a, b)


def floor_div(a: SparkColumn, every: int) -> SparkColumn:
    return _div(a, _int(every)) - (a % _int(every) < 0).cast("bigint")


def _floordiv(a: Term, b: Term) -> SparkColumn:
    if a.type == FLOAT64:
        return _whole(F.floor)(F.try_divide(a.column, b.column))
    if b.constant == 0:
        return _null(INT64)
    if b.constant is not None and b.constant > 0:
        return floor_div(a.column, b.constant)
    rest = F.try_mod(a.column, b.column)
    above = (rest != 0) & ((rest < 0) != (b.column < 0))
    return _div(a.column, F.nullif(b.column, F.lit(0))) - above.cast("bigint")


def _mod(a: Term, b: Term) -> SparkColumn:
    if b.constant == 0:
        return _null(a.type)
    if b.constant is not None and a.type == INT64 and b.constant > 0:
        return F.pmod(a.column, b.column)
    rest = F.try_mod(a.column, b.column)
    other_sign = (rest != 0) & ((rest < 0) != (b.column < 0))
    return F.when(other_sign, rest + b.column).otherwise(rest)


def _sign(a: Term) -> SparkColumn:
    x, (minus, zero, plus) = a.column, (literal(v, a.type) for v in (-1, 0, 1))
    signs = F.when(x < 0, minus).when(x == 0, zero)
    return (signs.when(F.isnan(x), x) if a.type == FLOAT64 else signs).when(x > 0, plus)


def _whole(how: Callable[[SparkColumn], SparkColumn]) -> Callable[[SparkColumn], SparkColumn]:
    # Spark's floor and ceil of a double are bigints, so they end where a double need not.
    return lambda x: F.when(F.abs(x) < EXACT_FLOAT, how(x).cast("double")).otherwise(x)


def _rounding(how: Callable[[SparkColumn], SparkColumn]) -> Any:
    return lambda a: a.column if a.type == INT64 else _whole(how)(a.column)


def _round(a: Term, digits: Term) -> SparkColumn:
    if a.type == INT64:
        return a.column
    scale = F.lit(round_scale(digits.constant))
    scaled = F.abs(a.column) * scale
    near = F.floor(scaled + 0.5).cast("double") / scale
    return F.when(scaled < EXACT_FLOAT, F.signum(a.column) * near).otherwise(a.column)


def _pow(a: Term, b: Term) -> SparkColumn:
    x, y = a.column, b.column
    power, undefined = F.pow(x, y), F.isnan(F.pow(x, y))
    # C, and so Python, has pow(1, anything) = pow(-1, ±infinity) = 1 where Java has NaN.
    one = undefined & ((x == 1) | ((x == -1) & (F.abs(y) == math.inf)))
    outside = undefined & ~F.isnan(x) & ~F.isnan(y)
    return (
        F.when((x == 0) & (y < 0), _null(FLOAT64)).when(one, F.lit(1.0))
        .when(outside, _null(FLOAT64)).otherwise(power)
    )  # fmt: skip


def _logarithm(how: Callable[[SparkColumn], SparkColumn]) -> Any:
    return lambda a: F.when(a.column > 0, how(a.column))


# --- comparison and choice ------------------------------------------------------------------------

_COMPARE: dict[str, Callable[[Any, Any], SparkColumn]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip
_FLIPPED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def _comparison(name: str) -> Any:
    return lambda a, b: _COMPARE[name](a.column, b.column)


def _is_in(a: Term, *values: Term) -> SparkColumn:
    if not values:
        return F.when(a.column.isNotNull(), F.lit(False))
    if a.type != FLOAT64:
        return a.column.isin(*(v.column for v in values))
    # A long list becomes a hash set, in which -0.0 is not 0.0; adding zero leaves one of the two.
    return (a.column + 0.0).isin(*(F.lit(v.constant + 0.0) for v in values))


def _extreme(how: Callable[..., SparkColumn]) -> Any:
    return lambda *args: how(*(a.column for a in args)) if len(args) > 1 else args[0].column


# --- time parts: integer arithmetic, so that the session's zone has no say ------------------------


def _date(t: SparkColumn) -> SparkColumn:
    return F.date_from_unix_date(floor_div(t, DAY).cast("int"))


def _date_part(part: Callable[[SparkColumn], SparkColumn]) -> Any:
    return lambda t: part(_date(t.column)).cast("bigint")


def _clock_part(whole: int, unit: int) -> Any:
    return lambda t: _div(F.pmod(t.column, _int(whole)), _int(unit))


def _day_of_week(t: Term) -> SparkColumn:
    return F.pmod(floor_div(t.column, DAY) + 3, F.lit(7)) + 1


def _truncate(t: Term, every: Term) -> SparkColumn:
    return t.column - F.pmod(t.column, every.column)


# --- strings and lists ----------------------------------------------------------------------------

_LONGEST = 1 << 30
"""Positions are ints in Spark, and no string reaches this one."""


def _case(how: Callable[[SparkColumn], SparkColumn]) -> Any:
    def apply(a: Term) -> SparkColumn:
        twice = isinstance(a.node, Call) and a.node.function in ("lower", "upper")
        # Spark's optimizer drops the inner of two changes of case, but 'ß' does not survive it.
        return how(F.concat(a.column, F.lit("")) if twice else a.column)

    return apply


def _substring(a: Term, start: Term, length: Term) -> SparkColumn:
    first, count = (min(t.constant, _LONGEST) for t in (start, length))
    return F.substring(a.column, first + 1, count)


def _find(a: Term, part: Term) -> SparkColumn:
    return F.instr(a.column, part.constant).cast("bigint") - 1


def _split(a: Term, separator: Term) -> SparkColumn:
    quoted = "".join(f"\\x{{{ord(c):X}}}" for c in separator.constant)
    return F.split(a.column, quoted, -1)


def _list_get(a: Term, index: Term) -> SparkColumn:
    return F.get(a.column, F.lit(max(-1, min(index.constant, INT_MAX >> 32))))


def _on_columns(build: Callable[..., SparkColumn]) -> Any:
    return lambda *args: build(*(a.column for a in args))


SPARK_FUNCTIONS: dict[str, Callable[..., SparkColumn]] = {
    "add": _associative("add", lambda a, b: a + b),
    "mul": _associative("mul", lambda a, b: a * b),
    "sub": _on_columns(lambda a, b: a - b),
    "div": _on_columns(F.try_divide), "floordiv": _floordiv, "mod": _mod,
    "neg": _on_columns(F.negative), "abs": _on_columns(F.abs), "sign": _sign,
    "floor": _rounding(F.floor), "ceil": _rounding(F.ceil), "round": _round,
    "sqrt": _on_columns(lambda a: F.when(a >= 0, F.sqrt(a))), "exp": _on_columns(F.exp),
    "log": _logarithm(F.ln), "log2": _logarithm(F.log2), "log10": _logarithm(F.log10),
    "pow": _pow,
    **{name: _comparison(name) for name in _COMPARE},
    "and": _on_columns(lambda a, b: a & b), "or": _on_columns(lambda a, b: a | b),
    "not": _on_columns(lambda a: ~a),
    "is_null": _on_columns(F.isnull), "is_not_null": _on_columns(F.isnotnull),
    "is_nan": _on_columns(lambda a: F.when(a.isNotNull(), F.isnan(a))),
    "coalesce": _on_columns(F.coalesce),
    "if_else": _on_columns(lambda c, then, otherwise: F.when(c, then).otherwise(otherwise)),
    "least": _extreme(F.least), "greatest": _extreme(F.greatest), "is_in": _is_in,
    "year": _date_part(F.year), "month": _date_part(F.month), "day": _date_part(F.dayofmonth),
    "day_of_week": _day_of_week, "day_of_year": _date_part(F.dayofyear),
    "hour": _clock_part(DAY, HOUR), "minute": _clock_part(HOUR, MINUTE),
    "second": _clock_part(MINUTE, SECOND), "microsecond": _clock_part(SECOND, 1),
    "truncate": _truncate,
    "length": _on_columns(lambda a: F.char_length(a).cast("bigint")),
    "lower": _case(F.lower), "upper": _case(F.upper), "strip": _on_columns(F.trim),
    "contains": _on_columns(F.contains), "starts_with": _on_columns(F.startswith),
    "ends_with": _on_columns(F.endswith),
    "matches": lambda a, pattern: a.column.rlike(to_java(pattern.constant)),
    "replace": _on_columns(F.replace), "substring": _substring, "find": _find, "split": _split,
    "concat": _on_columns(F.concat),
    "list_length": _on_columns(lambda a: F.array_size(a).cast("bigint")), "list_get": _list_get,
}  # fmt: skip
