"""How one writes hopping windows elsewhere: each row once for each window it is in, then a group.

Every form gives the rows that Tidemill gives: windows aligned to the epoch, the first ones (which
start before the first row) included. Of the forms tried, the fastest is kept: in DuckDB a cross
join with the numbers of windows, ahead of `unnest(range(...))` and a join on a range of windows; in
Polars `explode` on the streaming engine where windows overlap little, `group_by_dynamic` where they
overlap much. Nobody is made to aggregate panes first by hand: that is Tidemill's own trick.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from benchmarks.data import Events


@dataclass(frozen=True)
class Hopping:
    """`range` and `every` in microseconds, a whole number of times each other."""

    range: int
    every: int

    @property
    def overlap(self) -> int:
        return self.range // self.every


def duckdb(events: Events, key: str, hop: Hopping, value: str) -> pa.Table:
    """Rows crossed with the windows they are in."""
    source = f"SELECT {key}, v, epoch_us(ts) // {hop.every} AS w FROM events"
    if hop.overlap > 1:
        source = (
            f"SELECT {key}, v, w - i AS w FROM ({source}) CROSS JOIN range({hop.overlap}) AS r(i)"
        )
    return events.sql(_grouped(key, hop, value, source))


def duckdb_unnest(events: Events, key: str, hop: Hopping, value: str) -> pa.Table:
    """Rows unnested to the windows they are in."""
    last = f"epoch_us(ts) // {hop.every}"
    windows = f"unnest(range({last} - {hop.overlap - 1}, {last} + 1))"
    return events.sql(_grouped(key, hop, value, f"SELECT {key}, v, {windows} AS w FROM events"))


def _grouped(key: str, hop: Hopping, value: str, source: str) -> str:
    return (
        f"SELECT {key}, make_timestamp(w * {hop.every}) AS window_start, "
        f"make_timestamp(w * {hop.every} + {hop.range}) AS window_end, {value} AS x "
        f"FROM ({source}) GROUP BY {key}, w"
    )


def polars_explode(events: Events, key: str, hop: Hopping, value: pl.Expr) -> pl.DataFrame:
    """Rows exploded to the windows they are in."""
    last = pl.col("ts").to_physical() // hop.every
    rows = events.polars.lazy()
    if hop.overlap > 1:
        rows = rows.select(key, "v", w=pl.int_ranges(last - hop.overlap + 1, last + 1)).explode("w")
    else:
        rows = rows.select(key, "v", w=last)
    start = (pl.col("w") * hop.every).cast(pl.Datetime("us", "UTC"))
    return (
        rows.group_by(key, "w").agg(x=value)
        .select(key, "x", window_start=start, window_end=start + _duration(hop.range))
        .collect(engine="streaming")
    )  # fmt: skip


def polars_dynamic(events: Events, key: str, hop: Hopping, value: pl.Expr) -> pl.DataFrame:
    """Polars' own windows. The offset makes it start with the first window that has a row."""
    return (
        events.polars.lazy()
        .group_by_dynamic(
            "ts", every=f"{hop.every}us", period=f"{hop.range}us",
            offset=f"-{hop.range - hop.every}us", closed="left", group_by=key,
        )
        .agg(x=value)
        .select(key, "x", window_start="ts", window_end=pl.col("ts") + _duration(hop.range))
        .collect()
    )  # fmt: skip


def _duration(microseconds: int) -> pl.Expr:
    return pl.lit(microseconds).cast(pl.Duration("us"))
