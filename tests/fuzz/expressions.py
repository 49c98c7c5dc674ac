"""Random typed expressions as plain data, and the values they meet.

An expression is a list: `["col", name]`, `["lit", kind, value]`, `["cast", kind, strict, arg]`,
`["udf", name, arg, …]`, or a function of `SIGNATURES` and its arguments; `["name", name]` is a column
given as text, as an argument of an aggregate. Kinds are int, float, str,
bool, ts, dur and strs (a list of strings).
"""

from __future__ import annotations

import math
from random import Random
from typing import Any, NamedTuple

from tests.fuzz.functions import UDFS
from tests.fuzz.oracle.expressions import PATTERNS

Expr = list[Any]
Schema = dict[str, str]

DAY = 86_400_000_000
NOW = 1_709_164_800_000_000  # 2024-02-29, a leap day

PLAIN: dict[str, tuple[Any, ...]] = {
    "bool": (True, False),
    "int": (0, 1, -1, 2, 3, 5, 7, -7, 9, 10, 60),
    "float": (0.0, -0.0, 0.5, -0.5, 1.0, 1.5, 2.5, -2.5, -2.25, 3.0, 100.125, 0.1),
    "str": ("", "a", "b", "A", "ab", "abab", "é", "b,a", " x ", "7", "Straße"),
    "ts": (NOW, NOW + 1, NOW + 3_600_000_000, NOW - 1, NOW + 7 * DAY, NOW - 60_000_000),
    "dur": (0, 1, -1, 1000, 60_000_000, 3_600_000_000, -DAY),
    "strs": ([], [""], ["a", "b"], ["a", None, "ß"]),
}
EDGES: dict[str, tuple[Any, ...]] = {
    "bool": (),
    "int": (
        1 << 31, -(1 << 31), (1 << 53) + 1, 1 << 62, -(1 << 62), (1 << 63) - 1, (1 << 63) - 2,
        -(1 << 63), 1 - (1 << 63), 3_037_000_500, 86_400,
    ),
    "float": (
        math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 1e-5, 1e15, float(1 << 52),
        (1 << 52) - 0.5, float(1 << 63), -float(1 << 63), 9.007199254740993e15, 2.675, 123456.789,
    ),
    "str": (
        "ß", "İ", "ΑΣ", "ŉ", "é😀b", "e\u0301", "a,b,,c", ",", " -7 ", "+5", "007",
        "9223372036854775807", "9223372036854775808", "1e3", "1.5e400", ".5", "-1.", "nan", "true",
        "2024-02-29", "2023-02-30", "2024-01-01T10:15:20.5Z", "2024-01-01 10:15", "42\n", "x\ny",
        "a.b", "\\", "$", "[a]", "\ue000", "a" * 40,
    ),
    "ts": (0, -1, 1, -25_567 * DAY, 47_482 * DAY, -DAY - 1, 951_782_400_000_000),
    "dur": (1 << 50, -(1 << 50), 7 * DAY),
    "strs": (),
}  # fmt: skip


class Const(NamedTuple):
    """An argument that must be a literal."""

    kind: str
    values: tuple[Any, ...]


class Signature(NamedTuple):
    name: str
    args: tuple[str | Const, ...]
    result: str


INEXACT = frozenset({"exp", "log", "log2", "log10", "pow"})
"""Compared with a tolerance, so nothing is computed from them."""

_PART = Const("str", ("a", "b", "ab", "é", "😀", " ", ",", "Σ", ""))
_SOME = Const("str", ("a", "b", "ab", "aa", "😀", ",", " ", ".", "\\", "["))
_AT = Const("int", (0, 1, 2, 5, 1 << 40, (1 << 63) - 1))


def _signatures() -> list[Signature]:
    found: list[Signature] = []

    def add(names: str, args: tuple[str | Const, ...], result: str) -> None:
        found.extend(Signature(n, args, result) for n in names.split())

    for k in ("int", "float"):
        add("add sub mul floordiv mod", (k, k), k)
        add("neg abs sign floor ceil", (k,), k)
        add("round", (k, Const("int", (0, 1, 2, -1, 308))), k)
    for args in (("int", "float"), ("float", "int")):
        add("add sub mul floordiv mod", args, "float")
        add("lt le eq ne gt ge", args, "bool")
    add("add sub", ("dur", "dur"), "dur")
    add("add sub", ("ts", "dur"), "ts")
    add("add", ("dur", "ts"), "ts")
    add("sub", ("ts", "ts"), "dur")
    add("mul", ("dur", "int"), "dur")
    add("neg abs", ("dur",), "dur")
    add("div pow", ("float", "float"), "float")
    add("div", ("int", "int"), "float")
    add("sqrt exp log log2 log10", ("float",), "float")
    add("is_nan", ("float",), "bool")
    add("and or", ("bool", "bool"), "bool")
    add("not", ("bool",), "bool")
    for k in ("bool", "int", "float", "str", "ts", "dur"):
        add("lt le gt ge eq ne", (k, k), "bool")
        for arity in (2, 3):
            add("least greatest coalesce", (k,) * arity, k)
        for size in (1, 3, 9):
            add("is_in", (k, *(Const(k, PLAIN[k] + EDGES[k]),) * size), "bool")
        add("is_null is_not_null", (k,), "bool")
        add("if_else", ("bool", k, k), k)
    add("year month day day_of_week day_of_year hour minute second microsecond", ("ts",), "int")
    every = Const("dur", (1, 7, 1000, 60_000_000, 3_600_000_000, 7 * DAY))
    add("truncate", ("ts", every), "ts")
    add("length", ("str",), "int")
    add("lower upper strip", ("str",), "str")
    add("contains starts_with ends_with", ("str", _PART), "bool")
    add("matches", ("str", Const("str", tuple(PATTERNS))), "bool")
    add("replace", ("str", _SOME, Const("str", ("", "z", "é", "aa", "$1", "\\"))), "str")
    add("substring", ("str", _AT, _AT), "str")
    add("find", ("str", _PART), "int")
    add("split", ("str", _SOME), "strs")
    add("concat", ("str", "str"), "str")
    add("concat", ("str", "str", "str"), "str")
    add("list_length", ("strs",), "int")
    add("list_get", ("strs", Const("int", (0, 1, 4))), "str")
    add("eq ne", ("strs", "strs"), "bool")
    for source, target in (
        ("bool", "int"), ("bool", "float"), ("bool", "str"), ("int", "float"), ("int", "str"),
        ("int", "bool"), ("int", "dur"), ("float", "int"), ("str", "int"), ("str", "float"),
        ("str", "ts"), ("ts", "int"), ("dur", "int"),
    ):  # fmt: skip
        add("cast", (source,), target)
    for name, (_, returns) in UDFS.items():
        takes = {"clip": ("int",), "halves": ("float",), "whole": ("float",), "shout": ("str",),
                 "digits": ("str",), "longer": ("str", "str")}[name]  # fmt: skip
        add(f"udf:{name}", takes, returns)
    return found


SIGNATURES = tuple(_signatures())
_BY_RESULT: dict[str, dict[str, list[Signature]]] = {}
for _one in SIGNATURES:
    _BY_RESULT.setdefault(_one.result, {}).setdefault(_one.name, []).append(_one)


def random_expr(pick: Random, schema: Schema, kind: str, depth: int, *, root: bool = True) -> Expr:
    """An expression of a kind, which always has a type; functions are drawn before their types."""
    if depth <= 0 or pick.random() < 0.1:
        return random_leaf(pick, schema, kind)
    named = _BY_RESULT[kind]
    names = [n for n in named if root or n not in INEXACT]
    chosen = pick.choice(named[pick.choice(names)])
    args = [
        ["lit", a.kind, pick.choice(a.values)]
        if isinstance(a, Const)
        else random_expr(pick, schema, a, depth - 1, root=False)
        for a in chosen.args
    ]
    if chosen.name == "cast":
        return ["cast", chosen.result, pick.random() < 0.15, *args]
    if chosen.name.startswith("udf:"):
        return ["udf", chosen.name[4:], *args]
    return [chosen.name, *args]


def random_leaf(pick: Random, schema: Schema, kind: str) -> Expr:
    names = [n for n, k in schema.items() if k == kind]
    if names and (kind == "strs" or pick.random() < 0.75):
        return ["col", pick.choice(names)]
    if kind == "strs":  # there are no literals of lists
        return ["split", random_leaf(pick, schema, "str"), ["lit", "str", ","]]
    return ["lit", kind, random_value(pick, kind, edges=0.15)]


def random_value(pick: Random, kind: str, *, edges: float) -> Any:
    if EDGES[kind] and pick.random() < edges:
        return pick.choice(EDGES[kind])
    return pick.choice(PLAIN[kind])
