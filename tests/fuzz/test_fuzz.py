"""The fuzzer: a few fixed seeds in every run, random ones in the soak.

A seed that differs is run again by `python -m tests.fuzz --seed N`.
"""

from __future__ import annotations

import ast
import os
from pathlib import Path
from random import SystemRandom
from typing import Any

import pytest

from tests.examples import later
from tests.faults.counts import say
from tests.fuzz import case as cases
from tests.fuzz import engines
from tests.fuzz.campaign import Report, run_seed, run_wheel_seed
from tests.fuzz.soak import CASES, size, soak


def agreed(report: Report) -> None:
    """Show what was counted, and every difference."""
    for line in report.lines():
        say(line)
    assert report.total
    assert not report.found, "\n\n".join(found.shown() for found in report.found)


# --- the machine itself ---------------------------------------------------------------------------


def test_the_oracle_shares_no_code_with_the_engines() -> None:
    folder = Path(__file__).parent
    for path in [*(folder / "oracle").glob("*.py"), folder / "functions.py"]:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                ours = name.startswith(("tests.fuzz.oracle", "tests.fuzz.functions"))
                assert ours or not name.startswith(("tests", "tidemill", "pyarrow", "numpy")), path


def test_a_fault_is_found_and_shrunk_to_a_few_events(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = engines.by_reference

    def faulty(query: Any, rows: list[Any]) -> list[Any]:
        """Loses a row of the answer where some text is empty."""
        found = honest(query, rows)
        spoilt = any(row.get("s") == "" for row in rows)
        return found[:-1] if spoilt and len(found) > 1 else found

    monkeypatch.setattr(engines, "by_reference", faulty)
    report = Report()
    seed = 30
    while not report.found:
        run_seed(seed, report, engines=("reference",), data=3, shrink=20.0)
        seed += 1
    [found] = report.found
    assert len(found.case.rows) <= 3 and "check(Case(" in found.shown()
    monkeypatch.undo()
    cases.check(found.case)


def test_a_seed_is_the_same_cases_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def note(query: Any, rows: list[Any]) -> list[Any]:
        seen.append((repr(query), repr(rows)))
        raise engines.Refused

    monkeypatch.setattr(engines, "by_reference", note)
    for _ in range(2):
        run_seed(11, Report(), engines=("reference",), data=4)
    assert len(seen) == 8 and seen[:4] == seen[4:]


# --- fixed seeds ----------------------------------------------------------------------------------


def test_the_reference_engine() -> None:
    report = Report()
    for seed in range(40):
        run_seed(seed, report, engines=("reference",), data=4)
    agreed(report)


@pytest.mark.parametrize("seed", [2, *later(300)])
def test_sources_splits_and_threads(seed: int) -> None:
    report = Report()
    run_seed(seed, report, engines=("local", "threads"), data=12)
    agreed(report)


@pytest.mark.parametrize("seed", [pytest.param(3, marks=pytest.mark.soak), 36])  # numbers, and Python values
def test_wheels(seed: int) -> None:
    report = Report()
    run_wheel_seed(seed, report, scripts=30)
    agreed(report)


@pytest.mark.parametrize("seeds", [range(1), *later(range(1, 4))], ids=str)
def test_spark(spark: Any, seeds: range) -> None:
    report = Report()
    for seed in seeds:
        run_seed(seed, report, engines=("spark",), data=1, spark=spark)
    agreed(report)


# --- the soak -------------------------------------------------------------------------------------


def random_seed() -> int:
    """`TIDEMILL_SEED`, or a new one."""
    return int(os.environ.get("TIDEMILL_SEED") or SystemRandom().randrange(1 << 40))


@pytest.mark.soak
def test_random_cases_in_process(tmp_path: Path) -> None:
    """At least 200 000 cases times TIDEMILL_SOAK; TIDEMILL_SOAK_SECONDS ends it before."""
    seed, wanted = random_seed(), size(CASES)
    limit = os.environ.get("TIDEMILL_SOAK_SECONDS")
    say(f"fuzz: TIDEMILL_SEED={seed}, {wanted} cases are wanted")
    totals = soak(seed, wanted, tmp_path, seconds=float(limit) if limit else None)
    for engine, ran in sorted(totals.cases.items()):
        say(f"fuzz: {engine}: {ran} cases, {totals.differences[engine]} differences")
    for reason, count in totals.allowed.items():
        say(f"fuzz: allowed {count} times: {reason}")
    say(f"fuzz: in all: {sum(totals.cases.values())} cases, {len(totals.found)} differences")
    assert not totals.found, "\n\n".join(totals.found)
    assert limit or sum(totals.cases.values()) >= wanted


@pytest.mark.soak
def test_random_cases_on_spark(spark: Any) -> None:
    seed, report, wanted = random_seed(), Report(), size(400)
    say(f"fuzz: TIDEMILL_SEED={seed} on Spark, {wanted} cases are wanted")
    while report.total < wanted:
        run_seed(seed, report, engines=("spark",), data=3, spark=spark)
        seed += 1
    agreed(report)
