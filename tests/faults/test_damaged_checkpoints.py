"""A machine that damages checkpoints: each is restored as it was, or refused, or the one before is taken.

Restoring says so with a warning if it does not take the newest. What it takes gives the answer that it must.
"""

from __future__ import annotations

import random
import shutil
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidemill as tm
from tests.faults.counts import SOAK, report, seed_of
from tests.faults.test_damaged_dia import damaged
from tidemill import col
from tidemill.local import checkpoint_directory as directory
from tidemill.local.live import Live

STREAM = tm.stream("s", time="t", schema={"t": "int64", "k": "string", "x": "int64"})
QUERY = STREAM.group_by("k").window(tm.hopping(40, every=10)).agg(
    n=tm.count(), total=tm.sum(col.x), last=tm.last(col.k), middle=tm.median(col.x)
)  # fmt: skip
NEWEST = 5


def made(path: Path) -> dict[int, list[Any]]:
    """Write a directory of checkpoints and a file; return what comes of each, by its number."""
    live, expected = QUERY.live(tm.Disorder(slack=5)), {}
    for number in range(1, NEWEST + 1):
        pick = random.Random(number)
        times = [9 * number + pick.randint(0, 12) for _ in range(40)]
        keys = [f"k{pick.randint(0, 3 * number)}" for _ in times]
        live.push(s=pa.table({"t": times, "k": keys, "x": times}), position=number)
        live.checkpoint(path / "directory", keep=3)
        live.checkpoint(path / "file")
        expected[number] = flushed(tm.restore(QUERY, path / "file", tm.Disorder(slack=5)))
    live.close()
    return expected


def flushed(live: Live) -> list[Any]:
    return sorted(map(repr, live.flush().to_pylist()))


def damage(path: Path, pick: random.Random) -> str:
    """Do something to a checkpoint, and return what it was."""
    if pick.random() < 0.2:
        whole = (path / "file").read_bytes()
        (path / "file").write_bytes(damaged(whole, pick))
        return "file"
    files = sorted(p for p in (path / "directory").iterdir() if p.name != directory.LOCK)
    file, other = pick.sample(files, 2)
    how = pick.choice(["bytes", "bytes", "bytes", "bytes", "gone", "swap", "copy", "link"])
    if how == "bytes":
        file.write_bytes(damaged(file.read_bytes(), pick))
    elif how == "gone":
        file.unlink()
    elif how == "swap":
        mine, theirs = file.read_bytes(), other.read_bytes()
        file.write_bytes(theirs)
        other.write_bytes(mine)
    elif how == "copy":
        shutil.copy(other, file)
    else:
        file.unlink()
        file.symlink_to(other)
    return f"{how} {file.name} {other.name}"


def wrong(path: Path, expected: dict[int, list[Any]]) -> str:
    """Restore what there is, and return what is wrong about it."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            live = tm.restore(QUERY, path, tm.Disorder(slack=5))
        except tm.UserError as refused:
            return "" if str(path) in str(refused) else f"no path in {refused}"
    number = live.positions["s"]
    told = any("is damaged" in str(warning.message) for warning in said)
    there = directory.numbers_in(path)[0] if path.is_dir() else NEWEST
    if number != there and not told:
        return f"checkpoint {number} is taken, of {there}, without a warning"
    return "" if flushed(live) == expected[number] else f"another answer from checkpoint {number}"


def checkpoints_are_damaged(cases: int, folder: Path) -> None:
    machine = "damaged checkpoints"
    pick, faults, taken = random.Random(seed_of(machine)), [], 0
    expected = made(folder / "whole")
    assert [wrong(folder / "whole" / form, expected) for form in ("directory", "file")] == ["", ""]
    for number in range(cases):
        work = folder / "work"
        shutil.copytree(folder / "whole", work)
        what = damage(work, pick)
        found = [wrong(work / form, expected) for form in ("directory", "file")]
        faults += [f"{number}, {what}: {fault}" for fault in found if fault]
        shutil.rmtree(work)
        taken += 1
    report(machine, taken, len(faults))
    assert not faults, faults[:5]


@pytest.mark.usefixtures("seldom_whole")
def test_damaged_checkpoints_are_refused_or_restored_as_they_were(tmp_path: Path) -> None:
    checkpoints_are_damaged(60, tmp_path)


@pytest.mark.soak
@pytest.mark.usefixtures("seldom_whole")
def test_many_damaged_checkpoints(tmp_path: Path) -> None:
    checkpoints_are_damaged(int(3000 * SOAK), tmp_path)
