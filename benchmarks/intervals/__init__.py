"""Interval joins and as-of joins, on history and online (paper 004)."""

from __future__ import annotations

import dataclasses
import importlib.util
from importlib import import_module

from benchmarks.harness import QUICK, Case
from benchmarks.intervals import offline
from benchmarks.questions import PEERS
from benchmarks.registry import Benchmark

_SPARK = "benchmarks.intervals.spark"


def _cases(quick: bool) -> list[Case]:
    found = offline.cases(quick)
    if importlib.util.find_spec(_SPARK) is not None:
        found += import_module(_SPARK).cases(quick)
    return found


BENCHMARK = Benchmark(
    "intervals",
    _cases,
    titles={
        "offline": "On history: aggregates of the orders of a key in an interval before each request",
        "as-of": "On history: the last order of a key before each request",
        "spark": "On Spark, on two cores",
    },
    page="benchmarks-intervals.md",
    peers=(*PEERS, offline.PANDAS, "spark", "spark, range join"),
    quick=dataclasses.replace(QUICK, last_start=120.0),
)
