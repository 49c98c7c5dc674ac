"""Random typed expressions and rows full of edge values, for every engine's tests.

`SIGNATURES` holds each scalar function with each combination of types it takes. An expression is
grown from the type it must have, so that it always resolves.
"""

from __future__ import annotations

import math
import random
from typing import Any, NamedTuple

from tidemill.core.schema import Schema
from tidemill.core.types import (
    BOOL,
    DURATION,
    FLOAT64,
    INT64,
    STRING,
    TIMESTAMP,
    DataType,
    list_of,
)
from tidemill.expr.nodes import Call, Cast, Column, Literal, Node
from tidemill.expr.typing import resolve

STRINGS, INTS = list_of(STRING), list_of(INT64)
NUMBERS = (INT64, FLOAT64)
ORDERED = (BOOL, INT64, FLOAT64, STRING, TIMESTAMP, DURATION)
KINDS = (*ORDERED, STRINGS, INTS)

TRANSCENDENTAL = frozenset({"exp", "log", "log2", "log10", "pow"})
"""Libraries differ in their last bits: grown at the root only, and compared with a tolerance."""

INT_MIN, INT_MAX = -(1 << 63), (1 << 63) - 1
_DAY = 86_400_000_000
_1900, _2100 = -25_567 * _DAY, 47_482 * _DAY

EDGES: dict[DataType, tuple[Any, ...]] = {
    BOOL: (True, False),
    INT64: (
        0, 1, -1, 2, -2, 3, 7, -7, 10, 60, 100, -1000, 86_400, 1 << 31, 1 << 40, (1 << 53) + 1,
        1 << 62, INT_MAX, INT_MAX - 1, INT_MIN, INT_MIN + 1, 1_700_000_000_000_000,
    ),
    FLOAT64: (
        0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.1, 2.675, -3.7, 1e-5, 123456.789, 1e15,
        5e-324, 1e308, -1e308, float(1 << 52), (1 << 52) - 0.5, -float(1 << 63), float(1 << 63),
        9.007199254740993e15, math.nan, math.inf, -math.inf,
    ),
    STRING: (
        "", " ", "a", "b", "A b", "  x ", "abab", "aaa", "ß", "Straße", "İ", "ΑΣ", "aΣ b", "ŉ",
        "é😀b", "e\u0301", "a,b,,c", ",", "42", " -7 ", "+5", "007", "9223372036854775807",
        "9223372036854775808", "-9223372036854775808", "1e3", "1.5e400", ".5", "-1.", "1e-400",
        "nan", "true", "2024-02-29", "2023-02-30", "2024-01-01T10:15:20.5Z", "2024-01-01 10:15",
        "1950-07-04 00:00:00.000001", "0000-01-01", "0001-01-01", "42\n", "x\ny", "\t\x0b", "a.b",
        "\\", "$", "[a]", "\ue000",
    ),
    TIMESTAMP: (
        0, 1, -1, _1900, _2100, 951_782_400_000_000, -86_400_000_001, 1_710_054_000_000_000,
        1_710_055_800_123_456, 1_730_611_800_000_000, 1_704_067_199_999_999,
    ),
    DURATION: (0, 1, -1, 1000, 60_000_000, 3_600_000_000, -_DAY, 7 * _DAY, 1 << 50),
    STRINGS: ([], [""], ["a"], ["a", "b"], ["a", None, "ß"], ["x"] * 5),
    INTS: ([], [0], [1, 2, 3], [None], [INT_MAX, INT_MIN], [7, None, 7]),
}  # fmt: skip


class Constant(NamedTuple):
    """An argument that must be a literal, and the values to pick from."""

    type: DataType
    values: tuple[Any, ...]


class Signature(NamedTuple):
    """A function (or "cast") of arguments of some types."""

    function: str
    args: tuple[DataType | Constant, ...]
    result: DataType


def _text(*values: str) -> Constant:
    return Constant(STRING, values)


PATTERNS = (
    "a", "^a", "a$", "^$", "b+", "[a-c]", "(?i)STRASSE|ab", r"\d+", r"\s", r"\bb", r"^\w+$", "a.b",
    "[^a]", r"[[:alpha:]]$", r"x$|^\.", r"(?m)^y$", r"\pL", "é", "(a|b){2}", r"[$\]]", r"\x{1F600}",
)  # fmt: skip
_ZONES = _text("UTC", "Europe/Berlin", "America/St_Johns", "Africa/Monrovia")
_PART = _text("a", "b", "", "ab", "é", "😀", " ", ",", "Σ")
_SOME = _text("a", "b", "ab", "aa", "😀", ",", " ", ".", "\\", "[", "Σ")
_AT = Constant(INT64, (0, 1, 2, 5, 1 << 40))


def _signatures() -> list[Signature]:
    found: list[Signature] = []

    def add(names: str, args: tuple[DataType | Constant, ...], result: DataType) -> None:
        found.extend(Signature(name, args, result) for name in names.split())

    for k in NUMBERS:
        add("add sub mul floordiv mod", (k, k), k)
        add("neg abs sign floor ceil", (k,), k)
        add("round", (k, Constant(INT64, (0, 1, 2, 5, -1, -3, 308, 400, -400))), k)
    add("add sub", (DURATION, DURATION), DURATION)
    add("add sub", (TIMESTAMP, DURATION), TIMESTAMP)
    add("add", (DURATION, TIMESTAMP), TIMESTAMP)
    add("sub", (TIMESTAMP, TIMESTAMP), DURATION)
    add("mul", (DURATION, INT64), DURATION)
    add("mul", (INT64, DURATION), DURATION)
    add("neg abs", (DURATION,), DURATION)
    for k in (INT64, DURATION):
        add("wrap_add wrap_sub", (k, k), k)
        add("carry borrow", (k, k), INT64)
        add("unwrap", (k, INT64), k)
    add("magnitude", (INT64, INT64), INT64)
    add("div pow", (FLOAT64, FLOAT64), FLOAT64)
    add("sqrt exp log log2 log10", (FLOAT64,), FLOAT64)
    add("is_nan", (FLOAT64,), BOOL)
    add("and or", (BOOL, BOOL), BOOL)
    add("not", (BOOL,), BOOL)
    for k in ORDERED:
        add("lt le gt ge", (k, k), BOOL)
        for arity in (1, 2, 3):
            add("least greatest", (k,) * arity, k)
        for size in (0, 1, 3, 12):
            add("is_in", (k, *(Constant(k, EDGES[k]),) * size), BOOL)
    for k in KINDS:
        add("eq ne", (k, k), BOOL)
        add("is_null is_not_null", (k,), BOOL)
        add("coalesce", (k, k), k)
        add("coalesce", (k, k, k), k)
        add("if_else", (BOOL, k, k), k)
    add("year month day day_of_week day_of_year", (TIMESTAMP,), INT64)
    add("hour minute second microsecond", (TIMESTAMP,), INT64)
    every = Constant(DURATION, (1, 7, 1000, 60_000_000, 3_600_000_000, 7 * _DAY))
    add("truncate", (TIMESTAMP, every), TIMESTAMP)
    add("local_time try_from_local_time from_local_time", (TIMESTAMP, _ZONES), TIMESTAMP)
    for formats in ((_text("%Y-%m-%d"), _text("%F %R", "%FT%T.%fZ")), (_text("%Y-%m-%d %H:%M:%S.%f"),)):
        add("strptime try_strptime", (STRING, _ZONES, *formats), TIMESTAMP)
    shown = _text("%Y-%m-%d %H:%M:%S.%f", "%A %d %b %y, %I %p %j %z", "%s%%")
    add("strftime", (TIMESTAMP, shown, _ZONES), STRING)
    add("length", (STRING,), INT64)
    add("lower upper strip", (STRING,), STRING)
    add("contains starts_with ends_with", (STRING, _PART), BOOL)
    add("matches", (STRING, _text(*PATTERNS)), BOOL)
    add("extract", (STRING, _text("(?P<g>a+)", "(?P<g>.)b?", "a(?:x)?(?P<g>b)?$")), STRING)
    add("replace", (STRING, _SOME, _text("", "z", "é", "aa", "$1", "\\")), STRING)
    add("substring", (STRING, _AT, _AT), STRING)
    add("find", (STRING, _PART), INT64)
    add("split", (STRING, _SOME), STRINGS)
    add("concat", (STRING,), STRING)
    add("concat", (STRING, STRING), STRING)
    add("concat", (STRING, STRING, STRING), STRING)
    for k in (STRINGS, INTS):
        add("list_length", (k,), INT64)
        add("list_get", (k, Constant(INT64, (0, 1, 4, -1, 1 << 40))), k.of[0])
    for source, target in (
        (BOOL, INT64), (BOOL, FLOAT64), (BOOL, STRING), (INT64, FLOAT64), (INT64, STRING),
        (INT64, BOOL), (INT64, TIMESTAMP), (INT64, DURATION), (FLOAT64, INT64), (STRING, INT64),
        (STRING, FLOAT64), (STRING, TIMESTAMP), (TIMESTAMP, INT64), (DURATION, INT64),
    ):  # fmt: skip
        add("cast", (source,), target)
    return found


def _one_for_each_function() -> list[Signature]:
    """The first signature of the first function, the second of the second, and so on."""
    found: dict[str, list[Signature]] = {}
    for signature in SIGNATURES:
        found.setdefault(signature.function, []).append(signature)
    return [each[number % len(each)] for number, each in enumerate(found.values())]


SIGNATURES = tuple(_signatures())
ONE_FOR_EACH_FUNCTION = tuple(_one_for_each_function())


def random_expression(
    rng: random.Random, schema: Schema, kind: DataType, depth: int, *, inexact: bool = True
) -> Node:
    """A resolved expression of a type; `inexact` lets its root be a transcendental function."""
    fits = [s for s in SIGNATURES if s.result == kind]
    if not inexact:
        fits = [s for s in fits if s.function not in TRANSCENDENTAL]
    if depth <= 0 or rng.random() < 0.1:
        return random_leaf(rng, schema, kind)
    # Functions that exist for many types would drown the others, so the name is drawn first.
    name = rng.choice(sorted({s.function for s in fits}))
    chosen = rng.choice([s for s in fits if s.function == name])
    return random_call(rng, schema, chosen, depth)


def random_call(rng: random.Random, schema: Schema, signature: Signature, depth: int) -> Node:
    """A resolved call of one function, on random arguments."""
    args = tuple(
        Literal(rng.choice(a.values), a.type)
        if isinstance(a, Constant)
        else random_expression(rng, schema, a, depth - 1, inexact=False)
        for a in signature.args
    )
    node: Node
    if signature.function == "cast":
        node = Cast(args[0], signature.result, strict=rng.random() < 0.4)
    else:
        node = Call(signature.function, args)
    return resolve(node, schema, step="test")


def random_leaf(rng: random.Random, schema: Schema, kind: DataType) -> Node:
    names = [n for n, t in schema if t == kind]
    if names and rng.random() < 0.75:
        return Column(rng.choice(names))
    if kind.kind == "list":  # there are no literals of lists
        return Column(rng.choice(names)) if names else Literal(None, kind)
    return Literal(None if rng.random() < 0.1 else rng.choice(EDGES[kind]), kind)


def random_rows(rng: random.Random, schema: Schema, n: int) -> list[dict[str, Any]]:
    """Rows of Python values, ticks for timestamps: edge values, others, and nulls."""
    return [{name: random_value(rng, kind) for name, kind in schema} for _ in range(n)]


def random_value(rng: random.Random, kind: DataType) -> Any:
    draw = rng.random()
    if draw < 0.15:
        return None
    if draw < 0.7 or kind.kind == "list":
        return rng.choice(EDGES[kind])
    if kind == INT64:
        return rng.randint(-(10 ** rng.randint(1, 18)), 10 ** rng.randint(1, 18))
    if kind == FLOAT64:
        return rng.choice((rng.uniform(-10, 10), rng.gauss(0, 1) * 10.0 ** rng.randint(-20, 20)))
    if kind == STRING:
        return "".join(rng.choice("abcAB ,.9ßéΣ😀") for _ in range(rng.randint(0, 8)))
    if kind == TIMESTAMP:
        return rng.randint(_1900, _2100)
    if kind == DURATION:
        return rng.randint(-30 * _DAY, 30 * _DAY)
    return rng.random() < 0.5


TEXTS = [
    *EDGES[STRING], "a\n", "\n", "a\r\n", "\x0b", "b\u2028c", "K", "ſ", "aé b", "_x9", "a[b", "a&b",
    "]", "-", "x{,2}", "\x07\x0c", "ΓΔ", "ǅ", "\u00a0",
]  # fmt: skip
"""Where strings and patterns are at their edges."""
