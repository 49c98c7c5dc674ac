"""The sum by key and window in Bytewax; a script that `peers` runs.

The watermark is the greatest time of a key: the clock of the machine stands still, and nothing is awoken by
it, so that a replay closes windows by its own time. Sums need no order (`ordered=False`), and nothing is
saved, as nothing is at Tidemill. Latencies are until an event was folded into its window.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import datetime, timedelta, timezone
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
import numpy as np
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
NOW = datetime.now(timezone.utc)


class Partition(StatelessSourcePartition):
    """Gives batches, each when it is due."""

    def __init__(self, batches: list[list[Any]], due: list[float] | None) -> None:
        self._batches, self._due = iter(batches), None if due is None else iter(due)

    def next_batch(self) -> list[Any]:
        batch = next(self._batches)  # StopIteration is the end
        if self._due is not None:
            until = next(self._due)
            while time.perf_counter() < until:
                pass
        return batch


class Source(DynamicSource):
    def __init__(self, *given: Any) -> None:
        self._given = given

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Partition:
        return Partition(*self._given)


class Partial(StatelessSinkPartition):
    def __init__(self, found: list[Any]) -> None:
        self._found = found

    def write_batch(self, items: list[Any]) -> None:
        self._found.extend(items)


class Sink(DynamicSink):
    def __init__(self, found: list[Any]) -> None:
        self._found = found

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Partial:
        return Partial(self._found)


def main(request: dict[str, Any]) -> None:
    events = np.load(request["events"])
    each, rate = request["each"], request["rate"]
    times = [START + timedelta(microseconds=t) for t in events["t"].tolist()]
    rows = zip(times, events["v"].tolist(), range(len(times)))
    items = list(zip(map(str, events["k"].tolist()), rows))
    batches = [items[i : i + each] for i in range(0, len(items), each)]
    done = [0.0] * len(items)

    def add(total: float, item: Any) -> float:
        return total + item[1]

    def add_and_note(total: float, item: Any) -> float:
        done[item[2]] = time.perf_counter()
        return total + item[1]

    found: list[Any] = []
    begin = time.perf_counter() + 0.1 * (rate is not None)
    due = None if rate is None else [begin + i * each / rate for i in range(len(batches))]
    flow = Dataflow("sums")
    stream = op.input("events", flow, Source(batches, due))
    clock = win.EventClock(
        ts_getter=lambda item: item[0], wait_for_system_duration=timedelta(0), now_getter=lambda: NOW,
        to_system_utc=lambda t: None,
    )  # fmt: skip
    windower = win.TumblingWindower(length=timedelta(seconds=request["window"]), align_to=START)
    fold = add if rate is None else add_and_note
    sums = win.fold_window("sum", stream, clock, windower, float, fold, lambda a, b: a + b, ordered=False)
    op.output("sums", sums.down, Sink(found))
    run_main(flow, epoch_interval=timedelta(days=1))
    seconds = time.perf_counter() - begin
    late = [] if due is None else [max(done[i * each : (i + 1) * each]) - t for i, t in enumerate(due)]
    length = request["window"] * 1_000_000
    np.savez(
        request["answer"], k=np.array([int(k) for k, _ in found]),
        start=np.array([window * length for _, (window, _) in found]),
        s=np.array([s for _, (_, s) in found]), seconds=seconds, latencies=np.array(late),
    )  # fmt: skip


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
