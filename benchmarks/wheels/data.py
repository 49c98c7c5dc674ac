"""Streams as in section 4 of paper 001: fares every second, bursty trips out of order, a sensor.

And histories as they are found elsewhere: power readings with gaps, and parking lots.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import tidemill as tm
from tidemill import col

START = 1_696_118_400_000_000
"""2023-10-01."""
SECOND = 1_000_000
DAY = 86_400
SCHEMA = {"ts": "timestamp", "v": "int64"}

Ints = npt.NDArray[np.int64]


def table(ts: Ints, v: Ints) -> pa.Table:
    return pa.table({"ts": pa.array(ts, pa.timestamp("us", "UTC")), "v": v})


@functools.lru_cache(maxsize=4)
def fares(days: int) -> pa.Table:
    """An event a second, as section 4.3."""
    n = days * DAY
    return table(START + SECOND * np.arange(n), np.random.default_rng(1).integers(300, 9_000, n))


@functools.lru_cache(maxsize=4)
def sensor(rows: int, late: float = 0.015) -> pa.Table:
    """100 events a second, 1.5 % of them out of order by less than a second."""
    rng = np.random.default_rng(2)
    ts = START + 10_000 * np.arange(rows) + rng.integers(0, 9_000, rows)
    return table(_disordered(ts, late, SECOND // 2, rng), rng.integers(0, 200, rows))


@functools.lru_cache(maxsize=4)
def trips(rows: int) -> pa.Table:
    """0.6 events a second, in bursts, 45.8 % out of order by up to half a minute.

    Half of the rows are held up; those that no later row overtakes are still in order.
    """
    rng = np.random.default_rng(3)
    gaps = np.where(rng.random(rows) < 0.1, rng.exponential(14 * SECOND, rows), SECOND // 4)
    ts = START + np.cumsum(gaps.astype(np.int64))
    return table(_disordered(ts, 0.497, 30 * SECOND, rng), rng.integers(60, 4_000, rows))


@functools.lru_cache(maxsize=4)
def power(days: int, keys: int = 1) -> pa.Table:
    """A reading a minute; about one minute in a hundred is missing, in gaps of up to four days."""
    rng, n = np.random.default_rng(8), days * 1_440
    held = np.ones(n, dtype=np.bool_)
    for begin in rng.integers(0, n, max(1, days // 60)):
        held[begin : begin + min(int(rng.exponential(900)), 5_760)] = False
    ts = START + 60 * SECOND * np.flatnonzero(held)
    return pa.table({"ts": pa.array(ts, pa.timestamp("us", "UTC")), "v": rng.gamma(2.0, 0.6, len(ts))})


@functools.lru_cache(maxsize=4)
def parking(days: int, keys: int) -> pa.Table:
    """A row for each lot every half an hour from 8 to 17 o'clock, at a second that differs by lot."""
    rng = np.random.default_rng(9)
    minutes = (np.arange(days)[:, None] * 1_440 + np.arange(8 * 60, 17 * 60, 30)).ravel()
    ts = START + SECOND * (60 * np.repeat(minutes, keys) + np.tile(rng.integers(0, 900, keys), len(minutes)))
    k = np.tile(np.arange(keys), len(minutes))
    order = np.argsort(ts, kind="stable")
    v = rng.integers(0, 900, len(ts)).astype(np.float64)
    return pa.table({"ts": pa.array(ts[order], pa.timestamp("us", "UTC")), "k": k[order], "v": v})


def _disordered(ts: Ints, share: float, by: int, rng: Any) -> Ints:
    """The same times in another order: a share of rows arrives later than its time says."""
    delay = np.where(rng.random(len(ts)) < share, rng.integers(0, by, len(ts)), 0)
    moved: Ints = ts[np.argsort(ts + delay, kind="stable")]
    return moved


def wheel(start: int = START, **options: Any) -> tm.Wheel:
    return tm.Wheel(tm.sum(col.v), schema=SCHEMA, time="ts", start=start, **options)
