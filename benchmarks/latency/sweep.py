"""Events a second by events a push, from 1 to a million (paper 000, section 7.2.3, Figure 4(b))."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import tidemill as tm
from benchmarks.harness import Case, Measured
from benchmarks.latency.feed import KEYS, Feed, as_polars_has_it, feed, sums
from benchmarks.latency.peers import Peer, peers

WINDOW = 10
MOST = 10_000
"""Events a push up to which peers run: their times hardly change after that."""


def cases(quick: bool) -> list[Case]:
    sizes = (1, 100, 10_000) if quick else (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
    most, few = (100_000, 4_000) if quick else (4_000_000, 20_000)
    found = peers()
    return [sweeping(each, min(most, 40_000 * (each + 1)), max(few, each), most, found) for each in sizes]


def sweeping(each: int, rows: int, few: int, most: int, found: dict[str, Peer]) -> Case:
    """A case over the first `rows` of `most` events; peers get `few`, which is to their advantage."""
    systems: dict[str, Callable[[Any], Any]] = {"tidemill": lambda given: pushed(given, rows, each)}
    if each <= MOST:
        for name, peer in found.items():
            systems[name] = lambda given, peer=peer: _by_peer(peer, given, few, each)
    params: dict[str, Any] = {"events": rows, "keys": KEYS, "window s": WINDOW}
    if len(systems) > 1:
        params |= {"events of peers": few, **{name: peer.version for name, peer in found.items()}}
    return Case(
        f"sweep/{each:,} a push", params, systems, as_polars_has_it, lambda: feed(most, WINDOW), repeats=2,
    )  # fmt: skip


def pushed(given: Feed, rows: int, each: int) -> Measured:
    batches, found = given.batches(rows, each), []
    live = given.query.live(tm.Disorder(slack="0s"))
    begin = time.perf_counter()
    for batch in batches:
        closed = live.push(events=batch)
        if closed.num_rows:
            found.append(closed)
    found.append(live.flush())
    seconds = time.perf_counter() - begin
    return _measured(sums(given, rows, pa.concat_tables(found)), rows, seconds)


def _by_peer(peer: Peer, given: Feed, rows: int, each: int) -> Measured:
    answer, done = peer.run(given, rows, each)
    return _measured(answer, rows, done["seconds"])


def _measured(answer: Any, rows: int, seconds: float) -> Measured:
    return Measured(answer, seconds / rows, {"events/s": rows / seconds})
