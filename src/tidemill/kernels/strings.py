"""Functions on strings and lists, computed by Arrow instead of a compiled loop.

`call` computes a function of `expr.functions.FUNCTIONS` on columns; the result equals its `define` on every
row. Columns are arrays of the canonical Arrow types, constants are Python values (ticks for timestamps).
At least one argument is an array. Use only `call` and `cast`: they pass every array through `from_zero`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.core.time_formats import (
    format_times,
    instants_of,
    local_times,
    parse_times,
    time_format,
)
from tidemill.core.types import BOOL, FLOAT64, INT64, NULL, STRING, TIMESTAMP, DataType, to_arrow
from tidemill.expr.casts import FLOAT_TEXT, INT_TEXT, TIMESTAMP_TEXT, cast_value
from tidemill.expr.functions import FUNCTIONS, INT_MAX, check_pattern
from tidemill.kernels.arrow import from_zero
from tidemill.kernels.substrings import begins, contains, ends, one_of, place

# --- arguments ------------------------------------------------------------------------------------


def _rows(args: tuple[Any, ...]) -> int:
    return next(len(a) for a in args if isinstance(a, pa.Array))


def _type(args: tuple[Any, ...]) -> pa.DataType:
    """Return the common type of several arguments."""
    arrays = [a.type for a in args if isinstance(a, pa.Array) and not pa.types.is_null(a.type)]
    if arrays:
        return arrays[0]
    constants = [a for a in args if a is not None and not isinstance(a, pa.Array)]
    return pa.scalar(constants[0]).type if constants else pa.null()


def _typed(args: tuple[Any, ...]) -> list[Any]:
    """Convert constants to scalars, and arrays, of the common type."""
    kind = _type(args)
    return [
        (a if a.type == kind else a.cast(kind)) if isinstance(a, pa.Array) else pa.scalar(a, kind)
        for a in args
    ]


def _full(result: Any, rows: int) -> pa.Array:
    if not isinstance(result, pa.Scalar):
        return result
    return pa.repeat(result, rows) if rows else pa.array([], result.type)


# --- strings --------------------------------------------------------------------------------------


def _length(a: pa.Array) -> pa.Array:
    return pc.utf8_length(a).cast(pa.int64())


def _searched(of_strings: Callable[..., pa.Array], otherwise: Callable[..., Any]) -> Any:
    def apply(a: pa.Array, part: Any) -> pa.Array:
        return (of_strings if pa.types.is_string(a.type) else otherwise)(a, part)

    return apply


def _case(ascii_only: Callable[[pa.Array], pa.Array], full: Callable[[str], str]) -> Any:
    def apply(a: pa.Array) -> pa.Array:
        plain = pc.string_is_ascii(a)
        result = ascii_only(a)
        if pc.all(plain, min_count=0).as_py():
            return result
        # Arrow maps each code point to one; 'ß' and a final sigma need Python's full mapping.
        other = pc.fill_null(pc.invert(plain), False)
        distinct = a.filter(other).dictionary_encode()
        mapped = pa.array([full(s) for s in distinct.dictionary.to_pylist()], pa.string())
        return pc.replace_with_mask(result, other, mapped.take(distinct.indices))

    return apply


def _matches(a: pa.Array, pattern: str) -> pa.Array:
    check_pattern(pattern)
    begin = _LITERAL.match(pattern)
    if begin is None or "|" in pattern or not pa.types.is_string(a.type):
        return pc.match_substring_regex(a, pattern)
    # A match begins with these characters, and to look for them is quicker.
    found = contains(a, begin.group())
    some = pc.fill_null(found, False)
    if 2 * pc.sum(some, min_count=0).as_py() > len(a):
        return pc.match_substring_regex(a, pattern)
    return pc.replace_with_mask(found, some, pc.match_substring_regex(a.filter(some), pattern))


def _extract(a: pa.Array, pattern: str) -> pa.Array:
    found = pc.extract_regex(a, pattern)
    return pc.if_else(found.is_valid(), found.field(0), pa.scalar(None, pa.string()))


_LITERAL = re.compile(r"[A-Za-z0-9 _-]+(?![A-Za-z0-9 _*?{-])")
"""Characters at the start of a pattern that stand for themselves, none of which may be left out."""


def _replace(a: pa.Array, old: str, new: str) -> pa.Array:
    return pc.replace_substring(a, old, new)


def _substring(a: pa.Array, start: int, length: int) -> pa.Array:
    return pc.utf8_slice_codeunits(a, start, min(start + length, INT_MAX))


def _find(a: pa.Array, part: str) -> pa.Array:
    return place(a if pa.types.is_string(a.type) else a.cast(pa.string()), part)


def _split(a: pa.Array, separator: str) -> pa.Array:
    return pc.split_pattern(a, separator)


def _concat(*args: Any) -> pa.Array:
    parts = [a if isinstance(a, pa.Array) else pa.scalar(a, pa.string()) for a in args]
    return pc.binary_join_element_wise(*parts, pa.scalar(""), null_handling="emit_null")


# --- times ----------------------------------------------------------------------------------------


def _strptime(a: pa.Array, tz: str, *formats: str) -> pa.Array:
    return parse_times(a, [time_format(text, "strptime", parsed=True) for text in formats], tz)


def _strftime(a: pa.Array, format: str, tz: str) -> pa.Array:
    return format_times(a, time_format(format, "strftime", parsed=False), tz)


def _strict(name: str, convert: Callable[..., pa.Array]) -> Callable[..., pa.Array]:
    """Raise the error of the definition for the first value that gives null."""

    def apply(a: pa.Array, *constants: Any) -> pa.Array:
        found = convert(a, *constants)
        if found.null_count > a.null_count:
            wrong = a.filter(pc.and_(a.is_valid(), found.is_null()))[:1]
            plain = wrong if pa.types.is_string(wrong.type) else wrong.cast(pa.int64())
            FUNCTIONS[name].define(plain[0].as_py(), *constants)
        return found

    return apply


# --- lists ----------------------------------------------------------------------------------------


def _list_length(a: pa.Array) -> pa.Array:
    return pc.list_value_length(a).cast(pa.int64())


def _list_get(a: pa.Array, index: int) -> pa.Array:
    lengths = pc.fill_null(_list_length(a), 0).to_numpy(zero_copy_only=False)
    beyond = (lengths <= index) | (index < 0)
    starts = a.offsets.to_numpy(zero_copy_only=False)[:-1].astype(np.int64)
    places = np.where(beyond, 0, starts + (0 if index < 0 else np.minimum(index, lengths)))
    return a.values.take(pa.array(places, pa.int64(), mask=beyond))


# --- comparison and choice ------------------------------------------------------------------------


def _comparison(name: str, kernel: Callable[..., Any]) -> Any:
    define = FUNCTIONS[name].define

    def apply(*args: Any) -> pa.Array:
        a, b = _typed(args)
        rows = _rows(args)
        if pa.types.is_nested(a.type):  # Arrow cannot compare lists
            pairs = zip(_full(a, rows).to_pylist(), _full(b, rows).to_pylist())
            told = [None if x is None or y is None else define(x, y) for x, y in pairs]
            return pa.array(told, pa.bool_())
        if pa.types.is_null(a.type):
            return pa.nulls(rows, pa.bool_())
        return kernel(a, b)

    return apply


def _is_in(a: pa.Array, *values: Any) -> pa.Array:
    if pa.types.is_string(a.type):
        return one_of(a, values)
    found = pc.is_in(a, value_set=pa.array(values, a.type))
    return pc.if_else(a.is_valid(), found, pa.scalar(None, pa.bool_()))


def _is_null(a: pa.Array) -> pa.Array:
    return pc.is_null(a)


def _is_not_null(a: pa.Array) -> pa.Array:
    return pc.is_valid(a)


def _coalesce(*args: Any) -> pa.Array:
    return _full(pc.coalesce(*_typed(args)), _rows(args))


def _if_else(condition: Any, then: Any, otherwise: Any) -> pa.Array:
    values = _typed((then, otherwise))
    if not isinstance(condition, pa.Array):
        return _full(values[0 if condition is True else 1], _rows((then, otherwise)))
    if pa.types.is_null(condition.type):
        return _full(values[1], len(condition))
    # A null condition takes the second branch; Arrow would return null.
    return _full(pc.if_else(pc.fill_null(condition, False), *values), len(condition))


def _extreme(kernel: Callable[..., Any]) -> Any:
    def apply(*args: Any) -> pa.Array:
        if pa.types.is_null(_type(args)):
            return pa.nulls(_rows(args))
        return _full(kernel(*_typed(args), skip_nulls=True), _rows(args))

    return apply


_FUNCTIONS: dict[str, Callable[..., pa.Array]] = {
    "length": _length,
    "lower": _case(pc.ascii_lower, str.lower), "upper": _case(pc.ascii_upper, str.upper),
    "strip": lambda a: pc.utf8_trim(a, " "),
    "contains": _searched(contains, pc.match_substring),
    "starts_with": _searched(begins, pc.starts_with), "ends_with": _searched(ends, pc.ends_with),
    "matches": _matches, "extract": _extract, "replace": _replace, "substring": _substring, "find": _find,
    "split": _split, "concat": _concat,
    "local_time": local_times,
    "from_local_time": _strict("from_local_time", instants_of), "try_from_local_time": instants_of,
    "strptime": _strict("strptime", _strptime), "try_strptime": _strptime, "strftime": _strftime,
    "list_length": _list_length, "list_get": _list_get,
    "eq": _comparison("eq", pc.equal), "ne": _comparison("ne", pc.not_equal),
    "lt": _comparison("lt", pc.less), "le": _comparison("le", pc.less_equal),
    "gt": _comparison("gt", pc.greater), "ge": _comparison("ge", pc.greater_equal),
    "is_in": _is_in, "is_null": _is_null, "is_not_null": _is_not_null,
    "coalesce": _coalesce, "if_else": _if_else,
    "least": _extreme(pc.min_element_wise), "greatest": _extreme(pc.max_element_wise),
}  # fmt: skip

_AS_THEY_ARE = frozenset(("contains", "starts_with", "ends_with"))
"""The functions that read strings by their offsets, whatever these begin with."""
ARROW_FUNCTIONS = frozenset(_FUNCTIONS)
"""The functions that `call` supports."""


def call(name: str, *args: Any) -> pa.Array:
    """Apply a function to columns and constants.

    >>> call("upper", pa.array(["a", None])).to_pylist()
    ['A', None]
    """
    if name not in _AS_THEY_ARE:
        args = tuple(from_zero(a) if isinstance(a, pa.Array) else a for a in args)
    return _FUNCTIONS[name](*args)


# --- casts ----------------------------------------------------------------------------------------


def cast(array: pa.Array, source: DataType, target: DataType, strict: bool) -> pa.Array:
    """Cast a column from or to strings, by the rules of `expr.casts`.

    >>> cast(pa.array(["42", "x"]), STRING, INT64, strict=False).to_pylist()
    [42, None]
    """
    if source == target:
        return array
    if source == NULL:
        return pa.nulls(len(array), to_arrow(target))
    array = from_zero(array)
    if target == STRING and source in (BOOL, INT64):
        return array.cast(pa.string())
    result = _PARSERS[target](array)
    if strict and result.null_count > array.null_count:
        wrong = pc.and_(array.is_valid(), result.is_null())
        # Raise the error of the definition for the first value that does not fit.
        cast_value(array.filter(wrong)[0].as_py(), source, target, strict=True)
    return result


def _only(array: pa.Array, fits: pa.Array) -> pa.Array:
    return pc.if_else(fits, array, pa.scalar(None, pa.string()))


def _parse_int(array: pa.Array) -> pa.Array:
    text = _only(array, pc.match_substring_regex(array, INT_TEXT))
    text = pc.utf8_ltrim(pc.utf8_trim(text, " "), "+")  # Arrow rejects a plus sign
    if pc.any(pc.greater(pc.binary_length(text), 18)).as_py():  # may not fit int64
        return _one_by_one(text, INT64)
    return text.cast(pa.int64())


def _parse_float(array: pa.Array) -> pa.Array:
    text = _only(array, pc.match_substring_regex(array, FLOAT_TEXT))
    try:
        return pc.utf8_trim(text, " ").cast(pa.float64())
    except pa.ArrowInvalid:  # e.g. a release of Arrow that rejects overflow to infinity
        return _one_by_one(text, FLOAT64)


def _parse_timestamp(array: pa.Array) -> pa.Array:
    fits = pc.match_substring_regex(array, TIMESTAMP_TEXT)
    fits = pc.and_(fits, pc.invert(pc.starts_with(array, "0000")))  # Python's first year is 1
    text = pc.utf8_rtrim(_only(array, fits), "Z")
    try:
        return text.cast(pa.timestamp("us")).cast(to_arrow(TIMESTAMP))
    except pa.ArrowInvalid:  # e.g. 30 February, which the pattern accepts
        return _one_by_one(text, TIMESTAMP)


def _one_by_one(text: pa.Array, target: DataType) -> pa.Array:
    distinct = text.dictionary_encode()
    values = [cast_value(s, STRING, target, strict=False) for s in distinct.dictionary.to_pylist()]
    return pa.array(values, to_arrow(target)).take(distinct.indices)


_PARSERS: dict[DataType, Callable[[pa.Array], pa.Array]] = {
    INT64: _parse_int, FLOAT64: _parse_float, TIMESTAMP: _parse_timestamp,
}  # fmt: skip
