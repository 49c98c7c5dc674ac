"""A sensor monitor: each sensor says itself how far it has come, so none waits for another.

    python -m examples.live_sensors

Readings come in bursts, and the bursts of different sensors are far apart. When a sensor has sent one, it is
complete up to there: a punctuation of its key. Its minutes are then given at once. The same query over all
readings gives the same rows.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa

import tidemill as tm
from tidemill import col

SENSORS = 5
BURST = 300
"""Seconds of readings that a sensor sends at once."""

readings = tm.stream("readings", time="t", schema={"t": "int64", "sensor": "int64", "celsius": "float64"})
by_minute = (
    readings
    .group_by("sensor")
    .window(tm.tumbling(60))
    .agg(n=tm.count(), mean=tm.mean(col.celsius), most=tm.max(col.celsius))
)  # fmt: skip


def bursts(count: int, seed: int = 1) -> Iterator[tuple[int, int, pa.Table]]:
    """Yield a sensor, the time up to which it is complete, and its readings up to there."""
    pick = random.Random(seed)
    complete = dict.fromkeys(range(SENSORS), 0)
    for _ in range(count):
        sensor = pick.choice(list(complete))
        start = complete[sensor]
        times = sorted(pick.sample(range(start, start + BURST), 100))
        celsius = [20 + 5 * pick.random() for _ in times]
        complete[sensor] = start + BURST
        yield sensor, start + BURST, pa.table({"t": times, "sensor": [sensor] * 100, "celsius": celsius})


def watched(count: int) -> tuple[pa.Table, pa.Table]:
    """Return the rows that a live query gives, and those of the same query over all readings."""
    live, given, seen = by_minute.live(), [], []
    for sensor, below, batch in bursts(count):
        given.append(live.push(readings=batch))
        given.append(live.punctuate(below, key={"sensor": sensor}))
        seen.append(batch)
    print(live)
    given.append(live.flush())
    return pa.concat_tables(given), by_minute.run(readings=pa.concat_tables(seen))


def main() -> None:
    live, history = watched(60)
    order = [("sensor", "ascending"), ("window_start", "ascending")]
    print(live.sort_by(order).slice(0, 5).to_pandas())
    same = live.sort_by(order).equals(history.sort_by(order))
    said = "the same" if same else "DIFFERENT"
    print(f"{live.num_rows} rows live, {history.num_rows} from history, {said}")


if __name__ == "__main__":
    main()
