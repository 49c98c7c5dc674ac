"""A Parquet file through each system into another Parquet file, in a fresh process: time and memory."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import resources
from benchmarks.answers import same_rows
from benchmarks.data import HOUR, columns
from benchmarks.harness import Case, Measured
from benchmarks.windows.fresh import fresh

KEYS = 1_000
ROW_GROUP = 500_000

_TIDEMILL = """
import json, sys, time
start = time.perf_counter()
import tidemill as tm
from tidemill import col
schema = {"ts": "timestamp", "user": "int64", "k": "int64", "v": "float64"}
events = tm.stream("events", time="ts", schema=schema)
query = events.group_by("k").window(tm.hopping("1h", every="10m")).agg(x=tm.sum(col.v), u=tm.max(col.user))
query.to_parquet(sys.argv[2], events=sys.argv[1])
print(json.dumps({"seconds": time.perf_counter() - start, "mb": peak_mb()}))
"""

_DUCKDB = """
import json, sys, time
start = time.perf_counter()
import duckdb
c = duckdb.connect()
c.execute("SET threads = 2; SET TimeZone = 'UTC'; SET preserve_insertion_order = false")
source = f"SELECT k, v, user, epoch_us(ts) // 600000000 AS w FROM '{sys.argv[1]}'"
source = f"SELECT k, v, user, w - i AS w FROM ({source}) CROSS JOIN range(6) AS r(i)"
c.execute(f'''COPY (
    SELECT k, make_timestamp(w * 600000000) AS window_start,
           make_timestamp((w + 6) * 600000000) AS window_end, sum(v) AS x, max(user) AS u
    FROM ({source}) GROUP BY k, w) TO '{sys.argv[2]}' (FORMAT parquet)''')
print(json.dumps({"seconds": time.perf_counter() - start, "mb": peak_mb()}))
"""

_POLARS = """
import json, sys, time
start = time.perf_counter()
import polars as pl
last = pl.col("ts").to_physical() // 600_000_000
window = (pl.col("w") * 600_000_000).cast(pl.Datetime("us", "UTC"))
(
    pl.scan_parquet(sys.argv[1])
    .select("k", "v", "user", w=pl.int_ranges(last - 5, last + 1)).explode("w")
    .group_by("k", "w").agg(x=pl.col("v").sum(), u=pl.col("user").max())
    .select("k", "x", "u", window_start=window, window_end=window + pl.duration(hours=1))
    .sink_parquet(sys.argv[2])
)
print(json.dumps({"seconds": time.perf_counter() - start, "mb": peak_mb()}))
"""


def cases(quick: bool) -> list[Case]:
    size = 50 if quick else 1_000
    codes = {"tidemill": _TIDEMILL, "duckdb": _DUCKDB}
    if not quick:
        codes["polars"] = _POLARS
    return [
        Case(
            f"memory/{size} MB of Parquet, hopping sum and max",
            {"megabytes": size, "keys": KEYS, "range": "1h", "every": "10m"},
            {s: _system(s, code) for s, code in codes.items()},
            same_rows("k", "window_start"),
            lambda: _file(size),
            repeats=1 if quick else 2,
            fresh=True,
        )
    ]


def _system(name: str, code: str) -> Callable[[Path], Measured]:
    def run(path: Path) -> Measured:
        out = resources.scratch() / f"out-{name}.parquet"
        found = fresh(code, path, out)
        answer: Any = pq.read_table(out)
        out.unlink()
        return Measured(answer, found["seconds"], {"peak_rss_mb": found["mb"]})

    return run


@functools.cache
def _file(megabytes: int) -> Path:
    """A file of at least that size: an hour of events again and again, in time order."""
    path = resources.scratch() / f"events-{megabytes}-mb.parquet"
    hour = columns(ROW_GROUP, KEYS, 1)
    first = hour["ts"].cast("int64")
    with pq.ParquetWriter(path, hour.schema) as writer:
        hours = 0
        while path.stat().st_size < megabytes * 1_000_000:
            ts = pc.add(first, hours * HOUR).cast(hour.schema.field("ts").type)
            writer.write_table(hour.set_column(0, "ts", ts), row_group_size=ROW_GROUP)
            hours += 1
    return path
