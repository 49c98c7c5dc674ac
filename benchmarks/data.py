"""Generated events, in the form that each system likes best."""

from __future__ import annotations

import functools
from collections.abc import Mapping
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

TEXTS = ("name", "city", "note")
"""Columns of text: the key as a string, one of a hundred cities, one of a hundred thousand notes."""


@dataclass(frozen=True)
class Shape:
    """What events are like. No two have the same time."""

    rows: int
    keys: int = 100
    hours: float = 48.0
    zipf: float = 0.0
    """The exponent of Zipf's law that keys follow; 0 for uniform keys."""
    value: str = "float64"
    """The type of `v`: `float64` in (0, 1], or `int64` below 1000."""
    texts: tuple[str, ...] = ()
    """Which of `TEXTS` there are."""
    users: int = 100_000
    disorder: float = 0.0
    """Rows come up to so many seconds after rows that are later; 0 for rows in time order."""

    @property
    def schema(self) -> dict[str, str]:
        """Names and types as `tm.stream` takes them."""
        fixed = {"ts": "timestamp", "user": "int64", "k": "int64", "v": self.value}
        return {**fixed, **dict.fromkeys(self.texts, "string")}

    @property
    def stream(self) -> tm.Stream:
        return tm.stream("events", time="ts", schema=self.schema)

    @property
    def streams(self) -> dict[str, tm.Stream]:
        """The stream by its name, as a question takes it."""
        return {"events": self.stream}


def table(shape: Shape, *, seed: int = 1, first: int = START) -> pa.Table:
    """Events uniform in time; users are uniform, keys are as the shape says."""
    rng = np.random.default_rng(seed)
    rows = shape.rows
    step = int(shape.hours * HOUR) // rows
    ts = first + step * np.arange(rows, dtype=np.int64) + rng.integers(0, step, rows)
    if shape.disorder:
        ts = ts[np.argsort(ts + rng.random(rows) * shape.disorder * 1e6, kind="stable")]
    k = rng.zipf(shape.zipf, rows) % shape.keys if shape.zipf else rng.integers(0, shape.keys, rows)
    whole = shape.value == "int64"
    columns = {
        "ts": pa.array(ts, pa.timestamp("us", "UTC")),
        "user": rng.integers(0, shape.users, rows),
        "k": k,
        "v": rng.integers(0, 1_000, rows) if whole else 1.0 - rng.random(rows),
    }
    for name in shape.texts:
        columns[name] = _text(name, shape.keys, k, rng)
    return pa.table(columns)


def _text(name: str, keys: int, k: Any, rng: Any) -> pa.Array:
    if name == "name":
        return pa.array([f"key-{i:07d}" for i in range(keys)]).take(pa.array(k))
    count = {"city": 100, "note": 100_000}[name]
    words = pa.array([f"{name} number {i}, as it was read" for i in range(count)])
    return words.take(pa.array(rng.integers(0, count, len(k))))


@dataclass(frozen=True)
class Tables:
    """Tables by name, with the same rows as Arrow, as Polars frames, and in a DuckDB connection."""

    arrow: Mapping[str, pa.Table]
    polars: Mapping[str, pl.DataFrame]
    duckdb: duckdb.DuckDBPyConnection

    def sql(self, query: str) -> pa.Table:
        return self.duckdb.sql(query).to_arrow_table()


def tables(given: Mapping[str, pa.Table], sorted_by: Mapping[str, str] = {}) -> Tables:
    """Copies of tables for each system. `sorted_by` has a column of a table that Polars knows is sorted."""
    frames = {name: _frame(rows, sorted_by.get(name)) for name, rows in given.items()}
    return Tables(given, frames, _connection(given))


@functools.lru_cache(maxsize=1)
def events(shape: Shape) -> Tables:
    """One table, `events`. Kept until other events are asked for."""
    return tables({"events": table(shape)}, {} if shape.disorder else {"events": "ts"})


def _frame(rows: pa.Table, sorted_by: str | None) -> pl.DataFrame:
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    frame = frame.rechunk()
    return frame if sorted_by is None else frame.with_columns(pl.col(sorted_by).set_sorted())


def _connection(given: Mapping[str, pa.Table]) -> Any:
    connection = duckdb.connect()
    # Its own tables: at least as fast as scanning Arrow. Order is not asked of any result.
    # By default, an ASOF join of few rows compares all pairs, for seconds where it thinks that rows are few.
    connection.execute(
        "SET threads = 2; SET TimeZone = 'UTC'; SET preserve_insertion_order = false; "
        "SET asof_loop_join_threshold = 0"
    )
    for name, rows in given.items():
        connection.register("given", rows)
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
        connection.unregister("given")
    return connection
