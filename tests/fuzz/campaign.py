"""Seeds, one after the other. A seed is one shape of a query on many data sets, sources and splits.

A new shape is compiled, which takes seconds; the same shape with other numbers takes milliseconds.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.fuzz import sources, wheels
from tests.fuzz.build import build
from tests.fuzz.case import Case, differs, verdict
from tests.fuzz.events import random_events
from tests.fuzz.oracle.run import answer
from tests.fuzz.queries import random_query, varied
from tests.fuzz.shrink import shrunk, shrunk_by
from tidemill import UserError

ENGINES = ("local", "threads", "reference", "wheel")


@dataclass
class Found:
    """A difference, as small as it could be made."""

    seed: int
    case: Any
    text: str

    def shown(self) -> str:
        return f"seed {self.seed}, {self.case.engine} {self.case.how}\n{self.text}\n\n{self.case.shown()}"


@dataclass
class Report:
    """How many cases ran on each engine, and what differed."""

    cases: Counter[str] = field(default_factory=Counter)
    values: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    allowed: Counter[str] = field(default_factory=Counter)
    differences: Counter[str] = field(default_factory=Counter)
    found: list[Found] = field(default_factory=list)
    say: Callable[[str], None] | None = None
    """Told of each difference when it is found."""

    def note(self, found: Found) -> None:
        self.found.append(found)
        if self.say:
            self.say(f"\n{'-' * 100}\n{found.shown()}")

    def lines(self) -> list[str]:
        engines = sorted({*self.cases, *self.differences})
        made = [
            f"fuzz: {e}: {self.cases[e]} cases, {self.differences[e]} differences" for e in engines
        ]
        made += [f"fuzz: allowed {n} times: {reason}" for reason, n in self.allowed.items()]
        return made

    @property
    def total(self) -> int:
        return sum(self.cases.values())


def run_seed(
    seed: int, report: Report, *, engines: tuple[str, ...] = ENGINES, data: int = 120, each: int = 16,
    spark: Any = None, shrink: float = 60.0,
) -> None:  # fmt: skip
    """All cases of one seed. The first difference of each engine is made small and kept."""
    pick = Random(seed)
    on_spark = "spark" in engines
    shape = random_query(pick, arrival=not on_spark)
    seen: set[str] = set()
    try:
        stream = build(shape)
    except UserError as refused:
        report.skipped[f"refused: {str(refused)[:80]}"] += 1
        return
    for d in range(data):
        query, asked = shape, stream
        if d and pick.random() < 0.6:
            query = varied(pick, shape)
            try:
                asked = build(query)
            except UserError as refused:
                report.skipped[f"refused: {str(refused)[:80]}"] += 1
                continue
        rows = random_events(pick, query)
        expected = answer(query, rows)
        for case in _cases(query, rows, engines, each, f"{seed}/{d}", spark):
            _one(case, asked, expected, report, seed, seen, shrink)


def _one(
    case: Case, stream: Any, expected: Any, report: Report, seed: int, seen: set[str], shrink: float
) -> None:
    name = case.engine
    found = verdict(case, stream, expected)
    if not found.counted:
        report.skipped[f"{name}: not compared"] += 1
        return
    report.cases[name] += 1
    report.values += found.values
    if found.allowed:
        report.allowed[found.allowed] += 1
    if found.difference is None:
        return
    report.differences[name] += 1
    if case.engine in seen:
        return
    seen.add(case.engine)
    small = shrunk(case, shrink) if shrink and differs(case) else case
    report.note(Found(seed, small, differs(small) or found.difference))


def _cases(
    query: dict[str, Any],
    rows: list[Any],
    engines: tuple[str, ...],
    each: int,
    salt: str,
    spark: Any,
) -> list[Case]:
    pick = Random(salt)
    made = []
    if "local" in engines:
        fit = sources.fitting(rows, query["schema"])
        for j in range(each):
            made.append(Case(query, rows, "local", pick.choice(fit), f"{salt}/{j}"))
    if "threads" in engines:
        made.append(Case(query, rows, "threads1", "batches", f"{salt}/t1"))
        made.append(Case(query, rows, "threads2", "batches", f"{salt}/t2"))
    # The reference looks at every window from the first to the last: not where they are 2**61 apart.
    near = all(abs(row["t"]) < 1 << 55 for row in rows)
    if "reference" in engines and near and (engines == ("reference",) or pick.random() < 0.35):
        made.append(Case(query, rows, "reference", "rows", ""))
    if "spark" in engines:
        made.append(Case(query, rows, "spark", "frame", f"{salt}/s", spark))
    return made


def run_wheel_seed(seed: int, report: Report, *, scripts: int = 150, shrink: float = 60.0) -> None:
    """One kind of wheel, and many scripts of rows, advances, saves and merges."""
    pick = Random(seed)
    kind = wheels.random_kind(pick)
    for _ in range(scripts):
        case = wheels.random_case(pick, kind)
        found = wheels.verdict(case)
        if not found.counted:
            report.skipped["wheel: refused"] += 1
            return
        report.cases["wheel"] += 1
        report.values += found.values
        if found.difference is None:
            continue
        report.differences["wheel"] += 1
        small = shrunk_by(case, wheels.smaller, wheels.differs, shrink)
        report.note(Found(seed, small, wheels.differs(small) or found.difference))
        return


def run(
    seed: int, *, cases: int, seconds: float | None = None, step: int = 1,
    engines: tuple[str, ...] = ENGINES, say: Callable[[str], None] | None = None, **options: Any,
) -> Report:  # fmt: skip
    """Seeds from `seed` on, until so many cases ran or time is up."""
    rest = tuple(e for e in engines if e != "wheel")
    report, until = Report(say=say), None if seconds is None else time.monotonic() + seconds
    while report.total < cases and (until is None or time.monotonic() < until):
        if "wheel" in engines and (
            seed % 3 == 0 or not rest
        ):  # a kind of wheel takes long to compile
            run_wheel_seed(seed, report, shrink=options.get("shrink", 60.0))
        if rest:
            run_seed(seed, report, engines=rest, **options)
        seed += step
    return report
