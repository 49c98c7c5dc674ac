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

from tests.examples import later
from tests.expressions import (
    EDGES,
    INT_MAX,
    INT_MIN,
    KINDS,
    ONE_FOR_EACH_FUNCTION,
    SIGNATURES,
    TEXTS,
    TRANSCENDENTAL,
    random_call,
    random_expression,
    random_rows,
)
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
    struct_of,
)
from tidemill.expr.evaluate import evaluate
from tidemill.expr.fluent import Expr, col, greatest, lit, udf, when
from tidemill.expr.functions import FUNCTIONS
from tidemill.expr.nodes import Call, Node
from tidemill.expr.typing import resolve
from tidemill.spark.expr import values as spark_values
from tidemill.spark.expr.compile import SparkExpressions
from tidemill.spark.expr.functions import SPARK_FUNCTIONS
from tidemill.spark.expr.values import named, output
from tidemill.spark.settings import ANSI, ansi

HOUR, DAY = 3_600_000_000, 86_400_000_000

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
        small = row["i32"]
        row["i32"] = None if small is None else (small + (1 << 31)) % (1 << 32) - (1 << 31)
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


def differences(spark: Any, nodes: list[Node], rows: list[dict[str, Any]]) -> list[str]:
    """Where Spark's values are not the definition's, on the rows where that has one."""
    wanted = [[attempt(n, row) for n in nodes] for row in rows]
    for row, tried in zip(rows, wanted):
        row["bad"] = [i for i, (_, failed) in enumerate(tried) if failed]
    df = frame(spark, rows)
    made = compiler(df)
    good = [~F.array_contains(F.col("bad"), F.lit(i)) for i in range(len(nodes))]
    with ansi(spark):
        query = df.select(
            *(F.when(g, made.column(n, g)).alias(f"x{i}") for i, (g, n) in enumerate(zip(good, nodes)))
        )
    results = query.toArrow().to_pylist()
    assert len(results) == len(rows)
    return [
        f"{node}\n{row}\ngot {got[f'x{i}']!r}, want {want!r}"
        for row, tried, got in zip(rows, wanted, results)
        for i, ((want, failed), node) in enumerate(zip(tried, nodes))
        if not failed and not same(got[f"x{i}"], want, loosely=inexact(node))
    ]


def unlike(spark: Any, expressions: Iterable[Expr], rows: list[dict[str, Any]]) -> list[str]:
    """The same of expressions that are still to be resolved."""
    return differences(spark, [resolve(e.node, ROWS_SCHEMA, step="test") for e in expressions], rows)


def row(**given: Any) -> dict[str, Any]:
    return dict.fromkeys(ROWS_SCHEMA.names) | given


def query(spark: Any, expression: Expr, rows: list[dict[str, Any]]) -> Any:
    df = frame(spark, rows)
    node = resolve(expression.node, ROWS_SCHEMA, step="test")
    with ansi(spark):
        return df.select(compiler(df).column(node).alias("x"))


def failure(spark: Any, expression: Expr, **given: Any) -> str:
    """What Spark says where the definition fails, too."""
    with pytest.raises(UserError):
        evaluate(resolve(expression.node, ROWS_SCHEMA, step="t"), row(**given), ROWS_SCHEMA)
    with pytest.raises(Exception) as caught:
        query(spark, expression, [row(**given)]).collect()
    return str(caught.value)


# --- every function, and random trees -------------------------------------------------------------


def test_every_function_has_a_spark_form() -> None:
    assert set(SPARK_FUNCTIONS) == set(FUNCTIONS)


@pytest.mark.parametrize("part", ["one for each function", *later(*range(4))])
@pytest.mark.usefixtures("generated_java")
def test_every_signature_equals_its_definition(spark: Any, part: Any) -> None:
    rng = random.Random(part)
    signatures = list(SIGNATURES[part::4] if isinstance(part, int) else ONE_FOR_EACH_FUNCTION)
    for start in range(0, len(signatures), 24):
        nodes = [random_call(rng, ROWS_SCHEMA, s, 1) for s in signatures[start : start + 24]]
        assert not differences(spark, nodes, make_rows(start, 80))


@pytest.mark.parametrize("seed", [0, *later(*range(1, 6))])
@pytest.mark.usefixtures("generated_java")
def test_random_trees_equal_the_definition(spark: Any, seed: int) -> None:
    rng = random.Random(1000 + seed)
    nodes = [random_expression(rng, ROWS_SCHEMA, rng.choice(KINDS), 3) for _ in range(24)]
    assert not differences(spark, nodes, make_rows(seed, 60))


@pytest.mark.parametrize("zone", ["Asia/Kathmandu", *later("UTC")])
def test_the_time_zone_of_the_session_has_no_say(spark: Any, zone: str) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        times = [col.t, col.t_ntz, col.t_date, col.s.cast("timestamp", strict=False)]
        parts = [
            getattr(t, part)()
            for t in times
            for part in ("year", "month", "day", "day_of_week", "day_of_year", "hour", "minute")
        ]
        moments = [t.truncate("1d") for t in times] + [t - "2024-03-10T07:00" for t in times]
        assert not unlike(spark, parts + moments + [t < "2024-03-10T02:30Z" for t in times], make_rows(5, 60))
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def unavoidable(node: Node, row: dict[str, Any]) -> Any:
    """The value, or a `UserError` that arises in whatever order arguments are evaluated.

    The definition evaluates all arguments before it looks for nulls. Spark may stop at a null, so
    a failure beside one shows on Spark only by chance.
    """
    if not isinstance(node, Call):
        return evaluate(node, row, ROWS_SCHEMA)
    failure, args = None, []
    for arg in node.args:
        try:
            args.append(unavoidable(arg, row))
        except UserError as failed:
            failure = failed
    if any(a is None for a in args):
        return None
    if failure is not None:
        raise failure
    return FUNCTIONS[node.function].define(*args)


STRICT = {
    "add", "sub", "mul", "floordiv", "mod", "neg", "abs", "sign", "truncate", "hour", "length",
    "concat", "replace",
}  # fmt: skip


@pytest.mark.parametrize("count", [5, *later(15)])
@pytest.mark.usefixtures("generated_java")
def test_where_the_definition_fails_spark_fails(spark: Any, count: int) -> None:
    rng, found = random.Random(77), 0
    rows = make_rows(77, 30)
    while found < count:
        node = random_expression(rng, ROWS_SCHEMA, rng.choice((INT64, TIMESTAMP, STRING)), 3)
        if not all(not isinstance(n, Call) or n.function in STRICT for n in node.walk()):
            continue
        for row in rows:
            try:
                unavoidable(node, row)
            except UserError:
                found += 1
                with pytest.raises(Exception, match=r"overflow|OVERFLOW|cast"):
                    query(spark, Expr(node), [row]).collect()
                break


# --- arithmetic -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("generated_java")
def test_overflow_fails(spark: Any) -> None:
    for expression in (
        col.i + 1, col.i * 2, 0 - (-1 - col.i) - (-1), -(-col.i - 1), abs(-col.i - 1),
        (-col.i - 1) // (col.j - 2), col.t + col.d * col.i,
    ):  # fmt: skip
        assert "overflow" in failure(spark, expression, i=INT_MAX, j=1, t=0, d=2)


def test_ansi_holds_where_the_plan_was_built(spark: Any) -> None:
    before = spark.conf.get(ANSI)
    spark.conf.set(ANSI, "false")
    try:
        for expression in (
            col.i + 1, col.i * 2, -(-col.i - 1), abs(-col.i - 1), (-col.i - 1) // col.j,
            col.f.cast("int64"), col.s.cast("int64"),
        ):  # fmt: skip
            later = query(spark, expression, [row(i=INT_MAX, j=-1, f=1e19, s="x")])
            assert spark.conf.get(ANSI) == "false"
            with pytest.raises(Exception, match=r"overflow|cast"):
                later.collect()
        with pytest.raises(RuntimeError), ansi(spark):
            assert spark.conf.get(ANSI) == "true"
            raise RuntimeError
        assert spark.conf.get(ANSI) == "false"
    finally:
        spark.conf.set(ANSI, before)


def test_sums_and_products_of_constants_are_not_regrouped(spark: Any) -> None:
    assert "overflow" in failure(spark, (col.i + INT_MAX) + (-INT_MAX), i=1)
    assert "overflow" in failure(spark, 2 * (col.i * (1 << 40)) * 0, i=1 << 40)
    assert "overflow" in failure(spark, (col.i + 1) + col.j, i=INT_MAX, j=-1)
    assert not unlike(
        spark,
        [(col.i + (1 << 62)) + (1 << 62), (1 << 40) * (col.j * (1 << 40)), 1 + col.j + (2 + col.j)],
        [row(i=INT_MIN, j=0)],
    )
    assert not unlike(spark, [(col.i + 1) + col.j, col.j + (1 + col.i)], [row(i=INT_MIN, j=-1)])


def test_floor_division_and_remainder_of_negatives(spark: Any) -> None:
    divisors = (7, -7, 0, 1, -2, INT_MAX, INT_MIN)
    expressions = [e for d in divisors for e in (col.i // d, col.i % d)]
    expressions += [col.i // col.j, col.i % col.j, col.f // col.g, col.f % col.g, col.f / col.g]
    pairs = [(a, b) for a in (7, -7, 0, INT_MIN, INT_MAX) for b in (3, -3, 0, 1, INT_MAX, INT_MIN)]
    reals = (7.5, -7.5, 0.0, -0.0, 1e308, 1e-9, math.inf, -math.inf, math.nan)
    rows = [row(i=a, j=b) for a, b in pairs] + [row(f=a, g=b) for a in reals for b in reals]
    assert not unlike(spark, expressions, rows)


def test_powers_at_the_edges(spark: Any) -> None:
    edges = (0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, 1e300, math.inf, -math.inf, math.nan)
    rows = [row(f=a, g=b) for a in (*edges, None) for b in (*edges, None)]
    assert not unlike(spark, [col.f**col.g, col.f**-1.0, lit(1.0) ** col.g], rows)


def test_rounding_keeps_doubles(spark: Any) -> None:
    expressions = [col.f.floor(), col.f.ceil(), col.i.floor(), col.i.round(-2), col.f.sign()]
    expressions += [col.f.round(d) for d in (0, 1, 2, -2, 308, 400, -308, -400)]
    assert not unlike(spark, expressions, [row(f=f, i=5) for f in EDGES[FLOAT64]])
    zero = query(spark, col.f.round(1), [row(f=-0.0)]).collect()[0].x
    assert math.copysign(1, zero) == -1


def test_nan_is_the_greatest_and_zero_has_one_sign(spark: Any) -> None:
    many = [0.0, *(float(n) for n in range(10, 30))]
    rows = [row(f=a, g=b) for a in (math.nan, math.inf, -0.0, 0.0, None) for b in (math.nan, 0.0)]
    assert not unlike(
        spark,
        [col.f == col.g, col.f < col.g, col.f >= col.g, greatest(col.f, col.g), col.f.is_nan(),
         col.f.is_in(many), col.f.is_in([*many, math.nan]), col.f.is_in([]), col.f.is_in([-0.0])],
        rows,
    )  # fmt: skip


# --- logic and choice -----------------------------------------------------------------------------


@pytest.mark.usefixtures("generated_java")
def test_what_is_not_needed_is_not_evaluated(spark: Any) -> None:
    overflow = col.i + 1 > 0
    bad = col.s.cast("int64") > 0
    for expression in (
        (col.i < 0) & overflow, (col.i > 0) | bad, when(col.i < 0).then(col.i + 1).otherwise(col.i),
        when(col.b).then(col.s.cast("int64")).otherwise(0), (col.i.is_null()) & (col.i * 2 > 0),
    ):  # fmt: skip
        assert not unlike(spark, [expression], [row(i=INT_MAX, s="x", b=None)])
    assert "overflow" in failure(spark, col.b & overflow, b=None, i=INT_MAX)
    assert "cast" in failure(spark, col.b | bad, b=None, s="x")


# --- casts ----------------------------------------------------------------------------------------


def test_casts_follow_the_grammar(spark: Any) -> None:
    texts = [
        *EDGES[STRING], "1", "--1", "1 2", "0x10", "1_000", "１", "1d", "1f", "Infinity", "1e5",
        "1e12345", "2024-1-1", "2024-13-01", "2024-01-01T24:00", "2024-01-01T10:15:20.1234567",
        "2024-01-01Z", "2024-01-01T10:15+01:00", " 2024-01-01", "9999-12-31T23:59:59.999999Z",
    ]  # fmt: skip
    expressions = [col.s.cast(t, strict=False) for t in ("int64", "float64", "timestamp")]
    assert not unlike(spark, expressions, [row(s=t) for t in texts])


def test_a_strict_cast_names_the_value(spark: Any) -> None:
    assert "expected a string that fits int64, got 'abc'" in failure(spark, col.s.cast("int64"), s="abc")
    assert "fits timestamp, got '2023-02-30'" in failure(spark, col.s.cast("timestamp"), s="2023-02-30")
    assert "expected a float64 that fits int64" in failure(spark, col.f.cast("int64"), f=float(1 << 63))
    assert "fits int64, got 'NaN'" in failure(spark, col.f.cast("int64"), f=math.nan)


# --- strings --------------------------------------------------------------------------------------


def test_what_no_pattern_can_be(spark: Any) -> None:
    for pattern in ("(a", r"(?=a)", r"(a)\1", "a++"):
        with pytest.raises(UserError, match=re.escape(repr(pattern))):
            query(spark, col.s.matches(pattern), [row(s="a")])


def test_strings_at_the_edges(spark: Any) -> None:
    assert not unlike(
        spark,
        [col.s.split("a"), col.s.split("\\E"), col.s.split("."), col.s.find("b"), col.s.find(""),
         col.s.substring(1, 2), col.s.substring(0, 0), col.s.substring(1 << 40, 1 << 62),
         col.s.upper().lower(), col.s.lower().upper(), col.s.strip(), col.s.len(),
         col.s + "é" + col.s, col.s.replace("a", "$0\\"), col.s < "b", col.s > "\uffff",
         col.s.split(",").list_get(1),
         col.s.split(",").list_get(1 << 40), col.s.split(",").list_len(), col.ss.list_len(),
         col["dotted.name"] == col.s],
        [row(s=t, ss=s, **{"dotted.name": "a"}) for t in TEXTS for s in ([], None)],
    )  # fmt: skip


# --- opaque functions -----------------------------------------------------------------------------


def test_udfs_run_row_by_row_and_never_on_nulls(spark: Any) -> None:
    add = udf(lambda a, b: a + b, returns="int64")
    name = udf(lambda a: f"<{a}>", returns="string")
    parts = udf(lambda s: list(s), returns="list<string>")
    later = udf(lambda t, d: t + d, returns="timestamp")
    never = udf(lambda a: None, returns="float64")
    constant = udf(lambda: 7, returns="int64")
    assert not unlike(
        spark,
        [add(col.i, col.j), add(add(col.i, 1), col.i32) + 1, name(col.f), name(col.b), parts(col.s),
         later(col.t, col.d).hour(), never(col.i), constant(), name(col.ss)],
        [row(i=1, j=2, i32=3, f=0.5, b=True, s="aß", t=0, d=HOUR, ss=["a"]), row(i=1), row()],
    )  # fmt: skip


def test_a_udf_is_not_called_in_a_branch_that_is_not_taken(spark: Any) -> None:
    def inverse(a: int) -> float:
        return 1 / a

    divide = udf(inverse, returns="float64")
    constant = udf(lambda: 1 // 0, returns="int64")
    rows = [row(i=i, b=b) for i in (0, 2) for b in (True, False, None)]
    assert not unlike(
        spark,
        [when(col.i != 0).then(divide(col.i)).otherwise(0.0),
         when(col.i == 0).then(0.0).when(col.i == 2).then(divide(col.i)).otherwise(divide(lit(0))),
         (col.i != 0) & (divide(col.i) > 0), (col.i == 0) | (divide(col.i) > 0),
         when(col.i > 5).then(constant()).otherwise(col.i)],
        rows,
    )  # fmt: skip
    assert "udf inverse: raised ZeroDivisionError" in failure(spark, divide(col.i), i=0)


# --- leaves, outputs, pushdown --------------------------------------------------------------------


def test_output_gives_users_their_types(spark: Any) -> None:
    rows = make_rows(9, 40)
    df = frame(spark, rows)
    made = compiler(df)
    names = ("t", "t_ntz", "t_date", "d")
    with ansi(spark):
        shown = df.select(*(output(made.leaf(n), ROWS_SCHEMA[n]).alias(n) for n in names))
    assert [f.dataType.simpleString() for f in shown.schema] == [
        "timestamp", "timestamp", "timestamp", "interval day to second",
    ]  # fmt: skip
    got = shown.toArrow()
    for name in names:
        assert got.column(name).cast(pa.int64()).to_pylist() == [r[name] for r in rows]
    assert output(F.col("x"), INT64)._jc.toString() == "x"


def test_lists_and_structs_of_instants(spark: Any) -> None:
    kinds = schema({"ts": "list<timestamp>", "n": "list<int64>"})
    df = spark.sql(
        "select array(timestamp'2024-01-01 00:00:00 UTC', null) ts, array(1, null) n, "
        "named_struct('t', date'1970-01-02', 'x', 5) s"
    )
    pair = Schema((*kinds.fields, ("s", struct_of({"t": TIMESTAMP, "x": INT64}))))
    made = compiler(df, pair)
    got = df.select(
        made.leaf("ts"), made.leaf("n"), made.leaf("s"), output(made.leaf("ts"), kinds["ts"]),
        output(made.leaf("s"), pair["s"]),
    ).collect()[0]  # fmt: skip
    moment = datetime(2024, 1, 1, tzinfo=timezone.utc)
    assert got[0] == [int(moment.timestamp()) * 1_000_000, None]
    assert got[1] == [1, None]
    assert got[2] == (DAY, 5)
    assert got[3][0].astimezone(timezone.utc) == moment
    assert got[4][0].astimezone(timezone.utc) == datetime(1970, 1, 2, tzinfo=timezone.utc)


def test_older_sparks_read_timestamps_without_zone_the_same(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_values, "_UNIX_MICROS_READS_NTZ", False)
    assert not unlike(spark, [col.t_ntz, col.s.cast("timestamp", strict=False)], make_rows(11, 60))


def test_columns_that_are_not_what_the_stream_says(spark: Any) -> None:
    df = spark.sql("select 1.5BD as price, 'a' as name, current_timestamp() as ts")
    for name, kind in (("price", "float64"), ("name", "int64"), ("ts", "int64")):
        with pytest.raises(UserError, match=f"column '{name}'"):
            compiler(df, schema({name: kind})).leaf(name)
    with pytest.raises(UserError, match="a column 'gone'"):
        compiler(df, schema({"gone": "int64"})).leaf("gone")


def test_collations_do_not_reach_expressions(spark: Any) -> None:
    df = spark.sql("select collate('ABC', 'UTF8_LCASE') s")
    node = resolve((col.s == "abc").node, schema({"s": "string"}), step="test")
    assert df.select(compiler(df, schema({"s": "string"})).column(node)).collect()[0][0] is False


@pytest.fixture(scope="module")
def parquet(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = str(tmp_path_factory.mktemp("pushed") / "rows")
    frame(spark, make_rows(1, 20)).coalesce(1).write.parquet(path)
    return spark.read.parquet(path)


@pytest.mark.parametrize(
    ("expression", "pushed"),
    [
        (col.t >= "2024-01-01", "GreaterThanOrEqual(t,20"),
        (col.t_ntz == "2024-01-01", "EqualTo(t_ntz,2024-01-01T00:00)"),
        (col.t_date < "2024-01-01T10:00", "LessThanOrEqual(t_date,2024-01-01)"),
        (col.t_date >= "2024-01-01T10:00", "GreaterThan(t_date,2024-01-01)"),
        *later(
            (col.t.is_not_null(), "IsNotNull(t)"),
            (col.i32 > 5, "GreaterThan(i32,5)"),
            (col.s.starts_with("a"), "StringStartsWith(s,a)"),
            (col.i.is_in([1, 2]), "In(i, [1,2])"),
            (col.t < "2024-01-01T00:00:00.000001", "LessThan(t,20"),
            (lit(datetime(2024, 1, 1)) <= col.t, "GreaterThanOrEqual(t,20"),
            (col.t_date > "2024-01-01", "GreaterThan(t_date,2024-01-01)"),
            (col.i > 5, "GreaterThan(i,5)"),
            (col.i == INT_MAX, "EqualTo(i,9223372036854775807)"),
            (col.f <= 0.5, "LessThanOrEqual(f,0.5)"),
            (col.s == "a", "EqualTo(s,a)"),
        ),
    ],
)
def test_comparisons_with_constants_reach_the_files(
    parquet: Any, spark: Any, expression: Expr, pushed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    node = resolve(expression.node, ROWS_SCHEMA, step="where")
    with ansi(spark):
        kept = parquet.where(compiler(parquet).column(node))
    kept.explain()
    shown = re.search(r"PushedFilters: \[(.*?)\], ReadSchema", capsys.readouterr().out)
    assert shown is not None
    assert pushed in shown.group(1)
    rows = make_rows(1, 20)
    assert kept.count() == sum(evaluate(node, r, ROWS_SCHEMA) is True for r in rows)


def test_native_comparisons_equal_the_definition(spark: Any) -> None:
    moments = ["2024-01-01", "1969-12-31T23:59:59.999999", "1900-01-01T12:00"]
    literals = [datetime.fromisoformat(m) for m in moments]
    tests = []
    for c in (col.t, col.t_ntz, col.t_date):
        for m in literals:
            tests += [c < m, c <= m, c > m, c >= m, c == m, c != m, m < c]
        tests += [c.is_in(literals), c.is_in(literals[:1]), c == lit(None)]
    far = Call("lt", (col.t_ntz.node, lit(0).cast("timestamp").node))
    tests += [Expr(far), col.t_ntz < (lit(datetime(9999, 12, 31)) + timedelta(days=9))]
    rows = make_rows(21, 30) + [row(t=0, t_ntz=-1, t_date=-25_567 * DAY)]
    assert not unlike(spark, tests[:30], rows)
    assert not unlike(spark, tests[30:], rows)


def test_names_are_quoted(spark: Any) -> None:
    df = spark.createDataFrame([(1, 2)], "`a``b.c` bigint, x bigint")
    assert df.select(named("a`b.c")).collect()[0][0] == 1
