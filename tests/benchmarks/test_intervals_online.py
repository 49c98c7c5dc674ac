"""The online half of the benchmark of interval joins, on few tuples: all systems answer alike."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from benchmarks.answers import Mismatch
from benchmarks.harness import HOME, Effort, run_case
from benchmarks.intervals import online, plots
from benchmarks.intervals.rivals import Rival
from benchmarks.intervals.traffic import Workload, traffic

ONCE = Effort(repeats=1, at_most=1, enough=0.0, budget=60.0)
FEW = Workload(160, 3, 1_000, 500, 10)
pytestmark = pytest.mark.interpreted


def test_all_systems_answer_alike_whatever_their_batches() -> None:
    given = traffic(replace(FEW, hot=0.5))
    answers = {}
    with ThreadPoolExecutor(1) as pool:
        for name, make in (online.SYSTEMS | online.ABLATION | online.JOINERS).items():
            system = make(given, pool)
            for begin, end in given.cuts(50):
                system.push(begin, end)
            answers[name] = online.table(system)
    online.same_tables(answers)
    assert len(answers[HOME]) == len(given.requests.times)


def test_rivals_find_the_orders_that_came_before_a_request_and_are_in_its_window() -> None:
    given = traffic(FEW)
    with ThreadPoolExecutor(1) as pool:
        system = Rival(given, 1, pool, by_key=True)
        for begin, end in given.cuts(1):
            system.push(begin, end)
    requests, orders = given.requests, given.orders
    for i in range(len(requests.times)):
        age = requests.times[i] - orders.times
        mine = (orders.keys == requests.keys[i]) & (orders.place < requests.place[i])
        mine &= (age >= 0) & (age <= FEW.window)
        assert system.answers["n"][i] == mine.sum()


def test_tuples_come_late_by_up_to_the_lateness_and_match_as_often_as_it_says() -> None:
    given = traffic(replace(FEW, tuples=20_000))
    late = given.newest[given.orders.place] - given.orders.times
    assert 0.9 * FEW.lateness < late.max() <= FEW.lateness
    every = online.Live(given)
    every.push(0, 20_000)
    every.end()
    assert np.median(online.table(every)["n"].to_numpy()) == pytest.approx(FEW.matches, abs=1)


def test_what_waits_because_a_push_takes_long_is_counted() -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 1e-6
        return now

    def push(begin: int, end: int) -> None:
        nonlocal now
        now += 0.0035

    late = online.waits(push, 10, 18, 1_000, clock)
    # The first tuple is pushed alone; those that come meanwhile wait for the next push.
    assert np.allclose(late, [0.0035, 0.006, 0.005, 0.004, 0.0065, 0.0055, 0.0045, 0.0035], atol=3e-4)


def test_cases_measure_tuples_a_second_and_latencies() -> None:
    cases = {case.name: case for case in online.compared(400, 0.02, quick=True)}
    groups = {"online", "sweep", "ablation", "exact", "lookup", "latency"}
    assert {name.split("/")[0] for name in cases} == groups
    asked = "sweep/adverse", "latency/workload D", "exact/workload D", "lookup/workload D"
    results = [run_case(cases[name], ONCE) for name in asked]
    assert set(results[0].measured["million tuples/s"]) == set(online.SYSTEMS)
    assert results[1].measured["p99 ms"][HOME] == pytest.approx(1e3 * results[1].seconds[HOME])
    case = cases["latency/workload D"]
    wrong = case.systems[HOME](case.data()).answer
    wrong.found = wrong.found.with_columns(n=pl.col("n") + 1)
    with pytest.raises(Mismatch):
        case.check({HOME: wrong})

    class Axes:
        drawn = 0

        def __getattr__(self, name: str) -> object:
            return self._note

        def _note(self, *args: object, **options: object) -> None:
            self.drawn += 1

    assert plots.latencies(Axes(), results)
    assert not plots.latencies(Axes(), results[:1])
    assert not plots.sweeps("keys")(Axes(), results)
