"""Windows in process against DuckDB and Polars, on Spark against Spark's own; paper 003; threads; memory."""

from __future__ import annotations

import dataclasses

from benchmarks.harness import QUICK, Case
from benchmarks.registry import Benchmark
from benchmarks.windows import (
    advance,
    bins,
    families,
    memory,
    paper,
    plots,
    process,
    shapes,
    spark,
    startup,
    threads,
)  # fmt: skip


def _cases(quick: bool) -> list[Case]:
    in_process = (process, shapes, threads, advance, paper, bins)
    if quick:  # what takes longest first: what is left of the time is for the many small cases
        modules = (spark, memory, startup, *in_process)
    else:
        modules = (startup, *in_process, spark, memory)
    return [case for module in modules for case in module.cases(quick)]


BENCHMARK = Benchmark(
    "windows",
    _cases,
    titles={
        "process": "In process, against DuckDB and Polars, all on two threads",
        "shapes": "Many shapes in process, against DuckDB and Polars, all on two threads",
        "asked": "Asked on the command line, all on two threads",
        "threads": "Two threads against one, beside a plain loop",
        "advance": "A hundred events an advance, on one thread",
        "spark": "Spark batch on two cores, against Spark's own windows",
        "paper 003": "Paper 003, experiment 1: one pass against buffering",
        "slide by tuple": "A window at each event, in order: moving ranges against the bins of paper 003",
        "memory": "A Parquet file from disk to disk, in a fresh process",
        "keys": "Resident memory that open windows of many keys add, in a fresh process",
        "startup": "Fresh processes",
    },
    plots={
        "process": plots.process,
        "shapes": plots.shapes,
        "overlap": plots.overlap,
        "spark": plots.spark,
        "paper-003-figure-8": plots.figure_8,
    },
    quick=dataclasses.replace(QUICK, last_start=150.0),
    peers=(
        "duckdb", "polars", "polars, any order", "spark window()", "spark OVER RANGE", "buffering",
        "buffering, all at once", "ranges, alone", "bins",
    ),
    asked=families.asked,
)
