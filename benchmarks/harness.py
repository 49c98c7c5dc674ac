"""One way to measure everything: the same data for all systems, answers first, then times.

A system's first run gives its answer and warms it up (it compiles, it fills caches); answers are
compared; only then are systems timed, in turn, each in its turn first, and the best run of each counts.
Whatever else a system measures is taken from that same run.
"""

from __future__ import annotations

import gc
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

HOME = "tidemill"
"""The system that others are compared with."""

Answers = Mapping[str, Any]
Check = Callable[[Answers], None]
Told = Callable[[str], None]


@dataclass(frozen=True)
class Measured:
    """What a system returns that measures itself, as a fresh process does."""

    answer: Any
    seconds: float
    measured: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """A system that runs a query; the page shows the query."""

    query: str
    run: Callable[[Any], Any]

    def __call__(self, data: Any) -> Any:
        return self.run(data)


@dataclass(frozen=True)
class Case:
    """One question. `data()` is made once; each system gets the same and returns its answer."""

    name: str
    params: Mapping[str, Any]
    systems: Mapping[str, Callable[[Any], Any]]
    check: Check
    data: Callable[[], Any] = lambda: None
    rehearse: Callable[[Any], None] | None = None
    """Compares answers row by row on less data, where `check` sees only sums of the full answer."""
    repeats: int | None = None
    enough: float = 0.0
    """With `repeats`: seconds of timed runs of a system before which it goes on."""
    fresh: bool = False
    """Every run starts from nothing, as in a new process, so that the first one counts too."""
    derive: Callable[[Mapping[str, float]], Mapping[str, Any]] = lambda seconds: {}
    """Measurements that follow from the best times of all systems."""

    @property
    def group(self) -> str:
        """Cases are named `group/what is asked`."""
        return self.name.split("/")[0]

    @property
    def queries(self) -> dict[str, str]:
        """The queries of the systems that run one."""
        return {name: s.query for name, s in self.systems.items() if isinstance(s, Asked)}


@dataclass(frozen=True)
class Effort:
    """How often to run. A system other than Tidemill stops repeating once it has used its budget."""

    repeats: int
    at_most: int
    enough: float
    """Seconds of timed runs of one system after which `repeats` suffice."""
    budget: float
    """Seconds for one system in one case. A first run that takes longer counts as its time."""
    last_start: float = math.inf
    """No case starts when so many seconds have passed, so that a run ends in time."""


FULL = Effort(repeats=3, at_most=10, enough=1.0, budget=40.0)
QUICK = Effort(repeats=2, at_most=4, enough=0.1, budget=5.0, last_start=50.0)


@dataclass(frozen=True)
class Result:
    """The best times of a case."""

    case: str
    params: Mapping[str, Any]
    seconds: Mapping[str, float]
    measured: Mapping[str, Any] = field(default_factory=dict)
    queries: Mapping[str, str] = field(default_factory=dict)

    @property
    def group(self) -> str:
        return self.case.split("/")[0]

    @property
    def ratio(self) -> dict[str, float]:
        """How many times as long as Tidemill each other system took."""
        if HOME not in self.seconds:
            return {}
        home = self.seconds[HOME]
        return {s: t / home for s, t in self.seconds.items() if s != HOME}

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "case": self.case, "params": dict(self.params), "seconds": dict(self.seconds),
            "ratio": self.ratio,
        }  # fmt: skip
        if self.measured:
            out["measured"] = dict(self.measured)
        if self.queries:
            out["queries"] = dict(self.queries)
        return out


def run_case(case: Case, effort: Effort, tell: Told = lambda text: None) -> Result:
    """Answers of all systems compared, then the best time of each. Raises `answers.Mismatch`."""
    tell("making data")
    data = case.data()
    if case.rehearse is not None:
        tell("comparing answers on less data")
        case.rehearse(data)
    runs = {name: _Runs(system, data) for name, system in case.systems.items()}
    with _no_collector():
        answers = {}
        for name, system in runs.items():
            tell(f"{name}: answer")
            answers[name] = system.answer()
        tell("comparing answers")
        case.check(answers)
        answers.clear()
        _repeat(case, effort, runs, tell)
    repeats = case.repeats or effort.repeats
    few = {name: len(r.timed) for name, r in runs.items() if len(r.timed) < repeats}
    best = {name: r.best for name, r in runs.items()}
    seconds = {name: run.seconds for name, run in best.items()}
    measured = _by_name({name: run.measured for name, run in best.items()}) | dict(case.derive(seconds))
    return Result(
        case.name, case.params, seconds, measured | ({"runs": few} if few else {}), case.queries
    )


@dataclass(frozen=True)
class _Run:
    """What one run took, and what else it measured."""

    seconds: float
    measured: Mapping[str, Any] = field(default_factory=dict)


class _Runs:
    """The runs of one system."""

    def __init__(self, system: Callable[[Any], Any], data: Any) -> None:
        self._system, self._data = system, data
        self._first: _Run | None = None
        self.timed: list[_Run] = []

    def answer(self) -> Any:
        """The first run. It warms the system up, so it is not among the timed ones."""
        answer, self._first = self._run()
        return answer

    def count_first(self) -> None:
        """Make the first run a timed one."""
        assert self._first is not None
        self.timed.append(self._first)
        self._first = None

    def again(self) -> None:
        self.timed.append(self._run()[1])

    @property
    def first(self) -> float:
        """Seconds of the first run, unless it is a timed one."""
        return 0.0 if self._first is None else self._first.seconds

    @property
    def repeated(self) -> float:
        """Seconds of all timed runs."""
        return sum(run.seconds for run in self.timed)

    @property
    def best(self) -> _Run:
        """The timed run that is shown."""
        return min(self.timed, key=lambda run: run.seconds)

    def _run(self) -> tuple[Any, _Run]:
        start = time.perf_counter()
        answer = self._system(self._data)
        seconds = time.perf_counter() - start
        if not isinstance(answer, Measured):
            return answer, _Run(seconds)
        return answer.answer, _Run(answer.seconds, answer.measured)


def _repeat(case: Case, effort: Effort, runs: Mapping[str, _Runs], tell: Told) -> None:
    """Timed runs, systems in turn. Each round begins with another one, every other round goes backwards:
    who is first, and who follows whom, must not matter.
    """
    repeats = case.repeats or effort.repeats
    for name, system in runs.items():
        if case.fresh or (name != HOME and system.first > effort.budget):
            system.count_first()
    for turn in itertools.count(1):
        due = [n for n, r in runs.items() if _goes_on(n, r, case, effort, repeats)]
        if not due:
            return
        first = turn % len(due)
        order = due[first:] + due[:first]
        for name in order[::-1] if len(due) > 2 and turn % 2 else order:
            tell(f"{name}: run {len(runs[name].timed) + 1}")
            runs[name].again()


def _goes_on(name: str, system: _Runs, case: Case, effort: Effort, repeats: int) -> bool:
    done = len(system.timed)
    if done and name != HOME and system.first + system.repeated > effort.budget:
        return False
    if done < repeats:
        return True
    enough = effort.enough if case.repeats is None else case.enough
    return done < effort.at_most and system.repeated < enough


@contextmanager
def _no_collector() -> Iterator[None]:
    """Without Python's garbage collector, which would run in the middle of somebody's time."""
    on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def _by_name(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """From measurements by system to systems by measurement."""
    out: dict[str, Any] = {}
    for system, measured in found.items():
        for name, value in measured.items():
            out.setdefault(name, {})[system] = value
    return out
