"""A few queries against systems that share no code with Tidemill."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidemill as tm
from tidemill import col

CLICKS = tm.stream(
    "clicks", time="ts", schema={"ts": "timestamp", "ad": "int64", "user": "string", "price": "float64"}
)
START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def clicks(size: int = 2000) -> pa.Table:
    pick = random.Random(6)
    moments = sorted(START + timedelta(seconds=pick.randint(0, 6 * 3600)) for _ in range(size))
    return pa.table(
        {
            "ts": pa.array(moments, pa.timestamp("us", tz="UTC")),
            "ad": [pick.randint(1, 5) for _ in range(size)],
            "user": [pick.choice(["ann", "bob", "eve"]) for _ in range(size)],
            "price": [None if pick.random() < 0.1 else pick.randint(1, 400) / 4 for _ in range(size)],
        }
    )  # fmt: skip


TABLE = clicks()


def same(ours: pa.Table, theirs: pa.Table, floats: tuple[str, ...] = ()) -> None:
    """Equal as sets of rows, in the columns of ours; named columns up to their last bits."""
    names = ours.column_names
    assert set(names) <= set(theirs.column_names)
    exact = [n for n in names if n not in floats]
    order = [(n, "ascending") for n in exact]
    mine = ours.cast(_plain(ours.schema)).sort_by(order).to_pylist()
    other = theirs.select(names).cast(_plain(ours.schema)).sort_by(order).to_pylist()
    assert [[r[n] for n in exact] for r in mine] == [[r[n] for n in exact] for r in other]
    for name in floats:
        assert [r[name] for r in mine] == pytest.approx([r[name] for r in other], rel=1e-9)


def _plain(schema: pa.Schema) -> pa.Schema:
    utc = pa.timestamp("us", tz="UTC")
    return pa.schema([f.with_type(utc) if pa.types.is_timestamp(f.type) else f for f in schema])


HOPPING = (
    CLICKS.group_by("ad")
    .window(tm.hopping("1h", every="10m"))
    .agg(n=tm.count(), spent=tm.sum(col.price), most=tm.max(col.price), users=tm.distinct_count(col.user))
)


def test_hopping_against_duckdb() -> None:
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    con.register("clicks", TABLE)
    theirs = con.sql(
        """
        SELECT ad, w AS window_start, w + INTERVAL 1 HOUR AS window_end, count(*) AS n,
               sum(price) AS spent, max(price) AS most, count(DISTINCT "user") AS users
        FROM clicks, generate_series(TIMESTAMPTZ '2025-12-31 23:00:00+00',
                                     TIMESTAMPTZ '2026-01-01 06:00:00+00', INTERVAL 10 MINUTE) AS g(w)
        WHERE ts >= w AND ts < w + INTERVAL 1 HOUR GROUP BY ALL
        """
    ).to_arrow_table()
    same(HOPPING.run(clicks=TABLE), theirs, floats=("spent",))


def test_per_event_against_duckdb_over_range() -> None:
    query = CLICKS.group_by("ad").window(tm.per_event("15m")).agg(
        n=tm.count(), spent=tm.sum(col.price), mid=tm.median(col.price)
    )  # fmt: skip
    con = duckdb.connect()
    con.register("clicks", TABLE)
    # DuckDB's frame has both ends in it, ours has only the later one; instants are whole seconds.
    theirs = con.sql(
        """
        SELECT DISTINCT ad, ts - INTERVAL 15 MINUTE AS window_start, ts AS window_end,
               count(*) OVER w AS n, sum(price) OVER w AS spent, median(price) OVER w AS mid
        FROM clicks WINDOW w AS (PARTITION BY ad ORDER BY ts
            RANGE BETWEEN INTERVAL '14 minutes 59 seconds' PRECEDING AND CURRENT ROW)
        """
    ).to_arrow_table()
    same(query.run(clicks=TABLE), theirs, floats=("spent", "mid"))


def test_tumbling_statistics_against_duckdb() -> None:
    query = CLICKS.group_by("user").window(tm.tumbling("1h")).agg(
        var=tm.var(col.price), q=tm.quantile(col.price, 0.9),
        first=tm.arg_min(col.ad, col.price * 1000 + col.ad),
        corr=tm.correlation(col.price, col.ad), e=tm.entropy(col.ad),
    )  # fmt: skip
    con = duckdb.connect()
    con.register("clicks", TABLE)
    theirs = con.sql(
        """
        SELECT "user", time_bucket(INTERVAL 1 HOUR, ts) AS window_start,
               window_start + INTERVAL 1 HOUR AS window_end, var_samp(price) AS var,
               quantile_cont(price, 0.9) AS q, arg_min(ad, price * 1000 + ad) AS first,
               corr(price, ad) AS corr, entropy(ad) AS e
        FROM clicks GROUP BY "user", time_bucket(INTERVAL 1 HOUR, ts)
        """
    ).to_arrow_table()
    same(query.run(clicks=TABLE), theirs, floats=("var", "q", "corr", "e"))


def test_hopping_against_polars_group_by_dynamic() -> None:
    theirs = (
        pl.from_arrow(TABLE)
        .group_by_dynamic("ts", every="10m", period="1h", group_by="ad", closed="left")
        .agg(n=pl.len().cast(pl.Int64), spent=pl.col("price").sum(), most=pl.col("price").max(),
             users=pl.col("user").n_unique().cast(pl.Int64))
        .with_columns(window_start=pl.col("ts"), window_end=pl.col("ts") + timedelta(hours=1))
        # Polars starts with the window of the first row; ours that end before it are left out here.
        .to_arrow()
    )  # fmt: skip
    first = theirs.column("window_start").to_pylist()[0]
    ours = HOPPING.where(col.window_start >= first).run(clicks=TABLE)
    wanted = theirs.filter(pc.greater_equal(theirs["window_start"], first))
    same(ours, wanted, floats=("spent",))


@pytest.mark.soak  # which local engines are compared with, too, and Spark with the definition
def test_hopping_against_spark_window(spark: Any) -> None:
    from pyspark.sql import functions as F

    df = spark.createDataFrame(TABLE)
    theirs = (
        df.groupBy("ad", F.window("ts", "1 hour", "10 minutes"))
        .agg(F.count("*").alias("n"), F.sum("price").alias("spent"), F.max("price").alias("most"),
             F.count_distinct("user").alias("users"))
        .select("*", "window.start", "window.end")
        .withColumnsRenamed({"start": "window_start", "end": "window_end"})
    )  # fmt: skip
    ours = HOPPING.on_spark(spark).run(clicks=df)
    assert ours.count() == theirs.count()
    same(ours.toArrow(), theirs.drop("window").toArrow(), floats=("spent",))


def test_sessions_against_spark_session_window(spark: Any) -> None:
    from pyspark.sql import functions as F

    query = CLICKS.group_by("ad").window(tm.session("40s")).agg(n=tm.count(), most=tm.max(col.price))
    # Spark joins rows that are exactly the gap apart, ours only nearer ones; instants are whole seconds.
    theirs = (
        spark.createDataFrame(TABLE)
        .groupBy("ad", F.session_window("ts", "39 seconds").alias("w"))
        .agg(F.count("*").alias("n"), F.max("price").alias("most"))
        .select("ad", F.col("w.start").alias("window_start"), "n", "most",
                (F.col("w.end") + F.expr("INTERVAL 1 SECOND")).alias("window_end"))
    )  # fmt: skip
    same(query.run(clicks=TABLE), theirs.toArrow())


def test_per_event_against_spark_over_range(spark: Any) -> None:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    query = CLICKS.group_by("ad").window(tm.per_event("15m")).agg(n=tm.count(), most=tm.max(col.price))
    over = Window.partitionBy("ad").orderBy(F.unix_micros("ts")).rangeBetween(1 - 900_000_000, 0)
    theirs = (
        spark.createDataFrame(TABLE)
        .select("ad", F.col("ts").alias("window_end"), F.count("*").over(over).alias("n"),
                F.max("price").over(over).alias("most"))
        .withColumn("window_start", F.col("window_end") - F.expr("INTERVAL 15 MINUTES"))
        .distinct()
    )  # fmt: skip
    same(query.run(clicks=TABLE), theirs.toArrow())
