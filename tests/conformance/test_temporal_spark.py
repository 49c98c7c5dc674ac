"""Each operator on lifetimes gives the same rows on Spark batch as by its definition."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

import tidemill as tm
from tests.conformance.harness import assert_same
from tests.examples import TIMES, later
from tidemill import col
from tidemill.core.batch import conform, from_rows, to_rows
from tidemill.core.errors import UserError
from tidemill.plan.intervals import IntervalJoin
from tidemill.plan.nodes import Source, sources
from tidemill.plan.temporal import Cut, Join, Pieces, Temporal
from tidemill.reference.run import run as run_reference
from tidemill.spark.batch.slice_choice import SliceTuning
from tidemill.spark.exchange.decision import Decision, watched
from tidemill.spark.query import SparkQuery
from tidemill.stream import Stream

Row = dict[str, Any]
S = tm.stream("s", time="t", end="u", schema={"t": "int64", "u": "int64", "k": "int64", "v": "int64"})
P = tm.stream("p", time="t", schema={"t": "int64", "k": "int64", "w": "int64"})
D = tm.table("d", schema={"k": "int64", "name": "string"})
E = tm.table("e", schema={"name": "string", "k": "int64"})
LONG = P.lasting(3)
BELOW: Any = lambda left, right: left.v < right.w
ODD = tm.udf(lambda v: v is not None and v % 2 == 1, returns="bool")

LIFETIMES = {
    "quantised with gaps": P.quantised(5, every=10),
    "shift": P.shift(-5).lasting(3),
    "at_end": S.at_end().lasting(2),
    "extend, at_most": S.extend(3).at_most(5),
    "lasting an expression": P.lasting(lambda e: e.w - 2),
    "edges": S.edges(),
}
SNAPSHOTS = {
    "aggregates by key": S.group_by("k").agg(n=tm.count(), m=tm.max("v"), l=tm.last("v"), c=tm.collect("v")),
    "aggregates": S.agg(n=tm.count(), sm=tm.sum("v")),
    "quantised": P.quantised(10, every=5).group_by("k").agg(n=tm.count(), l=tm.last("w")),
    "distinct": S.distinct("k"),
    "share": S.group_by("k").agg(n=tm.count()).join(S.agg(a=tm.count())).select("k", share=col.n / col.a),
}
JOINS = {
    "join": S.join(P, on="k"),
    "without keys": S.join(LONG, where=BELOW),
    "right without keys": S.join(LONG, how="right", where=BELOW),
    "outer without keys": S.join(LONG, how="outer", where=BELOW),
    "left": S.join(LONG, on="k", how="left", where=BELOW),
    "outer": S.join(LONG, on="k", how="outer"),
    "keys of other names": S.join(P.select("w", j=col.k), on={"k": "j"}, how="right"),
    "two keys from one column": S.join(P, on={"k": "k", "v": "k"}),
    "with itself": P.lasting(5).join(P, on="k", where=lambda left, right: left.t < right.t),
    "of windows": P.group_by("k").window(tm.tumbling(5)).agg(n=tm.count()).join(
        S.group_by("k").window(tm.tumbling(5)).agg(m=tm.count()), on="k", how="outer"),
    "in groups": S.group_by("k").apply(lambda g: g.top(1, by="v").join(g.agg(n=tm.count()))),
}  # fmt: skip
POINTS = {
    "points": P.join(P.select("k", x=col.w), on="k"),
    "points, outer": P.join(P.where(col.w > 4).select("k", x=col.w), on="k", how="outer"),
    "points that exist": P.where_exists(S.at_start(), on="k", where=lambda left, right: left.w < right.v),
    "points in groups": S.at_start().group_by("k").apply(
        lambda g: g.select("v").join(g.select(w=col.v * 2), how="left", where=lambda a, b: a.v < b.w)),
    "joined points": P.join(S.at_start().select("k", x=col.v), on="k").join(P.select("k", y=col.w), on="k"),
    "clipped points": P.clip(P, on="k"),
}  # fmt: skip
TABLES = {
    "table": S.join(D, on="k"),
    "table, left": P.join(D, on="k", how="left", where=lambda p, d: d.name != "b"),
    "table, left, in Python": P.join(D, on="k", how="left", where=lambda p, d: ODD(p.w)),
    "table, inner, in Python": P.join(D, on="k", where=lambda p, d: ODD(p.w)),
    "table, right": S.join(D, on="k", how="right"),
    "table at the left": D.join(S, on="k", how="right"),
    "tables": D.join(E, on="k", how="outer"),
    "not in a table": S.where_not_exists(D, on="k"),
    "rows of a table": D.where_exists(S, on="k").select("k"),
    "aggregates of a table": D.group_by("name").agg(n=tm.count()),
}
CUTS = {
    "exists": S.where_exists(LONG, on="k"),
    "exists where": S.where_exists(LONG, on="k", where=BELOW),
    "not exists": S.where_not_exists(LONG, on="k"),
    "not exists where": S.where_not_exists(LONG, on="k", where=BELOW),
    "not exists without keys": S.where_not_exists(P.lasting(2)),
    "clip": S.clip(P, on="k"),
    "clip without keys": S.clip(P, where=BELOW),
    "clip where": S.clip(P, on="k", where=BELOW),
}
BY_KEY = {
    "next, chop": P.until_next("k").chop(5),
    "chop": S.chop(4, origin=1),
    "sample": P.until_next("k").sample(5),
    "stitch": S.select("k").stitch(),
    "stitch nothing": S.select().stitch(),
    "top": S.top(2, by="v"),
    "top by key": S.group_by("k").top(1, by="v", least=True),
    "session": P.until_session_end(4, "k"),
    "lag, lead": P.lag("k", b="w", back=2).lead("k", c="w"),
    "lead": S.lead(c="v", ahead=2),
    "changes": S.select("k").changes(),
    "islands": P.lasting(4).distinct("k").lead("k", nxt="valid_from"),
}
ALL = {**LIFETIMES, **SNAPSHOTS, **JOINS, **POINTS, **TABLES, **CUTS, **BY_KEY}
ALIKE = (
    "not exists without keys",
    "quantised with gaps", "shift", "at_end", "quantised", "share", "exists where", "not exists", "sample",
    "stitch nothing", "points that exist", "table, left", "table, right", "outer", "lag, lead", "top",
    "right without keys", "outer without keys", "clip without keys", "lasting an expression", "points",
    "two keys from one column", "table, inner, in Python", "not in a table", "points in groups",
    "islands", "lead", "tables", "table at the left", "points, outer", "clip where", "top by key", "session",
    "distinct", "with itself", "clipped points", "keys of other names", "rows of a table", "joined points",
)  # fmt: skip
"""Queries whose neighbours take the same path."""


def rows(seed: int, size: int = 24) -> dict[str, list[Row]]:
    """Rows with nulls, ties and lifetimes that never end."""
    pick = random.Random(seed)
    keys = [1, 2, 3, None]
    lives: list[Row] = []
    for _ in range(size):
        t = pick.randint(0, 40)
        u = pick.choice([None, t + pick.randint(1, 12), t + pick.randint(1, 12)])
        lives.append({"t": t, "u": u, "k": pick.choice(keys), "v": pick.randint(0, 9)})
    points = [
        {"t": pick.randint(0, 40), "k": pick.choice(keys), "w": pick.randint(0, 9)} for _ in range(size)
    ]
    names = [{"k": pick.choice(keys), "name": pick.choice(["a", "b", None])} for _ in range(5)]
    others = [{"k": pick.choice(keys), "name": pick.choice(["c", "d"])} for _ in range(3)]
    return {"s": lives, "p": points, "d": names, "e": others}


class Engine:
    """Spark, with the frames of some rows, which are made once; with a tuning, keys are divided by time."""

    def __init__(self, spark: Any, tuning: SliceTuning | None = None) -> None:
        self.spark, self.tuning = spark, tuning
        self.divided = 0
        """In how many joins keys were divided."""
        self.frames: dict[tuple[str, int], Any] = {}

    def frame(self, source: Source, given: list[Row]) -> Any:
        key = source.name, id(given)
        if key not in self.frames:
            table = from_rows(given, source.declared)
            frame = self.spark.createDataFrame(table)
            self.frames[key] = (frame.repartition(2) if self.tuning is None else frame), given
        return self.frames[key][0]

    def run(self, query: Stream, data: Mapping[str, list[Row]]) -> Any:
        frames = {s.name: self.frame(s, data[s.name]) for s in sources(query.plan)}
        if self.tuning is None:
            return query.on_spark(self.spark).run(**frames)
        decisions: list[Decision] = []
        with watched(decisions):
            found = SparkQuery(query.optimized, self.spark, tuning=self.tuning).run(**frames)
        self.divided += sum("keys in slices of time" in str(one) for one in decisions)
        return found

    def check(self, query: Stream, data: Mapping[str, list[Row]]) -> None:
        table = self.run(query, data).toArrow()
        found = to_rows([conform(b, query.schema, step="test") for b in table.to_batches()], query.schema)
        given = {s.name: data[s.name] for s in sources(query.plan)}
        assert_same(found, run_reference(query.optimized, given), query.schema)


@pytest.fixture(scope="module")
def engine(spark: Any) -> Engine:
    return Engine(spark)


DATA = rows(1)
NOTHING = rows(2, 0) | {"d": [], "e": []}


@pytest.mark.parametrize("name", [*(n for n in ALL if n not in ALIKE), *later(*ALIKE)])
def test_operators(engine: Engine, name: str) -> None:
    engine.check(ALL[name], DATA)


@pytest.mark.soak
@pytest.mark.parametrize("name", ALL)
def test_operators_on_other_rows(engine: Engine, name: str) -> None:
    for seed in range(3, 3 + TIMES):
        engine.check(ALL[name], rows(seed, seed % 5 * 7))


TINY = SliceTuning(few_rows=0, sample=1_000_000, task_rows=12, gain=0.0)
KEYED = (
    "left", "clip", "with itself", "join", "keys of other names", "exists where", "not exists", "clip where",
)  # fmt: skip


@pytest.mark.parametrize("name", [*KEYED[:3], *later(*KEYED[3:])])
def test_keys_divided_by_time(spark: Any, name: str) -> None:
    for seed in range(20, 20 + TIMES):
        engine = Engine(spark, TINY)
        engine.check(ALL[name], rows(seed, 40))
        assert engine.divided == 1


def test_no_rows(engine: Engine) -> None:
    queries = [ALL[name] for name in (
        "aggregates by key", "aggregates", "join", "left", "table", "clip", "chop", "stitch", "top by key",
        "lead", "changes")]  # fmt: skip
    names = [engine.run(query, NOTHING).selectExpr("1 AS one") for query in queries]
    whole = names[0]
    for one in names[1:]:
        whole = whole.union(one)
    assert whole.count() == 0


def test_the_queries_have_every_operator() -> None:
    found = {type(n) for query in (*ALL.values(), *CLOCK.values()) for n in query.optimized.walk()}
    wanted = {kind for kind in _below(Temporal) if kind is not Pieces and not issubclass(kind, IntervalJoin)}
    assert wanted <= found
    kinds = [n.kind for q in ALL.values() for n in q.optimized.walk() if isinstance(n, (Join, Cut))]
    assert set(kinds) == {"inner", "left", "right", "outer", "exists", "not_exists", "clip"}


def _below(kind: type) -> set[type]:
    return {one for below in kind.__subclasses__() for one in (below, *_below(below))}


# --- clock time, and columns that travel along ------------------------------------------------------

KINDS = {
    "t": "timestamp", "u": "timestamp", "k": "string", "x": "float64", "words": "list<string>",
    "place": pa.struct({"a": pa.int64(), "b": pa.string()}), "long": "duration",
}  # fmt: skip
C = tm.stream("c", time="t", end="u", schema=KINDS)
Q = tm.stream("q", time="t", schema={"t": "timestamp", "k": "string", "x": "float64", "on": "bool"})
SECOND = 1_000_000
CLOCK = {
    "join": C.join(Q.lasting("3s").select("k", y=col.x), on="k", how="outer"),
    "left, floats": C.join(Q.lasting("2s").select("x", y=col.k), on="x", how="left"),
    "not exists": C.where_not_exists(Q.lasting("3s"), on=["k", "x"]),
    "stitch": C.stitch(),
    "changes": C.changes(),
    "edges": C.edges(),
    "chop": C.chop("4s"),
    "top": C.group_by("k").top(1, by="x"),
    "lag": C.lag("k", before="words", w="long"),
    "words": C.select_many(word=col.words).select("k", "word").group_by("word").agg(n=tm.count()),
    "aggregates": C.group_by("x").agg(first=tm.first("k"), n=tm.count()),
    "from edges": Q.from_edges("k", "x", start=col.on),
    "lasting": Q.lasting("2s"),
    "table": Q.join(D, on={"k": "name"}),
    "table, right": C.join(D, on={"k": "name"}, how="right"),
}
MANY = ("edges", "chop", "top", "lag", "lasting", "stitch", "from edges", "table", "left, floats")


def clock_rows(seed: int, size: int = 20) -> dict[str, list[Row]]:
    pick = random.Random(seed)
    floats = [0.0, -0.0, float("nan"), 1.5, None]
    lives: list[Row] = []
    for _ in range(size):
        t = pick.randint(0, 20) * SECOND
        lives.append({
            "t": t, "u": pick.choice([None, t + pick.randint(1, 9) * SECOND]), "x": pick.choice(floats),
            "k": pick.choice(["a", "b", None]), "words": pick.choice([None, [], ["p"], ["p", None, "q"]]),
            "place": pick.choice([None, {"a": 1, "b": None}, {"a": None, "b": "x"}]),
            "long": pick.choice([None, 5]),
        })  # fmt: skip
    edges: list[Row] = []
    is_open: set[Any] = set()
    for t in range(size):
        key = pick.choice(["a", "b", None]), pick.choice([1.5, float("inf")])
        edges.append({"t": t * SECOND, "k": key[0], "x": key[1], "on": key not in is_open})
        is_open ^= {key}
    return {"c": lives, "q": edges, "d": DATA["d"]}


@pytest.mark.parametrize("name", [*(n for n in CLOCK if n not in MANY), *later(*MANY)])
def test_clock_time_and_types(engine: Engine, name: str) -> None:
    engine.check(CLOCK[name], CLOCK_DATA)


CLOCK_DATA = clock_rows(1)


# --- errors -----------------------------------------------------------------------------------------

ENDS = {"t": "timestamp", "u": "timestamp"}
NO_START: Row = {"t": None, "k": 1, "w": 1}
WRONG: dict[str, tuple[Stream, Row, str]] = {
    "no lifetime": (
        tm.stream("w", time="t", end="u", schema=ENDS).extend("1s"), {"t": 5 * SECOND, "u": 3 * SECOND},
        "an end in 'u' after 't', got 1970-01-01T00:00:03+00:00, and the start is 1970-01-01T00:00:05",
    ),
    "no start": (P.lasting(3), NO_START, "stream 'p': expected a time in 't'"),
    "no start in a task": (P.until_session_end(5), NO_START, "stream 'p': expected a time in 't'"),
    "no start in a join": (P.join(D, on="k"), NO_START, "stream 'p': expected a time in 't'"),
    "an end without a start": (
        P.from_edges("k", start=col.w > 5), NO_START | {"t": 3}, "an end without a start before it, at 3",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_rows(engine: Engine, name: str) -> None:
    query, row, words = WRONG[name]
    first, *others = sources(query.plan)
    data = {first.name: [row]} | {s.name: DATA[s.name] for s in others}
    with pytest.raises(UserError, match=re.escape(words)):
        query.run(**{s.name: from_rows(data[s.name], s.declared) for s in sources(query.plan)})
    with pytest.raises(Exception, match=re.escape(words)):
        engine.run(query, data).collect()


# --- what runs where --------------------------------------------------------------------------------

MEET = "together, because rows meet while they hold"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("shift", "columns, because each row by itself"),
        ("table", "join, because the right side holds for ever\n  shuffle both sides by k, or the smaller"),
        ("points", "join, because points hold together at equal times"),
        ("joined points", "join, because points hold together at equal times\n  shuffle both sides by k"),
        ("clipped points", "columns, because nothing ends a point sooner"),
        ("table, left, in Python", f"{MEET}\n  shuffle rows of both sides by k"),
        ("exists", f"{MEET}\n  shuffle rows of both sides by k"),
        ("right without keys", f"{MEET}\n  divide time, in two more passes over the right side"),
        ("outer without keys", f"{MEET}\n  shuffle all rows of both sides to one task"),
        ("aggregates by key", "rows of a key that hold together are aggregated\n  shuffle rows by k"),
        ("changes", "shuffle net edges by all columns"),
        ("chop", "look for the last instant"),
    ],
)
def test_explain(name: str, words: str) -> None:
    query = ALL[name]
    text = str(query.explain())
    assert words in text.split("== spark ==")[1], text
    local = text.split("== local ==")[1].split("== spark ==")[0]
    assert "None" not in local and len(local.splitlines()) > 3, local


# --- late rows --------------------------------------------------------------------------------------


def test_late_rows_and_rows_without_a_lifetime(engine: Engine) -> None:
    arriving = {"t": "int64", "u": "int64", "k": "int64", "seq": "int64"}
    query = tm.stream("r", time="t", end="u", schema=arriving).join(D, on="k").group_by("k").agg(n=tm.count())
    pick, given = random.Random(3), []
    for seq in range(40):
        t = seq // 2 + pick.randint(-6, 6)
        given.append({"t": t, "u": t + pick.randint(-1, 8), "k": pick.choice([1, 2, None]), "seq": seq})
    data = {"r": given, "d": DATA["d"]}
    disorder = tm.Disorder(slack=3, consistent=True)
    expected = query.run(
        disorder=disorder, **{s.name: from_rows(data[s.name], s.declared) for s in sources(query.plan)}
    )
    frames = {s.name: engine.frame(s, data[s.name]) for s in sources(query.plan)}
    on_spark = query.on_spark(engine.spark)
    found = on_spark.run(disorder=disorder, arrival="seq", **frames).toArrow()
    assert_same(
        to_rows(found.cast(query.schema.to_arrow()).to_batches(), query.schema),
        to_rows(expected.to_batches(), query.schema), query.schema,
    )  # fmt: skip
    late = on_spark.late(disorder, arrival="seq", **frames).toPandas()
    counted = late.groupby("late_reason").size().to_dict()
    metadata = {n: int(expected.schema.metadata[f"tidemill.{n.replace(' ', '_')}".encode()]) for n in counted}
    assert counted == metadata and len(counted) == 2
