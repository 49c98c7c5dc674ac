"""The events of all cases, and the sum by key and window that all systems compute."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

import tidemill as tm
from benchmarks import resources
from benchmarks.answers import same_rows
from benchmarks.data import START, Shape, table
from benchmarks.harness import Answers
from tidemill import col

KEYS = 10_000
RATE = 1_000
"""Events in a second of the stream's time."""


@dataclass(frozen=True)
class Feed:
    """Events in the order of time."""

    rows: pa.Table
    seconds: int
    """The length of windows."""

    @property
    def query(self) -> Any:
        events = tm.stream("events", time="ts", schema={"ts": "timestamp", "k": "int64", "v": "float64"})
        return events.group_by("k").window(tm.tumbling(f"{self.seconds}s")).agg(s=tm.sum(col.v))

    def batches(self, rows: int, each: int) -> list[pa.RecordBatch]:
        found: list[pa.RecordBatch] = self.rows.slice(0, rows).to_batches(max_chunksize=each)
        return found

    def saved(self, rows: int) -> Path:
        """The first events as a file that every peer can read."""
        path = resources.scratch() / f"events-{rows}-of-{len(self.rows)}.npz"
        if not path.exists():
            some = self.rows.slice(0, rows)
            np.savez(
                path, t=np.asarray(some["ts"].cast("int64")) - START, k=np.asarray(some["k"]),
                v=np.asarray(some["v"]),
            )  # fmt: skip
        return path


@functools.lru_cache(maxsize=1)
def _events(rows: int) -> pa.Table:
    return table(Shape(rows, KEYS, rows / RATE / 3600)).select(["ts", "k", "v"]).combine_chunks()


def feed(rows: int, seconds: int) -> Feed:
    return Feed(_events(rows), seconds)


@dataclass(frozen=True)
class Sums:
    """The result of a system over the first events."""

    feed: Feed
    rows: int
    found: pa.Table
    """With columns `k`, `start` (microseconds since the first window) and `s`."""


def sums(feed: Feed, rows: int, given: pa.Table) -> Sums:
    """Return Tidemill's result in the form that all have."""
    start = pa.array(np.asarray(given["window_start"].cast("int64")) - START)
    return Sums(feed, rows, pa.table({"k": given["k"], "start": start, "s": given["s"]}))


def as_polars_has_it(answers: Answers) -> None:
    """Raise `Mismatch` unless each answer is what Polars computes over as many events."""
    for name, answer in answers.items():
        events = pl.from_arrow(answer.feed.rows.slice(0, answer.rows))
        assert isinstance(events, pl.DataFrame)
        length = answer.feed.seconds * 1_000_000
        start = ((pl.col("ts").dt.epoch("us") - START) // length * length).alias("start")
        right = events.group_by("k", start).agg(pl.col("v").sum().alias("s"))
        same_rows("k", "start")({name: answer.found, "polars": right})
