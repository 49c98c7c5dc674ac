"""From the arrival of events to their result, at a fixed rate.

Arrivals are scheduled beforehand, and what counts is the time since the arrival that was due, not since the
push: a system that falls behind is charged for all that waits (an open loop).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

import tidemill as tm
from benchmarks.harness import Case, Measured
from benchmarks.latency.feed import KEYS, Feed, as_polars_has_it, feed, sums
from benchmarks.latency.peers import Peer, peers

WINDOW = 1
SLEEP = 0.001
"""Seconds before the next arrival that are spent awake, as a sleep may take longer than it should."""


def cases(quick: bool) -> list[Case]:
    seconds = 1.0 if quick else 10.0
    asked = ((1, 1_000), (10, 10_000)) if quick else ((1, 1_000), (1, 5_000), (10, 10_000), (100, 100_000))
    found = peers()
    return [pacing(each, rate, seconds, found if rate <= 5_000 else {}) for each, rate in asked]


def pacing(each: int, rate: int, seconds: float, found: dict[str, Peer]) -> Case:
    """A case in which `each` events arrive together, `rate` events a second."""
    rows = int(rate * seconds)
    systems: dict[str, Callable[[Any], Any]] = {"tidemill": lambda given: paced(given, rows, each, rate)}
    for name, peer in found.items():
        systems[name] = lambda given, peer=peer: _by_peer(peer, given, rows, each, rate)
    params = {"events": rows, "keys": KEYS, "window s": WINDOW}
    name = f"paced/{each:,} a push, {rate:,} events/s"
    return Case(name, params, systems, as_polars_has_it, lambda: feed(rows, WINDOW), repeats=2)


def paced(given: Feed, rows: int, each: int, rate: int) -> Measured:
    batches, found = given.batches(rows, each), []
    live = given.query.live(tm.Disorder(slack="0s"))
    clock, late = time.perf_counter, np.empty(len(batches))
    begin = clock() + 10 * SLEEP
    for i, batch in enumerate(batches):
        due = begin + i * each / rate
        if due - clock() > 2 * SLEEP:
            time.sleep(due - clock() - SLEEP)
        while clock() < due:
            pass
        closed = live.push(events=batch)
        late[i] = clock() - due
        if closed.num_rows:
            found.append(closed)
    found.append(live.flush())
    return _measured(sums(given, rows, pa.concat_tables(found)), late)


def _by_peer(peer: Peer, given: Feed, rows: int, each: int, rate: int) -> Measured:
    answer, done = peer.run(given, rows, each, rate)
    return _measured(answer, done["latencies"])


def _measured(answer: Any, late: Any) -> Measured:
    p50, p99, most = np.percentile(late, [50, 99, 99.9])
    return Measured(answer, float(p99), {
        "p50 ms": 1e3 * float(p50), "p99.9 ms": 1e3 * float(most), "greatest ms": 1e3 * float(late.max()),
    })  # fmt: skip
