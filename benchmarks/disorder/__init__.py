"""Latency against accuracy where events come out of order (paper 003, section 8.2, experiments 2 and 3)."""

from __future__ import annotations

from benchmarks.disorder import experiments, plots
from benchmarks.registry import Benchmark, Unit

LATENCY = Unit("s latency")

BENCHMARK = Benchmark(
    "disorder",
    experiments.cases,
    titles={
        "bounded": "Experiment 2: a mean over 64 s every 6.4 s, events that come up to 4 s late",
        "bounded, one window": "Experiment 2 as the text has it: each event in one window of 64 s",
        "blocks": "Experiment 3: a count over 600 s every 60 s, blocks of 490 s in any order",
    },
    plots={"paper-003-figure-9": plots.figure_9, "paper-003-figure-10": plots.figure_10},
    units=dict.fromkeys(("bounded", "bounded, one window", "blocks"), LATENCY),
    page="benchmarks-live.md",
    peers=(),
)
