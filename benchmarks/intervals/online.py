"""Requests are answered when they come, by Tidemill and by the rivals of paper 004, on the same tuples.

A push has tuples of both streams; its orders come before its requests, for all systems.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

import tidemill as tm
from benchmarks.answers import same_rows, unchecked
from benchmarks.harness import HOME, Answers, Case, Check, Measured
from benchmarks.intervals.rivals import Rival
from benchmarks.intervals.traffic import Traffic, Workload, traffic
from tidemill import col
from tidemill.aggregates.layout import layout
from tidemill.intervals.index import TimeTravelIndex
from tidemill.intervals.team import Team, TeamIndex

EACH = 10_000
"""Tuples of a push where tuples a second are measured."""
SHOWN = (1, 10, 25, 50, 75, 90, 95, 99, 99.9)
"""The percentiles of latencies that are kept."""
LOOKUPS = 2_000
SECOND = 1_000_000
KEY_OIJ, SPLIT_JOIN, SIMD = "key-oij", "splitjoin", "key-oij, simd"
RIVALS = (KEY_OIJ, f"{KEY_OIJ}, two joiners", f"{SPLIT_JOIN}, two joiners", SIMD)


class System(Protocol):
    """What takes tuples and answers requests."""

    def push(self, begin: int, end: int) -> None:
        """Take the tuples `[begin, end)` of both streams."""

    def end(self) -> None:
        """Answer what waits."""

    @property
    def answers(self) -> Any:
        """The number of each request, count and sum."""


Make = Callable[[Traffic, ThreadPoolExecutor], System]


class Live:
    """Tidemill, through a live query."""

    def __init__(self, given: Traffic, **options: Any) -> None:
        slack = tm.Disorder(slack=f"{given.workload.lateness}us")
        self._given, self._live = given, given.workload.query.live(slack, **options)
        self._found: list[pa.Table] = []

    def push(self, begin: int, end: int) -> None:
        sides = {"requests": self._given.requests, "orders": self._given.orders}
        rows = {}
        for name, side in sides.items():
            first, last = (int(side.before[p]) for p in (begin, end))
            if first < last:
                rows[name] = side.rows.slice(first, last - first)
        found = self._live.push(**rows)
        if found.num_rows:
            self._found.append(found)

    def lookup(self, row: dict[str, Any]) -> Any:
        """Return what a request would get now."""
        return self._live.lookup(row)

    def end(self) -> None:
        self._found.append(self._live.flush())

    @property
    def answers(self) -> pa.Table:
        return pa.concat_tables(self._found)


class Indexed:
    """The time-travel index alone, with one way to aggregate intervals, or with joiners that share them."""

    def __init__(self, given: Traffic, fold: str = "incremental", team: Team | None = None) -> None:
        aggregates = (("n", tm.count()), ("s", tm.sum(col.v)))
        kept = layout(aggregates, given.workload.orders.plan.schema)
        self._index = TimeTravelIndex(kept, fold=fold) if team is None else TeamIndex(kept, team, fold=fold)
        self._given, self._team, self._window = given, team, given.workload.window
        self._found: list[list[pa.Array]] = []

    def push(self, begin: int, end: int) -> None:
        requests, orders = self._given.requests, self._given.orders
        own = slice(*(int(orders.before[p]) for p in (begin, end)))
        values = orders.rows.column("v")[own]
        self._index.insert(orders.keys[own], orders.times[own], [values])
        asked = slice(*(int(requests.before[p]) for p in (begin, end)))
        high = requests.times[asked]
        self._found.append(self._index.answers(requests.keys[asked], high - self._window, high))
        self._index.expire(self._given.below(end) - self._window)

    def end(self) -> None:  # every request was answered
        if self._team is not None:
            self._team.close()

    @property
    def answers(self) -> pa.Table:
        n, s = (pa.chunked_array(columns) for columns in zip(*self._found))
        return pa.table({"i": np.arange(len(n)), "n": n, "s": s})


SYSTEMS: dict[str, Make] = {
    HOME: lambda given, pool: Live(given, answers="on arrival"),
    KEY_OIJ: lambda given, pool: Rival(given, 1, pool, by_key=True),
    f"{KEY_OIJ}, two joiners": lambda given, pool: Rival(given, 2, pool, by_key=True),
    f"{SPLIT_JOIN}, two joiners": lambda given, pool: Rival(given, 2, pool, by_key=False),
    SIMD: lambda given, pool: Rival(given, 1, pool, by_key=True, simd=True),
}


@dataclass
class Answered:
    """The answers of a system; where tuples come at a rate, they depend on which came in one push."""

    given: Traffic
    found: pl.DataFrame
    cuts: list[tuple[int, int]]


same_tables = same_rows("i", rtol=1e-7)


def same(answers: Answers) -> None:
    """Raise `Mismatch` unless all systems answer alike."""
    same_tables({name: answer.found for name, answer in answers.items()})


INDEX = "index alone"
ABLATION: dict[str, Make] = {
    HOME: SYSTEMS[HOME],
    INDEX: lambda given, pool: Indexed(given),
    "index, no state from request to request": lambda given, pool: Indexed(given, "tree"),
    "index, row by row": lambda given, pool: Indexed(given, "rows"),
    f"{KEY_OIJ}: no index": SYSTEMS[KEY_OIJ],
}
"""What the index is worth, and what aggregation from one request to the next is worth."""
JOINERS: dict[str, Make] = {
    HOME: SYSTEMS[HOME],
    f"{HOME}, two threads": lambda given, pool: Live(given, answers="on arrival", threads=2),
    INDEX: ABLATION[INDEX],
    f"{INDEX}, two joiners": lambda given, pool: Indexed(given, team=Team(2, few=1)),
    f"{INDEX}, two joiners by key": lambda given, pool: Indexed(given, team=Team(2, few=1, balance=False)),
    "index, row by row": ABLATION["index, row by row"],
    "index, row by row, two joiners": lambda given, pool: Indexed(given, "rows", Team(2, few=1)),
    "index, row by row, two joiners by key": (
        lambda given, pool: Indexed(given, "rows", Team(2, few=1, balance=False))
    ),
    f"{KEY_OIJ}, two joiners": SYSTEMS[f"{KEY_OIJ}, two joiners"],
}
"""What the balanced schedule is worth: with it joiners share a hot key, without it one of them has it all."""


@dataclass(frozen=True)
class Named:
    """A workload of Table II."""

    name: str
    workload: Workload
    rate: int
    """Tuples a second. Where Table II says infinity: as in workload B."""


def named(tuples: int, divided: int = 1) -> list[Named]:
    """Workloads A to D: keys, window and lateness of Table II, and as many matches as section III-C says.

    Numbers of matches are `divided` for quick runs.
    """
    asked = {
        "A": (120_000, 5, 1, 1, 4_000), "B": (200_000, 111, 150, 10, 6_000), "C": (200_000, 45, 8, 100, 300),
        "D": (15_000, 5, 1, 2, 4_000),
    }  # fmt: skip
    found = []
    for name, (rate, keys, window, lateness, matches) in asked.items():
        own = Workload(tuples, keys, window * SECOND, lateness * SECOND, matches / divided)
        # As many tuples as fill the windows twice.
        full = 4 * int(own.matches * keys * (1 + lateness / window))
        found.append(Named(name, replace(own, tuples=max(tuples, full)), rate))
    return found


def swept(tuples: int, *, quick: bool) -> Iterator[tuple[str, Workload]]:
    """The default workload (Table IV), the adverse one (Table V), and what changes if one thing does.

    A tuple comes each microsecond.
    """

    def workload(keys: int = 100, window: int = 1_000, lateness: int = 100) -> Workload:
        return Workload(max(tuples, 2 * (window + lateness)), keys, window, lateness, window / 2 / keys)

    yield "default", workload()
    yield "adverse", workload(1_000, 100, 10)
    for keys in (1, 10_000) if quick else (1, 10, 1_000, 10_000):
        yield f"{keys:,} keys", workload(keys=keys)
    for times in (100,) if quick else (10, 100, 1_000):
        yield f"lateness × {times:,}", workload(lateness=100 * times)
    for times in (100,) if quick else (10, 100, 1_000):
        yield f"window × {times:,}", workload(window=1_000 * times)


def skewed(tuples: int) -> Iterator[tuple[str, Workload]]:
    """One key has most tuples, or all. A tuple comes each microsecond."""
    window = 2_000
    for keys, hot in ((1, 0.0), (5, 0.8), (100, 0.8)):
        name = "one key" if keys == 1 else f"{keys} keys, one with {hot:.0%} of the tuples"
        yield name, Workload(max(tuples, 4 * window), keys, window, 100, window / 2 / keys, hot)


def cases(quick: bool) -> list[Case]:
    """All cases."""
    return compared(20_000, 0.5, quick=True) if quick else compared(400_000, 3.0, quick=False)


def compared(tuples: int, seconds: float, *, quick: bool) -> list[Case]:
    workloads = named(tuples, 100 if quick else 1)
    sweep = list(swept(tuples, quick=quick))
    found = [_throughput("online", f"workload {one.name}", one.workload) for one in workloads]
    found += [_throughput("sweep", name, workload) for name, workload in sweep]
    parts = [(f"workload {one.name}", one.workload) for one in workloads] + sweep[:2]
    found += [_throughput("ablation", name, workload, ABLATION) for name, workload in parts]
    for name, workload in skewed(tuples):
        found.append(_throughput("ablation", name, workload, JOINERS, each=EACH * (1 if quick else 10)))
    found += [_exact(one) for one in workloads]
    found += [_lookups(one) for one in workloads]
    return found + [_latency(one, seconds) for one in workloads]


def _params(workload: Workload) -> dict[str, Any]:
    return {
        "tuples": workload.tuples, "keys": workload.keys, "window µs": workload.window,
        "lateness µs": workload.lateness, "matches": workload.matches,
    }  # fmt: skip


def _throughput(
    group: str, name: str, workload: Workload, systems: Mapping[str, Make] = SYSTEMS, check: Check = same,
    each: int = EACH,
) -> Case:  # fmt: skip
    """How long a tuple takes, where the next push follows at once."""
    runs = {system: _all_at_once(make, each) for system, make in systems.items()}
    params = {**_params(workload), "tuples a push": each}
    return Case(f"{group}/{name}", params, runs, check, lambda: traffic(workload), repeats=2, fresh=True)


def _exact(asked: Named) -> Case:
    """Requests are answered when no order can come any more that belongs to them."""
    make: dict[str, Make] = {HOME: lambda given, pool: Live(given)}
    return _throughput("exact", f"workload {asked.name}", asked.workload, make, _as_on_history)


def _lookups(asked: Named) -> Case:
    """How long it takes to ask for the features of one row, which is not kept."""

    def run(given: Traffic) -> Measured:
        system = Live(given, answers="on arrival")
        for begin, end in given.cuts(EACH):
            system.push(begin, end)
        now = given.requests.rows["ts"][len(given.requests.rows) - 1].as_py()
        times = []
        for i in range(min(LOOKUPS, given.workload.tuples)):
            row = {"ts": now, "k": i % given.workload.keys, "i": i}
            begin = time.perf_counter()
            system.lookup(row)
            times.append(time.perf_counter() - begin)
        p50, p99 = np.percentile(times, [50, 99]).tolist()
        return Measured(None, p50, {"p99 µs": 1e6 * p99})

    name, workload = f"lookup/workload {asked.name}", asked.workload
    return Case(name, _params(workload), {HOME: run}, unchecked, lambda: traffic(workload), repeats=2)


def _as_on_history(answers: Answers) -> None:
    """Raise `Mismatch` unless the answers are those of a query over all tuples."""
    for name, answer in answers.items():
        given = answer.given
        sides = {"requests": given.requests.rows, "orders": given.orders.rows}
        rows = {stream: pa.Table.from_batches([side]) for stream, side in sides.items()}
        same_tables({name: answer.found, "run": by_request(given.workload.query.run(**rows))})


def _all_at_once(make: Make, each: int) -> Callable[[Traffic], Measured]:
    def run(given: Traffic) -> Measured:
        with ThreadPoolExecutor(1) as pool:
            system, cuts = make(given, pool), given.cuts(each)
            begin = time.perf_counter()
            for first, last in cuts:
                system.push(first, last)
            system.end()
            seconds = time.perf_counter() - begin
        n = given.workload.tuples
        answered = Answered(given, table(system), cuts)
        return Measured(answered, seconds / n, {"million tuples/s": n / seconds / 1e6})

    return run


def _latency(asked: Named, seconds: float) -> Case:
    """How long a request waits for its answer where tuples come at a rate, after the windows are full."""
    full = asked.workload.tuples // 2
    workload = replace(asked.workload, tuples=full + int(asked.rate * seconds))
    systems = {system: _paced(SYSTEMS[system], asked.rate, full) for system in (HOME, KEY_OIJ)}
    params = {**_params(workload), "tuples/s": asked.rate, "before": full}
    return Case(
        f"latency/workload {asked.name}", params, systems, _as_replayed, lambda: traffic(workload),
        repeats=1, fresh=True,
    )  # fmt: skip


def _as_replayed(answers: Answers) -> None:
    """Raise `Mismatch` unless each system answers as a rival does that gets the same pushes."""
    for name, answer in answers.items():
        with ThreadPoolExecutor(1) as pool:
            replayed = Rival(answer.given, 1, pool, by_key=True, simd=True)
            for begin, end in answer.cuts:
                replayed.push(begin, end)
        same_tables({name: answer.found, "replayed": table(replayed)})


def _paced(make: Make, rate: int, full: int) -> Callable[[Traffic], Measured]:
    def run(given: Traffic) -> Measured:
        with ThreadPoolExecutor(1) as pool:
            system, cuts = make(given, pool), []

            def push(begin: int, end: int) -> None:
                cuts.append((begin, end))
                system.push(begin, end)

            for first, last in given.cuts(EACH):
                if first < full:
                    push(first, min(last, full))
            place = given.requests.place
            late = waits(push, full, given.workload.tuples, rate)[place[place >= full] - full]
        found = dict(zip(SHOWN, np.percentile(1e3 * late, SHOWN).tolist()))
        shown = {f"p{p} ms": ms for p, ms in found.items()} | {"greatest ms": 1e3 * float(late.max())}
        return Measured(Answered(given, table(system), cuts), found[99] / 1e3, shown)

    return run


def waits(
    push: Callable[[int, int], None], begin: int, end: int, rate: float,
    clock: Callable[[], float] = time.perf_counter,
) -> npt.NDArray[np.float64]:  # fmt: skip
    """Push tuples at a rate, each time those that came during the last push.

    Returns for each tuple the seconds from when it was due to the end of its push: what waits because a
    system is behind counts, too.
    """
    late, started, done = np.empty(end - begin), clock(), 0
    due = np.arange(end - begin) / rate
    while done < end - begin:
        came = min(int((clock() - started) * rate) + 1, end - begin)
        if came <= done:
            continue
        push(begin + done, begin + came)
        late[done:came] = clock() - started - due[done:came]
        done = came
    return late


def table(system: System) -> pl.DataFrame:
    """The answers of a system, by request."""
    return by_request(system.answers)


def by_request(answers: Any) -> pl.DataFrame:
    """Count and sum, by request; the sum of nothing is null."""
    frame = pl.from_arrow(answers) if isinstance(answers, pa.Table) else pl.DataFrame(answers)
    assert isinstance(frame, pl.DataFrame)
    return frame.select("i", "n", pl.col("s").fill_nan(None)).sort("i")
