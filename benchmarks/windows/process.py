"""In process: Tidemill, DuckDB and Polars on all processors, each on its own copy of the rows."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import polars as pl

import tidemill as tm
from benchmarks.answers import same_rows
from benchmarks.data import MINUTE, events, named_stream, stream
from benchmarks.harness import Case
from benchmarks.windows import peers
from benchmarks.windows.peers import Hopping
from tidemill import col

V = pl.col("v")

geometric_mean = tm.aggregate(
    "geometric_mean",
    identity=lambda: (0.0, 0),
    lift=lambda x: (math.log(x), 1),
    combine=lambda a, b: (a[0] + b[0], a[1] + b[1]),
    inverse=lambda a, b: (a[0] - b[0], a[1] - b[1]),
    lower=lambda s: math.exp(s[0] / s[1]),
    returns="float64",
)

# An aggregate of `v` here, in DuckDB, in Polars.
AGGREGATES: dict[str, tuple[Callable[[], Any], str, pl.Expr]] = {
    "sum": (lambda: tm.sum(col.v), "sum(v)", V.sum()),
    "max": (lambda: tm.max(col.v), "max(v)", V.max()),
    "median": (lambda: tm.quantile(col.v, 0.5), "quantile_cont(v, 0.5)", V.median()),
    "geometric mean": (lambda: geometric_mean(col.v), "exp(avg(ln(v)))", V.log().mean().exp()),
}


def cases(quick: bool) -> list[Case]:
    all_rows, rows, few = (20_000_000, 10_000_000, 2_000_000)
    if quick:
        all_rows, rows, few = (2_000_000, 200_000, 20_000)
    hop = functools.partial(_hopping, rows=rows, keys=10_000, hours=4 if quick else 48)
    # Where each row is in many windows, fewer keys keep a quick run's answers small.
    overlapping = functools.partial(_hopping, rows=few, keys=1_000 if quick else 10_000, hours=12)
    return [
        _filter(all_rows),
        _filter_count(all_rows),
        _windowed_count(all_rows),
        hop("hopping sum, 10 keys", keys=10),
        hop("hopping sum, 10 000 keys", unnest=not quick),
        *([] if quick else [hop("hopping sum, 10 000 keys, few rows each", hours=168)]),
        hop("hopping sum, 1 000 000 keys", keys=1_000_000, hours=2),
        overlapping("hopping sum, range/slide 1", every=60),
        overlapping("hopping sum, range/slide 6", every=10),
        overlapping("hopping sum, range/slide 60", every=1),
        overlapping("hopping sum, range/slide 300", range=300, every=1),
        hop("hopping sum, string keys", key="name"),
        hop("hopping max", aggregate="max"),
        hop("hopping geometric mean, user-defined", aggregate="geometric mean"),
        hop("hopping median", aggregate="median", rows=few, keys=1_000),
    ]


def _filter(rows: int) -> Case:
    query = stream().where(col.user % 100 < 5)
    condition = pl.col("user") % 100 < 5
    return Case(
        "process/filter",
        {"rows": rows, "kept": "5 %"},
        {
            "tidemill": lambda e: query.run(events=e.arrow),
            "duckdb": lambda e: e.sql("SELECT * FROM events WHERE user % 100 < 5"),
            "polars": lambda e: e.polars.lazy().filter(condition).collect(),
        },
        same_rows("ts", "user", "k", "v"),
        lambda: events(rows, 10_000, 48),
    )


def _filter_count(rows: int) -> Case:
    # One window that holds everything: 55 years from 2024-10-04.
    query = stream().where(col.user % 100 < 5).window(tm.tumbling("20000d")).agg(n=tm.count())
    chosen = pl.col("user") % 100 < 5
    return Case(
        "process/filter and count",
        {"rows": rows, "kept": "5 %"},
        {
            "tidemill": lambda e: query.run(events=e.arrow).select(["n"]),
            "duckdb": lambda e: e.sql("SELECT count(*) AS n FROM events WHERE user % 100 < 5"),
            "polars": lambda e: e.polars.lazy().filter(chosen).select(n=pl.len()).collect(),
        },
        same_rows("n"),
        lambda: events(rows, 10_000, 48),
    )


def _windowed_count(rows: int) -> Case:
    hour = 60 * MINUTE
    query = stream().window(tm.tumbling("1h")).agg(n=tm.count())
    start = pl.col("ts").dt.truncate("1h")
    counted = (
        "SELECT make_timestamp(w) AS window_start, make_timestamp(w + 3600000000) AS window_end, n "
        f"FROM (SELECT epoch_us(ts) // {hour} * {hour} AS w, count(*) AS n FROM events GROUP BY 1)"
    )
    return Case(
        "process/windowed count",
        {"rows": rows, "window": "1h"},
        {
            "tidemill": lambda e: query.run(events=e.arrow),
            "duckdb": lambda e: e.sql(counted),
            "polars": lambda e: (
                e.polars.lazy().group_by(window_start=start).agg(n=pl.len())
                .with_columns(window_end=pl.col("window_start") + pl.duration(hours=1))
                .collect(engine="streaming")
            ),
        },
        same_rows("window_start"),
        lambda: events(rows, 10_000, 48),
    )  # fmt: skip


def _hopping(
    what: str, *, rows: int, keys: int, hours: int, range: int = 60, every: int = 10,
    key: str = "k", aggregate: str = "sum", unnest: bool = False,
) -> Case:  # fmt: skip
    """Windows of `range` minutes every `every` minutes, over `hours` hours."""
    ours, sql, expression = AGGREGATES[aggregate]
    source = named_stream() if key == "name" else stream()
    window = tm.hopping(f"{range}m", every=f"{every}m")
    query = source.group_by(key).window(window).agg(x=ours())
    hop = Hopping(range * MINUTE, every * MINUTE)
    polars = peers.polars_explode if hop.overlap <= 6 else peers.polars_dynamic
    systems: dict[str, Callable[[Any], Any]] = {
        "tidemill": lambda e: query.run(events=e.arrow),
        "duckdb": lambda e: peers.duckdb(e, key, hop, sql),
        "polars": lambda e: polars(e, key, hop, expression),
    }
    if unnest:
        systems["duckdb unnest"] = lambda e: peers.duckdb_unnest(e, key, hop, sql)
    return Case(
        f"process/{what}",
        {
            "rows": rows, "keys": keys, "key": "string" if key == "name" else "int64",
            "range": f"{range}m", "every": f"{every}m", "hours": hours, "aggregate": aggregate,
        },
        systems,
        same_rows(key, "window_start"),
        lambda: events(rows, keys, hours, names=key == "name"),
    )  # fmt: skip
