"""Windows in process against DuckDB and Polars, on Spark against Spark's own; paper 003; memory."""

from __future__ import annotations

from benchmarks.harness import Case
from benchmarks.registry import Benchmark
from benchmarks.windows import memory, paper, plots, process, spark, startup


def _cases(quick: bool) -> list[Case]:
    if quick:  # what takes longest first: what is left of the minute is for the many small cases
        return [
            *spark.cases(quick), *memory.cases(quick), *startup.cases(quick),
            *process.cases(quick), *paper.cases(quick),
        ]  # fmt: skip
    return [
        *startup.cases(quick), *process.cases(quick), *paper.cases(quick), *spark.cases(quick),
        *memory.cases(quick),
    ]  # fmt: skip


BENCHMARK = Benchmark(
    "windows",
    _cases,
    titles={
        "process": "In process, against DuckDB and Polars, all on two threads",
        "spark": "Spark batch on two cores, against Spark's own windows",
        "paper 003": "Paper 003, experiment 1: one pass against buffering",
        "memory": "A Parquet file from disk to disk, in a fresh process",
        "startup": "Fresh processes",
    },
    plots={
        "process": plots.process,
        "overlap": plots.overlap,
        "spark": plots.spark,
        "paper-003-figure-8": plots.figure_8,
    },
)
