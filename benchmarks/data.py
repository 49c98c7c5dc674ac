"""Generated events, in the form that each system likes best."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

import tidemill as tm

START = 1_767_225_600_000_000
"""2026-01-01, in microseconds."""
MINUTE = 60_000_000
HOUR = 60 * MINUTE

SCHEMA = {"ts": "timestamp", "user": "int64", "k": "int64", "v": "float64"}


def stream() -> tm.Stream:
    return tm.stream("events", time="ts", schema=SCHEMA)


def named_stream() -> tm.Stream:
    """With the key as a string, `name`, besides."""
    return tm.stream("events", time="ts", schema={**SCHEMA, "name": "string"})


def columns(rows: int, keys: int, hours: float, *, seed: int = 1, first: int = START) -> pa.Table:
    """Events in time order: uniform in time, keys and users uniform, values in (0, 1]."""
    rng = np.random.default_rng(seed)
    ts = np.sort(rng.integers(0, int(hours * HOUR), rows)) + first
    return pa.table(
        {
            "ts": pa.array(ts, pa.timestamp("us", "UTC")),
            "user": rng.integers(0, 100_000, rows),
            "k": rng.integers(0, keys, rows),
            "v": 1.0 - rng.random(rows),
        }
    )


@dataclass(frozen=True)
class Events:
    """The same rows as an Arrow table, a Polars frame, and table `events` of a DuckDB connection."""

    arrow: pa.Table
    polars: pl.DataFrame
    duckdb: duckdb.DuckDBPyConnection

    def sql(self, query: str) -> pa.Table:
        return self.duckdb.sql(query).to_arrow_table()


@functools.lru_cache(maxsize=1)
def events(rows: int, keys: int, hours: float, *, names: bool = False) -> Events:
    """Kept until other events are asked for."""
    table = columns(rows, keys, hours)
    if names:
        table = table.append_column("name", _names(keys).take(table["k"]))
    return Events(table, _frame(table), _connection(table))


def _names(keys: int) -> pa.Array:
    return pa.array([f"key-{i:07d}" for i in range(keys)])


def _frame(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame.rechunk().with_columns(pl.col("ts").set_sorted())


def _connection(table: pa.Table) -> Any:
    connection = duckdb.connect()
    # Its own table: at least as fast as scanning Arrow. Order is not asked of any result.
    connection.execute(
        "SET threads = 2; SET TimeZone = 'UTC'; SET preserve_insertion_order = false"
    )
    connection.register("given", table)
    connection.execute("CREATE TABLE events AS SELECT * FROM given")
    connection.unregister("given")
    return connection
