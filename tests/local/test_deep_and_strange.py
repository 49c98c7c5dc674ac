"""Expressions that programs write: very deep ones, and columns of any name."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import reduce

import pyarrow as pa
import pytest

import tidemill as tm
from tests.conformance.harness import assert_same, by_reference, locally
from tidemill import col
from tidemill.core.errors import UserError
from tidemill.expr.json import from_json, to_json
from tidemill.expr.nodes import MOST_LEVELS, Node
from tidemill.expr.typing import resolve
from tidemill.local.expressions import evaluate

S = tm.stream("s", time="t", schema={"t": "int64", "v": "int64", "s": "string"})
ROWS = [{"t": i, "v": i % 7, "s": f"x{i % 5}"} for i in range(20)]


def many_branches(n: int) -> tm.Expr:
    choice = tm.when(col.v == 0).then(col.v + 100)
    for i in range(1, n):
        choice = choice.when(col.v == i).then(i)
    return choice.otherwise(None)


def many_texts(n: int) -> tm.Expr:
    choice = tm.when(col.s == "x0").then("zero")
    for i in range(1, n):
        choice = choice.when(col.s == f"x{i}").then(f"y{i}")
    return choice.otherwise(col.s)


DEEP: dict[str, Callable[[int], tm.Expr]] = {
    "when": many_branches,
    "plus": lambda n: reduce(lambda a, b: a + b, [col.v] * n),
    "or": lambda n: reduce(lambda a, b: a | b, [col.v == 3 * i for i in range(n)]),
    "right": lambda n: reduce(lambda a, b: tm.lit(1) - b, [col.v] * n),
    "text": many_texts,
    "concat": lambda n: reduce(lambda a, b: a + "-" + b, [col.s] * (n // 2)),
}


def in_small_loops(expression: tm.Expr) -> list[object]:
    """By loops of few levels, which compile soon; there are as many of them as of 250 levels otherwise."""
    node = resolve(expression.node, S.schema, step="test")
    [batch] = pa.Table.from_pylist(ROWS).to_batches()
    return evaluate(node, batch, S.schema, levels=12).to_pylist()


@pytest.mark.parametrize("name", DEEP)
def test_deep_expressions_give_what_the_definition_gives(name: str) -> None:
    expression = DEEP[name](45)
    want = by_reference(S.select(z=expression), ROWS)
    assert in_small_loops(expression) == [row["z"] for row in want]


@pytest.mark.soak
@pytest.mark.parametrize("levels", [98, 250, MOST_LEVELS - 2])
@pytest.mark.parametrize("name", DEEP)
def test_deep_expressions_of_full_length(name: str, levels: int) -> None:
    query = S.select(z=DEEP[name](levels))
    assert_same(locally(query, ROWS), by_reference(query, ROWS), query.schema)


@pytest.mark.parametrize("name", ["plus", "or", "when"])
def test_the_deepest_expression_is_compared_shown_shipped_and_computed(name: str) -> None:
    a, b = (DEEP[name](MOST_LEVELS - 2).node for _ in range(2))
    assert a == b and hash(a) == hash(b) and len({a, b}) == 1
    assert str(a) == str(b) and repr(a) == repr(b)
    again: Node = pickle.loads(pickle.dumps(a))
    assert again == a and again.transform(lambda n: n) == a
    query = S.select(z=tm.Expr(a))
    assert len(by_reference(query, ROWS)) == len(ROWS)


def test_a_branch_of_many_that_is_not_taken_does_not_fail() -> None:
    big = (1 << 62) + (1 << 61)
    choice = tm.when(col.v < 0).then(col.v)
    for i in range(30):
        choice = choice.when(col.v == i + 3).then((col.v - 3 - i) * big)
    want = by_reference(S.select(z=choice.otherwise(-1)), ROWS)
    assert in_small_loops(choice.otherwise(-1)) == [row["z"] for row in want]


def test_an_expression_that_is_too_deep_is_refused_by_name() -> None:
    with pytest.raises(UserError, match=f"at most {MOST_LEVELS} levels"):
        DEEP["plus"](MOST_LEVELS + 1)


NAMES = ["$row", "$rows", "$ends2", "$0", "\x01row", "k0", "pane", "s0_0", "a b", "c0", "i", "rows", "ends2"]


@pytest.mark.parametrize(
    "window",
    [tm.rows(4, every=2), tm.per_event(3, every=2), tm.per_event(3, every=2, by="rank")],
    ids=str,
)
def test_columns_and_aggregates_may_have_any_name(window: tm.Window) -> None:
    stream = tm.stream("s", time="t", schema={"t": "int64", **dict.fromkeys(NAMES, "int64")})
    plain = tm.stream("s", time="t", schema={"t": "int64", "v": "int64"})
    rows = [{"t": i, **{n: i * i + j for j, n in enumerate(NAMES)}} for i in range(12)]
    found = stream.window(window).agg(**{n: tm.sum(col[n]) for n in NAMES[:4]}).run(s=rows).to_pydict()
    for name in NAMES[:4]:
        own = plain.window(window).agg(v=tm.sum(col.v))
        want = own.run(s=[{"t": r["t"], "v": r[name]} for r in rows]).to_pydict()
        assert found[name] == want["v"], name


def test_a_name_that_is_ours_is_refused() -> None:
    with pytest.raises(UserError, match="NUL"):
        tm.stream("s", time="t", schema={"t": "int64", "\0row": "int64"})
    with pytest.raises(UserError, match="NUL"):
        S.select(**{"\0time": col.v})
    with pytest.raises(UserError, match="NUL"):
        S.window(tm.tumbling(2)).agg(**{"\0rows": tm.count()})


def test_literals_of_two_zeros_and_of_nan_are_told_apart() -> None:
    assert tm.lit(0.0).node != tm.lit(-0.0).node
    assert tm.lit(float("nan")).node == tm.lit(-float("nan")).node


def test_an_expression_that_is_added_to_itself_again_and_again_is_as_large_as_it_was_written() -> None:
    doubled = col.v
    for _ in range(40):
        doubled = doubled + doubled
    assert from_json(to_json(doubled.node)) == doubled.node
    assert pickle.loads(pickle.dumps(doubled.node)) == doubled.node
    assert len(str(doubled)) <= 1_000
    rows = [{"t": 1, "v": 3, "s": ""}]
    query = S.select(x=doubled)
    assert by_reference(query, rows) == locally(query, rows) == [{"t": 1, "x": 3 << 40}]
