"""Each string and list function on Arrow against its definition."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.expressions import EDGES, INTS, PATTERNS, SIGNATURES, STRINGS, Constant
from tidemill.core.errors import UserError
from tidemill.core.types import (
    BOOL,
    FLOAT64,
    INT64,
    NULL,
    STRING,
    TIMESTAMP,
    DataType,
    to_arrow,
)
from tidemill.expr.casts import cast_value
from tidemill.expr.functions import FUNCTIONS
from tidemill.kernels.strings import ARROW_FUNCTIONS, call, cast

TEXT = st.text(st.sampled_from("abcAB ,.1ßİıΣσςΑéÉ😀\u0301\n\tŉǅﬁ"), max_size=12) | st.text(
    st.characters(codec="utf-8", exclude_characters="\0"), max_size=6
)
COLUMN = st.lists(st.none() | TEXT, max_size=8)
PART = st.text(st.sampled_from("abA ,.ßΣé😀"), max_size=3)
LISTS = st.lists(st.none() | st.lists(st.none() | TEXT, max_size=4), max_size=8)


def defined(name: str, *args: Any) -> Any:
    function = FUNCTIONS[name]
    if not function.lazy and any(a is None for a in args):
        return None
    return function.define(*args)


def column(values: list[Any], kind: DataType = STRING) -> pa.Array:
    """An array that starts in the middle of its buffers, as slices of batches do."""
    padding = [EDGES[kind][-1] if kind in EDGES else None] * 2
    return pa.array([*padding, *values, *padding], to_arrow(kind))[2 : len(values) + 2]


def agrees(name: str, kind: DataType, *args: Any) -> None:
    """Arrays (lists of rows, with their type in `kind`) and constants against the definition."""
    rows = next(len(a) for a in args if isinstance(a, pa.Array))
    result = call(name, *args)
    result.validate(full=True)
    assert result.type == to_arrow(kind)
    spread = [a.to_pylist() if isinstance(a, pa.Array) else [a] * rows for a in args]
    assert result.to_pylist() == [defined(name, *row) for row in zip(*spread)]


def test_every_function_of_strings_or_lists_is_here() -> None:
    def textual(kind: DataType | Constant) -> bool:
        real = kind.type if isinstance(kind, Constant) else kind
        return real == STRING or real.kind == "list"

    needed = {
        s.function for s in SIGNATURES if any(map(textual, s.args)) or textual(s.result)
    } - {"cast"}
    assert needed <= set(ARROW_FUNCTIONS) <= set(FUNCTIONS)


# --- strings --------------------------------------------------------------------------------------


@given(COLUMN)
@examples(60, of=200)
def test_functions_of_one_string(values: list[str | None]) -> None:
    for name, kind in (("length", INT64), ("lower", STRING), ("upper", STRING), ("strip", STRING)):
        agrees(name, kind, column(values))


@pytest.mark.parametrize("name", ["lower", "upper"])
def test_case_is_mapped_in_full(name: str) -> None:
    agrees(name, STRING, column(["ß", "İ", "ΑΣ", "Σ", "ﬁ", "ŉ", "abC", None, "ΑΣ", "ǅ", "😀"]))
    agrees(name, STRING, column(["abC", None, ""]))
    agrees(name, STRING, column([None, None]))
    agrees(name, STRING, column([]))


@given(COLUMN, PART, PART)
@examples(80, of=300)
def test_functions_of_a_string_and_a_part(values: list[str | None], part: str, new: str) -> None:
    for name in ("contains", "starts_with", "ends_with"):
        agrees(name, BOOL, column(values), part)
    agrees("find", INT64, column(values), part)
    if part:
        agrees("replace", STRING, column(values), part, new)
        agrees("split", STRINGS, column(values), part)


def test_find_counts_code_points() -> None:
    agrees("find", INT64, column(["aé😀b", "b", None, "😀", "éb", ""]), "b")
    assert call("find", pa.array(["aé😀b"]), "b").to_pylist() == [3]


@given(COLUMN, st.sampled_from([0, 1, 2, 5, 1 << 40]), st.sampled_from([0, 1, 3, 1 << 40]))
def test_substring(values: list[str | None], start: int, length: int) -> None:
    agrees("substring", STRING, column(values), start, length)


@given(COLUMN, st.sampled_from(PATTERNS))
def test_matches(values: list[str | None], pattern: str) -> None:
    agrees("matches", BOOL, column(values), pattern)


def test_a_pattern_that_is_none_is_named() -> None:
    for values in ([], ["a"]):
        with pytest.raises(UserError, match=r"matches: .*'\(a'"):
            call("matches", pa.array(values, pa.string()), "(a")


@given(st.lists(st.tuples(st.none() | TEXT, st.none() | TEXT), max_size=6), TEXT)
def test_functions_of_several_strings(pairs: list[tuple[Any, Any]], constant: str) -> None:
    a, b = column([p[0] for p in pairs]), column([p[1] for p in pairs])
    for args in ((a, b), (a, constant), (constant, a), (a, b, constant), (a, None), (a,)):
        agrees("concat", STRING, *args)
        for name in ("coalesce", "least", "greatest"):
            agrees(name, STRING, *args)
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        for args in ((a, b), (a, constant), (constant, a), (a, None)):
            agrees(name, BOOL, *args)


@given(COLUMN, st.lists(TEXT, max_size=4))
def test_tests_of_one_string(values: list[str | None], among: list[str]) -> None:
    agrees("is_in", BOOL, column(values), *among)
    agrees("is_in", BOOL, column(values), *[v for v in values[:2] if v is not None])
    agrees("is_null", BOOL, column(values))
    agrees("is_not_null", BOOL, column(values))


@given(st.lists(st.tuples(st.none() | st.booleans(), st.none() | TEXT, st.none() | TEXT)))
def test_choice(rows: list[tuple[Any, Any, Any]]) -> None:
    when = column([r[0] for r in rows], BOOL)
    a, b = column([r[1] for r in rows]), column([r[2] for r in rows])
    for then, otherwise in ((a, b), (a, "x"), ("x", b), ("x", "y"), (a, None), (None, "y")):
        agrees("if_else", STRING, when, then, otherwise)
    for constant in (True, False, None):
        agrees("if_else", STRING, constant, a, b)
        agrees("if_else", STRING, constant, a, "x")
    agrees("if_else", STRING, pa.nulls(len(rows)), a, b)
    agrees("if_else", NULL, when, None, None)
    for name in ("coalesce", "least", "greatest"):
        agrees(name, NULL, pa.nulls(len(rows)), None)
    agrees("eq", BOOL, pa.nulls(len(rows)), None)


# --- lists ----------------------------------------------------------------------------------------


@given(LISTS, st.sampled_from([0, 1, 3, -1, 1 << 40]))
@examples(60, of=200)
def test_lists(values: list[Any], index: int) -> None:
    array = column(values, STRINGS)
    agrees("list_length", INT64, array)
    agrees("list_get", STRING, array, index)
    agrees("coalesce", STRINGS, array, ["x"])
    agrees("if_else", STRINGS, column([True] * len(values), BOOL), array, None)
    agrees("is_null", BOOL, array)
    agrees("eq", BOOL, array, array)
    agrees("ne", BOOL, array, ["a"])


def test_lists_under_nulls_are_not_read() -> None:
    # A null entry may still span items in the buffers.
    offsets, items = pa.array([0, 2, 4], pa.int32()), pa.array([1, 2, 3, 4], pa.int64())
    array = pa.ListArray.from_arrays(offsets, items, mask=pa.array([True, False]))
    assert call("list_get", array, 1).to_pylist() == [None, 4]
    agrees("list_get", INT64, column([None, None], INTS), 0)
    agrees("list_get", INT64, column([], INTS), 0)


# --- casts ----------------------------------------------------------------------------------------

NUMERIC = st.text(st.sampled_from("0123456789+-.eE "), max_size=22)
MOMENT = st.from_regex(
    r"[0-9]{4}-[01][0-9]-[0-3][0-9]([ T][0-2][0-9]:[0-5][0-9])?Z?", fullmatch=True
)


def cast_agrees(values: list[Any], source: DataType, target: DataType) -> None:
    array = column(values, source)
    result = cast(array, source, target, strict=False)
    result.validate(full=True)
    assert result.type == to_arrow(target)
    got = result.cast(pa.int64()).to_pylist() if target == TIMESTAMP else result.to_pylist()
    want = [cast_value(v, source, target, strict=False) for v in values]
    assert got == want
    wrong = [v for v, w in zip(values, want) if v is not None and w is None]
    if not wrong:
        assert cast(array, source, target, strict=True).equals(result)
        return
    with pytest.raises(UserError) as raised:
        cast(array, source, target, strict=True)
    with pytest.raises(UserError) as expected:
        cast_value(wrong[0], source, target, strict=True)
    assert str(raised.value) == str(expected.value)


@given(st.lists(st.none() | NUMERIC | st.integers().map(str) | TEXT, max_size=6))
@examples(80, of=300)
def test_text_to_numbers(values: list[str | None]) -> None:
    cast_agrees(values, STRING, INT64)
    cast_agrees(values, STRING, FLOAT64)


@given(st.lists(st.none() | MOMENT | TEXT, max_size=6))
@examples(80, of=300)
def test_text_to_instants(values: list[str | None]) -> None:
    cast_agrees(values, STRING, TIMESTAMP)


@pytest.mark.parametrize("target", [INT64, FLOAT64, TIMESTAMP])
def test_text_at_the_edges(target: DataType) -> None:
    texts = [
        *EDGES[STRING], None, "2024-01-01T10:15:20.123456", "2024-01-01T10:15:20.1Z", "42\n",
        "2024-01-01\n", "1e400\n", "9999-12-31T23:59:59.999999Z", "1" * 19, "0" * 19, "-0",
    ]  # fmt: skip
    cast_agrees(texts, STRING, target)
    for text in texts:
        cast_agrees([text], STRING, target)


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)), st.lists(st.none() | st.booleans()))
def test_to_text(ints: list[int | None], flags: list[bool | None]) -> None:
    cast_agrees(ints, INT64, STRING)
    cast_agrees(flags, BOOL, STRING)


def test_casts_of_nothing() -> None:
    assert cast(pa.nulls(2), NULL, STRING, strict=True).equals(pa.nulls(2, pa.string()))
    same = pa.array(["a"])
    assert cast(same, STRING, STRING, strict=True) is same


# --- speed where it must not be lost --------------------------------------------------------------


@pytest.mark.parametrize(
    "run",
    [
        lambda a: call("lower", a),
        lambda a: call("find", a, "9"),
        lambda a: cast(a, STRING, INT64, True),
        lambda a: cast(a, STRING, FLOAT64, True),
    ],
)
def test_no_python_loop_over_plain_rows(
    run: Callable[[pa.Array], pa.Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(0)
    array = pa.array([str(rng.randint(0, 10**17)) for _ in range(1000)])

    def slow(*_: Any) -> Any:
        raise AssertionError("row by row")

    monkeypatch.setattr("tidemill.kernels.strings._one_by_one", slow)
    monkeypatch.setattr("tidemill.kernels.strings.cast_value", slow)
    assert len(run(array)) == 1000
