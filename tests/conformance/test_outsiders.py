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


# --- calendars --------------------------------------------------------------------------------------

SALES = tm.stream("sales", time="ts", schema={"ts": "timestamp", "price": "float64"})
UNITS = {
    "day": ("1d", "D"), "week": ("1w", "W-SUN"), "month": ("1mo", "M"), "quarter": ("1q", "Q"),
    "year": ("1y", "Y"),
}  # fmt: skip
"""Each unit as Polars and pandas write it."""
in_zones = pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Asia/Kolkata"])
by_units = pytest.mark.parametrize("unit", UNITS)


def sales(unit: str, size: int = 600) -> pa.Table:
    """Over thirty years, to the minute."""
    pick, begin = random.Random(unit), datetime(1995, 1, 1, tzinfo=timezone.utc)
    moments = sorted(begin + timedelta(minutes=pick.randint(0, 17_000_000)) for _ in range(size))
    prices = [pick.randint(1, 400) / 4 for _ in moments]
    return pa.table({"ts": pa.array(moments, pa.timestamp("us", tz="UTC")), "price": prices})


def by_calendar(unit: str, zone: str) -> pa.Table:
    query = SALES.window(tm.calendar(unit, tz=zone)).agg(n=tm.count(), spend=tm.sum(col.price))
    return query.run(sales=sales(unit))


@by_units
@in_zones
def test_calendar_windows_of_polars(unit: str, zone: str) -> None:
    every = UNITS[unit][0]
    frame = pl.DataFrame(sales(unit)).with_columns(pl.col("ts").dt.convert_time_zone(zone))
    groups = frame.group_by_dynamic("ts", every=every)
    found = groups.agg(n=pl.len().cast(pl.Int64), spend=pl.col("price").sum())
    bounds = (pl.col("ts").alias("window_start"), pl.col("ts").dt.offset_by(every).alias("window_end"))
    same(by_calendar(unit, zone), found.with_columns(*bounds).to_arrow())


@by_units
@in_zones
def test_calendar_windows_of_pandas(unit: str, zone: str) -> None:
    frame = sales(unit).to_pandas()
    periods = frame.ts.dt.tz_convert(zone).dt.tz_localize(None).dt.to_period(UNITS[unit][1])
    found = frame.groupby(periods).price.agg(["size", "sum"])
    theirs = {
        "window_start": [p.start_time.tz_localize(zone) for p in found.index],
        "window_end": [(p + 1).start_time.tz_localize(zone) for p in found.index],
        "n": found["size"], "spend": found["sum"],
    }  # fmt: skip
    same(by_calendar(unit, zone), pa.table(theirs))


@by_units
@in_zones
def test_calendar_windows_of_duckdb(unit: str, zone: str) -> None:
    table = sales(unit)
    with duckdb.connect() as db:
        db.execute(f"SET TimeZone = '{zone}'")
        step = "3 months" if unit == "quarter" else f"1 {unit}"
        begin = f"date_trunc('{unit}', ts)"
        found = db.from_arrow(table).aggregate(
            f"{begin} AS window_start, {begin} + INTERVAL {step} AS window_end, count(*) AS n,"
            " sum(price) AS spend"
        )
        same(by_calendar(unit, zone), found.to_arrow_table())
