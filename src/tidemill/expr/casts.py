"""What a cast means, on Python values: the grammar of text, the limits of numbers."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from tidemill.core.errors import UserError
from tidemill.core.time import instant
from tidemill.core.types import (
    BOOL,
    DURATION,
    FLOAT64,
    INT64,
    NULL,
    STRING,
    TIMESTAMP,
    DataType,
)  # fmt: skip
from tidemill.expr.functions import INT_MAX, INT_MIN

INT_TEXT = r"^ *[+-]?[0-9]{1,19} *$"
FLOAT_TEXT = r"^ *[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]{1,4})? *$"
TIMESTAMP_TEXT = (
    r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
    r"([ T]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{1,6})?)?Z?)?$"
)
"""What counts as a number or an instant in text: one grammar, checked by every engine."""

_ALLOWED = {
    (BOOL, INT64), (BOOL, FLOAT64), (BOOL, STRING),
    (INT64, FLOAT64), (INT64, STRING), (INT64, BOOL), (INT64, TIMESTAMP), (INT64, DURATION),
    (FLOAT64, INT64),
    (STRING, INT64), (STRING, FLOAT64), (STRING, TIMESTAMP),
    (TIMESTAMP, INT64), (DURATION, INT64),
}  # fmt: skip


def castable(source: DataType, target: DataType) -> bool:
    """Whether a cast between two types exists.

    Floats to text are missing on purpose: engines print the same double differently.

    >>> castable(INT64, STRING), castable(FLOAT64, STRING)
    (True, False)
    """
    return source in (target, NULL) or (source, target) in _ALLOWED


def cast_value(value: Any, source: DataType, target: DataType, *, strict: bool) -> Any:
    """One value as another type.

    >>> cast_value("42", STRING, INT64, strict=True), cast_value("x", STRING, INT64, strict=False)
    (42, None)
    """
    if value is None or source == target:
        return value
    result = _cast(value, source, target)
    if result is None and strict:
        raise UserError(
            "cast",
            expected=f"a {source!r} that fits {target!r}",
            got=repr(value),
            hint=_hint(value, target),
        )
    return result


@dataclass(frozen=True)
class Marked:
    """What is beside a number in text, and the calls that take it away."""

    marks: tuple[str, ...]
    calls: str


_MARKS = re.compile(r"\s*[+-]?\s*([$€£¥₹]?)\s*([+-]?[0-9][0-9.,]*)\s*([$€£¥₹%]?)\s*")


def number_in(text: str, decimal: str = ".") -> Marked | None:
    """Return how to read a number beside the sign of a currency or of percent; None if there is none.

    >>> number_in("$1,250.50").calls, number_in("15 %").calls, number_in("15")
    (".replace('$', '').replace(',', '').cast('float64')", ".replace('%', '').cast('float64') / 100", None)
    """
    found = _MARKS.fullmatch(text)
    if found is None or not (found[1] or found[3]):
        return None
    marks = [mark for mark in (found[1], found[3]) if mark]
    between = "." if decimal == "," else ","
    besides = (*marks, between) if between in found[2] else marks
    gone = "".join(f".replace({mark!r}, '')" for mark in besides)
    point = ".replace(',', '.')" if decimal == "," and "," in found[2] else ""
    return Marked(tuple(marks), f"{gone}{point}.cast('float64')" + " / 100" * ("%" in marks))


def _hint(value: Any, target: DataType) -> str:
    hint = "use cast(..., strict=False) to get null instead"
    if isinstance(value, str) and target in (INT64, FLOAT64) and (read := number_in(value)):
        return f"{read.calls} reads it; {hint}"
    return hint


def _cast(value: Any, source: DataType, target: DataType) -> Any:
    if target == STRING:
        return str(value).lower() if source == BOOL else str(value)
    if target == BOOL:
        return value != 0
    if target == FLOAT64:
        if source == STRING:
            return float(value) if re.fullmatch(FLOAT_TEXT, value) else None
        return float(value)
    if source == STRING and target == TIMESTAMP:
        return _timestamp(value)
    if source == STRING:
        return _in_range(int(value)) if re.fullmatch(INT_TEXT, value) else None
    if source == FLOAT64:
        return _in_range(math.trunc(value)) if math.isfinite(value) else None
    return int(value)


def _timestamp(text: str) -> int | None:
    if not re.fullmatch(TIMESTAMP_TEXT, text):
        return None
    if "." in text:
        head, _, tail = text.rstrip("Z").partition(".")
        text = f"{head}.{tail.ljust(6, '0')}"
    try:
        return instant(text)
    except UserError:  # the grammar lets 30 February through; the calendar does not
        return None


def _in_range(value: int) -> int | None:
    return value if INT_MIN <= value <= INT_MAX else None
