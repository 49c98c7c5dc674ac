"""The benchmarks there are, by name. Their modules are imported only when they run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from benchmarks.harness import QUICK, Case, Effort, Result

Draw = Callable[[Any, Sequence[Result]], bool]
"""Draws results on matplotlib axes; false where there is nothing to draw."""


@dataclass(frozen=True)
class Unit:
    """What a case measures in the place of seconds, and how many there are in one."""

    name: str = "s"
    factor: float = 1.0


SECONDS = Unit()


@dataclass(frozen=True)
class Benchmark:
    """Cases for a run, and how to show their results."""

    name: str
    cases: Callable[[bool], Sequence[Case]]
    """The cases, smaller ones for a quick run. Making them is cheap: data is made when they run."""
    titles: Mapping[str, str] = field(default_factory=dict)
    """What a group of cases is about, in the order to show them."""
    plots: Mapping[str, Draw] = field(default_factory=dict)
    units: Mapping[str, Unit] = field(default_factory=dict)
    """Groups that measure something other than seconds, or show them otherwise."""
    page: str = "benchmarks.md"
    """The page under `docs` that shows it."""
    quick: Effort = QUICK
    """How often a quick run runs, and when it ends."""

    peers: Collection[str] = ("duckdb", "polars")
    """Systems of others, with the name that cases give them: where one is faster, the page says so."""
    asked: Callable[[str, bool], Case] | None = None
    """Makes a case from the text that `--ask` has."""

    def unit(self, group: str) -> Unit:
        return self.units.get(group, SECONDS)


MODULES = {
    "disorder": "benchmarks.disorder", "exchange": "benchmarks.exchange",
    "intervals": "benchmarks.intervals", "latency": "benchmarks.latency",
    "progressive": "benchmarks.progressive", "relational": "benchmarks.relational",
    "start": "benchmarks.start", "temporal": "benchmarks.temporal",
    "wheels": "benchmarks.wheels", "windows": "benchmarks.windows",
}  # fmt: skip


def benchmark(name: str) -> Benchmark:
    """The benchmark of a name: `BENCHMARK` of its module."""
    found = import_module(MODULES[name]).BENCHMARK
    assert isinstance(found, Benchmark)
    return found
