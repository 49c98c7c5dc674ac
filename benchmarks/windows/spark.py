"""Spark batch: Tidemill on Spark against `window()` and `OVER ... RANGE`, from Parquet to no-op.

The full answers are not brought together: each run counts and sums its rows as it writes them, and
these sums are compared. On less data all rows are compared first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import tidemill as tm
from benchmarks import resources
from benchmarks.answers import same_numbers, same_rows, unchecked
from benchmarks.data import HOUR, START, columns
from benchmarks.harness import Case
from tidemill import col

FILES = 4
KEYS = 1_000
HOURS = 24
FEW = 20_000

Frame = Any
Ask = Callable[[Frame], Frame]
"""From a DataFrame of events to the answer: k, window_start, window_end, x."""

SCHEMA = {"ts": "timestamp", "k": "int64", "v": "float64"}


def cases(quick: bool) -> list[Case]:
    rows = 1_000_000 if quick else 10_000_000
    # Spark's window() copies each row for each window; a quick run cannot wait for that.
    fewer = {6: rows, 60: 100_000, 300: 30_000} if quick else dict.fromkeys((6, 60, 300), rows)
    return [
        _hopping("1 hour", "10 minutes", 6, fewer[6]),
        _hopping("1 hour", "1 minute", 60, fewer[60]),
        _hopping("5 hours", "1 minute", 300, fewer[300]),
        _own_ratio(rows),
        _per_event(200_000 if quick else rows),
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


def _hopping(range: str, every: str, overlap: int, rows: int) -> Case:
    asks = {
        "tidemill": _ours(tm.hopping(range, every=every)),
        "spark window()": _windows(range, every),
    }
    params = {"rows": rows, "keys": KEYS, "range": range, "every": every, "hours": HOURS}
    return _case(f"hopping sum, range/slide {overlap}", params, asks, rows)


def _per_event(rows: int) -> Case:
    asks = {"tidemill": _ours(tm.per_event("1h")), "spark OVER RANGE": _over}
    params = {"rows": rows, "keys": KEYS, "range": "1 hour", "hours": HOURS}
    return _case("sum of the last hour at each event", params, asks, rows)


def _case(name: str, params: Mapping[str, Any], asks: Mapping[str, Ask], rows: int) -> Case:
    return Case(
        f"spark/{name}",
        params,
        {system: functools.partial(_consumed, ask) for system, ask in asks.items()},
        same_numbers(),
        lambda: _read(rows),
        functools.partial(_rehearse, asks),
    )


def _own_ratio(rows: int) -> Case:
    systems = {
        "tidemill": functools.partial(_consumed, _ours(tm.hopping("5h", every="1m"))),
        "tidemill at 6": functools.partial(_consumed, _ours(tm.hopping("1h", every="10m"))),
    }
    params = {"rows": rows, "keys": KEYS, "hours": HOURS}
    name = "spark/Tidemill at range/slide 300, and at 6"
    return Case(name, params, systems, unchecked, lambda: _read(rows))


def _consumed(ask: Ask, df: Frame) -> dict[str, Any]:
    """Run to the end without keeping rows: their number, and sums that tell answers apart."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    seen = Observation()
    place = F.pmod(F.xxhash64("k", "window_start", "window_end"), F.lit(1_000_003))
    observed = ask(df).observe(
        seen, F.count("*").alias("rows"), F.sum(place).alias("places"),
        F.sum("x").alias("values"), F.sum(F.col("x") * place).alias("values by place"),
    )  # fmt: skip
    observed.write.format("noop").mode("overwrite").save()
    return dict(seen.get)


def _rehearse(asks: Mapping[str, Ask], _: Frame) -> None:
    """All rows of the answers on a few events, with ties in time; one row for equal windows."""
    df = resources.spark().read.parquet(str(_few()))
    unique = {s: ask(df).dropDuplicates(["k", "window_start"]).toArrow() for s, ask in asks.items()}
    same_rows("k", "window_start")(unique)


def _read(rows: int) -> Frame:
    return resources.spark().read.parquet(str(_parquet(rows)))


@functools.cache
def _parquet(rows: int) -> Path:
    """A directory of events; every event has its own instant."""
    folder = resources.scratch() / f"events-{rows}"
    folder.mkdir()
    share = rows // FILES
    for i in range(FILES):
        part = columns(share, KEYS, HOURS / FILES, seed=i).select(["ts", "k", "v"])
        first = START + i * HOURS * HOUR // FILES
        step = HOURS * HOUR // FILES // share
        ts = _spread(share, first, step, part["k"])
        _write(part.set_column(0, "ts", ts), folder / f"part-{i}.parquet")
    return folder


def _spread(rows: int, first: int, step: int, salt: pa.ChunkedArray) -> pa.Array:
    import numpy as np

    jitter = np.asarray(salt) * 7_919 % step
    return pa.array(
        first + step * np.arange(rows, dtype=np.int64) + jitter, pa.timestamp("us", "UTC")
    )


@functools.cache
def _few() -> Path:
    path = resources.scratch() / "few.parquet"
    table = columns(FEW, 50, HOURS).select(["ts", "k", "v"])
    _write(table.set_column(0, "ts", pc.floor_temporal(table["ts"], 1, "minute")), path)
    return path


def _write(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, row_group_size=500_000)
