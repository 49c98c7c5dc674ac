"""Interval joins on Spark batch give the rows of their definition: all options, and pairs of them.

Several queries are asked in one job, whose rows come back as JSON.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from functools import reduce
from typing import Any

import pytest

import tidemill as tm
from tests.conformance.temporal import Row, assert_rows, by_reference, inputs_of
from tests.conformance.test_intervals import AGGREGATES, OPTIONS, OTHERS, PAIRED, A, B
from tests.examples import TIMES, later
from tidemill.core.batch import from_rows
from tidemill.plan.nodes import sources
from tidemill.spark.batch.looks import Divided
from tidemill.spark.batch.slice_choice import SliceTuning
from tidemill.spark.exchange.decision import Decision, watched
from tidemill.spark.query import SparkQuery
from tidemill.stream import Stream

KINDS: dict[str, dict[str, Any] | None] = {
    "few": AGGREGATES["few"], "in order": AGGREGATES["in order"], "pairs": None,
}  # fmt: skip


def points(seed: int, size: int = 40) -> list[Row]:
    """Rows with nulls, ties, and times that are far away."""
    pick = random.Random(seed)
    times = [*range(-10, 26), *range(8), -(10**12), 10**12]
    return [
        {
            "t": pick.choice(times), "k": pick.choice([0, 0, 1, 2, None]),
            "v": pick.choice([None, *range(-4, 7)]), "s": pick.choice(["", "a", "b", "ab", "é", None]),
            "x": pick.choice([0.0, -0.0, 0.5, 1.5, -2.25, float("nan"), None]),
        }
        for _ in range(size)
    ]  # fmt: skip


def data(seed: int, size: int = 40) -> dict[str, list[Row]]:
    return {"a": points(seed, size), "b": points(seed + 1, size)}


TINY = SliceTuning(few_rows=0, sample=1_000_000, task_rows=25, gain=0.0, costly_gain=0.0)
"""Divides keys of few rows, whether it pays or not."""


class Engine:
    """Spark, which answers several queries in one job; with a tuning, keys are divided by time."""

    def __init__(self, spark: Any, tuning: SliceTuning | None = None) -> None:
        self.spark, self.tuning = spark, tuning
        self.divided: list[Divided] = []
        """What was said of each join."""
        self._frames: dict[tuple[Any, int], Any] = {}

    def frame(self, source: Any, rows: list[Row]) -> Any:
        key = source.declared, id(rows)
        if key not in self._frames:
            found = self.spark.createDataFrame(from_rows(rows, source.declared))
            self._frames[key] = (found.repartition(2) if self.tuning is None else found), rows
        return self._frames[key][0]

    def run(self, query: Stream, given: Mapping[str, list[Row]]) -> Any:
        frames = {s.name: self.frame(s, given[s.name]) for s in sources(query.plan)}
        if self.tuning is None:
            return query.on_spark(self.spark).run(**frames)
        decisions: list[Decision] = []
        with watched(decisions):
            found = SparkQuery(query.optimized, self.spark, tuning=self.tuning).run(**frames)
        self.divided += [d for d in decisions if isinstance(d, Divided)]
        return found

    def check(self, queries: Mapping[str, Stream], given: Mapping[str, list[Row]]) -> None:
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as F

        frames = []
        for number, query in enumerate(queries.values()):
            row = F.to_json(F.struct("*"), {"ignoreNullFields": "false"})
            frames.append(self.run(query, given).select(F.lit(number).alias("number"), row.alias("row")))
        table = reduce(DataFrame.union, frames).toArrow()
        found: list[list[Row]] = [[] for _ in queries]
        for number, text in zip(*(table.column(i).to_pylist() for i in range(2))):
            found[number].append(json.loads(text, parse_constant=float))
        for (name, query), rows in zip(queries.items(), found):
            expected = by_reference(query, inputs_of(query, given))
            assert_rows(_as_json(rows), _as_json(expected), name)


def _as_json(rows: list[Row]) -> list[Row]:
    """Rows as they are after a way through JSON, where NaN is text and a map is a list."""

    def plain(value: Any) -> Any:
        if isinstance(value, float) and value != value:
            return "NaN"
        if isinstance(value, Mapping):
            return {n: plain(v) for n, v in value.items()}
        return [plain(v) for v in value] if isinstance(value, (list, tuple)) else value

    return [{n: plain(v) for n, v in row.items()} for row in rows]


@pytest.fixture(scope="module")
def engine(spark: Any) -> Engine:
    return Engine(spark)


def asked(options: dict[str, Any], aggregates: dict[str, Any] | None) -> Stream:
    joined = A.interval_join(B, on="k", **options)
    return joined.pairs() if aggregates is None else joined.agg(**aggregates)


@pytest.fixture
def slicing(spark: Any) -> Engine:
    return Engine(spark, TINY)


SOME = ("both computed", "a few around", "with base", "prevailing", "since previous")


@pytest.mark.parametrize("kind", [*list(KINDS)[2:], *later(*list(KINDS)[:2])])
def test_each_option(engine: Engine, kind: str) -> None:
    names = OPTIONS if TIMES > 1 or kind != "pairs" else SOME
    engine.check({name: asked(OPTIONS[name], KINDS[kind]) for name in names}, data(1))


@pytest.mark.soak
@pytest.mark.parametrize("name", AGGREGATES)
def test_each_family_of_aggregates(engine: Engine, name: str) -> None:
    options = ("around", "both computed", "a condition")
    engine.check({one: asked(OPTIONS[one], AGGREGATES[name]) for one in options}, data(3))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(TIMES))
def test_options_together(engine: Engine, seed: int) -> None:
    pick, queries = random.Random(seed), {}
    for kind in [*KINDS] * 4:
        options = {name: pick.choice(values) for name, values in PAIRED.items()}
        shown = {n: v for n, v in options.items() if v not in (None, False)}
        queries[f"{shown}, {kind}"] = asked(options, KINDS[kind])
    engine.check(queries, data(seed, 8 + seed % 5 * 8))


SOME_OTHERS = ("last", "nearest, close", "lags", "without a key, last", "two probes", "in groups")


@pytest.mark.parametrize("which", ["some", *later("all")])
def test_others(engine: Engine, which: str) -> None:
    names, given = SOME_OTHERS if which == "some" else OTHERS, data(5)
    given["b"] = [row | {"u": row["t"] + 1 + i % 3} for i, row in enumerate(given["b"])]
    engine.check({name: OTHERS[name]() for name in names}, given)


DIVIDED_OTHERS = ("nearest, close", "without a key, last", "two probes")
DIVIDED = ("a few around", "prevailing, after", "both computed", "since previous")


@pytest.mark.parametrize("kind", ["few", *later("in order", "pairs")])
def test_keys_divided_by_time(slicing: Engine, kind: str) -> None:
    names = OPTIONS if TIMES > 1 else DIVIDED
    slicing.check({name: asked(OPTIONS[name], KINDS[kind]) for name in names}, data(11))
    said = "\n".join(map(str, slicing.divided))
    assert sum(one.slices is not None for one in slicing.divided) >= len(DIVIDED), said


def test_others_divided_by_time(slicing: Engine) -> None:
    given = data(12)
    given["b"] = [row | {"u": row["t"] + 1 + i % 3} for i, row in enumerate(given["b"])]
    slicing.check({name: OTHERS[name]() for name in (OTHERS if TIMES > 1 else DIVIDED_OTHERS)}, given)
    assert sum(one.slices is not None for one in slicing.divided) >= 3, slicing.divided


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(TIMES))
def test_options_together_divided_by_time(slicing: Engine, seed: int) -> None:
    pick, queries = random.Random(seed), {}
    for kind in [*KINDS] * 4:
        options = {name: pick.choice(values) for name, values in PAIRED.items()}
        shown = {n: v for n, v in options.items() if v not in (None, False)}
        queries[f"{shown}, {kind}"] = asked(options, KINDS[kind])
    slicing.check(queries, data(seed, 30 + seed % 5 * 20))


def test_no_rows(engine: Engine) -> None:
    some = data(7, 5)
    queries = {"few": asked({"preceding": 5}, KINDS["few"]), "last": OTHERS["last"]()}
    engine.check(queries, some | {"b": []})
    engine.check(queries, some | {"a": []})


def test_explain() -> None:
    words = "together, because rows meet in intervals of time\n  shuffle rows of both sides by k"
    few, none = ", or by slices of time where few keys have most rows", "; no key is divided by time: "
    for options, more in (
        ({"preceding": 5}, few),
        ({"preceding": tm.FOREVER}, f"{none}rows of any age may belong to the interval"),
    ):
        text = str(asked(options, KINDS["few"]).explain())
        assert f"{words}{more}\n  run" in text.split("== spark ==")[1], text


def test_explain_says_what_a_sample_found(spark: Any) -> None:
    query = asked({"preceding": 3}, KINDS["few"])
    frames = {name: spark.createDataFrame(from_rows(rows, A.plan.schema)) for name, rows in data(1).items()}
    text = str(SparkQuery(query.optimized, spark, tuning=TINY).explain(**frames))
    assert "large keys in slices of time — else few tasks have most rows" in text, text
    assert "are copied" in text and "tasks: 4; the largest gets" in text, text
    assert "no key is divided — there are few rows" in str(query.on_spark(spark).explain(**frames))


def test_a_condition_that_fails(engine: Engine) -> None:
    too_much: Any = lambda a, b: a.v * (b.v * 10**18) > 0
    query = A.interval_join(B, on="k", preceding=9, where=too_much).agg(n=tm.count())
    with pytest.raises(Exception, match="failed on a pair of rows"):
        engine.run(query, data(1)).collect()
