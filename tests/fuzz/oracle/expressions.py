"""Scalar expressions on one row. Instants and durations are ints; null is None."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from fractions import Fraction
from typing import Any

from tests.fuzz.functions import UDFS
from tests.fuzz.oracle.values import Approx, Wrong, equal, fits, rank

Expr = Any
Get = Callable[[str], Any]


def evaluate(expr: Expr, get: Get) -> Any:
    """`expr` as in `tests.fuzz.expressions`, over a row whose columns `get` gives."""
    name, *args = expr
    if name in ("col", "name"):
        return get(args[0])
    if name == "lit":
        return args[1]
    if name == "cast":
        to, strict, inner = args
        return _cast(evaluate(inner, get), to, strict)
    if name == "udf":
        return _udf(args[0], [evaluate(a, get) for a in args[1:]])
    if name in ("and", "or"):
        decides = name == "or"
        left = evaluate(args[0], get)
        if left is decides:
            return decides
        right = evaluate(args[1], get)
        if right is decides:
            return decides
        return None if left is None or right is None else not decides
    if name == "if_else":
        return evaluate(args[1 if evaluate(args[0], get) is True else 2], get)
    if name == "coalesce":
        for a in args:
            if (value := evaluate(a, get)) is not None:
                return value
        return None
    values = [evaluate(a, get) for a in args]
    if name == "is_null":
        return values[0] is None
    if name == "is_not_null":
        return values[0] is not None
    if name in ("least", "greatest"):
        some = [v for v in values if v is not None]
        return (min if name == "least" else max)(some, key=rank) if some else None
    if any(v is None for v in values):
        return None
    return FUNCTIONS[name](*values)


def _udf(name: str, args: list[Any]) -> Any:
    if any(a is None for a in args):
        return None
    function, returns = UDFS[name]
    value = function(*args)
    if returns == "int":
        if isinstance(value, float):
            if not math.isfinite(value):
                raise Wrong(f"{name} gave {value} for an int")
            value = math.trunc(value)
        return fits(value)
    return float(value) if returns == "float" else value


# --- numbers --------------------------------------------------------------------------------------


def _both(exact: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """An operation of two ints, in int64, or of two floats."""

    def call(a: Any, b: Any) -> Any:
        if isinstance(a, float) or isinstance(b, float):
            return exact(float(a), float(b))
        return fits(exact(a, b))

    return call


def _divided(a: Any, b: Any) -> float | None:
    a, b = float(a), float(b)
    return None if b == 0 else a / b


def _floordiv(a: Any, b: Any) -> Any:
    if b == 0:
        return None
    if isinstance(a, float) or isinstance(b, float):
        return _whole(math.floor, float(a) / float(b))
    return fits(a // b)


def _mod(a: Any, b: Any) -> Any:
    if b == 0:
        return None
    if not (isinstance(a, float) or isinstance(b, float)):
        return a % b
    a, b = float(a), float(b)
    if not math.isfinite(a) or b != b:
        return math.nan
    if math.isinf(b):
        return a if a == 0 or (a > 0) == (b > 0) else b
    return float(Fraction(a) % Fraction(b))


def _whole(how: Callable[[float], int], a: Any) -> Any:
    return float(how(a)) if isinstance(a, float) and math.isfinite(a) else a


def _round(a: Any, digits: int) -> Any:
    if not isinstance(a, float):
        return a
    scale = float(10.0 ** max(-308, min(digits, 308)))
    big = abs(a) * scale
    if not big < 2.0**52:
        return a
    return math.copysign(math.floor(big + 0.5) / scale, a)


def _sign(a: Any) -> Any:
    if isinstance(a, float):
        return a if a != a else math.copysign(1.0, a) if a else 0.0
    return (a > 0) - (a < 0)


def _near(value: float) -> Any:
    """What libraries compute to their last bits only."""
    return Approx(value, 1e-12 * abs(value)) if math.isfinite(value) else value


def _exp(a: Any) -> Any:
    try:
        return _near(math.exp(float(a)))
    except OverflowError:
        return math.inf


def _logarithm(how: Callable[[float], float]) -> Callable[[Any], Any]:
    def call(a: Any) -> Any:
        a = float(a)
        if a <= 0:
            return None
        value = how(a)
        return Approx(value, 1e-12 * abs(value) + 1e-15) if math.isfinite(value) else value

    return call


def _pow(a: Any, b: Any) -> Any:
    a, b = float(a), float(b)
    if a == 0 and b < 0:
        return None
    try:
        value = math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and b % 2 == 1 else math.inf
    except ValueError:  # a negative number to a fraction
        return None
    return Approx(value, 1e-11 * abs(value) + 5e-324) if math.isfinite(value) else value


def _compared(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def call(a: Any, b: Any) -> bool:
        if isinstance(a, float) or isinstance(b, float):
            a, b = float(a), float(b)
        return bool(test(rank(a), rank(b)))

    return call


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, float) or isinstance(b, float):
        a, b = float(a), float(b)
    return equal(a, b)


# --- time -----------------------------------------------------------------------------------------

_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def _date(t: int) -> date:
    return date(1970, 1, 1) + timedelta(days=t // _DAY)


# --- text -----------------------------------------------------------------------------------------

PATTERNS = {
    "a": "a", "^a": "^a", "b$": r"b\Z", "^$": r"^\Z", "b+": "b+", "[a-c]": "[a-c]", r"\d+": r"\d+",
    r"\s": r"[\t\n\f\r ]", r"^\w+$": r"^\w+\Z", "a.b": "a.b", "[^a]": "[^a]", "é": "é",
    "(a|b){2}": "(a|b){2}", r"\.": r"\.", "x|^,": "x|^,", "": "",
}  # fmt: skip
"""Patterns of RE2, and the same for Python with `re.ASCII`."""


def _matches(a: str, pattern: str) -> bool:
    return re.search(PATTERNS[pattern], a, re.ASCII) is not None


# --- casts ----------------------------------------------------------------------------------------


def _cast(value: Any, to: str, strict: bool) -> Any:
    if value is None:
        return None
    result = _CASTS[to](value)
    if result is None and strict:
        raise Wrong(f"{value!r} is no {to}")
    return result


def _to_int(value: Any) -> int | None:
    if isinstance(value, float):
        whole = math.trunc(value) if math.isfinite(value) else HUGE
    elif isinstance(value, str):
        whole = int(value) if re.fullmatch(r" *[+-]?[0-9]{1,19} *", value, re.ASCII) else HUGE
    else:
        whole = int(value)
    return whole if -(1 << 63) <= whole < 1 << 63 else None


HUGE = 1 << 99
_FLOAT = r" *[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})? *"
_INSTANT = r"(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?Z?)?"


def _to_float(value: Any) -> float | None:
    if isinstance(value, str):
        return float(value) if re.fullmatch(_FLOAT, value, re.ASCII) else None
    return float(value)


def _to_text(value: Any) -> str:
    return ("false", "true")[value] if isinstance(value, bool) else str(value)


def _to_instant(value: Any) -> int | None:
    if not isinstance(value, str):
        return int(value)
    found = re.fullmatch(_INSTANT, value, re.ASCII)
    if not found:
        return None
    *parts, fraction = found.groups()
    try:
        when = datetime(*(int(p or 0) for p in parts), tzinfo=timezone.utc)  # type: ignore[arg-type]
    except ValueError:
        return None
    return (when - _EPOCH) // timedelta(microseconds=1) + int((fraction or "0").ljust(6, "0"))


_CASTS: dict[str, Callable[[Any], Any]] = {
    "int": _to_int, "float": _to_float, "str": _to_text, "bool": lambda v: v != 0,
    "ts": _to_instant, "dur": int,
}  # fmt: skip

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": _both(lambda a, b: a + b),
    "sub": _both(lambda a, b: a - b),
    "mul": _both(lambda a, b: a * b),
    "div": _divided,
    "floordiv": _floordiv,
    "mod": _mod,
    "neg": lambda a: -a if isinstance(a, float) else fits(-a),
    "abs": lambda a: abs(a) if isinstance(a, float) else fits(abs(a)),
    "sign": _sign,
    "floor": lambda a: _whole(math.floor, a),
    "ceil": lambda a: _whole(math.ceil, a),
    "round": _round,
    "sqrt": lambda a: None if a < 0 else math.sqrt(a),
    "exp": _exp,
    "log": _logarithm(math.log),
    "log2": _logarithm(math.log2),
    "log10": _logarithm(math.log10),
    "pow": _pow,
    "eq": _equal,
    "ne": lambda a, b: not _equal(a, b),
    "lt": _compared(lambda a, b: a < b),
    "le": _compared(lambda a, b: a <= b),
    "gt": _compared(lambda a, b: a > b),
    "ge": _compared(lambda a, b: a >= b),
    "not": lambda a: not a,
    "is_nan": lambda a: a != a,
    "is_in": lambda a, *values: any(_equal(a, v) for v in values),
    "year": lambda t: _date(t).year,
    "month": lambda t: _date(t).month,
    "day": lambda t: _date(t).day,
    "day_of_week": lambda t: _date(t).isoweekday(),
    "day_of_year": lambda t: _date(t).toordinal() - date(_date(t).year, 1, 1).toordinal() + 1,
    "hour": lambda t: t % _DAY // (3600 * _SECOND),
    "minute": lambda t: t % (3600 * _SECOND) // (60 * _SECOND),
    "second": lambda t: t % (60 * _SECOND) // _SECOND,
    "microsecond": lambda t: t % _SECOND,
    "truncate": lambda t, every: t - t % every,
    "length": len,
    "lower": str.lower,
    "upper": str.upper,
    "strip": lambda a: a.strip(" "),
    "contains": lambda a, part: part in a,
    "starts_with": lambda a, part: a[: len(part)] == part,
    "ends_with": lambda a, part: a[len(a) - len(part) :] == part if len(part) <= len(a) else False,
    "matches": _matches,
    "replace": lambda a, old, new: new.join(a.split(old)),
    "substring": lambda a, start, length: a[start:][:length],
    "find": lambda a, part: a.find(part),
    "split": lambda a, separator: a.split(separator),
    "concat": lambda *parts: "".join(parts),
    "list_length": len,
    "list_get": lambda a, index: a[index] if 0 <= index < len(a) else None,
}
