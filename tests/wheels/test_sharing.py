"""Readers of a wheel that goes on: in other threads, in other processes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidemill as tm
from tests.examples import later
from tidemill import col
from tidemill.core.errors import UserError
from tidemill.wheels.loops.range_plan import VERSION

SCHEMA = {"t": "int64", "k": "int64", "v": "int64"}
SLOTS, ENOUGH = 3_000, 30
MINUTE = 60.0


def new_wheel(rings: list[Any], **options: Any) -> Any:
    return tm.Wheel(
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
from tests.wheels.test_sharing import MINUTE, SLOTS, read_for, read_until
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
@pytest.mark.compiled
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
        before = wheel._view.store._asked
        wheel.insert(pa.table({"t": [100 * key], "k": [key], "v": [1]}))
        wheel.advance_to(100 * key + 100)
        assert wheel._view.store._asked[1][VERSION] % 2 == 0
        if wheel._view.store._asked[0][0] is not before[0][0]:
            replaced += 1
            assert before[1][VERSION] % 2 == 1
    assert replaced > 2


@pytest.mark.parametrize("compress", [0, *later(16)])
@pytest.mark.compiled
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


# --- who may read, who may write, and what is left ---------------------------------------------------


def shared(path: Path, keys: int = 3, until: int = 10) -> Any:
    """A wheel that is shared, in which key `k` has `100 * k + t` in each slot `t`."""
    wheel = new_wheel([(1, "keep"), (60, "keep")])
    t = np.repeat(np.arange(until), keys)
    k = np.tile(np.arange(keys), until)
    wheel.insert(pa.table({"t": t, "k": k, "v": 100 * k + t}))
    wheel.advance_to(until)
    wheel.share(path)
    return wheel


def test_a_reader_that_outlives_its_writer_never_answers_for_the_next_one(tmp_path: Path) -> None:
    wheel = shared(tmp_path)
    reader = tm.open_wheel(tmp_path)
    assert reader.query(0, 1, 1)["total"] == 100 and reader.writer == "alive"
    wheel._publisher.close()
    assert reader.writer == "gone" and reader.stats()["writer"] == "gone"
    assert reader.query(0, 1, 1)["total"] == 100  # as it was left
    other = new_wheel([(1, "keep"), (60, "keep")])
    other.insert(pa.table({"t": [0, 0], "k": [7, 8], "v": [1, 2]}))
    other.advance_to(5)
    other.share(tmp_path)
    for ask in (
        lambda: reader.query(0, 1, 1), lambda: reader.query(0, 1), lambda: reader.watermark,
        lambda: reader.landmark(), lambda: reader.writer,
    ):  # fmt: skip
        with pytest.raises(UserError, match=r"another, which has shared.*open it again"):
            ask()
    again = tm.open_wheel(tmp_path)
    assert again.query(0, 1, 8)["total"] == 2 and again.query(0, 1, 1)["n"] == 0
    del wheel, other


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_reading_needs_no_permission_to_write(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as made:
        os.chmod(made, 0o755)
        wheel = shared(Path(made) / "wheel")
        ours = tm.open_wheel(Path(made) / "wheel")
        ours.query(0, 1, 2)  # compiles
        ours.query(0, 2)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setgid(12345)
                os.setuid(12345)
                reader = tm.open_wheel(Path(made) / "wheel")
                said = f"{reader.query(0, 1, 2)['total']} {reader.query(0, 2).num_rows} {reader.writer}"
            except BaseException as failed:
                said = repr(failed)
            os.write(write, said.encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(read, 1000) == b"200 3 alive"
        del wheel


def test_a_directory_with_a_root_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "root.bin").write_bytes(b"physics" * 100)
    (tmp_path / "thesis.txt").write_text("two years of work")
    with pytest.raises(UserError, match="which is another file"):
        shared(tmp_path)
    (tmp_path / "thesis.txt").unlink()
    with pytest.raises(UserError, match="which is another file"):
        shared(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"root.bin"}


@pytest.mark.parametrize("name", ["thesis.txt", "root.bin.bak", "0-keys.arrow", "folder", "link", "pipe"])
def test_what_no_writer_left_is_never_removed(name: str, tmp_path: Path) -> None:
    shared(tmp_path)
    if name == "folder":
        (tmp_path / name).mkdir()
    elif name == "link":
        (tmp_path / "0123456789abcdef-1.json").symlink_to(tmp_path / "root.bin")
    elif name == "pipe":
        os.mkfifo(tmp_path / "0123456789abcdef-1.json")
    else:
        (tmp_path / name).write_text("mine")
    before = {p.name for p in tmp_path.iterdir()}
    with pytest.raises(UserError, match="nothing was touched"):
        shared(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == before


def test_a_lock_that_is_a_link_does_not_truncate_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("two years of work")
    (tmp_path / "wheel").mkdir()
    (tmp_path / "wheel" / "writer.lock").symlink_to(tmp_path / "thesis.txt")
    with pytest.raises(UserError):
        shared(tmp_path / "wheel")
    assert (tmp_path / "thesis.txt").read_text() == "two years of work"


def test_a_shared_directory_is_taken_over_after_a_kill(tmp_path: Path) -> None:
    wheel = shared(tmp_path)
    wheel.insert(pa.table({"t": [20] * 9, "k": list(range(9)), "v": [1] * 9}))  # a new generation
    wheel.advance_to(21)
    wheel._publisher.close()  # what a kill does for the lock, too
    names = {p.name for p in tmp_path.iterdir()}
    other = shared(tmp_path)
    assert len({p.name for p in tmp_path.iterdir()} & names) == 2  # the lock, and a new root
    assert tm.open_wheel(tmp_path).query(0, 1, 1)["total"] == 100
    del other


def test_keys_that_grow_while_all_are_asked_for_never_raise(tmp_path: Path) -> None:
    wheel = shared(tmp_path)
    reader = tm.open_wheel(tmp_path)
    reader.query(0, 5)
    present = type(reader._view.store).present.fget

    def grows(store: Any) -> Any:
        """The writer goes on just when the reader has looked which keys there are."""
        now = wheel.watermark
        k = np.arange(now, now + 40)
        wheel.insert(pa.table({"t": np.full(40, now), "k": k, "v": k}))
        wheel.advance_to(now + 1)
        return present(wheel._view.store)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(reader._view.store), "present", property(grows))
        for _ in range(5):
            table = reader.query(0, wheel.watermark)
            assert set(table["k"].to_pylist()) >= {0, 1, 2}


def test_a_child_that_was_forked_does_not_write_what_its_parent_shares(tmp_path: Path) -> None:
    wheel = shared(tmp_path)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        said = ""
        try:
            wheel.advance_to(50)
        except UserError as refused:
            said = str(refused)
        os.write(write, said.encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert b"forked" in os.read(read, 1000)
    wheel.advance_to(11)
    assert tm.open_wheel(tmp_path).watermark == 11


def test_sharing_on_a_full_disk_is_an_error_and_leaves_nothing() -> None:
    with small_disk(1) as disk:
        wheel = new_wheel([(1, 400), (60, "keep")])
        k = np.arange(20_000)
        wheel.insert(pa.table({"t": np.zeros(20_000, dtype=np.int64), "k": k, "v": k}))
        wheel.advance_to(1)
        with pytest.raises(UserError, match=r"No space left.*the disk is full"):
            wheel.share(disk / "wheel")
        assert {p.name for p in (disk / "wheel").iterdir()} <= {"writer.lock"}
        assert os.statvfs(disk).f_bavail > 250
        assert wheel.query(0, 1, 7)["total"] == 7  # it goes on alone
        wheel.insert(pa.table({"t": [1], "k": [7], "v": [3]}))
        wheel.advance_to(2)
        assert wheel.query(0, 2, 7)["total"] == 10


def test_a_shared_wheel_that_grows_on_a_full_disk_goes_on_as_it_was() -> None:
    with small_disk(1) as disk:
        wheel = new_wheel([(1, 400), (60, "keep")])
        wheel.insert(pa.table({"t": [0, 0], "k": [0, 1], "v": [1, 2]}))
        wheel.advance_to(1)
        wheel.share(disk / "wheel")
        reader = tm.open_wheel(disk / "wheel")
        files = {p.name for p in (disk / "wheel").iterdir()}
        k = np.arange(20_000)
        with pytest.raises(UserError, match="No space left"):
            wheel.insert(pa.table({"t": np.ones(20_000, dtype=np.int64), "k": k, "v": k}))
        assert {p.name for p in (disk / "wheel").iterdir()} == files
        assert wheel.stats()["keys"] == 2 and wheel.stats()["rows"] == 2
        wheel.insert(pa.table({"t": [1, 1], "k": [0, 1], "v": [5, 6]}))
        wheel.advance_to(2)
        assert [reader.query(0, 2, k)["total"] for k in (0, 1)] == [6, 8]


@contextlib.contextmanager
def small_disk(megabytes: int) -> Iterator[Path]:
    """A file system that is soon full."""
    with tempfile.TemporaryDirectory() as made:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", made]
        if os.getuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
            pytest.skip("a file system of its own needs root, and leave to mount")
        try:
            yield Path(made)
        finally:
            subprocess.run(["umount", "-l", made], check=True)
