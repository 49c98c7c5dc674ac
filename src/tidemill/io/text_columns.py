"""Columns of text as columns of the types of a stream. Errors name the row and the option to set."""

from __future__ import annotations

import re

import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.core.text_form import NULLS
from tidemill.core.time_reading import likely_unit, option_for
from tidemill.core.types import DURATION, FLOAT64, INT64, STRING, TIMESTAMP, DataType, to_arrow
from tidemill.expr.casts import number_in
from tidemill.plan.nodes import Source


def is_converted(name: str, kind: DataType, source: Source) -> bool:
    """Return whether a column is read as text and converted here, because no reader of Arrow does it."""
    return kind == TIMESTAMP or (kind == STRING and bool(source.text.nulls_of(name)))


def typed(
    text: pa.Array, name: str, kind: DataType, source: Source, step: str, first_row: int
) -> pa.Array:
    """Convert a column of text; an error names the first value that does not fit, and its row."""
    text = with_nulls(text, source.text.nulls_of(name))
    try:
        found = _converted(text, name, kind, source, step)
    except (pa.ArrowInvalid, UserError) as unread:
        at = _first_unread(text, name, kind, source, step)
        if at is None:
            raise
        raise _unread(text[at].as_py(), name, kind, source, step, first_row + at) from unread
    return found


def with_nulls(text: pa.Array, spelled: tuple[str, ...]) -> pa.Array:
    """Return a column with null for each spelling of it."""
    if not spelled:
        return text
    import pyarrow.compute as pc

    found = pc.is_in(pc.utf8_trim_whitespace(text), value_set=pa.array(spelled))
    return pc.if_else(found, pa.scalar(None, text.type), text)


def _converted(text: pa.Array, name: str, kind: DataType, source: Source, step: str) -> pa.Array:
    import pyarrow.compute as pc

    if kind == STRING:
        return text
    text = pc.utf8_trim_whitespace(text)
    if kind == TIMESTAMP and source.reading.unit(name):
        return _epochs(_plain(text, source), name, source, step)
    if kind == TIMESTAMP:
        found = source.reading.from_text(text, name)
        if found.null_count > text.null_count:
            raise pa.ArrowInvalid("a time that does not fit")
        return found
    if kind == DURATION:
        return text.cast(pa.int64()).cast(to_arrow(kind))
    return (_plain(text, source) if kind == FLOAT64 or kind.kind == "decimal" else text).cast(
        to_arrow(kind)
    )


def _plain(text: pa.Array, source: Source) -> pa.Array:
    """Return numbers with a point."""
    import pyarrow.compute as pc

    if source.text.decimal == ".":
        return text
    points = pc.match_substring(text, ".")  # they would be for thousands
    return pc.if_else(
        points, pa.scalar("", pa.string()), pc.replace_substring(text, source.text.decimal, ".")
    )


def _epochs(text: pa.Array, name: str, source: Source, step: str) -> pa.Array:
    try:
        return source.reading.from_ints(text.cast(pa.int64()), name, step=step)
    except pa.ArrowInvalid:
        return source.reading.from_floats(text.cast(pa.float64()), name, step=step)


def _first_unread(
    text: pa.Array, name: str, kind: DataType, source: Source, step: str
) -> int | None:
    """Return the position of the first text that does not fit, found by bisection; None if all do alone."""

    def fits(start: int, length: int) -> bool:
        try:
            _converted(text.slice(start, length), name, kind, source, step)
        except (pa.ArrowInvalid, UserError):
            return False
        return True

    start, end = 0, len(text)
    while end - start > 1:
        middle = (start + end) // 2
        start, end = (middle, end) if fits(start, middle - start) else (start, middle)
    return None if fits(start, 1) else start


def _unread(
    value: str, name: str, kind: DataType, source: Source, step: str, row: int
) -> UserError:
    place = f" in row {row}"
    if kind == TIMESTAMP and not source.reading.unit(name):
        try:  # a time that the zone skips, or one out of range, has an error of its own
            source.reading.from_text(pa.array([value]), name)
        except UserError as own:
            return UserError(step, expected=own.expected, got=f"{own.got}{place}", hint=own.hint)
        return source.reading.unread(name, value, place, step=step)
    return UserError(
        step,
        expected=f"column {name!r} of {kind!r}",
        got=f"{value!r}{place}",
        hint=_hint(value, name, kind, source),
    )


def _hint(value: str, name: str, kind: DataType, source: Source) -> str:
    """Return the option that would read a text."""
    plain = value.strip()
    if plain in NULLS:
        return f"nulls=[{plain!r}] makes it null"
    if kind == TIMESTAMP:
        unit = likely_unit(float(plain)) if _is(plain, FLOAT64) else None
        return f"unit={unit!r} reads it" if unit else option_for(plain, source.reading.tz)
    if spelled := _thousands(plain, name, source.text.decimal):
        return spelled
    if marked := _marked(plain, name, source.text.decimal):
        return marked
    for other, said in ((FLOAT64, "float64"), (INT64, "int64")):
        if other != kind and _is(plain, other):
            return f"declare the column as {said}: schema={{{name!r}: {said!r}}}"
    if source.text.decimal == "." and _is(plain.replace(",", "."), FLOAT64):
        return "decimal=',' reads it"
    if source.text.decimal == "," and _is(plain, FLOAT64):
        return "decimal='.' reads it"
    return f"nulls=[{plain!r}] makes it null, and schema={{{name!r}: 'string'}} leaves it as it is"


_THOUSANDS = {
    ",": re.compile(r"[+-]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?"),
    ".": re.compile(r"[+-]?[0-9]{1,3}(\.[0-9]{3})+(,[0-9]*)?"),
}


def _thousands(text: str, name: str, decimal: str) -> str:
    """Return how to read a number that seems to have marks between its thousands; empty if it has none.

    >>> _thousands("1,234", "v", ".")
    "read as text, with ',' between thousands: schema={'v': 'string'}, then \
col['v'].replace(',', '').cast('float64'); decimal=',' if ',' is the decimal sign"
    """
    for mark, other in ((",", "."), (".", ",")):
        once = text.count(mark) == 1 and other not in text  # it may be the decimal sign
        if _THOUSANDS[mark].fullmatch(text) and not (once and mark == "." and decimal == "."):
            point = ".replace(',', '.')" if mark == "." and other in text else ""
            plain = f"col[{name!r}].replace({mark!r}, ''){point}.cast('float64')"
            said = f"schema={{{name!r}: 'string'}}, then {plain}"
            said = f"read as text, with {mark!r} between thousands: {said}"
            return f"{said}; decimal={mark!r} if {mark!r} is the decimal sign" if once else said
    return ""


def _marked(text: str, name: str, decimal: str) -> str:
    """Return how to read a number with the sign of a currency or of percent; empty if it is none.

    >>> _marked("$1.50", "v", ".")
    "read as text, with '$': schema={'v': 'string'}, then col['v'].replace('$', '').cast('float64')"
    """
    taken = number_in(text, decimal)
    if not taken:
        return ""
    marks = " and ".join(map(repr, taken.marks))
    return f"read as text, with {marks}: schema={{{name!r}: 'string'}}, then col[{name!r}]{taken.calls}"


def _is(text: str, kind: DataType) -> bool:
    try:
        pa.array([text]).cast(to_arrow(kind))
    except pa.ArrowInvalid:
        return False
    return True
