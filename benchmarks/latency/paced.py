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
AWAKE = 0.001
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
    params: dict[str, Any] = {"events": rows, "keys": KEYS, "window s": WINDOW}
    params |= {name: peer.version for name, peer in found.items()}
    name = f"paced/{each:,} a push, {rate:,} events/s"
    return Case(name, params, systems, as_polars_has_it, lambda: feed(rows, WINDOW), repeats=2)


def paced(given: Feed, rows: int, each: int, rate: int) -> Measured:
    batches, found = given.batches(rows, each), []
    live = given.query.live(tm.Disorder(slack="0s"))

    def push(number: int) -> None:
        closed = live.push(events=batches[number])
        if closed.num_rows:
            found.append(closed)

    late = latencies(push, len(batches), each / rate)
    found.append(live.flush())
    return _measured(sums(given, rows, pa.concat_tables(found)), late)


def latencies(
    push: Callable[[int], None], count: int, interval: float, clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> Any:  # fmt: skip
    """Call a function at fixed times; return for each call the seconds from when it was due to its end."""
    late = np.empty(count)
    begin = clock() + 10 * AWAKE
    for number in range(count):
        due = begin + number * interval
        if (left := due - clock()) > 2 * AWAKE:
            sleep(left - AWAKE)
        while clock() < due:
            pass
        push(number)
        late[number] = clock() - due
    return late


def _by_peer(peer: Peer, given: Feed, rows: int, each: int, rate: int) -> Measured:
    answer, done = peer.run(given, rows, each, rate)
    return _measured(answer, done["latencies"])


def _measured(answer: Any, late: Any) -> Measured:
    p50, p99, most = np.percentile(late, [50, 99, 99.9])
    return Measured(answer, float(p99), {
        "p50 ms": 1e3 * float(p50), "p99.9 ms": 1e3 * float(most), "greatest ms": 1e3 * float(late.max()),
    })  # fmt: skip
