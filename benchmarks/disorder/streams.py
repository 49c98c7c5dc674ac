"""Streams with the disorder of paper 003, section 8.1, and what their sources can promise.

Each event has a time and an arrival, both in seconds from the start; rows are in the order of arrival.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

SECOND = 1_000_000
SEGMENTS = 10
SCHEMA = {"ts": "timestamp", "segment": "int64", "speed": "float64"}
BOUNDS = np.linspace(0.4, 4.0, 10)
"""The greatest delay in each of the ten sequences that a bounded stream is made of, in seconds."""
DELAYED = 0.02
"""How many of the events of a bounded stream are delayed."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Arrivals:
    """Events in the order in which they come. Times are in ticks."""

    rows: pa.Table
    ts: Ints
    at: Ints
    """When each came."""
    block: int | None = None
    """The length of blocks, if the source sends blocks and says when one is complete."""

    @functools.cached_property
    def batches(self) -> list[pa.RecordBatch]:
        """The events one by one."""
        found: list[pa.RecordBatch] = self.rows.to_batches(max_chunksize=1)
        return found

    def promises(self, slide: int) -> list[tuple[int, int]]:
        """Return what the source promises: (number of events before it, time).

        A source that sends blocks says when one is complete. Any other says that time has reached the end of
        a window as soon as no event below is under way.
        """
        if self.block is not None:
            ends = np.arange(self.block, int(self.ts.max()) + 1, self.block)
        else:
            ends = np.arange(slide, int(self.ts.max()) + 1, slide)
        order = np.argsort(self.ts, kind="stable")
        last = np.maximum.accumulate(order)  # the last of the events up to this one to come
        before = np.searchsorted(self.ts[order], ends)
        return [(int(last[n - 1]) + 1, int(end)) for n, end in zip(before, ends) if n]


@functools.lru_cache(maxsize=1)
def bounded(seconds: int, rate: int) -> Arrivals:
    """Most events come at once; a few are delayed, by up to the bound of the sequence they are in."""
    rng = np.random.default_rng(3)
    ts = _times(seconds * rate, rate, rng)
    sequence = rng.integers(0, len(BOUNDS), seconds // 10 + 2)[ts // (10 * SECOND)]
    late = rng.random(len(ts)) < DELAYED
    delay = np.where(late, rng.random(len(ts)) * BOUNDS[sequence], 0.0)
    return _arrivals(ts, ts + (delay * SECOND).astype(np.int64), rng)


@functools.lru_cache(maxsize=1)
def blocks(seconds: int, rate: int, length: int = 490) -> Arrivals:
    """A block of events is sent in any order, at the same rate, while the next one is collected."""
    rng = np.random.default_rng(4)
    ts = _times(seconds * rate, rate, rng)
    number = ts // (length * SECOND)
    shuffled = np.lexsort((rng.random(len(ts)), number))
    at = np.empty(len(ts), dtype=np.int64)
    at[shuffled] = ts + length * SECOND
    return _arrivals(ts, at, rng, length * SECOND)


def _times(rows: int, rate: int, rng: np.random.Generator) -> Ints:
    step = SECOND // rate
    return step * np.arange(rows) + rng.integers(0, step, rows)


def _arrivals(ts: Ints, at: Ints, rng: np.random.Generator, block: int | None = None) -> Arrivals:
    order = np.argsort(at, kind="stable")
    ts, at = ts[order], at[order]
    segment = rng.integers(0, SEGMENTS, len(ts))
    rows = pa.table({
        "ts": pa.array(ts, pa.timestamp("us", "UTC")), "segment": segment,
        "speed": rng.normal(60.0, 12.0, len(ts)) + 2.0 * segment,
    })  # fmt: skip
    return Arrivals(rows, ts, at, block)
