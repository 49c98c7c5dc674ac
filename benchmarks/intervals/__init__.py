"""Interval joins and as-of joins, on history and online (paper 004)."""

from __future__ import annotations

import dataclasses
import importlib.util
from importlib import import_module

from benchmarks.harness import QUICK, Case
from benchmarks.intervals import offline, online, plots
from benchmarks.questions import PEERS
from benchmarks.registry import Benchmark, Unit

_SPARK = "benchmarks.intervals.spark"


def _cases(quick: bool) -> list[Case]:
    found = [*offline.cases(quick), *online.cases(quick)]
    if importlib.util.find_spec(_SPARK) is not None:
        found += import_module(_SPARK).cases(quick)
    return found


BENCHMARK = Benchmark(
    "intervals",
    _cases,
    titles={
        "offline": "On history: aggregates of the orders of a key in an interval before each request",
        "as-of": "On history: the last order of a key before each request",
        "online": "Requests are answered when they come: the workloads of paper 004, microseconds a tuple",
        "sweep": "The default workload, the adverse one, and what changes if one thing does",
        "ablation": "What each part of the time-travel index is worth",
        "exact": "Requests are answered when no order can come any more that belongs to them",
        "lookup": "The features of one row, which is not kept: the median of 2000",
        "latency": "From when a request was due to its answer, at the rate of the workload: 99 of 100",
        "spark": "On Spark, on two cores",
    },
    plots={
        **{f"tuples-by-{of}": plots.sweeps(of) for of in ("keys", "lateness", "window")},
        "latencies": plots.latencies,
    },
    units={
        "latency": Unit("ms", 1e3),
        **dict.fromkeys(("online", "sweep", "ablation", "exact", "lookup"), Unit("µs", 1e6)),
    },
    page="benchmarks-intervals.md",
    peers=(*PEERS, offline.PANDAS, *online.RIVALS, "spark", "spark, range join"),
    quick=dataclasses.replace(QUICK, last_start=120.0),
)
