"""The blocks of the time-travel index: many rows, in any order, against arrays that are searched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tests.examples import examples, later
from tidemill import col
from tidemill.aggregates.layout import Layout, layout
from tidemill.core.schema import schema
from tidemill.intervals.index import TimeTravelIndex

pytestmark = pytest.mark.compiled

Ints = np.ndarray[Any, np.dtype[np.int64]]


def small_layout() -> Layout:
    """One that every test here has, so that its kernels are compiled once."""
    asked = (("n", tm.count()), ("total", tm.sum(col.x)), ("low", tm.min(col.x)), ("high", tm.max(col.x)))
    return layout(asked, schema({"x": "int64"}))


class Known:
    """All rows, in arrays."""

    def __init__(self) -> None:
        self.keys, self.times, self.values = (np.empty(0, dtype=np.int64) for _ in range(3))

    def add(self, keys: Ints, times: Ints, values: Ints) -> None:
        self.keys, self.times = np.append(self.keys, keys), np.append(self.times, times)
        self.values = np.append(self.values, values)
        order = np.lexsort((np.arange(len(self.keys)), self.times, self.keys))
        self.keys, self.times, self.values = self.keys[order], self.times[order], self.values[order]

    def ranges(self, keys: Ints, low: Ints, high: Ints) -> tuple[list[int], list[int], list[int]]:
        first, last, begin = [], [], []
        for k, a, b in zip(keys, low, high):
            start, end = np.searchsorted(self.keys, [k, k + 1])
            times = self.times[start:end]
            first.append(int(start + np.searchsorted(times, a)))
            last.append(max(first[-1], int(start + np.searchsorted(times, b, side="right"))))
            begin.append(int(start))
        return first, last, begin

    def answers(self, first: list[int], last: list[int]) -> list[list[Any]]:
        found = []
        for a, b in zip(first, last):
            x = self.values[a:b]
            some = (int(x.sum()), int(x.min()), int(x.max())) if b > a else (None, None, None)
            found.append([b - a, *some])
        return [list(column) for column in zip(*found)]


def batches(
    rng: np.random.Generator, n: int, keys: int, disorder: int, *, of: int
) -> list[tuple[Ints, Ints, Ints]]:
    """Rows at about one instant a row, each up to `disorder` late; many have the time of another one."""
    at = np.arange(n) // 3 - rng.integers(0, disorder + 1, n)
    columns = rng.integers(0, keys, n), at, rng.integers(-1000, 1000, n)
    return [tuple(c[i : i + of] for c in columns) for i in range(0, n, of)]  # type: ignore[misc]


def questions(rng: np.random.Generator, known: Known, keys: int, n: int, *, since: int) -> tuple[Any, ...]:
    """Intervals that walk forward, and some that jump, are empty, or are of no key."""
    newest = int(known.times.max())
    key = rng.integers(0, keys + 1, n)
    low = np.maximum(since, np.sort(rng.integers(since, newest + 5, n)))
    width = np.where(rng.random(n) < 0.8, 200, rng.integers(-5, newest + 5 - since, n))
    return key, low, low + width


def check(index: TimeTravelIndex, known: Known, asked: tuple[Any, ...], **how: Any) -> None:
    first, last, begin = known.ranges(*asked)
    if how.get("prevailing"):
        first = [max(a - 1, b) for a, b in zip(first, begin)]
    assert [c.to_pylist() for c in index.answers(*asked, **how)] == known.answers(first, last)


def insert(index: TimeTravelIndex, known: Known, batch: tuple[Any, ...]) -> None:
    keys, times, values = batch
    index.insert(keys, times, [pa.array(values)] if index.arguments else [])
    known.add(*batch)


@pytest.mark.parametrize("fold", ["incremental", *later("tree", "rows")])
@pytest.mark.parametrize(
    ("keys", "disorder"), [(1, 0), (1, 40), (1, 4000), (7, 300), (40, 4000), (3000, 2000)]
)
def test_rows_in_any_order(keys: int, disorder: int, fold: str) -> None:
    rng = np.random.default_rng(keys + disorder)
    index, known = TimeTravelIndex(small_layout(), fold=fold), Known()
    for j, batch in enumerate(batches(rng, 12_000, keys, disorder, of=700)):
        insert(index, known, batch)
        if j % 4 == 1:
            asked = questions(rng, known, keys, 100, since=-disorder)
            check(index, known, asked)
            check(index, known, asked, prevailing=True)
    assert index.rows == 12_000
    keys_of, low, high = questions(rng, known, keys, 40, since=0)
    offsets, places = index.rows_in(keys_of, low, high)
    first, last, _ = known.ranges(keys_of, low, high)
    assert np.diff(offsets).tolist() == [b - a for a, b in zip(first, last)]
    assert len(places) == offsets[-1]


@pytest.mark.parametrize("disorder", [0, 30, 3000])
def test_memory_is_used_again(disorder: int) -> None:
    rng = np.random.default_rng(disorder)
    index, known, held = TimeTravelIndex(small_layout()), Known(), []
    for j, batch in enumerate(batches(rng, 60_000, 5, disorder, of=500)):
        insert(index, known, batch)
        below = int(batch[1].max()) - 1200 - 2 * disorder
        index.expire(below)
        if j % 9 == 0:
            check(index, known, questions(rng, known, 5, 60, since=below))
        held.append(index.size())
    live = int((known.times >= below).sum())
    assert index.rows <= live + 5 * 2 * 32
    assert held[-1][1] <= 1.5 * held[len(held) // 3 + 10][1]
    index.expire(1 << 60)
    assert index.rows == 0
    later_batch = (np.array([2, 2]), np.array([70_000, 69_000]), np.array([1, 2]))
    insert(index, Known(), later_batch)
    assert index.answer(2, 0, 1 << 50) == (2, 3, 1, 2)


def test_keys_of_few_rows_take_little_memory() -> None:
    index = TimeTravelIndex(small_layout())
    n = 20_000
    index.insert(np.arange(n), np.arange(n), [pa.array(np.arange(n))])
    assert index.size()[1] < 600 * n
    assert index.answer(77, 0, 100) == (1, 77, 77, 77)


@pytest.mark.parametrize("most", [1, 3, 50])
def test_the_nearest_of_many(most: int) -> None:
    rng = np.random.default_rng(most)
    index, known = TimeTravelIndex(small_layout()), Known()
    for batch in batches(rng, 6000, 3, 500, of=900):
        insert(index, known, batch)
    key, low, high = questions(rng, known, 3, 60, since=0)
    at = (low + high) // 2
    first, last, _ = known.ranges(key, low, high)
    for i in range(len(key)):
        a, b = first[i], last[i]
        while b - a > most:
            if known.times[b - 1] > at[i] and at[i] - known.times[a] <= known.times[b - 1] - at[i]:
                b -= 1
            else:  # of rows of one time that are not after the instant, the last ones stay
                a += 1
        first[i], last[i] = a, b
    found = [c.to_pylist() for c in index.answers(key, low, high, max_rows=most, at=at)]
    assert found == known.answers(first, last)


def test_growing_while_released_memory_waits() -> None:
    """Small leaves need room, too, when all that is ready to be used again are full ones."""
    rng = np.random.default_rng(9)
    index, known, kept = TimeTravelIndex(small_layout()), Known(), 3000
    all_batches = batches(rng, 200_000, 100, 3000, of=5000)
    for batch in all_batches:
        index.insert(batch[0], batch[1], [pa.array(batch[2])])
        index.expire(int(batch[1].max()) - kept)
        kept += 3000
    known.add(*map(np.concatenate, zip(*all_batches)))
    check(index, known, questions(rng, known, 100, 100, since=int(known.times.max()) - 10_000))


steps = st.tuples(st.integers(1, 300), st.sampled_from([0, 5, 60, 2000]), st.sampled_from([None, 0, 2]))


@examples(25, of=400)
@given(st.lists(steps, max_size=14), st.integers(1, 4), st.integers(0, 1 << 32), st.booleans())
def test_rows_are_in_order_of_time_ties_and_arrival(
    steps: list[tuple[int, int, int | None]], keys: int, seed: int, by_ties: bool
) -> None:
    rng = np.random.default_rng(seed)
    index, now, below = TimeTravelIndex(small_layout(), ties=int(by_ties)), 0, -(1 << 40)
    known = np.empty((4, 0), dtype=np.int64)  # key, time, tie, place
    for n, disorder, expires in steps:
        now += n
        place = known.shape[1] + np.arange(n)
        late = rng.integers(0, disorder + 1, n)
        times = now - rng.integers(0, n, n) - late
        batch = np.array([rng.integers(0, keys, n), times, rng.integers(0, 3, n), place])
        batch[2] *= by_ties
        index.insert(batch[0], batch[1], [pa.array(place)], places=place, ties=[batch[2]] * by_ties)
        known = np.concatenate((known, batch), axis=1)
        if expires is not None:
            below = max(below, now - 400)
            index.expire(below, spare=expires)
    known = known[:, np.lexsort((known[3], known[2], known[1], known[0]))]
    low = rng.integers(max(below, -2500), now + 2, 30)
    key, high = rng.integers(0, keys, 30), low + rng.integers(-3, 900, 30)
    offsets, places = index.rows_in(key, low, high)
    sums = index.answers(key, low, high)[1].to_pylist()
    for i in range(30):
        own = (known[0] == key[i]) & (known[1] >= low[i]) & (known[1] <= high[i])
        assert places[offsets[i] : offsets[i + 1]].tolist() == known[3][own].tolist()
        assert sums[i] == (int(known[3][own].sum()) if own.any() else None)
    if 0 not in {expires for _, _, expires in steps} and below > -(1 << 40):
        none = np.full(keys, below), np.full(keys, below - 1)
        _, places = index.rows_in(np.arange(keys), *none, prevailing=True)
        before = [known[3][(known[0] == k) & (known[1] < below)] for k in range(keys)]
        assert places.tolist() == [int(rows[-1]) for rows in before if len(rows)]
