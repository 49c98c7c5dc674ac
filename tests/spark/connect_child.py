"""Runs in a process of its own: what Tidemill does in a session of Spark Connect. Prints JSON, case by case.

A process has classic sessions or those of Connect, not both.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import tidemill as tm
from tests import interpreter
from tests.spark_settings import SETTINGS
from tidemill import col
from tidemill.core.errors import TidemillError, UnsupportedError, UserError
from tidemill.spark.batch.slice_choice import SliceTuning
from tidemill.spark.exchange.decision import watched
from tidemill.spark.query import SparkQuery

STREAM = tm.stream("rows", time="t", schema={"t": "int64", "k": "string", "v": "int64", "x": "float64"})
BY_KEY = STREAM.group_by("k")
HOPPING = tm.hopping(30, every=10)
WINDOWS = {
    "jvm": BY_KEY.window(tm.tumbling(10)).agg(n=tm.count(), s=tm.sum(col.v), sd=tm.std(col.x)),
    "panes": BY_KEY.window(HOPPING).agg(m=tm.mean(col.x), h=tm.max(col.v)),
    "partials": BY_KEY.window(HOPPING).agg(g=tm.product(col.v)),
    "colocated": BY_KEY.window(tm.session(3)).agg(n=tm.count(), last=tm.last(col.v)),
}
"""A query for each way that windows go on Spark."""
CLOCK = tm.stream("rows", time="t", schema={"t": "timestamp", "k": "string", "v": "int64"}, unit="s")


def table() -> pa.Table:
    rng = np.random.default_rng(5)
    return pa.table({
        "t": rng.integers(0, 200, 400),
        "k": pa.array([f"k{k}" for k in rng.integers(0, 12, 400)], mask=rng.random(400) < 0.05),
        "v": pa.array(rng.integers(0, 3, 400), mask=rng.random(400) < 0.1),
        "x": rng.normal(size=400),
    })  # fmt: skip


def assert_alike(found: pa.Table, expected: pa.Table) -> None:
    names = [n for n in ("k", "window_start", "start", "end") if n in expected.column_names]
    order = [(n, "ascending") for n in names]
    a, b = (t.select(expected.column_names).sort_by(order).to_pandas() for t in (found, expected))
    assert len(a) == len(b) > 5, (len(a), len(b))
    for name in expected.column_names:
        if b[name].dtype.kind == "f":
            np.testing.assert_allclose(a[name].astype(float), b[name], atol=1e-9)
        else:
            assert a[name].tolist() == b[name].tolist(), name


def refused(kind: type[TidemillError], words: str, call: Callable[[], object]) -> None:
    try:
        call()
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"no {kind.__name__}")


class Cases:
    """A method for each case; `spark` is the session of Connect."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark, self.folder, self.table = spark, folder, table()
        self.df = spark.createDataFrame(self.table).repartition(3, "v")

    def jvm(self) -> None:
        self._windows("jvm")

    def panes(self) -> None:
        self._windows("panes")

    def partials(self) -> None:
        self._windows("partials")

    def colocated(self) -> None:
        self._windows("colocated")

    def _windows(self, way: str) -> None:
        query = WINDOWS[way]
        text = query.on_spark(self.spark).explain()
        assert f": {way}, because" in str(text), text
        assert_alike(query.on_spark(self.spark).run(rows=self.df).toArrow(), query.run(rows=self.table))

    def temporal(self) -> None:
        """Operators on lifetimes as columns, as joins of Spark, and where rows meet, by key and by time."""
        names = pa.table({"k": ["k1", "k2", None], "name": ["a", "b", "c"]})
        named = STREAM.join(tm.table("names", schema={"k": "string", "name": "string"}), on="k")
        other = STREAM.select("k", w=col.v).lasting(9)
        query = named.lasting(5).join(other, on="k", how="left").group_by("k").agg(n=tm.count())
        twos = STREAM.where(col.v == 2).lasting(7).select(y=col.x)
        query = query.join(twos, where=lambda a, b: b.y > a.n - 4)
        query = query.select("k", start=col.valid_from, end=col.valid_to, y=col.y)
        frames = {"rows": self.df, "names": self.spark.createDataFrame(names)}
        found = query.on_spark(self.spark).run(**frames).toArrow()
        order = [(n, "ascending") for n in ("k", "start", "end", "y")]
        expected = query.run(rows=self.table, names=names)
        found, expected = (t.select(expected.column_names).sort_by(order) for t in (found, expected))
        assert found.to_pylist() == expected.to_pylist() and len(found) > 5

    def intervals(self) -> None:
        """A feature set: interval joins and as-of joins, by a key and without one."""
        counts = STREAM.interval_join(STREAM, on="k", preceding=[5, 50]).agg(n=tm.count(), s=tm.sum(col.v))
        features = tm.features("f", entity=STREAM, features=[
            counts, STREAM.last_join(STREAM.select(y=col.x), direction="forward").select("y")])  # fmt: skip
        found = features.offline(self.spark, self.df).toArrow()
        expected = features.run(rows=self.table)
        order = [(n, "ascending") for n in ("t", "k", "v", "x")]
        found, expected = (t.select(expected.column_names).sort_by(order) for t in (found, expected))
        assert found.to_pylist() == expected.to_pylist() and len(found) == 400

    def keys_divided_by_time(self) -> None:
        """Interval joins with few keys, of which tasks share the rows."""
        query = STREAM.interval_join(STREAM, on="k", preceding=9).agg(n=tm.count(), s=tm.sum(col.v))
        query = query.last_join(STREAM.select("k", y=col.x), on="k", exclude_current_time=True)
        rows, decisions = self.spark.createDataFrame(self.table), []
        with watched(decisions):
            small = SliceTuning(few_rows=0, task_rows=100, gain=0.0, costly_gain=0.0)
            found = SparkQuery(query.optimized, self.spark, tuning=small).run(rows=rows).toArrow()
        assert sum("keys in slices of time" in str(one) for one in decisions) == 2, decisions
        expected = query.run(rows=self.table)
        order = [(n, "ascending") for n in ("t", "k", "v", "x")]
        found, expected = (t.select(expected.column_names).sort_by(order) for t in (found, expected))
        assert found.to_pylist() == expected.to_pylist() and len(found) == 400

    def calendar(self) -> None:
        days = CLOCK.group_by("k").window(tm.calendar("day", tz="America/St_Johns"), window_id=True)
        query = days.agg(n=tm.count(), s=tm.sum(col.v))
        hours = self.table.set_column(0, "t", [np.asarray(self.table["t"]) * 3600 + 1_288_900_000])
        df = self.spark.createDataFrame(hours).repartition(3, "v")
        assert_alike(query.on_spark(self.spark).run(rows=df).toArrow(), query.run(rows=hours))

    def expressions_in_python(self) -> None:
        odd = tm.udf(lambda v: v * 2 + 1, returns="int64")
        query = STREAM.where(col.k.matches("^(k|x1)+")).select(k=col.k, o=odd(col.v)).group_by("k")
        query = query.window(tm.tumbling(50)).agg(s=tm.sum(col.o))
        assert_alike(query.on_spark(self.spark).run(rows=self.df).toArrow(), query.run(rows=self.table))

    def auto_is_plain_and_says_so(self) -> None:
        plain = "plain — Spark Connect does not say where rows are"
        query = WINDOWS["panes"].on_spark(self.spark)
        assert plain in str(query.explain())
        text = str(query.explain(rows=self.df))
        assert plain in text and "== Spark's plan ==" in text and "MapInArrow" in text
        refused(
            UnsupportedError, "use a classic session",
            lambda: WINDOWS["panes"].on_spark(self.spark, detect="on").run(rows=self.df),
        )  # fmt: skip

    def wheels(self) -> None:
        path = self.folder / "wheel"
        held = {"s": tm.sum(col.v), "n": tm.count()}
        built = tm.spark.build_wheel(
            self.df, path, held, time="t", keys="k", start=0, until=100, granularities=[1, 10],
            buckets=2,
        )  # fmt: skip
        assert built.left_out["ahead"] > 0
        appended = tm.spark.append(self.df, path, until=200)
        assert built.rows + appended.rows == 400
        query = BY_KEY.window(HOPPING).agg(s=tm.sum(col.v), n=tm.count())
        expected = query.run(rows=self.table)
        wheel = tm.open_wheel(path)
        text = str(query.on_spark(self.spark).explain(rows=wheel))
        assert "each bucket by a task" in text, text
        inside = pa.compute.and_(
            pa.compute.greater_equal(expected["window_start"], 0),
            pa.compute.less_equal(expected["window_end"], 200),
        )
        found = query.on_spark(self.spark).run(rows=wheel).toArrow()
        whole = query.run(rows=wheel)
        assert_alike(found, whole)
        ranges = expected.filter(inside).select(["k", "window_start", "window_end"])
        ranges = ranges.rename_columns(["k", "start", "end"])
        answers = tm.spark.wheel_query(path, self.spark.createDataFrame(ranges)).toArrow()
        assert_alike(answers, expected.filter(inside).rename_columns(["k", "start", "end", "s", "n"]))

    def exchanges_need_a_classic_session(self) -> None:
        from tidemill.spark.exchange import (
            colocate,
            group_by_key,
            join,
            place,
            reduce_by_key,
            report,
        )

        calls: list[Callable[[], object]] = [
            lambda: reduce_by_key(self.df, ["k"], {"n": tm.count()}),
            lambda: join(self.df, self.df, ["k"]),
            lambda: group_by_key(self.df, ["k"], lambda t: t, "k string"),
            lambda: colocate(self.df, ["k"]), lambda: place(self.df, ["k"]),
            lambda: report(self.spark).__enter__(),
        ]  # fmt: skip
        for call in calls:
            refused(UnsupportedError, "under Spark Connect — use a classic session", call)

    def dias_need_a_classic_session(self) -> None:
        from tidemill.spark.dia import from_frame, generate, read_binary, read_lines

        calls: list[Callable[[], object]] = [
            lambda: generate(self.spark, 3), lambda: from_frame(self.df),
            lambda: read_lines(self.spark, "x"), lambda: read_binary(self.spark, "x"),
        ]  # fmt: skip
        for call in calls:
            refused(UnsupportedError, "under Spark Connect — use a classic session", call)

    def streams_are_refused(self) -> None:
        stream = self.spark.readStream.format("rate").load().selectExpr(
            "value AS t", "'a' AS k", "value AS v", "double(value) AS x"
        )  # fmt: skip
        refused(
            UserError, "a DataFrame that ends, got a streaming one",
            lambda: WINDOWS["jvm"].on_spark(self.spark).run(rows=stream),
        )  # fmt: skip

    def overflow_fails(self) -> None:
        big = self.spark.createDataFrame(
            pa.table({"t": [1, 2], "k": ["a", "a"], "v": [2**62, 2**62], "x": [0.0, 0.0]})
        )
        query = STREAM.select(w=col.v + col.v)
        try:
            query.on_spark(self.spark).run(rows=big).toArrow()
        except Exception as error:
            assert "OVERFLOW" in str(error), error
        else:
            raise AssertionError("no error")
        self.spark.conf.set("spark.sql.ansi.enabled", "false")
        try:
            refused(
                UserError, "spark.sql.ansi.enabled=true",
                lambda: query.on_spark(self.spark).run(rows=big),
            )  # fmt: skip
        finally:
            self.spark.conf.set("spark.sql.ansi.enabled", "true")


CASES = [name for name in vars(Cases) if not name.startswith("_")]


def main(folder: str, *asked: str) -> None:
    from pyspark.sql import SparkSession

    interpreter.in_child()
    builder = SparkSession.builder.remote("local[2]").config("spark.driver.memory", "1g")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    cases, found = Cases(spark, Path(folder)), {}
    for name in asked:
        try:
            getattr(cases, name)()
            found[name] = ""
        except Exception:
            found[name] = traceback.format_exc()
    print("RESULTS " + json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
