"""Spark batch: pairs of intervals that overlap, against Spark's own range join; from Parquet to no-op.

Spark compares all rows of a key with one another. Rows of a key are as dense at every size, so the pairs that
overlap grow as the rows do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tidemill as tm
from benchmarks import resources
from benchmarks.answers import same_numbers
from benchmarks.consumed import consumed
from benchmarks.data import MINUTE, START
from benchmarks.harness import HOME, Asked, Case

KEYS = 100
FILES = 4
SIDES = ("a", "b")
LENGTH, STEP = 10 * MINUTE, 2 * MINUTE
"""The mean length of an interval, and how far those of a key are apart: one overlaps with ten others."""

SCHEMA = {"ts": "timestamp", "until": "timestamp", "k": "int64", "v": "int64"}
OURS = 'a.join(b, on="k")'
THEIRS = """SELECT a.k, a.v, b.v AS v_right,
       greatest(a.ts, b.ts) AS valid_from, least(a.until, b.until) AS valid_to
FROM a JOIN b ON a.k = b.k AND a.ts < b.until AND b.ts < a.until"""
RUN = "spark"

Frames = Mapping[str, Any]


def cases(quick: bool) -> list[Case]:
    if quick:
        return [joined(20_000, beside=True)]
    return [joined(1_000_000, beside=True), *(joined(rows, beside=False) for rows in (3_000_000, 10_000_000))]


def joined(rows: int, *, beside: bool) -> Case:
    """So many intervals on each side; with Spark's own join beside, or alone."""
    a, b = (tm.stream(name, time="ts", end="until", schema=SCHEMA) for name in SIDES)
    query = a.join(b, on="k")
    systems: dict[str, Callable[[Frames], Any]] = {
        HOME: Asked(OURS, lambda frames: _consumed(query.on_spark(resources.spark()).run(**frames)))
    }
    if beside:
        systems[RUN] = Asked(THEIRS, _theirs)
    return Case(
        f"spark/overlap join, {rows:,} × {rows:,}", {"keys": KEYS, "files a side": FILES}, systems,
        same_numbers(),
        lambda: {name: resources.spark().read.parquet(_files(name, rows)) for name in SIDES},
        derive=lambda seconds: {"million rows/s": {s: 2 * rows / t / 1e6 for s, t in seconds.items()}},
    )  # fmt: skip


def _theirs(frames: Frames) -> dict[str, Any]:
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    return _consumed(resources.spark().sql(THEIRS))


def _consumed(answer: Any) -> dict[str, Any]:
    return consumed(answer, ("k", "valid_from", "valid_to"), "v_right")


@functools.cache
def _files(name: str, rows: int) -> str:
    """A folder of files in order of time."""
    rng = np.random.default_rng([9, SIDES.index(name), rows])
    start = START + np.sort(rng.integers(0, rows // KEYS * STEP, rows))
    until = start + 1 + rng.exponential(LENGTH, rows).astype(np.int64)
    instant = pa.timestamp("us", "UTC")
    table = pa.table({
        "ts": pa.array(start, instant), "until": pa.array(until, instant),
        "k": rng.integers(0, KEYS, rows), "v": rng.integers(0, 1_000, rows),
    })  # fmt: skip
    folder = resources.scratch() / f"{name}-{rows}"
    folder.mkdir()
    share = -(-rows // FILES)
    for part in range(FILES):
        pq.write_table(table.slice(part * share, share), folder / f"part-{part}.parquet")
    return str(folder)
