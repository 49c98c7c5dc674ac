"""A live query over keys that come and go. As a program it prints resident memory, every million."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import psutil
import pyarrow as pa

import tidemill as tm
from tidemill import col
from tidemill.local.live import Live
from tidemill.windows.spec import Window

EACH = 1_000
WINDOWS: dict[str, Window] = {"hopping": tm.hopping(10_000, every=2_000), "session": tm.session(300)}


def started(window: str, key: str) -> Live:
    stream, other = (tm.stream(n, time="t", schema={"t": "int64", "k": key, "x": "int64"}) for n in "so")
    if window in ("exact", "on arrival"):
        near = stream.interval_join(other, on="k", preceding=2_000, lateness=500).agg(
            n=tm.count(), most=tm.max("x")
        )
        last = near.last_join(other.select("k", "x"), on="k", tolerance=5_000, suffix="_last")
        return last.live(tm.Disorder(slack=500), answers=window)  # type: ignore[arg-type]
    if window == "join":
        pairs = stream.lasting(400).join(other, on="k", where=lambda s, o: s.x <= o.x)
        return pairs.group_by("k").agg(n=tm.count(), x=tm.max("x")).live(tm.Disorder(slack=500))
    query = stream.group_by("k").window(WINDOWS[window]).agg(n=tm.count(), x=tm.sum(col.x))
    return query.live(tm.Disorder(slack=500))


def batches(events: int, key: str, keys_an_event: float) -> Iterator[pa.RecordBatch]:
    """Two events a tick; one in a hundred comes up to 2000 ticks late; keys move on as events come."""
    rng = np.random.default_rng(1)
    for first in range(0, events, EACH):
        n = np.arange(first, first + EACH)
        late = np.where(rng.random(EACH) < 0.01, rng.integers(0, 2_000, EACH), 0)
        k = pa.array((n * keys_an_event).astype(np.int64) + 7 * rng.integers(0, 20_000, EACH))
        yield pa.record_batch({"t": n // 2 - late, "k": k.cast(key), "x": rng.integers(0, 100, EACH)})


def keys_held(live: Live) -> int:
    """How many keys the query has an id for."""
    [step] = live._emission.steps
    return int(step.operator.keys.count)  # type: ignore[attr-defined]


def main(window: str, key: str, millions: int) -> None:
    live, process = started(window, key), psutil.Process()
    for number, batch in enumerate(batches(millions * 1_000_000, key, 0.2), 1):
        live.push(**dict.fromkeys(live.inputs, batch))
        for name in live.inputs if number % 100 == 0 else ():
            live.take_late(name)
        if number % 1_000 == 0:
            print(process.memory_info().rss, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
