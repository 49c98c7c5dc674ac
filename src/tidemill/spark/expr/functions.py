"""Implement the functions and casts of `expr.functions` and `expr.casts` with Spark's functions.

Overflow is an error only if Spark plans in ANSI mode, see `spark.expr.compile`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemill.core import floats
from tidemill.core.types import BOOL, FLOAT64, INT64, NULL, STRING, TIMESTAMP, DataType, to_arrow
from tidemill.expr.casts import FLOAT_TEXT, INT_TEXT, TIMESTAMP_TEXT
from tidemill.expr.functions import (
    DAY,
    EXACT_FLOAT,
    HOUR,
    INT_MAX,
    INT_MIN,
    MINUTE,
    OF_ZONES,
    SECOND,
    round_scale,
)  # fmt: skip
from tidemill.expr.nodes import Call, Cast, Column, Literal, Node, Udf
from tidemill.kernels.strings import call
from tidemill.spark.expr.regex import to_java, why_not_java
from tidemill.spark.expr.values import canonical, integer, literal, ntz_micros, null, spark_type
from tidemill.spark.workers import arrow_function


class Term(NamedTuple):
    """A compiled argument: its column, its type, and the expression it came from."""

    column: SparkColumn
    type: DataType
    node: Node

    @property
    def constant(self) -> Any:
        """The value of a literal; None otherwise."""
        return self.node.value if isinstance(self.node, Literal) else None


# --- casts ----------------------------------------------------------------------------------------


def cast(arg: Term, node: Cast) -> SparkColumn:
    """Compile a cast; a value that does not fit raises, or is null if the cast is not strict."""
    source, target, x = arg.type, node.to, arg.column
    if source == NULL:
        return null(target)
    if source == STRING:
        fitted = _PARSERS[target](x)
    elif source == FLOAT64 and target == INT64:
        # Spark's cast accepts 2^63 and returns the greatest int. NaN compares above all numbers.
        inside = (x >= F.lit(float(INT_MIN))) & (x < F.lit(-float(INT_MIN)))
        fitted = F.when(inside, x.cast("bigint"))
    else:  # never fails
        if target == BOOL:
            return x != integer(0)
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
    shaped = x.rlike(to_java(TIMESTAMP_TEXT)) & ~x.startswith("0000")  # Python's first year is 1
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
        # overflow for other values. `| 0` changes no value and hides the inner sum from the optimizer.
        if whole and any(_has_constant(t.node, name) for t in (a, b)):
            a, b = (_shielded(t, name) for t in (a, b))
        return combine(a.column, b.column)

    return apply


def _has_constant(node: Node, name: str) -> bool:
    """Whether a sum (or product), flattened, has a constant among its terms."""
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
    return _div(a, integer(every)) - (a % integer(every) < 0).cast("bigint")


def _floordiv(a: Term, b: Term) -> SparkColumn:
    if a.type == FLOAT64:
        return _whole(F.floor)(F.try_divide(a.column, b.column))
    if b.constant == 0:
        return null(INT64)
    if b.constant is not None and b.constant > 0:
        return floor_div(a.column, b.constant)
    rest = F.try_mod(a.column, b.column)
    above = (rest != 0) & ((rest < 0) != (b.column < 0))
    return _div(a.column, F.nullif(b.column, F.lit(0))) - above.cast("bigint")


def _mod(a: Term, b: Term) -> SparkColumn:
    if b.constant == 0:
        return null(a.type)
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
    # Spark's floor and ceil of a double are bigints, which cannot hold large doubles.
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
        F.when((x == 0) & (y < 0), null(FLOAT64)).when(one, F.lit(1.0))
        .when(outside, null(FLOAT64)).otherwise(power)
    )  # fmt: skip


def _logarithm(how: Callable[[SparkColumn], SparkColumn]) -> Any:
    return lambda a: F.when(a.column > 0, how(a.column))


# --- comparison and choice ------------------------------------------------------------------------

COMPARE: dict[str, Callable[[Any, Any], SparkColumn]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip
FLIPPED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def _comparison(name: str) -> Any:
    return lambda a, b: COMPARE[name](a.column, b.column)


def _is_in(a: Term, *values: Term) -> SparkColumn:
    if not values:
        return F.when(a.column.isNotNull(), F.lit(False))
    if a.type != FLOAT64:
        return a.column.isin(*(v.column for v in values))
    # Spark turns a long list into a hash set, in which -0.0 differs from 0.0.
    return canonical(a.column).isin(*(F.lit(floats.canonical(v.constant)) for v in values))


def _extreme(how: Callable[..., SparkColumn]) -> Any:
    return lambda *args: how(*(a.column for a in args)) if len(args) > 1 else args[0].column


# --- time parts: integer arithmetic, independent of the session's time zone -----------------------


def _date(t: SparkColumn) -> SparkColumn:
    return F.date_from_unix_date(floor_div(t, DAY).cast("int"))


def _date_part(part: Callable[[SparkColumn], SparkColumn]) -> Any:
    return lambda t: part(_date(t.column)).cast("bigint")


def _clock_part(whole: int, unit: int) -> Any:
    return lambda t: _div(F.pmod(t.column, integer(whole)), integer(unit))


def _day_of_week(t: Term) -> SparkColumn:
    return F.pmod(floor_div(t.column, DAY) + 3, F.lit(7)) + 1


def _truncate(t: Term, every: Term) -> SparkColumn:
    return t.column - F.pmod(t.column, every.column)


# --- strings and lists ----------------------------------------------------------------------------

_LONGEST = 1 << 30
"""A position beyond the end of any string; positions are 32-bit ints in Spark."""


def _case(how: Callable[[SparkColumn], SparkColumn]) -> Any:
    def apply(a: Term) -> SparkColumn:
        twice = isinstance(a.node, Call) and a.node.function in ("lower", "upper")
        # Spark's optimizer drops the inner of two case changes, which is wrong for 'ß'.
        return how(F.concat(a.column, F.lit("")) if twice else a.column)

    return apply


def _matches(a: Term, pattern: Term) -> SparkColumn:
    if pattern.constant is None:
        return null(BOOL)
    if why_not_java(pattern.constant) is None:
        return a.column.rlike(to_java(pattern.constant))
    return arrow_function(_matching(pattern.constant), T.BooleanType(), [a.column])


def _in_python(name: str, returns: T.DataType) -> Callable[..., SparkColumn]:
    """Compute a function in Python, as in process: Java's zones and patterns are others."""

    def apply(a: Term, *others: Term) -> SparkColumn:
        constants = [t.constant for t in others]
        if None in constants:
            return F.lit(None).cast(returns)
        return arrow_function(_in_worker(name, a.type, constants), returns, [a.column])

    return apply


def _in_worker(name: str, kind: DataType, constants: list[Any]) -> Callable[[pa.Array], pa.Array]:
    def run(values: pa.Array) -> pa.Array:
        found = call(name, values.cast(to_arrow(kind)), *constants)
        return found if pa.types.is_string(found.type) else found.cast(pa.int64())

    return run


def _strict(name: str) -> Callable[..., SparkColumn]:
    def apply(a: Term, *others: Term) -> SparkColumn:
        found = _in_python(f"try_{name}", T.LongType())(a, *others)
        said = "', '".join(str(t.constant) for t in others)
        message = F.concat(
            F.lit(f"{name}: expected a value that fits '{said}', got '"), a.column.cast("string"),
            F.lit(f"' — use {name}(..., strict=False) to get null instead"),
        )  # fmt: skip
        return F.coalesce(found, F.when(a.column.isNotNull(), F.raise_error(message)).cast("bigint"))

    return apply


def outside_java(node: Node) -> str | None:
    """The reason why Python computes a built-in function; None if the JVM does."""
    if isinstance(node, Call) and node.function in OF_ZONES:
        return "clocks of zones and formats of times are Tidemill's own"
    if isinstance(node, Call) and node.function == "extract":
        return "groups of Java's patterns are others"
    if isinstance(node, Call) and node.function == "matches" and isinstance(node.args[1], Literal):
        pattern = node.args[1].value
        return None if pattern is None else why_not_java(pattern)
    return None


def _matching(pattern: str) -> Callable[[pa.Array], pa.Array]:
    """The function that a worker runs on each batch: RE2, as in the local engine."""

    def matching(texts: pa.Array) -> pa.Array:
        import pyarrow.compute as pc

        return pc.match_substring_regex(texts, pattern)

    return matching


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


_OVERFLOW = "expression: integer overflow: a result outside int64"


def _wide(add: Callable[[SparkColumn, SparkColumn], SparkColumn], high: bool) -> Any:
    """Compute one of the two words of a sum or difference of ints."""

    def build(a: Term, b: Term) -> SparkColumn:
        total = add(a.column.cast("decimal(20,0)"), b.column.cast("decimal(20,0)"))
        carry = F.when(total > INT_MAX, 1).when(total < INT_MIN, -1).otherwise(0)
        carry = F.when(total.isNotNull(), carry).cast("decimal(20,0)")
        return (carry if high else total - carry * F.lit(str(1 << 64)).cast("decimal(20,0)")).cast("bigint")

    return build


def _unwrap(low: Term, high: Term) -> SparkColumn:
    failed = F.raise_error(F.lit(_OVERFLOW)).cast("bigint")
    known = high.column.isNotNull() & low.column.isNotNull()
    return F.when(high.column == 0, low.column).when(known, failed)


def _magnitude(a: Term, b: Term) -> SparkColumn:
    product = -F.abs(a.column.cast("decimal(19,0)") * b.column.cast("decimal(19,0)"))
    return F.when(product >= INT_MIN, product).when(product.isNotNull(), 0).cast("bigint")


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
    **{name: _comparison(name) for name in COMPARE},
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
    "wrap_add": _wide(lambda a, b: a + b, high=False),
    "wrap_sub": _wide(lambda a, b: a - b, high=False),
    "carry": _wide(lambda a, b: a + b, high=True), "borrow": _wide(lambda a, b: a - b, high=True),
    "unwrap": _unwrap, "magnitude": _magnitude,
    "length": _on_columns(lambda a: F.char_length(a).cast("bigint")),
    "lower": _case(F.lower), "upper": _case(F.upper), "strip": _on_columns(F.trim),
    "contains": _on_columns(F.contains), "starts_with": _on_columns(F.startswith),
    "ends_with": _on_columns(F.endswith),
    "local_time": _in_python("local_time", T.LongType()),
    "from_local_time": _strict("from_local_time"),
    "try_from_local_time": _in_python("try_from_local_time", T.LongType()),
    "strptime": _strict("strptime"), "try_strptime": _in_python("try_strptime", T.LongType()),
    "strftime": _in_python("strftime", T.StringType()),
    "matches": _matches, "extract": _in_python("extract", T.StringType()),
    "replace": _on_columns(F.replace), "substring": _substring, "find": _find, "split": _split,
    "concat": _on_columns(F.concat),
    "list_length": _on_columns(lambda a: F.array_size(a).cast("bigint")), "list_get": _list_get,
}  # fmt: skip
