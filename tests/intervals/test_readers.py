"""Readers of the time-travel index beside its writer: of each key they see all rows of a batch or none."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from tests.intervals.test_blocks import small_layout
from tidemill.intervals.index import TimeTravelIndex

pytestmark = pytest.mark.compiled
KEYS, EACH = 6, 5


class Writer:
    """Inserts rows whose values add up to 0 for each key, batch and instant, and lets old ones expire."""

    def __init__(self, index: TimeTravelIndex, *, late: int, batches: int) -> None:
        self.index, self.late, self.batches = index, late, batches
        self.rng = np.random.default_rng(late)
        self.now, self.below, self.running = 0, -(1 << 40), True

    def step(self) -> None:
        self.now += 3
        instants = self.now - self.rng.integers(0, self.late + 1, 4)
        keys, times = (a.ravel() for a in np.meshgrid(np.arange(KEYS), np.repeat(instants, EACH)))
        values = np.resize(np.array([3, -1, -1, -2, 1]), len(keys) // KEYS)
        order = self.rng.permutation(len(keys))
        self.index.insert(keys[order], times[order], [pa.array(np.repeat(values, KEYS)[order])])
        self.below = self.now - 3 * self.late - 200  # before anything of it goes
        self.index.expire(self.below)

    def run(self) -> None:
        try:
            for _ in range(self.batches):
                self.step()
        finally:
            self.running = False


def questions(rng: np.random.Generator, writer: Writer, n: int) -> tuple[np.ndarray, ...]:  # type: ignore[type-arg]
    below, now = writer.below, writer.now
    low = np.sort(rng.integers(max(below, -writer.late), now + 2, n))
    return np.sort(rng.integers(0, KEYS + 1, n)), low, low + rng.integers(0, 300, n)


def look(index: TimeTravelIndex, writer: Writer, rng: np.random.Generator) -> int:
    """Ask for many intervals at once, for one, and for rows; return how many were still to be answered."""
    keys, low, high = questions(rng, writer, 300)
    n, total, least, most = (c.to_pylist() for c in index.answers(keys, low, high))
    one = index.answer(int(keys[0]), int(low[0]), int(high[0]))
    offsets, places = index.rows_in(keys[:20], low[:20], high[:20])
    bound = writer.below  # of what was asked for before it, some rows may have gone
    seen = 0
    for i in np.flatnonzero(low >= bound):
        assert n[i] % EACH == 0
        assert (total[i], least[i], most[i]) == ((0, -2, 3) if n[i] else (None, None, None))
        assert i >= 20 or (offsets[i + 1] - offsets[i]) % EACH == 0
        assert i or (one[0] % EACH == 0 and one[1] in (0, None))
        seen += n[i] > 0
    assert len(np.unique(places[offsets[0] : offsets[1]])) == offsets[1] - offsets[0]
    return seen


@pytest.mark.parametrize("late", [0, 20, 600])
def test_threads_read_while_one_writes(late: int) -> None:
    index = TimeTravelIndex(small_layout())
    writer = Writer(index, late=late, batches=900)
    writer.step()
    failed: list[BaseException] = []
    seen = [0, 0]

    def reader(number: int) -> None:
        rng = np.random.default_rng(number)
        try:
            while writer.running:
                seen[number] += look(index, writer, rng)
        except BaseException as wrong:
            failed.append(wrong)

    jobs: list[Callable[[], None]] = [writer.run, lambda: reader(0), lambda: reader(1)]
    threads = [threading.Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failed, failed[0]
    assert min(seen) > 100
