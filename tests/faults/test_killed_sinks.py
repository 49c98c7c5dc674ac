"""Processes that write files are killed at any moment: a file is the old one or the new one, whole."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults.counts import SOAK, report, seed_of
from tests.faults.sinks_child import BATCHES, ROWS, SCHEMA, WRITERS, batches
from tests.faults.wheels_machine import ROOT
from tidemill.core.schema import schema
from tidemill.io.sources import open_source
from tidemill.plan.nodes import Source

SOURCE = Source("back", schema({"t": "int64", "n": "int64"}), "t")


def writer(folder: Path) -> subprocess.Popen[str]:
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.sinks_child", str(folder)], cwd=ROOT, text=True,
        env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.PIPE,
    )  # fmt: skip
    return child


def what_is_wrong(folder: Path) -> list[str]:
    """What is not whole, of the files that are there."""
    found = []
    for name in WRITERS:
        if not (folder / name).exists():
            continue
        chunks = [c.batch for c in open_source(folder / name, SOURCE)]
        rows = sum(b.num_rows for b in chunks)
        numbers = {n for b in chunks for n in b.column("n").unique().to_pylist()}
        if rows != ROWS * BATCHES or len(numbers) != 1:
            found.append(f"{name}: {rows} rows of {numbers}")
    return found


def sinks_are_killed(kills: int, tmp_path: Path) -> None:
    pick = random.Random(seed_of("killed sinks"))
    wrong: list[str] = []
    done = 0
    left_any = False
    while done < kills:
        # Several are forked from one that has everything imported, and die one after the other.
        folder = tmp_path / f"{done}"
        folder.mkdir()
        for _ in range(min(25, kills - done)):
            child = os.fork()
            if child == 0:
                try:
                    for number in range(1_000_000):
                        for name, write in WRITERS.items():
                            write(folder / name, SCHEMA, batches(number))
                finally:
                    os._exit(1)
            time.sleep(pick.random() * 0.15)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            done += 1
            wrong += what_is_wrong(folder)
            left_any = left_any or any(p.name.startswith(".") for p in folder.iterdir())
        for name, write in WRITERS.items():
            write(folder / name, SCHEMA, batches(-1))
        wrong += [f"{p} was left" for p in folder.iterdir() if p.name not in WRITERS]
    report("killed sinks", done, len(wrong))
    assert wrong == []
    assert left_any  # kills do leave something


def test_killed_sinks_lose_nothing_and_leave_nothing(tmp_path: Path) -> None:
    sinks_are_killed(12, tmp_path)


def test_a_sink_killed_in_a_process_of_its_own(tmp_path: Path) -> None:
    with writer(tmp_path) as child:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        while not (tmp_path / "x.arrow").exists():
            assert child.poll() is None
            time.sleep(0.001)
        child.kill()
    assert what_is_wrong(tmp_path) == []


@pytest.mark.soak
def test_hundreds_of_killed_sinks(tmp_path: Path) -> None:
    sinks_are_killed(int(900 * SOAK), tmp_path)
