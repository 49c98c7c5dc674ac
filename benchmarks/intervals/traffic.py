"""The workloads of paper 004: requests and orders as they come, out of order by up to the lateness."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import tidemill as tm
from benchmarks.data import START
from tidemill import col

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
SCHEMAS = {
    "requests": {"ts": "timestamp", "k": "int64", "i": "int64"},
    "orders": {"ts": "timestamp", "k": "int64", "v": "float64"},
}


@dataclass(frozen=True)
class Workload:
    """What comes. Half of the tuples are base tuples (requests), half are probe tuples (orders)."""

    tuples: int
    keys: int
    window: int
    """Microseconds before a request that its orders may be."""
    lateness: int
    """A tuple comes up to so many microseconds of event time after it happened."""
    matches: float
    """The orders of the key of a request in its window, on average."""
    hot: float = 0.0
    """This share of all tuples has the first key, whatever the others have."""

    @property
    def requests(self) -> tm.Stream:
        return tm.stream("requests", time="ts", schema=SCHEMAS["requests"])

    @property
    def orders(self) -> tm.Stream:
        return tm.stream("orders", time="ts", schema=SCHEMAS["orders"])

    @property
    def query(self) -> tm.Stream:
        """Count and sum of the orders in the window of each request."""
        joined = self.requests.interval_join(self.orders, on="k", preceding=f"{self.window}us")
        return joined.agg(n=tm.count(), s=tm.sum(col.v)).select("i", "n", "s")


@dataclass(frozen=True)
class Side:
    """The tuples of one stream, in the order in which they come."""

    times: Ints
    keys: Ints
    values: Floats | Ints
    """The value of an order; the number of a request."""
    rows: pa.RecordBatch
    place: Ints
    """The number of each tuple among those of both streams."""
    before: Ints
    """How many tuples of this stream there are among the first so many of both."""


@dataclass(frozen=True)
class Traffic:
    """What comes of a workload."""

    workload: Workload
    requests: Side
    orders: Side
    newest: Ints
    """The greatest time up to each tuple of both streams."""

    def below(self, until: int) -> int:
        """Return the watermark after so many tuples."""
        return int(self.newest[until - 1]) - self.workload.lateness

    def cuts(self, each: int) -> list[tuple[int, int]]:
        """Divide all tuples into batches of so many."""
        n = self.workload.tuples
        return [(begin, min(begin + each, n)) for begin in range(0, n, each)]


@functools.lru_cache(maxsize=1)
def traffic(workload: Workload) -> Traffic:
    """Make the tuples of a workload. Kept until others are asked for."""
    rng = np.random.default_rng(4)
    n = workload.tuples
    step = workload.window / (2 * workload.matches * workload.keys)
    times = START + (step * np.arange(n)).astype(np.int64)
    comes = times + rng.integers(0, workload.lateness, n, endpoint=True)
    order = np.argsort(comes, kind="stable")
    times, is_order = times[order], rng.random(n) < 0.5
    keys = rng.integers(0, workload.keys, n)
    if workload.hot:
        keys[rng.random(n) < workload.hot] = 0
    sides = []
    for name, mask in (("requests", ~is_order), ("orders", is_order)):
        own = int(mask.sum())
        values = np.arange(own) if name == "requests" else rng.random(own)
        columns = [pa.array(times[mask], pa.timestamp("us", "UTC")), pa.array(keys[mask]), pa.array(values)]
        rows = pa.RecordBatch.from_arrays(columns, names=list(SCHEMAS[name]))
        before = np.append(0, np.cumsum(mask))
        sides.append(Side(times[mask], keys[mask], values, rows, np.flatnonzero(mask), before))
    return Traffic(workload, *sides, np.maximum.accumulate(times))
