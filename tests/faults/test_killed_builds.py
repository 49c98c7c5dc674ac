"""Spark builds and appends that are killed: the store before stays, and the next removes what they left."""

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
from tests.faults.wheels_builder import ROWS
from tidemill.wheels.files.buckets import BUCKETS
from tidemill.wheels.files.format import manifest_of, saves_in
from tidemill.wheels.open_wheel import open_wheel

ROOT = Path(__file__).resolve().parents[2]
NEW_STORE = 5
"""So many kills there are in a directory before the next one is used."""


def _builder(path: Path, count: int) -> subprocess.Popen[str]:
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-m", "tests.faults.wheels_builder", str(path), str(count)]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        start_new_session=True,
    )  # fmt: skip


def _killed(path: Path, wait: float) -> int:
    """Kill a builder so many seconds after it began; the rows that it said were complete."""
    with _builder(path, 1_000) as builder:
        assert builder.stdout is not None
        assert builder.stdout.readline() == "begin\n"
        time.sleep(wait)
        os.killpg(builder.pid, signal.SIGKILL)  # Java and Python, all that it started
        said = builder.stdout.read().split()
    return int(said[-1]) if said else 0


def _rows(path: Path) -> int:
    """The rows of a store, which are all there; 0 if there is none yet."""
    if not saves_in(path):
        return 0
    store: Any = open_wheel(path)
    assert sum(store.landmark(key=k) for k in range(7)) == store.watermark
    return int(store.watermark)


def _left(path: Path) -> list[str]:
    """Saves of buckets that no version names, and files of no save."""
    named = {(int(b), n) for v in saves_in(path) for b, n in manifest_of(path, v)[BUCKETS]["saves"].items()}
    left = [p.name for p in path.rglob(".*")]
    for bucket in path.glob("bucket-*"):
        number = int(bucket.name.split("-")[1])
        left += [f"{bucket.name}: {s}" for s in saves_in(bucket) if (number, s) not in named]
        used = {f["file"] for s in saves_in(bucket) for f in manifest_of(bucket, s)["files"].values()}
        left += [p.name for p in bucket.glob("*.arrow") if p.name not in used]
    return left


@pytest.mark.soak
def test_killed_spark_builds_and_appends_lose_nothing(tmp_path: Path) -> None:
    machine = "killed Spark builds"
    pick, faults, kills = random.Random(seed_of(machine)), [], int(40 * SOAK)
    for number in range(kills):
        path = tmp_path / f"store-{number // NEW_STORE}"
        before = _rows(path)
        # The first append of a session takes longest; some are killed later.
        said = max(before, _killed(path, pick.choice([4.0, 8.0]) * pick.random()))
        if (found := _rows(path)) not in (said, said + ROWS):
            faults.append(f"kill {number}: {found} rows where {said} were built")
        if number % NEW_STORE == NEW_STORE - 1 or number == kills - 1:
            with _builder(path, 1) as builder:
                builder.communicate()
            if _rows(path) != found + ROWS or _left(path):
                faults.append(f"after kill {number}: {_rows(path)} rows after {found}, left {_left(path)}")
    report(machine, kills, len(faults))
    assert not faults
