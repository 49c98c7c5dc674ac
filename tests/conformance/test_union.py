"""A union gives the same rows on every engine, below and above windows, also of a stream with itself."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import tidemill as tm
from tests.conformance.harness import HASTE, assert_same
from tidemill import col
from tidemill.core.batch import conform, from_rows, to_rows
from tidemill.core.errors import UserError
from tidemill.io.chunks import Chunk
from tidemill.local.graph import Graph
from tidemill.local.run_graph import run_graph
from tidemill.plan.nodes import sources
from tidemill.reference.run import run as run_reference
from tidemill.stream import Stream

COLUMNS = {"t": "int64", "k": "int64", "x": "int64", "s": "string"}
A = tm.stream("a", time="t", schema=COLUMNS)
B = tm.stream("b", time="t", schema=dict(reversed(COLUMNS.items())))
C = tm.stream("c", time="t", schema=COLUMNS, ordered=True)
Rows = dict[str, list[dict[str, Any]]]


def rows(seed: int, size: int) -> list[dict[str, Any]]:
    pick = random.Random(seed)
    return [
        {
            "t": pick.randint(-30, 90), "k": pick.randint(0, 2), "x": pick.choice([None, *range(-4, 9)]),
            "s": pick.choice(["", "p", "q"]),
        }
        for _ in range(size)
    ]  # fmt: skip


ROWS: Rows = {"a": rows(1, 60), "b": rows(2, 25), "c": sorted(rows(3, 40), key=lambda r: r["t"])}
NOBODY: Rows = {"a": [], "b": rows(2, 25), "c": []}
COUNTS = {"n": tm.count(), "total": tm.sum(col.x), "last": tm.last(col.s)}
TENS = A.group_by("k").window(tm.tumbling(10)).agg(n=tm.count(), total=tm.sum(col.x))
BOTH = A.union(B)

QUERIES: dict[str, Stream] = {
    "rows": BOTH,
    "three": A.union(B, C),
    "unions in a union": A.union(B).union(C.union(A)),
    "filtered above": BOTH.where(col.x > 2).select("x", y=col.x + col.k),
    "filtered below": A.where(col.k == 1).union(B.where(col.x > 2)),
    "tumbling": BOTH.group_by("k").window(tm.tumbling(10)).agg(**COUNTS),
    "hopping": A.union(B, C).group_by("k").window(tm.hopping(30, every=10)).agg(**COUNTS),
    "session": BOTH.window(tm.session(3)).agg(**COUNTS),
    "per_event": BOTH.group_by("k").window(tm.per_event(12)).agg(**COUNTS),
    "landmark": BOTH.window(tm.landmark(20, start=-40)).agg(**COUNTS),
    "rows in an order": BOTH.window(tm.rows(5, every=2, order_by="t")).agg(n=tm.count(), x=tm.sum(col.x)),
    "windows above windows": BOTH.group_by("k").window(tm.tumbling(10)).agg(n=tm.count())
    .window(tm.hopping(40, every=20)).agg(most=tm.max(col.n)),
    "windows of both": TENS.union(
        B.group_by("k").window(tm.tumbling(20)).agg(n=tm.count(), total=tm.sum(col.x))
    ),
    "windows over windows of both": TENS.union(
        B.group_by("k").window(tm.tumbling(5)).agg(n=tm.count(), total=tm.sum(col.x))
    ).window(tm.hopping(40, every=20)).agg(n=tm.sum(col.n), groups=tm.count()),
    "itself": A.union(A),
    "itself filtered twice": A.where(col.x > 2).union(A.where(col.k == 0)).group_by("k")
    .window(tm.tumbling(10)).agg(**COUNTS),
    "shared windows": TENS.where(col.n > 2).union(TENS.where(col.total > 5)),
    "shared windows under windows": TENS.union(TENS.where(col.n > 1)).window(tm.tumbling(20))
    .agg(n=tm.sum(col.n)),
    "shared union": BOTH.where(col.x > 2).union(BOTH.where(col.k == 0)),
    "other columns of one stream": A.select("x", v=col.k).union(A.select("x", v=col.x + 1)),
}  # fmt: skip


def inputs_of(query: Stream, data: Rows) -> dict[str, pa.Table]:
    return {s.name: from_rows(data[s.name], s.declared) for s in sources(query.plan)}


def expected(query: Stream, data: Rows) -> list[dict[str, Any]]:
    return run_reference(query.plan, data)


@pytest.mark.parametrize("name", QUERIES)
def test_local(name: str) -> None:
    query = QUERIES[name]
    for what, data in (("rows", ROWS), ("one stream empty", NOBODY)):
        got = to_rows(query.run(**inputs_of(query, data)).to_batches(), query.schema)
        assert_same(got, expected(query, data), query.schema, f"{name}, {what}")


@pytest.mark.parametrize("name", QUERIES)
def test_iterators_are_read_once(name: str) -> None:
    query = QUERIES[name]
    given = {n: iter(table.to_batches(7)) for n, table in inputs_of(query, ROWS).items()}
    got = to_rows(query.run(**given).to_batches(), query.schema)
    assert_same(got, expected(query, ROWS), query.schema, name)


ON_SPARK = ("hopping", "rows in an order", "shared windows under windows", "other columns of one stream")
"""Others take the same way on Spark, and are for the soak."""


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in ON_SPARK else pytest.mark.soak) for n in QUERIES]
)
def test_spark(spark: Any, name: str) -> None:
    query = QUERIES[name]
    frames = {n: spark.createDataFrame(t).repartition(3) for n, t in inputs_of(query, ROWS).items()}
    table = query.on_spark(spark).run(**frames).toArrow()
    got = to_rows([conform(b, query.schema, step="test") for b in table.to_batches()], query.schema)
    assert_same(got, expected(query, ROWS), query.schema, name)


@pytest.mark.parametrize("name", QUERIES)
def test_the_optimised_plan_means_the_same(name: str) -> None:
    query = QUERIES[name]
    assert_same(run_reference(query.optimized, ROWS), expected(query, ROWS), query.schema, name)


def test_the_definition() -> None:
    """Written down by hand, as all else is compared with it."""
    a = [{"t": 1, "k": 1, "x": 3, "s": "p"}, {"t": 12, "k": 1, "x": None, "s": "q"}]
    b = [{"s": "z", "x": 9, "k": 1, "t": 2}]
    query = BOTH.where(col.t < 20).window(tm.tumbling(10)).agg(n=tm.count(), total=tm.sum(col.x))
    assert query.run(a=a, b=b).to_pylist() == [
        {"window_start": 0, "window_end": 10, "n": 2, "total": 12},
        {"window_start": 10, "window_end": 20, "n": 1, "total": None},
    ]
    assert BOTH.run(a=a[:1], b=b).to_pylist() == [a[0], {"t": 2, "k": 1, "x": 9, "s": "z"}]


def test_windows_close_when_all_streams_have_passed_them() -> None:
    """As time goes on in both, not at their end."""
    query = BOTH.window(tm.tumbling(10)).agg(n=tm.count())
    read = {"a": 0, "b": 0}

    def stream(name: str) -> Iterator[Chunk]:
        for start in range(0, 1000, 10):
            read[name] += 1
            yield Chunk(pa.record_batch({"t": list(range(start, start + 10))}), start + 10)

    graph = Graph(query.optimized, tuning=HASTE["eager"])
    first = next(run_graph(graph, {name: stream(name) for name in read}))
    assert first.to_pylist()[0] == {"window_start": 0, "window_end": 10, "n": 20}
    assert max(read.values()) < 20


def test_a_graph_with_a_union_goes_on_from_a_snapshot() -> None:
    both = A.select("x").union(B.select("x"))
    query = both.window(tm.hopping(20, every=10)).agg(n=tm.count(), x=tm.sum(col.x))

    def steps(graph: Graph, start: int, end: int) -> list[Any]:
        found = []
        for t in range(start, end, 5):
            for name, later in (("a", 0), ("b", 3)):
                found += graph.push(name, pa.record_batch({"t": [t + later], "x": [t]}))
                found += graph.advance(name, t + later, prompt=True)
        return [row for batch in found for row in batch.to_pylist()]

    whole = steps(Graph(query.optimized), 0, 100)
    first, second = Graph(query.optimized), Graph(query.optimized)
    before = steps(first, 0, 45)
    second.restore(first.snapshot())
    assert whole == before + steps(second, 45, 100)
    assert len(before) and len(whole) > len(before)


def test_rows_before_the_start_are_counted_in_every_input() -> None:
    late = A.window(tm.tumbling(10, start=0)).agg(n=tm.count())
    query = late.union(B.window(tm.tumbling(10, start=0)).agg(n=tm.count()))
    table = query.run(**inputs_of(query, ROWS))
    before = sum(r["t"] < 0 for name in "ab" for r in ROWS[name])
    assert table.schema.metadata == {b"tidemill.before_start": str(before).encode()}


def test_a_wheel_may_answer_one_of_the_inputs() -> None:
    wheel = tm.Wheel(
        {"n": tm.count(), "total": tm.sum(col.x)}, schema=COLUMNS, time="t", keys=["k"], start=-40,
        granularities=[10], retention="keep", write_ahead=256,
    )  # fmt: skip
    wheel.insert(ROWS["a"])
    wheel.advance_to(100)
    for name in ("windows of both", "windows over windows of both", "shared windows"):
        query = QUERIES[name]
        given: dict[str, Any] = {**inputs_of(query, ROWS), "a": wheel}
        got = to_rows(query.run(**given).to_batches(), query.schema)
        assert_same(got, expected(query, ROWS), query.schema, name)


@pytest.mark.parametrize("between", [lambda s: s, lambda s: s.with_columns(more=col.total + 1)])
def test_a_shared_sub_plan_is_computed_once(between: Any) -> None:
    calls = []
    noted = tm.udf(lambda x: calls.append(x) or x, returns="int64")
    sums = between(A.group_by("k").window(tm.tumbling(10)).agg(total=tm.sum(noted(col.x))))
    query = sums.where(col.total > 2).union(sums.where(col.k == 0))
    query.run(**inputs_of(query, ROWS))
    assert len(calls) == sum(r["x"] is not None for r in ROWS["a"])


# --- refused when the query is written ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: A.union(tm.stream("z", time="t", schema={"t": "int64", "k": "int64"})),
         "union: expected the columns of the first stream"),
        (lambda: A.union(A.select("k", "s", x=col.x.cast("float64"))), "x: float64"),
        (lambda: A.union(tm.stream("z", time="x", schema=COLUMNS)), "the time column 't' in every stream"),
        (lambda: A.union(tm.stream("z", time="t", schema={**COLUMNS, "t": "timestamp"})),
         "logical and clock time never mix"),
        (lambda: A.union(tm.stream("a", time="t", schema=COLUMNS, ordered=True)),
         "stream 'a': expected one declaration for each name"),
        (lambda: BOTH.window(tm.rows(3, every=1)).agg(n=tm.count()), "order_by= over a union"),
        (lambda: A.union(3), "union: expected a stream, got int"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_refused(build: Any, message: str) -> None:
    with pytest.raises(UserError) as raised:
        build()
    assert message in str(raised.value)


def test_every_stream_needs_its_input() -> None:
    with pytest.raises(UserError, match=r"inputs named 'a', 'b', got \['a'\] — write run\(a=..., b=...\)"):
        BOTH.run(a=ROWS["a"])
