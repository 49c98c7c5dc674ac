"""Expressions in process, generated code and Arrow together, against their definition."""

from __future__ import annotations

import math
import random
from typing import Any

import pyarrow as pa
import pytest

import tidemill as tm
from tests.expressions import (
    KINDS,
    ONE_FOR_EACH_FUNCTION,
    SIGNATURES,
    TRANSCENDENTAL,
    random_call,
    random_expression,
    random_rows,
)
from tidemill import col
from tidemill.codegen.expressions import COMPILED
from tidemill.core.batch import conform, from_rows, to_rows
from tidemill.core.errors import UserError
from tidemill.core.schema import Schema, schema
from tidemill.core.types import (
    BOOL,
    DURATION,
    FLOAT64,
    INT64,
    STRING,
    TIMESTAMP,
    list_of,
)  # fmt: skip
from tidemill.expr.evaluate import evaluate
from tidemill.expr.functions import FUNCTIONS
from tidemill.expr.nodes import Call, Column, Literal, Node
from tidemill.expr.typing import type_of
from tidemill.kernels.strings import ARROW_FUNCTIONS
from tidemill.local.stage_runner import StageRunner

FIELDS = Schema(
    (
        ("b", BOOL), ("i", INT64), ("j", INT64), ("f", FLOAT64), ("g", FLOAT64), ("s", STRING),
        ("t", TIMESTAMP), ("d", DURATION), ("ss", list_of(STRING)), ("ii", list_of(INT64)),
    )
)  # fmt: skip


def test_every_function_is_compiled_or_in_arrow() -> None:
    assert set(FUNCTIONS) <= COMPILED | set(ARROW_FUNCTIONS)


def attempt(node: Node, row: dict[str, Any]) -> tuple[Any, bool]:
    try:
        return evaluate(node, row, FIELDS), False
    except UserError:
        return None, True


def same(got: Any, want: Any, loosely: bool) -> bool:
    if isinstance(got, float) and isinstance(want, float):
        if math.isnan(want) or math.isnan(got):
            return math.isnan(want) and math.isnan(got)
        return got == want or (loosely and math.isclose(got, want, rel_tol=1e-12))
    return type(got) is type(want) and got == want


def as_given(table: pa.Table, fields: Schema) -> list[pa.RecordBatch]:
    """The rows in two batches: slices as they are, and slices of what other libraries call text."""
    half = max(1, table.num_rows // 2)
    first, *rest = table.to_batches(max_chunksize=half)
    kinds = [pa.large_string() if f.type == pa.string() else f.type for f in table.schema]
    large = pa.RecordBatch.from_arrays(
        [c.cast(k) for c, k in zip(table.combine_chunks().to_batches()[0].columns, kinds)],
        names=table.schema.names,
    )
    return [first, *([conform(large.slice(half), fields, step="test")] if rest else [])]


def check(nodes: list[Node], rows: list[dict[str, Any]]) -> None:
    """Each expression behind a condition that is true where the definition has a value.

    So failures are tested too: where the condition says no, nothing may fail.
    """
    wanted = [[attempt(n, row) for n in nodes] for row in rows]
    oks = tuple((f"ok{i}", BOOL) for i in range(len(nodes)))
    fields = Schema((*FIELDS.fields, *oks))
    given = [
        {**row, **{f"ok{i}": not failed for i, (_, failed) in enumerate(tried)}}
        for row, tried in zip(rows, wanted)
    ]
    outputs = []
    for i, node in enumerate(nodes):
        nothing = Literal(None, type_of(node, FIELDS))
        outputs.append((f"x{i}", Call("if_else", (Column(f"ok{i}"), node, nothing))))
    runner = StageRunner((), tuple(outputs), fields)
    results = to_rows([runner.run(b) for b in as_given(from_rows(given, fields), fields)], runner.schema)
    for row, tried, got in zip(rows, wanted, results):
        for i, ((want, failed), node) in enumerate(zip(tried, nodes)):
            loosely = isinstance(node, Call) and node.function in TRANSCENDENTAL
            assert failed or same(got[f"x{i}"], want, loosely), f"{node}\n{row}\n{got[f'x{i}']!r} != {want!r}"


PARTS = 12
"""Many small kernels compile sooner than a few large ones."""


@pytest.mark.parametrize("part", range(PARTS))
def test_every_signature_by_itself(part: int) -> None:
    rng = random.Random(part)
    nodes = [random_call(rng, FIELDS, s, 0) for s in SIGNATURES[part::PARTS]]
    check(nodes, random_rows(rng, FIELDS, 60))


@pytest.mark.compiled
@pytest.mark.parametrize("part", range(4))
def test_every_function_compiled(part: int) -> None:
    rng = random.Random(part)
    nodes = [random_call(rng, FIELDS, s, 0) for s in ONE_FOR_EACH_FUNCTION[part::4]]
    check(nodes, random_rows(rng, FIELDS, 60))


def check_random(seed: int, depth: int, expressions: int = 6) -> None:
    rng = random.Random(seed)
    nodes = [random_expression(rng, FIELDS, rng.choice(KINDS), depth) for _ in range(expressions)]
    check(nodes, random_rows(rng, FIELDS, 40))


@pytest.mark.parametrize("seed", range(5))
def test_random_expressions(seed: int) -> None:
    check_random(seed, depth=2)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 160))
def test_random_expressions_for_long(seed: int) -> None:
    check_random(seed, depth=4)


S = tm.stream("s", time="t", schema={"t": "int64", "x": "int64", "s": "string"})


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (col.x + ((1 << 63) - 1), "integer overflow"),
        (col.x * (1 << 62), "integer overflow"),
        (-(col.x - (1 << 62) - (1 << 62) - 2), "integer overflow"),
        (col.s.cast("int64"), "fits int64, got 'no number'"),
        ((col.x.cast("float64") * 1e300).cast("int64"), "does not fit"),
    ],
    ids=str,
)
def test_what_fails_says_so(expression: tm.Expr, message: str) -> None:
    with pytest.raises(UserError, match=message):
        S.select(z=expression).run(s=[{"t": 0, "x": 2, "s": "no number"}])


def test_a_choice_guards_what_would_fail() -> None:
    number = tm.when(col.s.matches("^[0-9]+$")).then(col.s.cast("int64")).otherwise(-1)
    text = tm.when(col.x != 0).then((tm.lit(6) // col.x).cast("string") + "!").otherwise("none")
    rows = [{"t": 0, "x": 2, "s": "42"}, {"t": 1, "x": 0, "s": "abc"}]
    table = S.select(number=number, text=text).run(s=rows)
    assert table.to_pydict() == {"t": [0, 1], "number": [42, -1], "text": ["3!", "none"]}


def test_functions_of_the_user_compile_or_run_row_by_row() -> None:
    compiled = tm.udf(lambda x: x * 3 if x > 1 else -x, returns="int64")
    slow = tm.udf(lambda s: s[::-1], returns="string")
    rows = [{"t": 0, "x": 2, "s": "ab"}, {"t": 1, "x": 1, "s": None}, {"t": 2, "x": None, "s": ""}]
    table = S.select(c=compiled(col.x), r=slow(col.s)).run(s=rows)
    assert table.to_pydict() == {"t": [0, 1, 2], "c": [6, -1, None], "r": ["ba", None, ""]}


def test_what_a_function_of_the_user_raises_is_told_with_its_arguments() -> None:
    broken = tm.udf(lambda s: s.missing(), returns="string")
    with pytest.raises(UserError, match=r"udf <lambda>: raised AttributeError.*\['ab'\]"):
        S.select(z=broken(col.s)).run(s=[{"t": 0, "x": 1, "s": "ab"}])


def test_strings_are_never_copied_into_the_loop() -> None:
    query = S.where((col.s.len() > 1) & col.s.starts_with("a") & (col.x % 2 == 0))
    rows = [{"t": i, "x": i, "s": s} for i, s in enumerate(["ab", "a", "abc", None, "xab"])]
    assert query.run(s=rows)["s"].to_pylist() == ["ab", "abc"]
    assert schema(query.schema) == S.schema


def test_a_compiled_function_that_divides_by_zero_is_an_error() -> None:
    stream = tm.stream("s", time="t", schema={"t": "int64"})
    query = stream.select(z=tm.udf(lambda t: 10 // t, returns="int64")(col.t))
    assert query.run(s=[{"t": 3}]).to_pylist() == [{"t": 3, "z": 3}]
    with pytest.raises(tm.UserError, match="ZeroDivisionError"):
        query.run(s=[{"t": 0}])
