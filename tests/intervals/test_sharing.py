"""An index that another process writes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidemill as tm
from tests.intervals.test_blocks import small_layout
from tests.intervals.test_readers import EACH, KEYS, Writer
from tidemill import col
from tidemill.aggregates.layout import layout
from tidemill.core.errors import UnsupportedError, UserError
from tidemill.core.schema import schema
from tidemill.intervals.index import SharedIndex, TimeTravelIndex

pytestmark = pytest.mark.compiled
BOUND = KEYS + 1
"""The key of rows that say what has expired."""

WRITER = """
import sys
sys.path.insert(0, {root!r})
from tests.intervals.test_sharing import SharedWriter
SharedWriter({path!r}).run_until_killed()
"""


class SharedWriter(Writer):
    """Says in the index itself what is going to expire, before it does."""

    def __init__(self, path: str) -> None:
        super().__init__(TimeTravelIndex(small_layout()), late=150, batches=0)
        self.step()
        self.index.share(path)

    def run_until_killed(self) -> None:
        print("ready", flush=True)
        while True:
            below = self.now + 3 - 3 * self.late - 200
            self.index.insert(np.array([BOUND]), np.array([self.now]), [pa.array([below])])
            self.step()


def bound_of(index: SharedIndex) -> int:
    return int(index.answer(BOUND, -(1 << 40), 1 << 40)[3] or -(1 << 40))


def look(index: SharedIndex, rng: np.random.Generator) -> int:
    """Ask for many intervals; return the newest bound."""
    before = bound_of(index)
    low = np.sort(rng.integers(max(before, -200), max(before, 0) + 800, 200))
    keys, high = rng.integers(0, KEYS, 200), low + rng.integers(0, 300, 200)
    n, total, least, most = (c.to_pylist() for c in index.answers(keys, low, high))
    offsets, _ = index.rows_in(keys[:20], low[:20], high[:20])
    after = bound_of(index)
    assert after >= before
    for i in np.flatnonzero(low >= after):
        assert n[i] % EACH == 0
        assert (total[i], least[i], most[i]) == ((0, -2, 3) if n[i] else (None, None, None))
        assert i >= 20 or (offsets[i + 1] - offsets[i]) % EACH == 0
    return after


def test_another_process_reads_what_one_writes_until_it_is_killed(tmp_path: Path) -> None:
    code = WRITER.format(root=str(Path(__file__).parents[2]), path=str(tmp_path))
    rng = np.random.default_rng(5)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
        index = SharedIndex(tmp_path, small_layout())
        try:
            while look(index, rng) < 1500:
                assert index.writer == "alive" and writer.poll() is None
        finally:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
    assert index.writer == "gone"
    last = look(index, rng)
    assert look(index, rng) == last >= 1500
    assert SharedIndex(tmp_path, small_layout()).answer(0, 0, 1 << 40) == index.answer(0, 0, 1 << 40)


def test_who_shares_a_directory_again_takes_it_over(tmp_path: Path) -> None:
    def shared(value: int) -> TimeTravelIndex:
        index = TimeTravelIndex(small_layout())
        index.insert(np.array([0]), np.array([1]), [pa.array([value])])
        index.share(tmp_path)
        return index

    first = shared(5)
    with pytest.raises(UserError, match="one that is running"):
        shared(6)
    reader = SharedIndex(tmp_path, small_layout())
    assert reader.answer(0, 0, 9) == (1, 5, 5, 5)
    first.restore(first.snapshot())
    first.insert(np.array([0, 900]), np.array([2, 0]), [pa.array([7, 0])])
    assert reader.answer(0, 0, 9) == (2, 12, 5, 7)
    del first
    assert reader.writer == "gone" and reader.answer(0, 0, 9) == (2, 12, 5, 7)
    second = shared(6)
    with pytest.raises(UserError, match="open it again"):
        reader.answer(0, 0, 9)
    assert SharedIndex(tmp_path, small_layout()).answer(0, 0, 9) == second.answer(0, 0, 9) == (1, 6, 6, 6)


def test_what_cannot_be_shared_or_opened(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"index.share\(path\)"):
        SharedIndex(tmp_path, small_layout())
    other = layout((("n", tm.count()),), schema({"x": "int64"}))
    index = TimeTravelIndex(other)
    index.share(tmp_path)
    with pytest.raises(UserError, match="the same aggregates"):
        SharedIndex(tmp_path, small_layout()).answer(0, 0, 9)
    strange = tmp_path / "strange"
    strange.mkdir()
    (strange / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="nothing was touched"):
        TimeTravelIndex(other).share(strange)
    texts = layout((("last", tm.max(col.w)),), schema({"w": "string"}))
    with pytest.raises(UnsupportedError, match="codes"):
        TimeTravelIndex(texts).share(tmp_path / "texts")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("rows", lambda file, shape: [file, [shape[0] // 2]]),
        ("rows", lambda file, shape: [file, [shape[0] * 2, shape[1]]]),
        ("nodes", lambda file, shape: [file, [shape[0], shape[1] + 1]]),
        ("nodes", lambda file, shape: [file, [0, shape[1]]]),
        ("heads", lambda file, shape: [file, [-1, shape[1]]]),
        ("heads", lambda file, shape: ["../" + file, shape]),
        ("clock", lambda file, shape: 7),
        ("limit", lambda file, shape: None),
    ],
)
def test_a_damaged_description_is_an_error(tmp_path: Path, name: str, change: Any) -> None:
    index = TimeTravelIndex(small_layout())
    index.share(tmp_path)
    [file] = tmp_path.glob("*.json")
    said = json.loads(file.read_text())
    said["arrays"][name] = change(*said["arrays"][name])
    file.write_text(json.dumps(said))
    with pytest.raises(UserError, match="open shared index: expected"):
        SharedIndex(tmp_path, small_layout()).answer(0, 1, 2)


def test_a_description_that_is_broken_or_gone_is_an_error(tmp_path: Path) -> None:
    index = TimeTravelIndex(small_layout())
    index.share(tmp_path)
    [file] = tmp_path.glob("*.json")
    for broken in ("[1]", "{"):
        file.write_text(broken)
        with pytest.raises(UserError, match="expected the arrays of an index"):
            SharedIndex(tmp_path, small_layout()).answer(0, 1, 2)
    file.unlink()
    with pytest.raises(UserError, match="expected the files of generation 1"):
        SharedIndex(tmp_path, small_layout()).answer(0, 1, 2)
