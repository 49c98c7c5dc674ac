"""Requests and orders: two streams of as many rows, each uniform in time, over the same keys."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import tidemill as tm
from benchmarks.data import START, Tables, tables

STEP = 1_000
"""Microseconds from a row of a stream to its next one, on average."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Pair:
    """What both streams are like. No two rows of a stream have the same time."""

    rows: int
    """The rows of each stream."""
    keys: int = 100
    matches: int = 100
    """The orders of a request in its interval, on average; at the beginning there are fewer."""
    named: bool = False
    """Keys are strings."""
    shuffled: bool = False
    """Rows come in any order."""

    @property
    def reach(self) -> int:
        """The microseconds before a request that have so many orders of its key."""
        return self.matches * self.keys * STEP

    @property
    def schemas(self) -> dict[str, dict[str, str]]:
        """Names and types of the columns, by the name of a stream."""
        both = {"ts": "timestamp", "k": "string" if self.named else "int64"}
        return {"requests": {**both, "back": "duration"}, "orders": {**both, "v": "int64"}}

    @property
    def streams(self) -> dict[str, tm.Stream]:
        return {name: tm.stream(name, time="ts", schema=schema) for name, schema in self.schemas.items()}


def rows_of(pair: Pair, name: str) -> pa.Table:
    """Return the rows of a stream. `back` says how far a request looks back, from half of `reach` to all."""
    rng = np.random.default_rng([11, pair.rows, name == "orders"])
    ts = START + STEP * np.arange(pair.rows, dtype=np.int64) + rng.integers(0, STEP, pair.rows)
    k = pa.array(rng.integers(0, pair.keys, pair.rows))
    if pair.named:
        k = pa.array([f"key-{i:07d}" for i in range(pair.keys)]).take(k)
    columns = {"ts": pa.array(ts, pa.timestamp("us", "UTC")), "k": k}
    if name == "orders":
        columns["v"] = pa.array(rng.integers(0, 1_000, pair.rows))
    else:
        far = rng.integers(pair.reach // 2, pair.reach, pair.rows, endpoint=True)
        columns["back"] = pc.cast(pa.array(far), pa.duration("us"))
    found = pa.table(columns)
    return found.take(pa.array(rng.permutation(pair.rows))) if pair.shuffled else found


@functools.lru_cache(maxsize=1)
def given(pair: Pair) -> Tables:
    """Both streams as each system likes them best. Kept until others are asked for."""
    names = tuple(pair.schemas)
    in_order = {} if pair.shuffled else dict.fromkeys(names, "ts")
    return tables({name: rows_of(pair, name) for name in names}, in_order)
