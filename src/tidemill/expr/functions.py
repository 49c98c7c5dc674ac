"""Every scalar function: its types, its rule for nulls, and its definition on Python values.

This table *is* the meaning of expressions. The reference engine runs `define` row by row; the
local compiler and the Spark compiler each have a table with the same names, and property tests
hold them to this one.

The rules, once for all:

- A null argument gives null, unless the function is marked `lazy` (it sees nulls itself).
- Integers are int64; a result outside int64 is an error. Floats are IEEE doubles.
- Division by zero (`/`, `//`, `%`, ints and floats) is null; so is a function outside its domain
  (`log(0)`, `sqrt(-1)`).
- `//` floors and `%` takes the sign of the divisor, as in Python.
- NaN equals NaN and is greater than every other number. Zero has one sign in comparisons.
- Strings compare by code point and are measured in code points. Patterns are those of RE2.
- Time parts are in UTC.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.core.floats import equal, order_key
from tidemill.core.time_formats import (
    format_time,
    from_local_time,
    local_time,
    parse_time,
    time_format,
)
from tidemill.core.types import (
    BOOL,
    DURATION,
    FLOAT64,
    INT64,
    NULL,
    STRING,
    TIMESTAMP,
    DataType,
    list_of,
)  # fmt: skip
from tidemill.core.zones import known_zone
from tidemill.expr.patterns import OURS

INT_MIN, INT_MAX = -(1 << 63), (1 << 63) - 1
EXACT_FLOAT = float(1 << 52)
"""From here on every double is whole, so floor, ceil and round have nothing to do."""


class TypeMismatch(Exception):
    """Raised by a type rule: what it expected. Turned into a `UserError` by `typing.resolve`."""


@dataclass(frozen=True)
class Function:
    """One scalar function. `args` gives the types its arguments are cast to, and the result."""

    name: str
    types: Callable[[tuple[DataType, ...]], tuple[tuple[DataType, ...], DataType]]
    define: Callable[..., Any]
    lazy: bool = False
    literal_from: int | None = None
    """Arguments from this position on must be literals (patterns, digits, sets)."""
    check: Callable[..., Any] | None = None
    """Checks the literals when the query is built."""


FUNCTIONS: dict[str, Function] = {}

Types = tuple[DataType, ...]
Rule = Callable[[Types], tuple[Types, DataType]]


def _define(
    name: str, types: Rule, *, lazy: bool = False, literal_from: int | None = None,
    check: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(define: Callable[..., Any]) -> Callable[..., Any]:
        FUNCTIONS[name] = Function(name, types, define, lazy, literal_from, check)
        return define

    return register


# --- type rules -----------------------------------------------------------------------------------


def unify(types: Types) -> DataType:
    """The common type of several types."""
    real = [t for t in types if t != NULL]
    if not real:
        return NULL
    if all(t == real[0] for t in real):
        return real[0]
    if all(t.is_numeric for t in real):
        return FLOAT64
    raise TypeMismatch("values of one type")


def _numbers(types: Types) -> tuple[Types, DataType]:
    if not all(t.is_numeric or t == NULL for t in types):
        raise TypeMismatch("numbers")
    one = unify(types)
    one = INT64 if one == NULL else one
    return (one,) * len(types), one


def _floats(types: Types) -> tuple[Types, DataType]:
    _numbers(types)
    return (FLOAT64,) * len(types), FLOAT64


def _additive(types: Types) -> tuple[Types, DataType]:
    kinds = tuple(t.kind for t in types)
    if kinds == ("duration", "duration"):
        return types, DURATION
    if kinds == ("timestamp", "duration"):
        return types, TIMESTAMP
    return _numbers(types)


def _add(types: Types) -> tuple[Types, DataType]:
    if tuple(t.kind for t in types) == ("duration", "timestamp"):
        return types, TIMESTAMP
    return _additive(types)


def _sub(types: Types) -> tuple[Types, DataType]:
    if tuple(t.kind for t in types) == ("timestamp", "timestamp"):
        return types, DURATION
    return _additive(types)


def _mul(types: Types) -> tuple[Types, DataType]:
    if tuple(t.kind for t in types) in (("duration", "int64"), ("int64", "duration")):
        return types, DURATION
    return _numbers(types)


def _signed(types: Types) -> tuple[Types, DataType]:
    return (types, DURATION) if types == (DURATION,) else _numbers(types)


def _compared(types: Types) -> tuple[Types, DataType]:
    one = unify(types)
    if one != NULL and not one.is_ordered:
        raise TypeMismatch("values that have an order")
    return (one,) * len(types), BOOL


def _equated(types: Types) -> tuple[Types, DataType]:
    one = unify(types)
    return (one,) * len(types), BOOL


def _extreme(types: Types) -> tuple[Types, DataType]:
    args, _ = _compared(types)
    return args, args[0]


def _same(types: Types) -> tuple[Types, DataType]:
    one = unify(types)
    return (one,) * len(types), one


def _choice(types: Types) -> tuple[Types, DataType]:
    if types[0] not in (BOOL, NULL):
        raise TypeMismatch("a boolean condition")
    one = unify(types[1:])
    return (BOOL, one, one), one


def _any(result: DataType) -> Rule:
    return lambda types: (types, result)


def _fixed(args: Types, result: DataType) -> Rule:
    def rule(types: Types) -> tuple[Types, DataType]:
        if len(types) != len(args):
            raise TypeMismatch(f"{len(args)} arguments")
        for have, want in zip(types, args):
            if have not in (want, NULL):
                raise TypeMismatch(f"{want!r}")
        return args, result

    return rule


def _rounded(types: Types) -> tuple[Types, DataType]:
    args, result = _numbers(types[:1])
    return (*args, *((INT64,) * (len(types) - 1))), result


def _all_strings(result: DataType) -> Rule:
    def rule(types: Types) -> tuple[Types, DataType]:
        if any(t not in (STRING, NULL) for t in types):
            raise TypeMismatch("strings")
        return (STRING,) * len(types), result

    return rule


def _list_item(types: Types) -> tuple[Types, DataType]:
    if types[0].kind != "list" or types[1] != INT64:
        raise TypeMismatch("a list and an int")
    return types, types[0].of[0]


def _list_any(types: Types) -> tuple[Types, DataType]:
    if types[0].kind != "list":
        raise TypeMismatch("a list")
    return types, INT64


# --- arithmetic -----------------------------------------------------------------------------------


def checked(value: Any) -> Any:
    """An int result; an error when it is outside int64."""
    if isinstance(value, int) and not INT_MIN <= value <= INT_MAX:
        raise UserError("expression", "integer overflow: a result outside int64", got=str(value))
    return value


@_define("add", _add)
def _(a: Any, b: Any) -> Any:
    return checked(a + b)


@_define("sub", _sub)
def _(a: Any, b: Any) -> Any:
    return checked(a - b)


@_define("mul", _mul)
def _(a: Any, b: Any) -> Any:
    return checked(a * b)


@_define("div", _floats)
def _(a: float, b: float) -> float | None:
    return None if b == 0 else a / b


@_define("floordiv", _numbers)
def _(a: Any, b: Any) -> Any:
    if b == 0:
        return None
    return checked(a // b) if isinstance(a, int) else _whole(math.floor, a / b)


@_define("mod", _numbers)
def _(a: Any, b: Any) -> Any:
    if b == 0:
        return None
    if isinstance(a, int):
        return a % b
    if math.isinf(a) or math.isnan(a) or math.isnan(b):
        return math.nan
    rest = math.fmod(a, b)
    return rest + b if rest != 0 and (rest < 0) != (b < 0) else rest


@_define("neg", _signed)
def _(a: Any) -> Any:
    return checked(-a)


@_define("abs", _signed)
def _(a: Any) -> Any:
    return checked(abs(a))


@_define("sign", _numbers)
def _(a: Any) -> Any:
    if a != a:
        return a
    return type(a)((a > 0) - (a < 0))


def _whole(how: Callable[[float], int], a: float) -> float:
    # Also lets NaN and the infinities through, which math.floor refuses.
    return float(how(a)) if abs(a) < EXACT_FLOAT else a


@_define("floor", _rounded)
def _(a: Any) -> Any:
    return a if isinstance(a, int) else _whole(math.floor, a)


@_define("ceil", _rounded)
def _(a: Any) -> Any:
    return a if isinstance(a, int) else _whole(math.ceil, a)


@_define("round", _rounded, literal_from=1)
def _(a: Any, digits: int) -> Any:
    # Half away from zero, by this exact float arithmetic, so that every engine can repeat it.
    if isinstance(a, int):
        return a
    scale = round_scale(digits)
    scaled = abs(a) * scale
    if not scaled < EXACT_FLOAT:
        return a
    return math.copysign(math.floor(scaled + 0.5) / scale, a)


def round_scale(digits: int) -> float:
    """The power of ten that `round` scales by; beyond ±308 a double has none, so ±308 serves.

    >>> round_scale(2), round_scale(400)
    (100.0, 1e+308)
    """
    return float(10.0 ** max(-308, min(digits, 308)))


@_define("sqrt", _floats)
def _(a: float) -> float | None:
    return None if a < 0 else math.sqrt(a)


@_define("exp", _floats)
def _(a: float) -> float:
    try:
        return math.exp(a)
    except OverflowError:
        return math.inf


@_define("log", _floats)
def _(a: float) -> float | None:
    return None if a <= 0 else math.log(a)


@_define("log2", _floats)
def _(a: float) -> float | None:
    return None if a <= 0 else math.log2(a)


@_define("log10", _floats)
def _(a: float) -> float | None:
    return None if a <= 0 else math.log10(a)


@_define("pow", _floats)
def _(a: float, b: float) -> float | None:
    if a == 0 and b < 0:
        return None
    try:
        return math.pow(a, b)
    except OverflowError:
        odd = float(b).is_integer() and int(b) % 2 == 1
        return -math.inf if a < 0 and odd else math.inf
    except ValueError:
        return None


# --- sums wider than int64 --------------------------------------------------------------------------
#
# What aggregates of ints are made of: `low + high * 2**64`, so that only a result can overflow.


def _wrapped(value: int) -> int:
    return (value - INT_MIN) % (1 << 64) + INT_MIN


def _wide(types: Types) -> tuple[Types, DataType]:
    args, result = (types, DURATION) if types == (DURATION, DURATION) else _numbers(types)
    if result == FLOAT64:
        raise TypeMismatch("ints")
    return args, result


@_define("wrap_add", _wide)
def _(a: int, b: int) -> int:
    return _wrapped(a + b)


@_define("wrap_sub", _wide)
def _(a: int, b: int) -> int:
    return _wrapped(a - b)


@_define("carry", lambda types: (_wide(types)[0], INT64))
def _(a: int, b: int) -> int:
    return (a + b - INT_MIN) >> 64


@_define("borrow", lambda types: (_wide(types)[0], INT64))
def _(a: int, b: int) -> int:
    return (a - b - INT_MIN) >> 64


@_define("unwrap", lambda types: (types, types[0]))
def _(low: int, high: int) -> Any:
    return checked(low + (high << 64))


@_define("magnitude", _fixed((INT64, INT64), INT64))
def _(a: int, b: int) -> int:
    """The magnitude of a product, turned negative because 2**63 is one; 0 beyond it."""
    product = -abs(a * b)
    return product if product >= INT_MIN else 0


# --- comparison and logic -------------------------------------------------------------------------


@_define("eq", _equated)
def _(a: Any, b: Any) -> bool:
    return equal(a, b)


@_define("ne", _equated)
def _(a: Any, b: Any) -> bool:
    return not equal(a, b)


@_define("lt", _compared)
def _(a: Any, b: Any) -> bool:
    return bool(order_key(a) < order_key(b))


@_define("le", _compared)
def _(a: Any, b: Any) -> bool:
    return bool(order_key(a) <= order_key(b))


@_define("gt", _compared)
def _(a: Any, b: Any) -> bool:
    return bool(order_key(a) > order_key(b))


@_define("ge", _compared)
def _(a: Any, b: Any) -> bool:
    return bool(order_key(a) >= order_key(b))


@_define("and", _fixed((BOOL, BOOL), BOOL), lazy=True)
def _(a: Any, b: Any) -> Any:
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


@_define("or", _fixed((BOOL, BOOL), BOOL), lazy=True)
def _(a: Any, b: Any) -> Any:
    if a is True or b is True:
        return True
    return None if a is None or b is None else False


@_define("not", _fixed((BOOL,), BOOL))
def _(a: bool) -> bool:
    return not a


@_define("is_null", _any(BOOL), lazy=True)
def _(a: Any) -> bool:
    return a is None


@_define("is_not_null", _any(BOOL), lazy=True)
def _(a: Any) -> bool:
    return a is not None


@_define("is_nan", _floats)
def _(a: float) -> bool:
    return a != a


FUNCTIONS["is_nan"] = Function("is_nan", lambda t: (_floats(t)[0], BOOL), FUNCTIONS["is_nan"].define)


@_define("coalesce", _same, lazy=True)
def _(*args: Any) -> Any:
    return next((a for a in args if a is not None), None)


@_define("if_else", _choice, lazy=True)
def _(condition: Any, then: Any, otherwise: Any) -> Any:
    return then if condition is True else otherwise


@_define("least", _extreme, lazy=True)
def _(*args: Any) -> Any:
    return min((a for a in args if a is not None), key=order_key, default=None)


@_define("greatest", _extreme, lazy=True)
def _(*args: Any) -> Any:
    return max((a for a in args if a is not None), key=order_key, default=None)


@_define("is_in", _equated, literal_from=1)
def _(a: Any, *values: Any) -> bool:
    return any(equal(a, v) for v in values)


# --- time parts -----------------------------------------------------------------------------------

_PART = _fixed((TIMESTAMP,), INT64)
SECOND, MINUTE, HOUR, DAY = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
_DAYS_TO_EPOCH = date(1970, 1, 1).toordinal() - 1


def _civil(t: int) -> tuple[int, date]:
    # The calendar repeats every 400 years, which takes instants beyond year 9999 to one before.
    cycle, days = divmod(t // DAY + _DAYS_TO_EPOCH, 146_097)
    return cycle, date.fromordinal(days + 1)


@_define("year", _PART)
def _(t: int) -> int:
    cycle, day = _civil(t)
    return 400 * cycle + day.year


@_define("month", _PART)
def _(t: int) -> int:
    return _civil(t)[1].month


@_define("day", _PART)
def _(t: int) -> int:
    return _civil(t)[1].day


@_define("day_of_week", _PART)
def _(t: int) -> int:
    return (t // DAY + 3) % 7 + 1  # Monday is 1, as in ISO; the epoch was a Thursday


@_define("day_of_year", _PART)
def _(t: int) -> int:
    return _civil(t)[1].timetuple().tm_yday


@_define("hour", _PART)
def _(t: int) -> int:
    return t // HOUR % 24


@_define("minute", _PART)
def _(t: int) -> int:
    return t // MINUTE % 60


@_define("second", _PART)
def _(t: int) -> int:
    return t // SECOND % 60


@_define("microsecond", _PART)
def _(t: int) -> int:
    return t % SECOND


@_define("truncate", _fixed((TIMESTAMP, DURATION), TIMESTAMP), literal_from=1)
def _(t: int, every: int) -> Any:
    return checked(t // every * every)


# --- times of zones, and times as text ------------------------------------------------------------
#
# What fits a format, and what a clock shows, is defined in `core/time_formats.py`.


def _in_zone(types: Types) -> tuple[Types, DataType]:
    return _fixed((TIMESTAMP, STRING), TIMESTAMP)(types)


def check_zone(tz: str, *formats: str) -> str:
    """Check a zone, and formats to read text by."""
    for text in formats:
        time_format(text, "strptime", parsed=True)
    return known_zone(tz, step="tz=")


@_define("local_time", _in_zone, literal_from=1, check=check_zone)
def _(t: int, tz: str) -> int | None:
    return local_time(t, tz)


@_define("from_local_time", _in_zone, literal_from=1, check=check_zone)
def _(t: int, tz: str) -> int | None:
    found = from_local_time(t, tz)
    if found is None:
        raise UserError(
            "from_local_time", expected=f"a time that the clock of {tz} shows", got=f"{t} ticks",
            hint="use from_local_time(..., strict=False) to get null instead",
        )  # fmt: skip
    return found


@_define("try_from_local_time", _in_zone, literal_from=1, check=check_zone)
def _(t: int, tz: str) -> int | None:
    return from_local_time(t, tz)


@_define("strptime", _all_strings(TIMESTAMP), literal_from=1, check=check_zone)
def _(a: str, tz: str, *formats: str) -> int | None:
    found: int | None = _read_time(a, tz, *formats)
    if found is None:
        raise UserError(
            "strptime", expected=f"text that fits {' or '.join(map(repr, formats))}", got=repr(a),
            hint="use strptime(..., strict=False) to get null instead",
        )  # fmt: skip
    return found


@_define("try_strptime", _all_strings(TIMESTAMP), literal_from=1, check=check_zone)
def _read_time(a: str, tz: str, *formats: str) -> int | None:
    read = (parse_time(a, time_format(text, "strptime", parsed=True), tz) for text in formats)
    return next((t for t in read if t is not None), None)


def _check_strftime(format: str, tz: str) -> None:
    time_format(format, "strftime", parsed=False)
    check_zone(tz)


@_define("strftime", _fixed((TIMESTAMP, STRING, STRING), STRING), literal_from=1, check=_check_strftime)
def _(t: int, format: str, tz: str) -> str | None:
    return format_time(t, time_format(format, "strftime", parsed=False), tz)


OF_ZONES = frozenset(
    ("local_time", "from_local_time", "try_from_local_time", "strptime", "try_strptime", "strftime")
)
"""Functions of which texts are formats and zones, not instants."""


# --- strings --------------------------------------------------------------------------------------


@_define("length", _all_strings(INT64))
def _(a: str) -> int:
    return len(a)


@_define("lower", _all_strings(STRING))
def _(a: str) -> str:
    return a.lower()


@_define("upper", _all_strings(STRING))
def _(a: str) -> str:
    return a.upper()


@_define("strip", _all_strings(STRING))
def _(a: str) -> str:
    return a.strip(" ")


@_define("contains", _all_strings(BOOL), literal_from=1)
def _(a: str, part: str) -> bool:
    return part in a


@_define("starts_with", _all_strings(BOOL), literal_from=1)
def _(a: str, part: str) -> bool:
    return a.startswith(part)


@_define("ends_with", _all_strings(BOOL), literal_from=1)
def _(a: str, part: str) -> bool:
    return a.endswith(part)


@_define("matches", _all_strings(BOOL), literal_from=1, check=lambda p: check_pattern(p))
def _(a: str, pattern: str) -> bool:
    import pyarrow.compute as pc  # slow to import, seldom needed

    return bool(pc.match_substring_regex(pa.scalar(a), check_pattern(pattern)).as_py())


@_define("extract", _all_strings(STRING), literal_from=1, check=lambda p: check_extraction(p))
def _(a: str, pattern: str) -> str | None:
    # The pattern has one group that captures, `expr.patterns.extracting`.
    import pyarrow.compute as pc  # slow to import, seldom needed

    found = pc.extract_regex(pa.scalar(a), pattern).as_py()
    return None if found is None else str(found[OURS])


@_define("replace", _all_strings(STRING), literal_from=1)
def _(a: str, old: str, new: str) -> str:
    return a.replace(old, new)


@_define("substring", _fixed((STRING, INT64, INT64), STRING), literal_from=1)
def _(a: str, start: int, length: int) -> str:
    return a[start : start + length]


@_define("find", _all_strings(INT64), literal_from=1)
def _(a: str, part: str) -> int:
    return a.find(part)


@_define("split", _all_strings(list_of(STRING)), literal_from=1)
def _(a: str, separator: str) -> list[str]:
    return a.split(separator)


@_define("concat", _all_strings(STRING))
def _(*args: str) -> str:
    return "".join(args)


@_define("list_length", _list_any)
def _(a: list[Any]) -> int:
    return len(a)


@_define("list_get", _list_item, literal_from=1)
def _(a: list[Any], index: int) -> Any:
    return a[index] if 0 <= index < len(a) else None


def check_extraction(pattern: str) -> str:
    """Check that a pattern has the one group that captures what is extracted (`expr.patterns`)."""
    import pyarrow.compute as pc  # slow to import, seldom needed

    check_pattern(pattern, "extract")
    try:
        groups = [field.name for field in pc.extract_regex(pa.scalar(""), pattern).type]
    except pa.ArrowInvalid:  # groups without a name
        groups = []
    if groups != [OURS]:
        raise UserError("extract", expected=f"one group, named {OURS}", got=repr(pattern))
    return pattern


def check_pattern(pattern: str, step: str = "matches") -> str:
    """Check that RE2 accepts a pattern; every engine uses RE2's dialect.

    >>> check_pattern("(a")
    Traceback (most recent call last):
    ...
    tidemill.core.errors.UserError: matches: expected a regular expression that RE2 reads, ...
    """
    try:
        import pyarrow.compute as pc  # slow to import, seldom needed

        pc.match_substring_regex(pa.scalar(""), pattern)
    except pa.ArrowInvalid as bad:
        raise UserError(
            step, expected="a regular expression that RE2 reads", got=repr(pattern),
            hint=str(bad),
        ) from bad  # fmt: skip
    return pattern
