"""Saves that are killed, and saves on a full disk: nothing lost, nothing left."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidemill as tm
from tests.faults.counts import SOAK, report, seed_of
from tests.faults.wheels_made import MAKERS, wheel_of
from tests.faults.wheels_saver import CALLS
from tidemill.wheels.files.format import saves_in
from tidemill.wheels.open_wheel import open_wheel

ROOT = Path(__file__).resolve().parents[2]
KINDS = ["plain", "compressed"]


def _kill(path: Path, count: int, steps: int) -> None:
    machine = "killed saves"
    seed, kills, faults = seed_of(machine), 0, []
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    for kind in KINDS:
        command = [sys.executable, "-m", "tests.faults.wheels_saver", kind, str(path / kind)]
        said = subprocess.run(
            [*command, str(seed), str(count), str(steps)], cwd=ROOT, capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": paths}, check=False,
        )  # fmt: skip
        assert said.returncode == 0, said.stderr[-3000:]
        first, *lines = said.stdout.splitlines()
        kills += int(first.split()[1])
        faults += lines
    report(machine, kills, len(faults))
    assert not faults


def test_killed_saves_lose_nothing_and_leave_nothing(tmp_path: Path) -> None:
    _kill(tmp_path, 6, 5)


@pytest.mark.soak
def test_many_killed_saves(tmp_path: Path) -> None:
    _kill(tmp_path, int(500 * SOAK), CALLS)


# --- a full disk --------------------------------------------------------------------------------------


def _listed(path: Path) -> set[str]:
    return {str(p.relative_to(path)) for p in path.rglob("*")}


def _grown() -> Any:
    wheel = wheel_of("plain")
    t = np.arange(200_000)
    wheel.insert(pa.table({"t": t, "k": t * 0, "s": pa.repeat("", len(t)), "v": t * 0 + 1, "x": t * 0.0}))
    wheel.advance_to(200_000)
    return wheel


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command here, so no small disk")
    if done.returncode:
        pytest.skip(f"no small disk can be mounted here: {done.stderr.strip()}")
    yield disk
    # Lazily: a wheel may still have files mapped.
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_save_on_a_full_disk_is_refused_and_frees_what_it_wrote(small_disk: Path) -> None:
    MAKERS["plain"](small_disk / "wheel")
    before = _listed(small_disk)
    with pytest.raises(tm.UserError, match=r"disk/wheel.*disk is full"):
        _grown().save(small_disk / "wheel")
    assert _listed(small_disk) == before
    again: Any = open_wheel(small_disk / "wheel")
    again.save(small_disk / "wheel")


def test_a_save_is_refused_wherever_the_disk_is_full(small_disk: Path) -> None:
    """The disk is filled so that a save fails at each of its files in turn."""
    wheel = wheel_of("plain")
    wheel.save(small_disk / "wheel")
    before, refused = _listed(small_disk), 0
    page = os.sysconf("SC_PAGE_SIZE")
    for pages in range(1, 40):
        room = os.statvfs(small_disk).f_bavail * page
        (small_disk / "ballast").write_bytes(bytes(room - pages * page))
        try:
            wheel.save(small_disk / "wheel")
        except tm.UserError as full:
            assert "disk is full" in str(full)
            assert _listed(small_disk) - {"ballast"} == before
            refused += 1
            (small_disk / "ballast").unlink()
        else:
            break
    assert 3 < refused < 39
    assert saves_in(small_disk / "wheel") == [1, 2]


def test_a_save_beyond_the_limit_of_file_sizes_is_refused(tmp_path: Path) -> None:
    MAKERS["plain"](tmp_path / "wheel")
    before = _listed(tmp_path)
    grown = _grown()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(tm.UserError, match=r"wheel/cells-.*ulimit"):
            grown.save(tmp_path / "wheel")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert _listed(tmp_path) == before


def test_a_directory_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/wheel")):
        with pytest.raises(tm.UserError, match=str(path)):
            wheel_of("plain").save(path)


# --- what is left -------------------------------------------------------------------------------------


def test_files_of_a_save_that_is_being_written_are_not_taken_for_leftovers(tmp_path: Path) -> None:
    from tidemill.wheels.files.claims import claimed

    wheel = wheel_of("plain")
    wheel.save(tmp_path)
    with claimed(tmp_path, 2) as claim:
        others = [f"cells-{claim}.arrow", f".head-{claim}.arrow.0123456789ab.tmp"]
        for name in others:
            (tmp_path / name).write_text("half")
        wheel.save(tmp_path)
        assert all((tmp_path / name).exists() for name in others)
    wheel.save(tmp_path)
    assert not any((tmp_path / name).exists() for name in others)
