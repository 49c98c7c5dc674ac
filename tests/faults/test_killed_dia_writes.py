"""A machine that kills writes of a DIA: a target is whole or not there, and nothing stays beside it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.faults.counts import SOAK, report, seed_of
from tests.faults.dia_child import ELEMENTS, LINES, TARGETS
from tidemill.core.errors import UserError
from tidemill.spark.dia import generate
from tidemill.spark.dia.elements import columns_of, decode
from tidemill.spark.dia.file_sources import _batches, _kind
from tidemill.spark.dia.hidden_directory import remove_leftovers


def child(*args: str) -> subprocess.Popen[str]:
    """A process with a group of its own, so that its JVM is killed with it."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.faults.dia_child", *args], text=True, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def kill(process: subprocess.Popen[str]) -> str:
    """Kill a child and all it started; what it had said and nobody read."""
    os.killpg(process.pid, signal.SIGKILL)
    said, _ = process.communicate()
    return said


def left(folder: Path, name: str) -> list[str]:
    return [n for n in os.listdir(folder) if n.startswith(f".{name}-")]


def not_whole(target: Path) -> bool:
    """Whether a target that is there has anything but all its elements."""
    files = sorted(target.iterdir()) if target.is_dir() else [target]
    if target.name.startswith("lines"):
        return "".join(f.read_text() for f in files) != "".join(f"{line}\n" for line in LINES)
    kind = _kind(str(files[0]))
    schema = columns_of(kind).to_arrow()
    found = [e for f in files for batch in _batches(str(f), schema) for e in decode(batch, kind)]
    return [dict(e) for e in found] != ELEMENTS


def removed(target: Path) -> None:
    for file in target.iterdir() if target.is_dir() else []:
        file.unlink()
    if target.exists():
        target.rmdir() if target.is_dir() else target.unlink()


@pytest.mark.soak
def test_kills_during_writes_tear_nothing(tmp_path: Path) -> None:
    pick, kills, wrong = random.Random(seed_of("killed DIA writes")), 0, []
    while kills < 40 * SOAK:
        process = child(str(tmp_path), "1000")
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(pick.uniform(0, 4))  # when it is killed is the case that is tried
        for line in kill(process).splitlines():
            name = line.removeprefix("written ")
            if line.startswith("written ") and name not in TARGETS:
                wrong.append(line)
        kills += 1
        for name in TARGETS:
            if (tmp_path / name).exists() and not_whole(tmp_path / name):
                wrong.append(f"{name} after kill {kills}")
            removed(tmp_path / name)
    process = child(str(tmp_path), "1")
    said, _ = process.communicate()
    if said.splitlines() != ["ready", *(f"written {n}" for n in TARGETS)]:
        wrong.append(f"the last run: {said}")
    wrong += [f"{name} at the end" for name in TARGETS if not_whole(tmp_path / name)]
    wrong += [n for name in TARGETS for n in left(tmp_path, name)]
    report("killed DIA writes", kills, len(wrong))
    assert not wrong


def test_what_a_killed_write_left_is_removed_by_the_next(spark: Any, tmp_path: Path) -> None:
    """What somebody still writes, and what writes do not leave, stays."""
    target = tmp_path / "out"
    dead, alive = child("hold", str(target)), child("hold", str(target))
    assert dead.stdout is not None and alive.stdout is not None
    gone, there = dead.stdout.readline().strip(), alive.stdout.readline().strip()
    kill(dead)
    assert sorted(left(tmp_path, "out")) == sorted(map(os.path.basename, (gone, there)))
    foreign = tmp_path / f".out-{'0' * 32}"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("mine")
    link = tmp_path / f".out-{'1' * 32}"
    link.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "part-000000-000000.txt").write_text("not ours to remove")
    generate(spark, 3).map(lambda i: f"{i}", returns=str).write_lines(target)
    kill(alive)
    assert not os.path.exists(gone)
    assert os.path.exists(there)
    assert (foreign / "thesis.txt").read_text() == "mine"
    assert (tmp_path / "elsewhere" / "part-000000-000000.txt").exists()
    remove_leftovers(str(target))
    assert not os.path.exists(there)
    assert sorted(left(tmp_path, "out")) == sorted([foreign.name, link.name])


def test_a_write_to_a_link_or_a_place_that_cannot_be(spark: Any, tmp_path: Path) -> None:
    lines = generate(spark, 3).map(lambda i: f"{i}", returns=str)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "file").write_text("a file")
    link, below = tmp_path / "link", tmp_path / "file" / "x"
    for target, one in ((link, False), (link, True), (below, False)):
        with pytest.raises(UserError, match=str(target)):
            lines.write_lines(target, one_file=one)
    with pytest.raises(UserError, match=r"expected /proc/none/lines.* to be readable and writable"):
        lines.write_lines("/proc/none/lines")
    assert sorted(os.listdir(tmp_path)) == ["elsewhere", "file", "link"]
