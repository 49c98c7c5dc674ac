"""Live queries: events a second by events a push, and from an event to its result (paper 000, 7.2.3)."""

from __future__ import annotations

import dataclasses

from benchmarks.harness import QUICK, Case
from benchmarks.latency import paced, plots, sweep
from benchmarks.latency.peers import PEERS
from benchmarks.registry import Benchmark, Unit


def _cases(quick: bool) -> list[Case]:
    return [*sweep.cases(quick), *paced.cases(quick)]


BENCHMARK = Benchmark(
    "latency",
    _cases,
    titles={
        "sweep": "Time an event, by events a push: each push is a punctuation",
        "paced": "The 99th percentile from the arrival that was due to the result, at a fixed rate",
    },
    plots={"events-a-push": plots.events_a_push, "paced": plots.percentiles},
    units={"sweep": Unit("µs an event", 1e6), "paced": Unit("ms", 1e3)},
    page="benchmarks-live.md",
    quick=dataclasses.replace(QUICK, last_start=120.0),
    peers=tuple(PEERS),
)
