"""Spark batch: Tidemill on Spark against `window()` and `OVER ... RANGE`, from Parquet to no-op.

The full answers are not brought together: each run counts and sums its rows as it writes them, and
these sums are compared. On less data all rows are compared first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import tidemill as tm
from benchmarks import resources
from benchmarks.answers import same_numbers, same_rows, unchecked
from benchmarks.consumed import consumed
from benchmarks.data import HOUR, START, Shape
from benchmarks.data import table as generated
from benchmarks.harness import Case
from tidemill import col

FILES = 4
HOURS = 24
FEW = 3_000
WARM = 6
"""Runs until Java has compiled what takes seconds only; of slow systems it is fewer anyway."""

Frame = Any
Ask = Callable[[Frame], Frame]
"""From a DataFrame of events to the answer: k, window_start, window_end, x."""

SCHEMA = {"ts": "timestamp", "k": "int64", "v": "float64"}


def cases(quick: bool) -> list[Case]:
    if quick:
        # window() copies each row for each window: at 60 and 300 even its plan takes seconds.
        return [_hopping("1 hour", "10 minutes", 400_000, 100, rehearsed=False)]
    rows, keys = 10_000_000, 1_000
    return [
        _hopping("1 hour", "10 minutes", rows, keys, repeats=WARM),
        _hopping("1 hour", "1 minute", rows, keys, repeats=WARM),
        # Each row is in 300 windows, for which Spark's own takes a quarter of an hour with all rows.
        _hopping("5 hours", "1 minute", rows // 10, keys, repeats=WARM),
        _own_ratio(rows, keys),
        _per_event(rows, keys),
    ]


def _stream() -> tm.Stream:
    return tm.stream("events", time="ts", schema=SCHEMA)


def _ours(window: tm.Window) -> Ask:
    query = _stream().group_by("k").window(window).agg(x=tm.sum(col.v))
    return lambda df: query.on_spark(resources.spark()).run(events=df)


def _windows(range: str, every: str) -> Ask:
    """Spark's own hopping windows."""

    def ask(df: Frame) -> Frame:
        from pyspark.sql import functions as F

        grouped = df.groupBy("k", F.window("ts", range, every)).agg(F.sum("v").alias("x"))
        return grouped.select(
            "k", F.col("window.start").alias("window_start"),
            F.col("window.end").alias("window_end"), "x",
        )  # fmt: skip

    return ask


def _over(df: Frame) -> Frame:
    """`(t - 1 hour, t]`, so a microsecond less than an hour before."""
    df.createOrReplaceTempView("events")
    return resources.spark().sql(
        """
        SELECT k, ts - INTERVAL '1' HOUR AS window_start, ts AS window_end, sum(v) OVER (
            PARTITION BY k ORDER BY ts
            RANGE BETWEEN INTERVAL '00:59:59.999999' HOUR TO SECOND PRECEDING AND CURRENT ROW
        ) AS x FROM events
        """
    )


def _hopping(
    range: str, every: str, rows: int, keys: int, *, rehearsed: bool = True, repeats: int | None = None
) -> Case:
    window = tm.hopping(range, every=every)
    asks = {"tidemill": _ours(window), "spark window()": _windows(range, every)}
    name = f"hopping sum, range/slide {window.length // window.slide}"
    params = {"rows": rows, "keys": keys, "range": range, "every": every}
    return _case(name, params, asks, rehearsed, repeats)


def _per_event(rows: int, keys: int) -> Case:
    asks = {"tidemill": _ours(tm.per_event("1h")), "spark OVER RANGE": _over}
    params = {"rows": rows, "keys": keys, "range": "1 hour"}
    return _case("last hour at each event", params, asks)


def _case(
    name: str, params: Mapping[str, Any], asks: Mapping[str, Ask], rehearsed: bool = True,
    repeats: int | None = None,
) -> Case:  # fmt: skip
    return Case(
        f"spark/{name}",
        {**params, "hours": HOURS},
        {system: functools.partial(_consumed, ask) for system, ask in asks.items()},
        same_numbers(),
        lambda: _read(params["rows"], params["keys"]),
        functools.partial(_rehearse, asks) if rehearsed else None,
        repeats,
    )


def _own_ratio(rows: int, keys: int) -> Case:
    """Tidemill against itself. The results differ in what they are, and in how many there are."""
    asked = {
        "tidemill": ("5h", "1m"), "at 6, same slide": ("6m", "1m"), "at 6, 1 h / 10 min": ("1h", "10m"),
    }  # fmt: skip
    systems = {
        name: functools.partial(_written, _ours(tm.hopping(range, every=every)))
        for name, (range, every) in asked.items()
    }
    params = {"rows": rows, "keys": keys, "hours": HOURS}
    name = "spark/Tidemill at range/slide 300 (5 h / 1 min), and at 6"
    return Case(name, params, systems, unchecked, lambda: _read(rows, keys), repeats=WARM)


def _written(ask: Ask, df: Frame) -> None:
    """Run to the end without keeping rows."""
    ask(df).write.format("noop").mode("overwrite").save()


def _consumed(ask: Ask, df: Frame) -> dict[str, Any]:
    return consumed(ask(df), ("k", "window_start", "window_end"), "x")


def _rehearse(asks: Mapping[str, Ask], _: Frame) -> None:
    """All rows of the answers to a few events, many at the same instant; a window counts once."""
    df = resources.spark().read.parquet(str(_few()))
    unique = {s: ask(df).dropDuplicates(["k", "window_start"]).toArrow() for s, ask in asks.items()}
    same_rows("k", "window_start")(unique)


def _read(rows: int, keys: int) -> Frame:
    return resources.spark().read.parquet(str(_parquet(rows, keys)))


@functools.cache
def _parquet(rows: int, keys: int) -> Path:
    """A directory of events in time order. Each has an instant of its own, as windows then do too."""
    folder = resources.scratch() / f"events-{rows}-{keys}"
    folder.mkdir()
    rng = np.random.default_rng(2)
    step = HOURS * HOUR // rows
    ts = START + step * np.arange(rows, dtype=np.int64) + rng.integers(0, step, rows)
    values = {"k": rng.integers(0, keys, rows), "v": 1.0 - rng.random(rows)}
    table = pa.table({"ts": pa.array(ts, pa.timestamp("us", "UTC")), **values})
    share = rows // FILES
    for i in range(FILES):
        part = table.slice(i * share, share)
        pq.write_table(part, folder / f"part-{i}.parquet", row_group_size=500_000)
    return folder


@functools.cache
def _few() -> Path:
    path = resources.scratch() / "few.parquet"
    table = generated(Shape(FEW, 10, HOURS)).select(["ts", "k", "v"])
    ties = pc.floor_temporal(table["ts"], 1, "minute")
    pq.write_table(table.set_column(0, "ts", ties), path)
    return path
