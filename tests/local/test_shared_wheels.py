"""Readers of a wheel that goes on: in other threads, in other processes."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidemill as tm
from tidemill import col
from tidemill.codegen.wheel_plan import VERSION
from tidemill.core.errors import UserError

SCHEMA = {"t": "int64", "k": "int64", "v": "int64"}
SLOTS, ENOUGH = 6_000, 30
MINUTE = 60.0


def new_wheel(rings: list[Any], **options: Any) -> Any:
    return tm.Wheel.create(
        {"total": tm.sum(col.v), "n": tm.count()}, schema=SCHEMA, time="t", start=0, keys="k",
        granularities=rings, **options,
    )  # fmt: skip


def write(wheel: Any, first: int, until: int) -> None:
    """In each slot, each key below `slot / 500` gets its slot number. So keys keep coming."""
    t = np.arange(first, until)
    t = np.repeat(t, t // 500 + 1)
    starts = np.r_[0, np.flatnonzero(np.diff(t)) + 1]
    k = np.arange(len(t)) - np.repeat(starts, np.diff(np.r_[starts, len(t)]))
    wheel.insert(pa.table({"t": t, "k": k, "v": t}))
    wheel.advance_to(until)


def expected(a: int, b: int, key: int) -> tuple[int | None, int]:
    a = max(a, 500 * key)
    return (sum(range(a, b)), b - a) if a < b else (None, 0)


def read_until(wheel: Any, stop: Any, seed: int) -> int:
    """Ask until there is nothing new, and some times at least; how many answers there were."""
    rng, asked, before = np.random.default_rng(seed), 0, 0
    while asked < ENOUGH or not stop():
        now = wheel.watermark
        assert now >= before
        before = now
        if now == 0:
            continue
        a, b = sorted(rng.integers(0, now + 1, 2).tolist())
        key = int(rng.integers(0, 12))
        got = wheel.query(a, b, key)
        assert (got["total"], got["n"]) == expected(a, b, key), (a, b, key, got, now)
        asked += 1
    return asked


READER = """
import sys
sys.path.insert(0, {root!r})
import tidemill as tm
from tests.local.test_shared_wheels import MINUTE, SLOTS, read_for, read_until
wheel = tm.open_wheel({path!r})
wheel.query(0, 3, [0])  # compiles, as the other does
wheel.query(0, 3, 0)
print("ready", flush=True)
print({reads}, flush=True)
"""


def reader(path: Path, reads: str) -> subprocess.Popen[str]:
    """Another process that reads: it says when it is ready, and how many answers there were."""
    code = READER.format(root=str(Path(__file__).parents[2]), path=str(path), reads=reads)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def await_ready(*readers: subprocess.Popen[str]) -> None:
    for other in readers:
        assert other.stdout is not None and other.stdout.readline() == "ready\n"


@pytest.mark.parametrize(
    "rings",
    [[(1, "keep"), (60, "keep")], pytest.param([(1, SLOTS), (7, SLOTS)], marks=pytest.mark.soak)],
    ids=str,
)
def test_a_reader_in_another_process_is_never_wrong(rings: list[Any], tmp_path: Path) -> None:
    wheel = new_wheel(rings)
    wheel.share(tmp_path)
    write(wheel, 0, 5)
    with reader(tmp_path, "read_until(wheel, lambda: wheel.watermark >= SLOTS, 1)") as other:
        await_ready(other)
        for first in range(5, SLOTS, 5):
            write(wheel, first, first + 5)
        asked = other.communicate()[0]
    assert other.returncode == 0 and int(asked) >= ENOUGH


def test_who_reads_arrays_that_were_replaced_reads_again() -> None:
    """The old head says so: columns and totals may be those of the new one, and go on."""
    wheel = new_wheel([(1, "keep"), (2, 30), (60, "keep")])
    wheel.insert(pa.table({"t": [0], "k": [0], "v": [1]}))
    wheel.advance_to(100)
    replaced = 0
    for key in range(1, 9):
        before = wheel._store._asked
        wheel.insert(pa.table({"t": [100 * key], "k": [key], "v": [1]}))
        wheel.advance_to(100 * key + 100)
        assert wheel._store._asked[2][VERSION] % 2 == 0
        if wheel._store._asked[0][2] is not before[0][2]:
            replaced += 1
            assert before[2][VERSION] % 2 == 1
    assert replaced > 2


@pytest.mark.parametrize("compress", [0, 16])
def test_readers_in_threads_are_never_wrong(compress: int) -> None:
    # Where the rest is compressed, a ring that keeps few slots is not.
    wheel = new_wheel([(1, "keep"), (2, 30), (60, "keep")], compress=compress)
    write(wheel, 0, 10)  # compiles, as the query does
    wheel.query(0, 3, 0)
    together = threading.Barrier(3)
    found: list[Any] = []

    def read(seed: int) -> None:
        try:
            together.wait()
            found.append(read_until(wheel, lambda: wheel.watermark >= SLOTS, seed))
        except BaseException as failed:
            found.append(failed)
            raise

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    together.wait()
    for first in range(10, SLOTS, 10):
        write(wheel, first, first + 10)
    for thread in threads:
        thread.join()
    assert all(isinstance(f, int) and f >= ENOUGH for f in found), found


def write_squares(wheel: Any, first: int, until: int) -> None:
    """In each slot, each key gets its slot number from `200 * key ** 2` on: always another key to come."""
    slots = np.arange(first, until)
    keys = np.sqrt(slots / 200).astype(np.int64) + 1
    t = np.repeat(slots, keys)
    k = np.concatenate([np.arange(n) for n in keys])
    wheel.insert(pa.table({"t": t, "k": k, "v": t}))
    wheel.advance_to(until)


def expected_of_squares(a: int, b: int, key: int) -> tuple[int | None, int]:
    a = max(a, 200 * key * key)
    return ((b - a) * (a + b - 1) // 2, b - a) if a < b else (None, 0)


def read_for(wheel: Any, seconds: float, seed: int) -> int:
    """Ask for any range of any key, or of a few, for so long; how many answers there were, all right."""
    rng, asked, before = np.random.default_rng(seed), 0, 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        now = wheel.watermark
        assert now >= before
        before = now
        a, b = sorted(rng.integers(0, now + 1, 2).tolist())
        most = int((now / 200) ** 0.5) + 2  # of which the last one has not come yet
        keys = rng.integers(0, most, 3).tolist()
        found = [wheel.query(a, b, keys[0]), *wheel.query(a, b, keys).to_pylist()]
        for key, got in zip([keys[0], *keys], found):
            assert (got["total"], got["n"]) == expected_of_squares(a, b, key), (a, b, key, got, now)
        asked += 2
    return asked


@pytest.mark.soak
def test_a_minute_of_readers_while_keys_and_rings_grow(tmp_path: Path) -> None:
    wheel = new_wheel([(1, "keep"), (60, "keep"), (3600, "keep")])
    wheel.share(tmp_path)
    write_squares(wheel, 0, 5)
    readers = [reader(tmp_path, f"read_for(wheel, MINUTE, {seed})") for seed in range(2)]
    await_ready(*readers)
    rng, now = np.random.default_rng(3), 5
    while any(r.poll() is None for r in readers):
        until = now + int(rng.integers(1, 8))
        write_squares(wheel, now, until)
        now = until
    answers = [r.communicate()[0] for r in readers]
    assert [r.returncode for r in readers] == [0, 0]
    assert all(int(asked) >= ENOUGH for asked in answers)
    assert wheel.stats()["keys"] > 5 and wheel.stats()["rings"]["1"]["slots"] == now


def test_a_directory_has_one_writer(tmp_path: Path) -> None:
    one, other = new_wheel([1, 60]), new_wheel([1, 60])
    one.share(tmp_path)
    with pytest.raises(UserError, match="no other writer"):
        other.share(tmp_path)
