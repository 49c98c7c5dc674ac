"""Bytes of saved wheels flip, files get shorter, longer, or change places: no crash, no wrong answer."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.faults.counts import SOAK, report, seed_of
from tests.faults.wheels_damage import files_of
from tests.faults.wheels_machine import run_cases, wrong
from tests.faults.wheels_made import KINDS, SOME, answers


def rights(made: Path, kinds: list[str]) -> dict[str, list[Any]]:
    """What each says if nothing happens to it."""
    whole = {kind: answers(made / kind, verify=True, go_on=False) for kind in kinds}
    told: dict[str, list[Any]] = json.loads(json.dumps(whole, default=repr))
    return told


def _damages(made: Path, pick: random.Random, count: int, kinds: list[str]) -> list[dict[str, Any]]:
    cases = []
    for number in range(count):
        kind = kinds[number % 7 % len(kinds)]  # seven: every kind comes with all that is done below
        listed = files_of(made / kind)
        counting = [f for f in listed if "-000001" not in f]  # the save before is not asked
        file = pick.choice(listed if number % 9 == 0 else counting)
        case: dict[str, Any] = {
            "kind": kind, "file": file, "verify": number % 2 == 0, "go on": number % 3 == 0,
        }  # fmt: skip
        size = (made / kind / case["file"]).stat().st_size
        near = (pick.randrange(min(64, size)), -1 - pick.randrange(min(400, size)))
        at = pick.choice([pick.randrange(size), *near])
        case["how"] = pick.choice(["flip", "flip", "flip", "flips", "zeros", "cut", "longer", "swap", "gone"])
        if case["how"] == "flip":
            case["flips"] = [(at, pick.choice([1 << pick.randrange(8), pick.randrange(1, 256)]))]
        elif case["how"] == "flips":
            case["how"] = "flip"
            many = range(pick.randrange(1, 20))
            case["flips"] = [(pick.randrange(size), pick.randrange(1, 256)) for _ in many]
        elif case["how"] == "swap":
            case["other"] = pick.choice(listed)
        elif case["how"] == "gone" and Path(case["file"]).name.startswith("manifest-"):
            case["how"], case["at"] = "cut", 0  # without it, the save before is the newest
        case.setdefault("at", at)
        case.setdefault("count", pick.choice([1, 8, 100]))
        # Flips under right checksums are the work of someone who wants them to be read.
        case["sealed"] = case["how"] == "flip" and number % 5 < 2
        cases.append(case)
    return cases


def _flip(made: Path, work: Path, machine: str, count: int, kinds: list[str]) -> None:
    pick = random.Random(seed_of(machine))
    cases, right = _damages(made, pick, count, kinds), rights(made, kinds)
    outcomes = run_cases(made, cases, work)
    faults = [(c, w) for c, o in zip(cases, outcomes) if (w := wrong(c, o, right[c["kind"]]))]
    report(machine, len(cases), len(faults))
    assert not faults, faults[:5]


@pytest.mark.interpreted  # which tells what is outside of an array; a soak compiles
def test_damaged_wheels_are_refused_or_answer_right(saved_wheels: Path, tmp_path: Path) -> None:
    _flip(saved_wheels, tmp_path, "damaged wheels", 21, SOME)


@pytest.mark.soak
def test_many_damaged_wheels(saved_wheels: Path, tmp_path: Path) -> None:
    _flip(saved_wheels, tmp_path, "damaged wheels", int(22_000 * SOAK), KINDS)
