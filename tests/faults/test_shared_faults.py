"""Writers of shared wheels are killed under their readers, and what they share is damaged."""

from __future__ import annotations

import gc
import os
import random
import signal
import time
import traceback
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.faults.counts import SOAK, report, seed_of
from tests.faults.shared_child import answers, expected, key_of, make, new_wheel, write
from tests.faults.wheels_machine import run_cases
from tidemill.core.errors import UserError

PATIENCE = 60.0


def forked_writer(path: Path, writer: int) -> int:
    gc.collect()  # a writer of this process that nobody has any more still has the directory
    child = os.fork()
    if child == 0:
        try:
            wheel = new_wheel()
            write(wheel, writer, 0, 5)
            wheel.share(path)
            now = 5
            while True:
                write(wheel, writer, now, now + 3)
                now += 3
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return child


def opened(path: Path, writer: int) -> Any:
    """A reader of what a writer has shared, as soon as it has done so."""
    since = time.monotonic()
    while time.monotonic() - since < PATIENCE:
        try:
            reader = tm.open_wheel(path)
            if reader.query(0, 1, 0)["total"] == writer:
                return reader
        except UserError:  # that of the one before, or nothing yet
            pass
    raise AssertionError(f"writer {writer} shares nothing")


def ask(reader: Any, writer: int, pick: random.Random) -> list[str]:
    """What is wrong in what a reader says."""
    now = reader.watermark
    a, b = sorted((pick.randrange(now + 1), pick.randrange(now + 1)))
    number = pick.randrange(1, now // 10 + 3)
    got = reader.query(a, b, int(key_of(number, writer)))
    wrong = []
    if (got["total"], got["n"]) != expected(writer, number, a, b):
        wrong.append(f"writer {writer}, key {number}, [{a}, {b}) of {now}: {got}")
    for row in reader.query(0, now).to_pylist():
        value = writer if row["k"] == 0 else 1000 * writer + row["k"]
        if (row["total"] or 0) != value * row["n"]:  # a key may have come just after
            wrong.append(f"writer {writer}: {row}")
    return wrong


def writers_are_killed(kills: int, path: Path) -> None:
    pick = random.Random(seed_of("killed shared writers"))
    make(path)  # compiles, before others are forked
    answers(path)
    wrong: list[str] = []
    before: Any = None
    refused = 0
    for writer in range(1, kills + 1):
        child = forked_writer(path, writer)
        reader = opened(path, writer)
        until = time.monotonic() + pick.random() * 0.1
        while time.monotonic() < until:
            wrong += ask(reader, writer, pick)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if reader.writer != "gone":
            wrong.append(f"writer {writer} is {reader.writer}")
        try:
            wrong += ask(reader, writer, pick)
        except UserError as gone:  # it died while slots were closing
            wrong += [] if "one that is gone" in str(gone) else [str(gone)]
        if before is not None:
            try:
                ask(before, writer - 1, pick)
                wrong.append(f"a reader of writer {writer - 1} answers when {writer} has come")
            except UserError as replaced:
                wrong += [] if "open it again" in str(replaced) else [str(replaced)]
                refused += 1
        before = reader
    report("killed shared writers", kills, len(wrong))
    assert wrong == []
    assert refused == kills - 1


def directories_are_damaged(count: int, tmp_path: Path) -> None:
    made, work = tmp_path / "made", tmp_path / "work"
    work.mkdir()
    make(made)
    names = sorted(p.name for p in made.iterdir() if p.name != "writer.lock")
    heads = [n for n in names if n.endswith((".json", "head.bin", "root.bin"))]
    pick = random.Random(seed_of("damaged shared directories"))
    cases: list[dict[str, Any]] = [
        {
            "file": pick.choice([*names, *heads, *heads]), "other": pick.choice(names),
            "seed": pick.randrange(1 << 31),
            "how": pick.choice([*["damage"] * 8, "gone", "other", "link"]),
        }
        for _ in range(count)
    ]  # fmt: skip
    outcomes = run_cases(made, cases, work, "tests.faults.shared_child")
    faults = [
        (case, outcome) for case, outcome in zip(cases, outcomes)
        if not ("answer" in outcome or (outcome.get("path") and "refused" in outcome))
    ]  # fmt: skip
    report("damaged shared directories", len(cases), len(faults))
    assert not faults, "\n".join(map(str, faults[:10]))
    assert any("refused" in outcome for outcome in outcomes)


def test_a_reader_of_killed_writers_never_mixes_them(tmp_path: Path) -> None:
    writers_are_killed(4, tmp_path / "wheel")


def test_damaged_shared_directories_are_refused(tmp_path: Path) -> None:
    directories_are_damaged(25, tmp_path)


@pytest.mark.soak
def test_hundreds_of_killed_writers(tmp_path: Path) -> None:
    writers_are_killed(int(250 * SOAK), tmp_path / "wheel")


@pytest.mark.soak
def test_thousands_of_damaged_shared_directories(tmp_path: Path) -> None:
    directories_are_damaged(int(2_000 * SOAK), tmp_path)
