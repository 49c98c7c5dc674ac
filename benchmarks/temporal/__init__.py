"""Events with lifetimes (paper 000, section 7.2), the Yahoo streaming benchmark, and joins on Spark."""

from __future__ import annotations

import dataclasses

from benchmarks.harness import QUICK, Case
from benchmarks.questions import PEERS
from benchmarks.registry import Benchmark
from benchmarks.temporal import process, spark


def _cases(quick: bool) -> list[Case]:
    return [case for module in (process, spark) for case in module.cases(quick)]


BENCHMARK = Benchmark(
    "temporal",
    _cases,
    titles={
        "process": "In process, against DuckDB and Polars on two threads",
        "spark": "Overlap joins on Spark, on two cores, against Spark's own range join",
    },
    page="benchmarks-temporal.md",
    peers=(*PEERS, "polars, any order", spark.RUN),
    quick=dataclasses.replace(QUICK, last_start=120.0),
)
