"""The sum by key and window in Pathway; a script that `peers` runs.

A batch is a commit. For events a second, each window is given once, when it is complete. For latencies, a
window is given again with each event, as Pathway does by default: that row is the result of the event.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import pathway as pw


class Event(pw.Schema):
    t: int
    k: int
    v: float
    i: int


class Events(pw.io.python.ConnectorSubject):
    """Sends events, a commit a batch, each batch when it is due."""

    def __init__(self, columns: dict[str, list[Any]], each: int, rate: int | None) -> None:
        super().__init__()
        self._columns, self._each, self._rate = columns, each, rate
        self.begin = 0.0

    def run(self) -> None:
        t, k, v = (self._columns[name] for name in ("t", "k", "v"))
        self.begin = time.perf_counter() + 0.5 * (self._rate is not None)
        for first in range(0, len(t), self._each):
            if self._rate is not None:
                due = self.begin + first / self._rate
                while (left := due - time.perf_counter()) > 0:
                    time.sleep(left if left > 0.002 else 0)  # others need the interpreter
            for i in range(first, min(len(t), first + self._each)):
                self.next(t=t[i], k=k[i], v=v[i], i=i)
            self.commit()


def main(request: dict[str, Any]) -> None:
    events = np.load(request["events"])
    each, rate = request["each"], request["rate"]
    subject = Events({name: events[name].tolist() for name in ("t", "k", "v")}, each, rate)
    table = pw.io.python.read(subject, schema=Event, autocommit_duration_ms=None)
    length = request["window"] * 1_000_000
    sums = table.windowby(
        table.t, window=pw.temporal.tumbling(duration=length, origin=0), instance=table.k,
        behavior=pw.temporal.exactly_once_behavior() if rate is None else None,
    ).reduce(
        k=pw.this._pw_instance, start=pw.this._pw_window_start, s=pw.reducers.sum(pw.this.v),
        i=pw.reducers.max(pw.this.i),
    )  # fmt: skip
    found: dict[tuple[int, int], float] = {}
    done = [0.0] * len(events["t"])
    ended: list[float] = []

    def note(key: Any, row: dict[str, Any], time_: int, is_addition: bool) -> None:
        if is_addition:
            found[row["k"], row["start"]] = row["s"]
            done[row["i"]] = time.perf_counter()

    pw.io.subscribe(
        sums, on_change=lambda key, row, time, is_addition: note(key, row, time, is_addition),
        on_end=lambda: ended.append(time.perf_counter()),
    )  # fmt: skip
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    late = []
    if rate is not None:
        for first in range(0, len(done), each):
            # Of two events of a window in a batch, only the last has a row.
            late.append(max(done[first : first + each]) - (subject.begin + first / rate))
    k, start = (np.array(column) for column in zip(*found))
    np.savez(
        request["answer"], k=k, start=start, s=np.array(list(found.values())),
        seconds=ended[0] - subject.begin, latencies=np.array(late),
    )  # fmt: skip


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
