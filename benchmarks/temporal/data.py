"""What the questions read beside events: sessions with two ends, and the ads of the Yahoo benchmark."""

from __future__ import annotations

import functools

import numpy as np
import pyarrow as pa

import tidemill as tm
from benchmarks.data import HOUR, MINUTE, START, Tables, tables

SESSIONS = tm.stream(
    "sessions", time="ts", end="until", schema={"ts": "timestamp", "until": "timestamp", "user": "int64"}
)
ADS = tm.table("ads", schema={"ad": "int64", "campaign": "int64"})
SHOWN = tm.stream(
    "shown", time="ts",
    schema={
        "ts": "timestamp", "user": "int64", "page": "int64", "ad": "int64", "ad_type": "string",
        "event_type": "string",
    },
)  # fmt: skip
CAMPAIGNS = 100
ADS_EACH = 10


@functools.lru_cache(maxsize=1)
def sessions(rows: int, hours: float = 48.0, *, mean: int = 10 * MINUTE) -> Tables:
    """Sessions whose length is exponential, sorted by their start."""
    rng = np.random.default_rng(4)
    start = START + np.sort(rng.integers(0, int(hours * HOUR), rows))
    lengths = 1 + rng.exponential(mean, rows).astype(np.int64)
    instant = pa.timestamp("us", "UTC")
    table = pa.table({
        "ts": pa.array(start, instant), "until": pa.array(start + lengths, instant),
        "user": rng.integers(0, 100_000, rows),
    })  # fmt: skip
    return tables({"sessions": table}, {"sessions": "ts"})


@functools.lru_cache(maxsize=1)
def yahoo(rows: int, minutes: float = 30.0) -> Tables:
    """Events of a thousand ads, a third of them views; and the campaign of each ad."""
    rng = np.random.default_rng(5)
    count = CAMPAIGNS * ADS_EACH
    step = int(minutes * MINUTE) / rows
    words = lambda *texts: pa.array(texts).take(pa.array(rng.integers(0, len(texts), rows)))
    shown = pa.table({
        "ts": pa.array(START + (step * np.arange(rows)).astype(np.int64), pa.timestamp("us", "UTC")),
        "user": rng.integers(0, 1_000_000, rows), "page": rng.integers(0, 10_000, rows),
        "ad": rng.integers(0, count, rows),
        "ad_type": words("banner", "modal", "sponsored-search", "mail", "mobile"),
        "event_type": words("view", "click", "purchase"),
    })  # fmt: skip
    ads = pa.table({"ad": np.arange(count), "campaign": rng.permutation(count) % CAMPAIGNS})
    return tables({"shown": shown, "ads": ads}, {"shown": "ts"})
