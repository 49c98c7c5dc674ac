"""The balanced schedule, virtual teams, and the examples of paper 004 (V-B, V-C)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import later
from tests.intervals.test_blocks import Known, batches, insert, questions, small_layout
from tidemill.intervals.index import TimeTravelIndex
from tidemill.intervals.schedule import Schedule, Statistics, balanced
from tidemill.intervals.team import TeamIndex

loads_of = st.lists(st.integers(0, 1000), min_size=1, max_size=40).map(lambda x: np.array(x, dtype=float))


@given(loads_of, st.integers(1, 6))
def test_algorithm_3_only_shares_and_never_makes_it_worse(loads: np.ndarray, joiners: int) -> None:  # type: ignore[type-arg]
    static = Schedule.by_key(len(loads), joiners)
    found = balanced(static, loads)
    assert found.unbalancedness(loads) <= static.unbalancedness(loads)
    for before, after in zip(static.teams, found.teams):
        assert after[: len(before)] == before  # who had it keeps it
        assert len(set(after)) == len(after)
    assert found.workloads(loads).sum() == pytest.approx(loads.sum())
    assert balanced(found, loads) == found


def test_one_hot_key_is_shared_by_all() -> None:
    loads = np.zeros(16)
    loads[3] = 100
    found = balanced(Schedule.by_key(16, joiners=4), loads)
    assert sorted(found.teams[3]) == [0, 1, 2, 3]
    assert found.unbalancedness(loads) == 0
    assert all(len(team) == 1 for p, team in enumerate(found.teams) if p != 3)


def test_statistics_follow_what_is_hot() -> None:
    statistics = Statistics(4, kept=0.5)
    statistics.add(np.array([0, 0, 0, 0, 1]))
    statistics.decay()
    statistics.add(np.array([2]))
    assert statistics.loads.tolist() == [2, 0.5, 1, 0]


def team_of_two(fold: str = "incremental") -> TeamIndex:
    """Two joiners that share every key."""
    index = TeamIndex(small_layout(), joiners=2, fold=fold)
    for partition in range(len(index.schedule.teams)):
        missing = 1 - index.schedule.teams[partition][0]
        index._follow(index.schedule.shared(partition, missing))
    return index


@pytest.mark.compiled
def test_figure_12_a_base_row_sees_the_probe_rows_of_its_team() -> None:
    """s4 comes to one joiner; r2 is in the index of the other one, r4 in its own."""
    with team_of_two() as index:
        rows = [(1, 1), (2, 20), (3, 300), (4, 4000)]  # r1 to r4: the time and the value of each
        times, values = (np.array(column) for column in zip(*rows))
        index.insert(np.zeros(4, dtype=np.int64), times, [pa.array(values)])
        assert [memory.rows for memory in index._memories] == [2, 2]
        found = index.answers(np.array([0]), np.array([2]), np.array([4]))
    assert [column.to_pylist() for column in found] == [[3], [4320], [20], [4000]]


@pytest.mark.compiled
@pytest.mark.parametrize("fold", ["incremental", *later("tree", "rows")])
def test_figure_15_incremental_window_aggregation(fold: str) -> None:
    """The aggregate of s4 is that of s3 without r1 and with r4; r2 and r3 are in both."""
    index = TimeTravelIndex(small_layout(), fold=fold)
    r = np.array([5, 70, 900, 2000])
    index.insert(np.zeros(4, dtype=np.int64), np.array([10, 20, 30, 40]), [pa.array(r)])
    s3, s4 = (10, 30), (20, 40)
    low, high = (np.array(ends) for ends in zip(s3, s4))
    n, total, least, most = (c.to_pylist() for c in index.answers(np.zeros(2, dtype=np.int64), low, high))
    assert total == [r[0] + r[1] + r[2], total[0] - r[0] + r[3]]
    assert (n, least, most) == ([3, 3], [5, 70], [900, 2000])


@pytest.mark.compiled
@pytest.mark.parametrize(("joiners", "balance"), [(1, True), (2, True), (3, True), *later((3, False))])
def test_a_team_answers_as_one(joiners: int, balance: bool) -> None:
    rng = np.random.default_rng(joiners)
    known = Known()
    with TeamIndex(small_layout(), joiners=joiners, balance=balance, replan=2000) as index:
        for j, (keys, times, values) in enumerate(batches(rng, 12_000, 9, 300, of=600)):
            hot = np.where(rng.random(len(keys)) < 0.7, j // 7, keys)  # another key is hot now and then
            insert(index, known, (hot, times, values))
            index.expire(int(times.max()) - 2500)
            asked = questions(rng, known, 9, 80, since=int(times.max()) - 2500)
            first, last, _ = known.ranges(*asked)
            assert [c.to_pylist() for c in index.answers(*asked)] == known.answers(first, last)
        assert any(len(team) > 1 for team in index.schedule.teams) == (balance and joiners > 1)
        again = TeamIndex(small_layout(), joiners=1)
        again.restore(index.snapshot())
        assert [c.to_pylist() for c in again.answers(*asked)] == known.answers(first, last)
        answer = index.answers(np.array([-1, 50]), np.array([0, 0]), np.array([9, 9]))
        assert [column.to_pylist() for column in answer] == [[0, 0], *[[None, None]] * 3]
