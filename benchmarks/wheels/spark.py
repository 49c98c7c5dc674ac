"""Wheels from history: Spark builds one, and answers ranges from it, against plain Spark SQL.

Trips of 265 zones in a month, minutes as the finest slots. The other side is what one writes by hand: a
table of counts and sums by zone and minute, and coarser ones made of it. Answers are compared zone by zone
and range by range.
"""

from __future__ import annotations

import functools
import itertools
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tidemill as tm
from benchmarks import resources
from benchmarks.answers import same_numbers
from benchmarks.harness import Case, Measured
from benchmarks.wheels.data import DAY, SECOND, START
from tidemill import col

ZONES = 265
DAYS = 30
FILES = 8
MINUTE = 60 * SECOND
HELD = {"rides": tm.count(), "fares": tm.sum(col.fare)}
RINGS = ["1m", "1h", "1d"]
_number = itertools.count()


def cases(quick: bool) -> list[Case]:
    rows, ranges = (200_000, 200) if quick else (50_000_000, 10_000)
    return [_build(rows), _ranges(rows, ranges, events=quick)]


def _build(rows: int) -> Case:
    systems = {"tidemill": _wheel_built, "spark sql": _rolled_up}
    params = {"rows": rows, "zones": ZONES, "days": DAYS}
    return Case("spark/build", params, systems, same_numbers(), lambda: _read(rows), repeats=2)


def _ranges(rows: int, count: int, *, events: bool) -> Case:
    """With `events`, also over the rows themselves, which takes minutes where there are many."""
    systems = {"tidemill": _from_wheel, "spark sql, by minute": _from_minutes}
    if events:
        systems["spark sql, all rows"] = _from_events
    params = {"rows": rows, "zones": ZONES, "days": DAYS, "ranges": count}
    return Case(
        f"spark/{count:,} ranges".replace(",", " "), params, systems, same_numbers(),
        lambda: (_read(rows), _asked(count), _a_wheel(rows), _a_roll_up(rows)),
    )  # fmt: skip


# --- building -------------------------------------------------------------------------------------


def _wheel_built(df: Any) -> Measured:
    path = resources.scratch() / f"wheel-{next(_number)}"
    begin = time.perf_counter()
    report = tm.spark.build_wheel(df, path, HELD, time="ts", keys="zone", granularities=RINGS)
    seconds = time.perf_counter() - begin
    found = tm.open_wheel(path)
    answer = _summary(found.query(START, START + DAYS * DAY * SECOND))
    size = sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
    shutil.rmtree(path)
    return Measured(answer, seconds, {"MB": size / 1e6, "million rows/s": report.rows / seconds / 1e6})


def _rolled_up(df: Any) -> Measured:
    path = resources.scratch() / f"rolled-{next(_number)}"
    begin = time.perf_counter()
    _roll_up(df, path)
    seconds = time.perf_counter() - begin
    days = resources.spark().read.parquet(str(path / "day"))
    answer = _summary(days.groupBy("zone").sum("rides", "fares").toArrow().rename_columns(["zone", *HELD]))
    size = sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
    shutil.rmtree(path)
    return Measured(answer, seconds, {"MB": size / 1e6})


def _roll_up(df: Any, path: Path) -> None:
    """By zone and minute, then hours from minutes and days from hours."""
    from pyspark.sql import functions as F

    spark, made = resources.spark(), None
    for unit in ("minute", "hour", "day"):
        if made is None:
            rows = df.withColumn("t", F.date_trunc(unit, "ts"))
            sums = (F.count("*").alias("rides"), F.sum("fare").alias("fares"))
        else:
            rows = spark.read.parquet(str(made)).withColumn("t", F.date_trunc(unit, "t"))
            sums = (F.sum("rides").alias("rides"), F.sum("fares").alias("fares"))
        made = path / unit
        rows.groupBy("zone", "t").agg(*sums).write.parquet(str(made))


def _summary(table: pa.Table) -> dict[str, int]:
    rows = sorted(table.to_pylist(), key=lambda r: r["zone"])
    found = {"zones": len(rows)}
    for name in HELD:
        found[name] = sum(r[name] for r in rows)
        found[f"{name} by zone"] = sum(i * r[name] for i, r in enumerate(rows))
    return found


# --- asking ---------------------------------------------------------------------------------------


def _from_wheel(given: Any) -> dict[str, int]:
    _, asked, wheel, _ = given
    return _of_ranges(tm.spark.wheel_query(wheel, asked))


def _from_minutes(given: Any) -> dict[str, int]:
    _, asked, _, rolled_up = given
    minutes = resources.spark().read.parquet(str(rolled_up / "minute"))
    return _of_ranges(_joined(minutes, "t", asked, "sum(rides)", "sum(fares)"))


def _from_events(given: Any) -> dict[str, int]:
    df, asked, _, _ = given
    return _of_ranges(_joined(df, "ts", asked, "count(*)", "sum(fare)"))


def _joined(rows: Any, at: str, asked: Any, rides: str, fares: str) -> Any:
    rows.createOrReplaceTempView("rows_there")
    asked.createOrReplaceTempView("ranges")
    return resources.spark().sql(
        f"""
        SELECT id, {rides} AS rides, {fares} AS fares FROM ranges JOIN rows_there USING (zone)
        WHERE {at} >= start AND {at} < end GROUP BY id
        """
    )


def _of_ranges(found: Any) -> dict[str, int]:
    """All answers, as sums that tell them apart."""
    table = found.select("id", "rides", "fares").toArrow()
    place = np.asarray(table["id"]) % 1009
    return {
        "ranges": table.num_rows,
        **{n: int((np.asarray(table[n]) * place).sum()) for n in ("rides", "fares")},
    }


@functools.cache
def _a_wheel(rows: int) -> Path:
    path = resources.scratch() / f"wheel-{next(_number)}"
    tm.spark.build_wheel(_read(rows), path, HELD, time="ts", keys="zone", granularities=RINGS)
    return path


@functools.cache
def _a_roll_up(rows: int) -> Path:
    path = resources.scratch() / f"rolled-{next(_number)}"
    _roll_up(_read(rows), path)
    return path


# --- data -----------------------------------------------------------------------------------------


@functools.cache
def _read(rows: int) -> Any:
    return resources.spark().read.parquet(str(_parquet(rows)))


@functools.cache
def _parquet(rows: int) -> Path:
    """A directory of trips in about the order of their times, which fill the whole month."""
    folder = resources.scratch() / f"trips-{rows}"
    folder.mkdir()
    rng = np.random.default_rng(4)
    share = rows // FILES
    span = DAYS * DAY * SECOND // FILES
    for i in range(FILES):
        ts = START + i * span + np.sort(rng.integers(0, span, share))
        table = {
            "ts": pa.array(ts, pa.timestamp("us", "UTC")), "zone": rng.integers(1, ZONES + 1, share),
            "fare": rng.integers(300, 9_000, share),
        }  # fmt: skip
        pq.write_table(pa.table(table), folder / f"part-{i}.parquet", row_group_size=500_000)
    return folder


@functools.cache
def _asked(count: int) -> Any:
    """Ranges of zones, each at least a day: so there are trips in all of them."""
    rng = np.random.default_rng(5)
    minutes = DAYS * DAY // 60
    low = rng.integers(0, minutes - 1440, count)
    high = np.minimum(minutes, low + rng.integers(1440, minutes, count))
    bounds = {
        n: pa.array(START + x * MINUTE, pa.timestamp("us", "UTC"))
        for n, x in (("start", low), ("end", high))
    }
    table = pa.table({"id": np.arange(count), "zone": rng.integers(1, ZONES + 1, count), **bounds})
    return resources.spark().createDataFrame(table).cache()
