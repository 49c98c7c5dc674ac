"""Input files and cached kernels of which bytes are others: no crash, no hang, no foreign exception."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.faults.counts import SOAK, report, seed_of
from tests.faults.inputs_child import damaged, make
from tests.faults.wheels_machine import run_cases
from tidemill.jit.disk_cache import _Files

ARROW = (".arrow", ".feather", ".ipc")


def files_are_damaged(count: int, tmp_path: Path) -> None:
    made, work = tmp_path / "made", tmp_path / "work"
    made.mkdir()
    work.mkdir()
    names = make(made)
    pick = random.Random(seed_of("damaged inputs"))
    cases: list[dict[str, Any]] = []
    for number in range(count):
        name = names[number % len(names)]
        ways = ["windows", "text", "wheel"]
        if name.endswith((*ARROW, ".parquet")):
            ways += ["reader", "table"]
        cases.append({"file": name, "seed": pick.randrange(1 << 31), "way": pick.choice(ways)})
    outcomes = run_cases(made, cases, work, "tests.faults.inputs_child")
    faults = [
        (case, outcome) for case, outcome in zip(cases, outcomes)
        if not ("answer" in outcome or (outcome.get("path") and "refused" in outcome))
    ]  # fmt: skip
    report("damaged inputs", len(cases), len(faults))
    assert not faults, "\n".join(map(str, faults[:10]))
    assert any("refused" in outcome for outcome in outcomes)


def cached_kernels_are_damaged(count: int, tmp_path: Path) -> None:
    pick = random.Random(seed_of("damaged kernel caches"))
    code = {"machine code": bytes(range(256)) * 20}
    wrong = 0
    for _ in range(count):
        files = _Files(str(tmp_path), "kernel", "stamp")
        files.save("signature", code)
        file = pick.choice(sorted(p for p in tmp_path.iterdir() if p.suffix in (".nbi", ".nbc")))
        file.write_bytes(damaged(file.read_bytes(), pick.randrange(1 << 31)))
        wrong += files.load("signature") not in (None, code)
        files.save("signature", code)
        wrong += files.load("signature") != code
    report("damaged kernel caches", count, wrong)
    assert wrong == 0


def test_damaged_input_files_are_refused_or_read(tmp_path: Path) -> None:
    files_are_damaged(22, tmp_path)


def test_damaged_kernels_are_never_run(tmp_path: Path) -> None:
    cached_kernels_are_damaged(60, tmp_path)


@pytest.mark.soak
def test_thousands_of_damaged_input_files(tmp_path: Path) -> None:
    files_are_damaged(int(5_000 * SOAK), tmp_path)


@pytest.mark.soak
def test_thousands_of_damaged_kernels(tmp_path: Path) -> None:
    cached_kernels_are_damaged(int(2_000 * SOAK), tmp_path)
