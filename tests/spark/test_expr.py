"""Expressions on Spark against their definition."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from tests.expressions import (
    EDGES,
    INT_MAX,
    INT_MIN,
    KINDS,
    SIGNATURES,
    TRANSCENDENTAL,
    random_call,
    random_expression,
    random_rows,
)
from tidemill.core.errors import UnsupportedError, UserError
from tidemill.core.schema import Schema, schema
from tidemill.core.types import BOOL, DURATION, FLOAT64, INT64, STRING, TIMESTAMP, list_of
from tidemill.expr.evaluate import evaluate
from tidemill.expr.fluent import Expr, col, greatest, lit, udf, when
from tidemill.expr.functions import FUNCTIONS
from tidemill.expr.nodes import Call, Node, Udf
from tidemill.expr.typing import resolve, type_of
from tidemill.spark import expr as spark_expr
from tidemill.spark.expr import SPARK_FUNCTIONS, SparkExpressions, ansi, named, output
from tidemill.spark.regex import to_java

DAY = 86_400_000_000

ROWS_SCHEMA = Schema(
    (
        ("b", BOOL), ("i", INT64), ("j", INT64), ("i32", INT64), ("f", FLOAT64), ("g", FLOAT64),
        ("f32", FLOAT64), ("s", STRING), ("dotted.name", STRING), ("t", TIMESTAMP),
        ("t_ntz", TIMESTAMP), ("t_date", TIMESTAMP), ("d", DURATION), ("ss", list_of(STRING)),
        ("ii", list_of(INT64)),
    )
)  # fmt: skip
_ARROW = {
    "i32": pa.int32(), "f32": pa.float32(), "t": pa.timestamp("us", tz="UTC"),
    "t_ntz": pa.timestamp("us"), "t_date": pa.date32(), "d": pa.duration("us"),
}  # fmt: skip


def make_rows(seed: int, n: int) -> list[dict[str, Any]]:
    """Random rows whose values fit the narrower raw types too."""
    rows = random_rows(random.Random(seed), ROWS_SCHEMA, n)
    for row in rows:
        row["i32"] = None if row["i32"] is None else (row["i32"] + (1 << 31)) % (1 << 32) - (1 << 31)
        row["f32"] = pa.scalar(row["f32"], pa.float64()).cast(pa.float32(), safe=False).as_py()
        row["t_date"] = None if row["t_date"] is None else row["t_date"] // DAY * DAY
    return rows


def frame(spark: Any, rows: list[dict[str, Any]], fields: Schema = ROWS_SCHEMA) -> Any:
    """A DataFrame of raw columns, whose ticks are Spark's own timestamps, dates and intervals."""
    plain = fields.to_arrow()
    columns = {}
    for name, _ in fields:
        values = [r[name] for r in rows]
        kind = _ARROW.get(name, plain.field(name).type)
        if kind == pa.date32():
            values = [None if v is None else v // DAY for v in values]
            columns[name] = pa.array(values, pa.int32()).cast(kind)
        else:
            columns[name] = pa.array(values, kind)
    table = pa.table(columns)
    bad = pa.array([r.get("bad") for r in rows], pa.list_(pa.int32()))
    kinds = {"t_ntz": T.TimestampNTZType(), "bad": T.ArrayType(T.IntegerType())}
    inferred = from_arrow_schema(table.append_column("bad", bad).schema)
    declared = [T.StructField(f.name, kinds.get(f.name, f.dataType)) for f in inferred]
    return spark.createDataFrame(table.append_column("bad", bad), T.StructType(declared))


def compiler(df: Any, fields: Schema = ROWS_SCHEMA) -> SparkExpressions:
    return SparkExpressions(fields, {f.name: f.dataType for f in df.schema.fields})


def same(got: Any, want: Any, *, loosely: bool = False) -> bool:
    if isinstance(got, float) and isinstance(want, float):
        if math.isnan(want):
            return math.isnan(got)
        return got == want or (loosely and math.isclose(got, want, rel_tol=1e-12))
    return type(got) is type(want) and got == want


def inexact(node: Node) -> bool:
    return isinstance(node, Call) and node.function in TRANSCENDENTAL


def attempt(node: Node, row: dict[str, Any]) -> tuple[Any, bool]:
    try:
        return evaluate(node, row, ROWS_SCHEMA), False
    except UserError:
        return None, True


def check(spark: Any, nodes: list[Node], rows: list[dict[str, Any]]) -> None:
    """Spark's values against the definition's, on the rows where that has one."""
    wanted = [[attempt(n, row) for n in nodes] for row in rows]
    for row, tried in zip(rows, wanted):
        row["bad"] = [i for i, (_, failed) in enumerate(tried) if failed]
    df = frame(spark, rows)
    made = compiler(df)
    good = [~F.array_contains(F.col("bad"), F.lit(i)) for i in range(len(nodes))]
    with ansi(spark):
        query = df.select(
            *(F.when(g, made.column(n)).alias(f"x{i}") for i, (g, n) in enumerate(zip(good, nodes)))
        )
    results = query.toArrow().to_pylist()
    for row, tried, got in zip(rows, wanted, results):
        for i, ((want, failed), node) in enumerate(zip(tried, nodes)):
            if not failed:
                assert same(got[f"x{i}"], want, loosely=inexact(node)), (
                    f"{node}\n{row}\ngot {got[f'x{i}']!r}, want {want!r}"
                )


def values(spark: Any, expressions: Iterable[Expr], rows: list[dict[str, Any]]) -> None:
    check(spark, [resolve(e.node, ROWS_SCHEMA, step="test") for e in expressions], rows)


def row(**given: Any) -> dict[str, Any]:
    return {name: None for name in ROWS_SCHEMA.names} | given


def query(spark: Any, expression: Expr, rows: list[dict[str, Any]]) -> Any:
    df = frame(spark, rows)
    node = resolve(expression.node, ROWS_SCHEMA, step="test")
    with ansi(spark):
        return df.select(compiler(df).column(node).alias("x"))


def fails(spark: Any, expression: Expr, saying: str, **given: Any) -> None:
    with pytest.raises(UserError):
        evaluate(resolve(expression.node, ROWS_SCHEMA, step="t"), row(**given), ROWS_SCHEMA)
    with pytest.raises(Exception, match=saying):
        query(spark, expression, [row(**given)]).collect()


# --- every function, and random trees -------------------------------------------------------------


def test_every_function_has_a_spark_form() -> None:
    assert set(SPARK_FUNCTIONS) == set(FUNCTIONS)


@pytest.mark.parametrize("part", range(4))
def test_every_signature_equals_its_definition(spark: Any, part: int) -> None:
    rng = random.Random(part)
    signatures = list(SIGNATURES[part::4])
    for start in range(0, len(signatures), 24):
        nodes = [random_call(rng, ROWS_SCHEMA, s, 1) for s in signatures[start : start + 24]]
        check(spark, nodes, make_rows(start, 80))


@pytest.mark.parametrize("seed", range(6))
def test_random_trees_equal_the_definition(spark: Any, seed: int) -> None:
    rng = random.Random(1000 + seed)
    nodes = [random_expression(rng, ROWS_SCHEMA, rng.choice(KINDS), 3) for _ in range(24)]
    check(spark, nodes, make_rows(seed, 60))
