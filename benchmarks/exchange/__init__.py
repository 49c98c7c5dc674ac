"""Exchanges: what travels between hosts, and how long that takes (paper 002, section 7)."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from functools import partial

from benchmarks.answers import same_numbers
from benchmarks.exchange import golomb
from benchmarks.exchange.network import available
from benchmarks.exchange.programs import FULL, QUICK, Program, System, programs
from benchmarks.exchange.running import LOCAL, Placed, place
from benchmarks.harness import QUICK as QUICK_EFFORT
from benchmarks.harness import Case, Measured
from benchmarks.registry import Benchmark, Unit
from tidemill.spark.exchange.traffic import traffic

HOSTS = (2, 4)
RATES = ("100mbit", "1gbit")
FAST = "1gbit"
IN_LOCAL_MODE = ", local mode"
WARM_UPS = 2
"""Rounds of a program that are not timed: Java compiles what it has seen often."""


def _cases(quick: bool) -> list[Case]:
    found = programs(QUICK if quick else FULL)
    allowed = available()
    if not allowed:
        print(f"{allowed.reason}; so in local mode, with bytes only", file=sys.stderr)
        return golomb.cases(quick) + [_in_local_mode(name, program) for name, program in found.items()]
    hosts, rates = (HOSTS[:1], RATES[:1]) if quick else (HOSTS, RATES)
    # Hosts change least often, as a new cluster takes longest; then tables; a rate changes in place.
    return golomb.cases(quick) + [
        _case(name, program, n, rate, quick)
        for n in hosts
        for name, program in found.items()
        for rate in rates
    ]


def _case(name: str, program: Program, hosts: int, rate: str, quick: bool) -> Case:
    """The best of three runs, more if they are short, once all systems have run on this cluster.

    A quick run shows what travels: on tables so small, times say little of networks.
    """
    return Case(
        f"{name}/{hosts} hosts, {rate}",
        {**program.params, "hosts": hosts, "rate": rate},
        {system: partial(_timed, run) for system, run in program.systems.items()},
        same_numbers(),
        lambda: place(hosts, rate, name, program.folders()),
        partial(_warm_up, program, rate),
        repeats=2 if quick else 3,
        enough=0.0 if quick else 10.0,
        fresh=True,
    )


def _in_local_mode(name: str, program: Program) -> Case:
    return Case(
        f"{name}{IN_LOCAL_MODE}/2 cores",
        program.params,
        {system: partial(_bytes_only, run) for system, run in program.systems.items()},
        same_numbers(),
        lambda: place(LOCAL, FAST, name, program.folders()),
        repeats=1,
        fresh=True,
    )


def _warm_up(program: Program, rate: str, placed: Placed) -> None:
    """All systems' first runs go by before anything is timed."""
    if placed.first:
        placed.cluster.limit(FAST)
        for _ in range(WARM_UPS):
            for run in program.systems.values():
                run(placed.tables)
        placed.cluster.limit(rate)


def _timed(run: System, placed: Placed) -> Measured:
    """Seconds, what Spark says it read from other hosts, and what the links carried in all."""
    before = placed.cluster.carried()
    with traffic(placed.cluster.spark) as seen:
        begin = time.perf_counter()
        answer = run(placed.tables)
        seconds = time.perf_counter() - begin
    links = placed.cluster.carried() - before
    return Measured(
        answer, seconds, {"remote MB": seen.remote_bytes / 1e6, "links MB": links / 1e6}
    )


def _bytes_only(run: System, placed: Placed) -> Measured:
    with traffic(placed.cluster.spark) as seen:
        answer = run(placed.tables)
    return Measured(answer, seen.written_bytes / 1e6)


def _titles() -> dict[str, str]:
    titles = {name: program.title for name, program in programs(FULL).items()}
    return {"golomb": "Golomb codes there and back (section 7.2.2)"} | titles | {
        f"{name}{IN_LOCAL_MODE}": f"{title}, local mode" for name, title in titles.items()
    }


BENCHMARK = Benchmark(
    "exchange",
    _cases,
    titles=_titles(),
    units={name: Unit("MB shuffled") for name in _titles() if name.endswith(IN_LOCAL_MODE)},
    page="benchmarks-exchange.md",
    peers=("spark",),
    # A cluster takes half a minute to come up, and each system some seconds to run for the first time.
    quick=replace(QUICK_EFFORT, last_start=300.0),
)
