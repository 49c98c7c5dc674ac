"""The definitions themselves: what each rule of `expr.functions` and `expr.casts` says."""

from __future__ import annotations

import math
import random
from datetime import date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.expressions import (
    EDGES,
    KINDS,
    SIGNATURES,
    Constant,
    random_call,
    random_expression,
)
from tidemill.core.errors import UserError
from tidemill.core.schema import Schema, schema
from tidemill.core.time import instant
from tidemill.core.types import BOOL, DURATION, FLOAT64, INT64, NULL, STRING, TIMESTAMP
from tidemill.expr.casts import cast_value, castable
from tidemill.expr.evaluate import evaluate
from tidemill.expr.fluent import (
    Expr,
    coalesce,
    col,
    concat,
    greatest,
    least,
    lit,
    traced,
    udf,
    when,
)
from tidemill.expr.functions import FUNCTIONS, INT_MAX, INT_MIN, check_pattern
from tidemill.expr.nodes import Call, Cast, Column, Literal, Node, columns_of, substitute
from tidemill.expr.typing import resolve, type_of

FIELDS = schema(
    {"a": "int64", "b": "int64", "x": "float64", "y": "float64", "s": "string", "p": "bool",
     "q": "bool", "t": "timestamp", "u": "timestamp", "d": "duration", "l": "list<string>"}
)  # fmt: skip


def value(expression: Any, **row: Any) -> Any:
    node = resolve(traced(expression, step="test"), FIELDS, step="test")
    return evaluate(node, dict.fromkeys(FIELDS.names) | row, FIELDS)


def typed(expression: Expr) -> Any:
    return type_of(expression.node, FIELDS)


def refused(expression: Expr) -> str:
    with pytest.raises(UserError) as raised:
        resolve(expression.node, FIELDS, step="where")
    return str(raised.value)


# --- the table is complete ------------------------------------------------------------------------


def test_random_expressions_reach_every_function() -> None:
    assert {s.function for s in SIGNATURES} == {*FUNCTIONS, "cast"}
    rng, seen = random.Random(1), set()
    for _ in range(1500):
        node = random_expression(rng, FIELDS, rng.choice(KINDS), 3)
        seen |= {n.function for n in node.walk() if isinstance(n, Call)}
    assert seen == set(FUNCTIONS)


def test_random_expressions_have_the_type_asked_for() -> None:
    rng = random.Random(2)
    for kind in KINDS:
        for _ in range(20):
            assert type_of(random_expression(rng, FIELDS, kind, 3), FIELDS) == kind
    for signature in SIGNATURES:
        node = random_call(rng, FIELDS, signature, 1)
        assert type_of(node, FIELDS) == signature.result
        assert resolve(node, FIELDS, step="again") == node


@pytest.mark.parametrize("signature", [s for s in SIGNATURES if s.function != "cast"], ids=str)
def test_a_null_gives_null_unless_the_function_is_lazy(signature: Any) -> None:
    function = FUNCTIONS[signature.function]
    free = range(len(signature.args) if function.literal_from is None else function.literal_from)
    rng = random.Random(0)
    for missing in free:
        args = tuple(
            Literal(rng.choice(a.values), a.type) if isinstance(a, Constant)
            else Literal(None if i == missing else rng.choice(EDGES[a]), a)
            for i, a in enumerate(signature.args)
        )  # fmt: skip
        node = resolve(Call(signature.function, args), Schema(()), step="test")
        if not function.lazy:
            assert evaluate(node, {}, Schema(())) is None


# --- arithmetic -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "quotient", "rest"),
    [(7, 2, 3, 1), (-7, 2, -4, 1), (7, -2, -4, -1), (-7, -2, 3, -1), (6, -3, -2, 0),
     (1, 0, None, None), (INT_MIN, 1, INT_MIN, 0), (INT_MIN, 3, -3074457345618258603, 1)],
)  # fmt: skip
def test_floor_division_of_ints(a: int, b: int, quotient: Any, rest: Any) -> None:
    assert value(col.a // col.b, a=a, b=b) == quotient
    assert value(col.a % col.b, a=a, b=b) == rest


@pytest.mark.parametrize(
    ("x", "y", "quotient", "rest"),
    [(7.5, 2.0, 3.0, 1.5), (-7.5, 2.0, -4.0, 0.5), (7.5, -2.0, -4.0, -0.5), (1.0, 0.0, None, None),
     (1.0, -0.0, None, None), (-1.0, math.inf, 0.0, math.inf), (1.0, math.inf, 0.0, 1.0),
     (math.inf, 2.0, math.inf, math.nan), (math.nan, 2.0, math.nan, math.nan)],
)  # fmt: skip
def test_floor_division_of_floats(x: float, y: float, quotient: Any, rest: Any) -> None:
    for operation, want in ((col.x // col.y, quotient), (col.x % col.y, rest)):
        got = value(operation, x=x, y=y)
        assert got == want or (got != got and want != want)


def test_division_is_of_floats_and_null_by_zero() -> None:
    assert value(col.a / col.b, a=7, b=2) == 3.5
    assert value(col.a / col.b, a=7, b=0) is None
    assert value(col.x / col.y, x=1e308, y=1e-10) == math.inf


@pytest.mark.parametrize(
    ("expression", "row"),
    [(col.a + 1, {"a": INT_MAX}), (col.a - 1, {"a": INT_MIN}), (col.a * 2, {"a": 1 << 62}),
     (-col.a, {"a": INT_MIN}), (abs(col.a), {"a": INT_MIN}), (col.a // -1, {"a": INT_MIN}),
     (col.t + col.d, {"t": INT_MAX, "d": 1}), (col.t.truncate("7d"), {"t": INT_MIN})],
)  # fmt: skip
def test_overflow_is_an_error(expression: Expr, row: dict[str, int]) -> None:
    with pytest.raises(UserError, match="integer overflow"):
        value(expression, **row)


@pytest.mark.parametrize(
    ("x", "digits", "want"),
    [(0.5, 0, 1.0), (-0.5, 0, -1.0), (2.5, 0, 3.0), (1.25, 1, 1.3), (-1.25, 1, -1.3),
     (1234.5, -2, 1200.0), (1e300, 2, 1e300), (math.inf, 0, math.inf),
     (5e-324, 400, 0.0), (1.5, 400, 1.5),
     (7.0, -400, 0.0)],
)  # fmt: skip
def test_round_goes_half_away_from_zero(x: float, digits: int, want: float) -> None:
    assert value(col.x.round(digits), x=x) == want


def test_rounding_lets_through_what_has_no_fraction() -> None:
    assert math.isnan(value(col.x.floor(), x=math.nan))
    assert value(col.x.ceil(), x=-math.inf) == -math.inf
    assert value(col.a.round(-2), a=1234) == 1234
    assert math.copysign(1, value(col.x.round(), x=-0.0)) == -1
    assert typed(col.x.floor()) == FLOAT64
    assert typed(col.a.floor()) == INT64


@pytest.mark.parametrize(
    ("expression", "want"),
    [(lit(-1.0).sqrt(), None), (lit(0).log(), None), (lit(-1).log2(), None),
     (lit(0.0).log10(), None),
     (lit(1000.0).exp(), math.inf), (lit(0.0) ** -1.0, None), (lit(-8.0) ** (1 / 3), None),
     (lit(-10.0) ** 309, -math.inf), (lit(1.0) ** math.nan, 1.0), (lit(-1.0) ** math.inf, 1.0)],
)  # fmt: skip
def test_outside_the_domain_is_null(expression: Expr, want: Any) -> None:
    assert value(expression) == want


def test_sign() -> None:
    assert [value(col.a.sign(), a=a) for a in (-5, 0, 5)] == [-1, 0, 1]
    assert [value(col.x.sign(), x=x) for x in (-5.0, -0.0, math.inf)] == [-1.0, 0.0, 1.0]
    assert math.isnan(value(col.x.sign(), x=math.nan))


# --- comparison and logic -------------------------------------------------------------------------


def test_nan_equals_nan_and_is_the_greatest() -> None:
    nan = math.nan
    assert value(col.x == col.y, x=nan, y=nan) is True
    assert value(col.x < col.y, x=math.inf, y=nan) is True
    assert value(col.x > col.y, x=nan, y=nan) is False
    assert value(col.x >= col.y, x=nan, y=nan) is True
    assert math.isnan(value(greatest(col.x, col.y), x=nan, y=math.inf))
    assert value(least(col.x, col.y), x=nan, y=math.inf) == math.inf
    assert value(col.x.is_in([1.0, nan]), x=nan) is True
    assert value(col.x == 0.0, x=-0.0) is True
    assert value(col.x < 0.0, x=-0.0) is False


def test_logic_with_nulls() -> None:
    three = (True, False, None)
    both = {(p, q): value(col.p & col.q, p=p, q=q) for p in three for q in three}
    either = {(p, q): value(col.p | col.q, p=p, q=q) for p in three for q in three}
    assert [k for k, v in both.items() if v is True] == [(True, True)]
    assert all(both[k] is False for k in both if False in k)
    assert all(either[k] is True for k in either if True in k)
    assert both[None, True] is both[True, None] is both[None, None] is None
    assert either[None, False] is either[None, None] is None
    assert [value(~col.p, p=p) for p in three] == [False, True, None]


def test_the_side_that_decides_nothing_is_not_evaluated() -> None:
    fails = col.a + 1 > 0
    assert value(col.p & fails, p=False, a=INT_MAX) is False
    assert value(col.p | fails, p=True, a=INT_MAX) is True
    assert value(when(col.p).then(col.a + 1).otherwise(0), p=None, a=INT_MAX) == 0
    for logic in (col.p & fails, col.p | fails):
        with pytest.raises(UserError):
            value(logic, p=None, a=INT_MAX)


def test_nulls_in_choices() -> None:
    assert value(coalesce(col.a, col.b, 3), b=2) == 2
    assert value(least(col.a, col.b), a=5) == 5
    assert value(greatest(col.a, col.b)) is None
    assert value(col.a == lit(None)) is None
    assert value(col.a.is_null()) is True
    assert value(col.a.is_in([1, 2])) is None
    assert value(col.a.is_in([]), a=1) is False
    assert value(when(col.p).then(1)) is None


@given(st.text(), st.text())
def test_strings_compare_by_code_point(a: str, b: str) -> None:
    assert value(lit(a) < lit(b)) == ([*map(ord, a)] < [*map(ord, b)])


# --- time -----------------------------------------------------------------------------------------


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)))
def test_parts_are_those_of_the_calendar(moment: datetime) -> None:
    t = instant(moment)
    names = ("year", "month", "day", "day_of_week", "day_of_year", "hour", "minute", "second")
    got = [value(getattr(col.t, name)(), t=t) for name in names]
    assert got == [
        moment.year, moment.month, moment.day, moment.isoweekday(), moment.timetuple().tm_yday,
        moment.hour, moment.minute, moment.second,
    ]  # fmt: skip
    assert value(col.t.microsecond(), t=t) == moment.microsecond


def test_the_calendar_goes_on_beyond_python() -> None:
    cycle = 146_097 * 86_400_000_000
    t = instant("2024-02-29T12:00")
    for turns in (-40, 0, 40):
        row = {"t": t + turns * cycle}
        assert value(col.t.year(), **row) == 2024 + 400 * turns
        assert (value(col.t.month(), **row), value(col.t.day(), **row)) == (2, 29)
        assert value(col.t.day_of_week(), **row) == date(2024, 2, 29).isoweekday()
    assert value(col.t.year(), t=INT_MIN) == -290308
    assert value(col.t.year(), t=INT_MAX) == 294247


def test_the_epoch_was_a_thursday() -> None:
    assert value(col.t.day_of_week(), t=0) == 4
    assert value(col.t.day_of_week(), t=-1) == 3


def test_arithmetic_of_time() -> None:
    assert typed(col.t - col.u) == DURATION
    assert typed(col.t + timedelta(hours=1)) == typed(timedelta(hours=1) + col.t) == TIMESTAMP
    assert typed(col.d * 2) == DURATION
    assert value(col.t.truncate("1h"), t=-1) == -3_600_000_000
    assert value(col.t >= "2026-01-01", t=instant("2026-01-01T00:00Z")) is True
    day = datetime(2026, 1, 1, tzinfo=timezone.utc)
    assert value(col.t == day, t=instant("2026-01-01")) is True


# --- strings --------------------------------------------------------------------------------------


def test_strings_are_measured_in_code_points() -> None:
    assert value(col.s.len(), s="aé😀") == 3
    assert value(col.s.find("b"), s="é😀b") == 2
    assert value(col.s.find("z"), s="é😀b") == -1
    assert value(col.s.substring(1, 2), s="aé😀b") == "é😀"
    assert value(col.s.upper(), s="Straße") == "STRASSE"
    assert value(col.s.lower(), s="ΑΣ") == "ας"
    assert value(col.s.strip(), s=" \ta ") == "\ta"
    assert value(col.s.split(","), s="a,,b,") == ["a", "", "b", ""]
    assert value(col.s.split(","), s="") == [""]
    assert value(col.s + "!", s="a") == value(concat(col.s, "!"), s="a") == "a!"
    assert value(col.l.list_get(5), l=["a"]) is None
    assert value(col.l.list_get(-1), l=["a"]) is None
    assert value(col.l.list_len(), l=[]) == 0


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [("a$", "a\n", False), ("(?m)a$", "a\n", True), (r"\s", "\x0b", False), (r"\d", "٣", False),
     (r"\pL", "é", True), ("(?i)σ", "Σ", True), ("b", "abc", True), ("^b", "abc", False)],
)  # fmt: skip
def test_patterns_are_those_of_re2(pattern: str, text: str, found: bool) -> None:
    assert value(col.s.matches(pattern), s=text) is found


@pytest.mark.parametrize("pattern", ["(a", "(?=a)", r"(a)\1", "a++", r"\Z"])
def test_what_re2_does_not_read_is_refused(pattern: str) -> None:
    with pytest.raises(UserError, match="RE2"):
        check_pattern(pattern)


# --- casts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number", "real"),
    [("42", 42, 42.0), (" -7 ", -7, -7.0), ("+5", 5, 5.0), ("9223372036854775808", None, 2.0**63),
     ("1e3", None, 1000.0), (".5", None, 0.5), ("1.", None, 1.0), ("1e400", None, math.inf),
     ("", None, None), ("42\n", None, None), ("1_0", None, None), ("0x1", None, None),
     ("٣", None, None),
     ("nan", None, None), ("Infinity", None, None), ("\t1", None, None)],
)  # fmt: skip
def test_numbers_in_text(text: str, number: Any, real: Any) -> None:
    assert cast_value(text, STRING, INT64, strict=False) == number
    assert cast_value(text, STRING, FLOAT64, strict=False) == real


@pytest.mark.parametrize(
    ("text", "want"),
    [("2024-02-29", "2024-02-29T00:00"), ("2024-01-01 10:15", "2024-01-01T10:15"),
     ("2024-01-01T10:15:20.5Z", "2024-01-01T10:15:20.500000"), ("2023-02-29", None),
     ("0000-01-01", None),
     ("2024-01-01\n", None), ("2024-01-01Z", None), ("2024-01-01T24:00", None), ("2024-1-1", None),
     ("2024-01-01T10:15+01:00", None), ("2024-01-01T10:15:20.1234567", None)],
)  # fmt: skip
def test_instants_in_text(text: str, want: str | None) -> None:
    ticks = None if want is None else instant(want)
    assert cast_value(text, STRING, TIMESTAMP, strict=False) == ticks


def test_other_casts() -> None:
    assert cast_value(True, BOOL, STRING, strict=True) == "true"
    assert cast_value(-3.9, FLOAT64, INT64, strict=True) == -3
    assert cast_value(2, INT64, BOOL, strict=True) is True
    assert cast_value(5, INT64, TIMESTAMP, strict=True) == 5
    for bad in (math.nan, math.inf, 2.0**63, -(2.0**64)):
        assert cast_value(bad, FLOAT64, INT64, strict=False) is None
    assert cast_value(-(2.0**63), FLOAT64, INT64, strict=True) == INT_MIN
    assert not castable(FLOAT64, STRING)
    assert castable(NULL, DURATION)


def test_a_strict_cast_says_what_did_not_fit() -> None:
    with pytest.raises(UserError, match="cast: expected a string that fits int64, got 'abc'"):
        value(col.s.cast("int64"), s="abc")
    assert value(col.s.cast("int64", strict=False), s="abc") is None


# --- types ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "shown"),
    [(col.s * 2, "(col.s * 2)"), (col.p + 1, "(col.p + 1)"), (col.t + col.u, "(col.t + col.u)"),
     (col.a & col.p, "(col.a & col.p)"), (col.s < 1, "(col.s < 1)"),
     (col.l < col.l, "(col.l < col.l)"),
     (col.a.lower(), "lower(col.a)"), (col.a.year(), "year(col.a)"),
     (col.x.cast("string"), "col.x"),
     (when(col.a).then(1).otherwise(2), "if_else(col.a, 1, 2)"),
     (col.s.list_len(), "list_length(col.s)"),
     (coalesce(col.a, col.s), "coalesce(col.a, col.s)")],
    ids=str,
)  # fmt: skip
def test_a_type_error_names_step_and_expression(expression: Expr, shown: str) -> None:
    message = refused(expression)
    assert message.startswith("where: expected ")
    assert shown in message


def test_arguments_that_must_be_constants() -> None:
    assert "a constant" in refused(Expr(Call("contains", (col.s.node, col.s.node))))
    assert "a constant" in refused(Expr(Call("round", (col.x.node, Literal(None, INT64)))))


def test_resolve_makes_every_cast_explicit() -> None:
    node = resolve((col.a + col.x > 1).node, FIELDS, step="test")
    add = Call("add", (Cast(Column("a"), FLOAT64), Column("x")))
    assert node == Call("gt", (add, Literal(1.0, FLOAT64)))
    assert resolve((col.s + None).node, FIELDS, step="test") == Call(
        "concat", (Column("s"), Literal(None, STRING))
    )


def test_an_unknown_column_is_answered_with_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'a'"):
        resolve((col.aa + 1).node, FIELDS, step="where")


# --- the surface ----------------------------------------------------------------------------------


def test_lambdas_and_columns_are_two_spellings() -> None:
    assert traced(lambda e: e.a % 100 < 5, step="where") == (col.a % 100 < 5).node
    with pytest.raises(UserError, match="no truth value"):
        traced(lambda e: e.a > 1 and e.b > 1, step="where")
    with pytest.raises(UserError, match="takes one row"):
        traced(lambda a, b: a, step="where")


def test_udfs_see_no_nulls_and_failures_are_named() -> None:
    def half(a: int) -> float:
        return 10 / a

    apply = udf(half, returns="float64")
    assert value(apply(col.a), a=4) == 2.5
    assert value(apply(col.a)) is None
    with pytest.raises(UserError, match=r"udf half: raised ZeroDivisionError.*\[0\]"):
        value(apply(col.a), a=0)
    with pytest.raises(UserError, match="as returns= says"):
        value(udf(lambda a: "x", returns="int64")(col.a), a=1)


def test_columns_of_an_expression() -> None:
    node: Node = (col.a + col.b * col.a).node
    assert columns_of(node) == {"a", "b"}
    assert substitute(node, {"b": Literal(2, INT64)}) == (col.a + lit(2) * col.a).node
