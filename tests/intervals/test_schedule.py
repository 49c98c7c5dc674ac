"""The balanced schedule, virtual teams, and the examples of paper 004 (V-B, V-C)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import later
from tests.intervals.test_blocks import Known, batches, insert, questions, small_layout
from tidemill.intervals.index import TimeTravelIndex
from tidemill.intervals.loops.divide import divide
from tidemill.intervals.schedule import Schedule, Statistics, balanced
from tidemill.intervals.team import Team, TeamIndex

Ints = np.ndarray[Any, np.dtype[np.int64]]
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
    statistics.add(np.array([4, 1, 0, 0]))
    statistics.decay()
    statistics.add(np.array([0, 0, 1, 0]))
    assert statistics.loads.tolist() == [2, 0.5, 1, 0]


@pytest.mark.compiled
def test_figure_12_base_rows_of_a_key_see_all_its_rows_whichever_joiner_answers() -> None:
    """Two joiners share the key, and each answers half of its base rows."""
    team = Team(2, few=1)
    team._follow(team.schedule.shared(0, 1))
    index = TeamIndex(small_layout(), team)
    rows = [(1, 1), (2, 20), (3, 300), (4, 4000)]  # r1 to r4: the time and the value of each
    times, values = (np.array(column) for column in zip(*rows))
    index.insert(np.zeros(4, dtype=np.int64), times, [pa.array(values)])
    found = index.answers(np.zeros(2, dtype=np.int64), np.array([1, 2]), np.array([3, 4]))
    assert [column.to_pylist() for column in found] == [[3, 3], [321, 4320], [1, 20], [300, 4000]]
    team.close()


@given(
    st.lists(st.integers(-1, 40), min_size=1, max_size=60),
    st.lists(st.sets(st.integers(0, 2), min_size=1), min_size=1, max_size=8),
)
def test_each_joiner_of_a_team_gets_its_part(keys: list[int], teams: list[set[int]]) -> None:
    """A partition's intervals are in runs of about one length, in the order of key."""
    own = np.array(keys)
    order = np.argsort(own, kind="stable")
    padded = np.array([[*team, *[min(team)] * (3 - len(team))] for team in teams])
    sizes, loads = np.array([len(team) for team in teams]), np.zeros(len(teams), dtype=np.int64)
    found, first = divide(order, own, padded, sizes, 3, loads)
    assert sorted(found.tolist()) == list(range(len(keys)))
    partition = np.maximum(own, 0) % len(teams)
    assert loads.tolist() == np.bincount(partition, minlength=len(teams)).tolist()
    place = np.empty(len(keys), dtype=np.int64)
    place[order] = np.arange(len(keys))
    counts = np.zeros((3, len(teams)), dtype=np.int64)
    for joiner in range(3):
        part = found[first[joiner] : first[joiner + 1]]
        assert (np.diff(place[part]) > 0).all()
        np.add.at(counts[joiner], partition[part], 1)
    for p, team in enumerate(teams):
        shares = counts[sorted(team), p]
        assert shares.sum() == loads[p]
        assert shares.max() - shares.min() <= 1


def test_a_joiner_without_a_free_thread_is_the_caller() -> None:
    """A pool may be busy for long, or even wait for this call."""
    done: list[tuple[str, list[int]]] = []

    def fold(own: Ints) -> None:
        done.append((threading.current_thread().name, own.tolist()))

    with ThreadPoolExecutor(1) as pool:
        team = Team(2, few=1, balance=False, pool=pool)
        pool.submit(team.work, np.array([0, 1]), np.array([0, 1]), fold).result(timeout=60)
    assert len({name for name, _ in done}) == 1
    assert [part for _, part in done] == [[0], [1]]


@pytest.mark.parametrize("failing", [0, 1])
def test_what_fails_on_a_thread_fails_for_the_caller_when_nobody_reads_any_more(failing: int) -> None:
    team, begun, ended = Team(2, few=1, balance=False), threading.Barrier(2, timeout=60), []

    def fold(own: Ints) -> None:
        begun.wait()
        if own[0] == failing:
            raise ValueError("of a joiner")
        ended.append(own)

    with pytest.raises(ValueError, match="of a joiner"):
        team.work(np.array([0, 1]), np.array([0, 1]), fold)
    assert [part.tolist() for part in ended] == [[1 - failing]]
    team.close()


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
    known, team = Known(), Team(joiners, few=50, balance=balance, replan=200)
    index = TeamIndex(small_layout(), team)
    for j, (keys, times, values) in enumerate(batches(rng, 12_000, 9, 300, of=600)):
        hot = np.where(rng.random(len(keys)) < 0.7, j // 7, keys)  # another key is hot now and then
        insert(index, known, (hot, times, values))
        index.expire(int(times.max()) - 2500)
        asked = questions(rng, known, 9, 80, since=int(times.max()) - 2500)
        first, last, _ = known.ranges(*asked)
        assert [c.to_pylist() for c in index.answers(*asked)] == known.answers(first, last)
    assert any(len(team) > 1 for team in team.schedule.teams) == (balance and joiners > 1)
    again = TeamIndex(small_layout(), Team(1, few=1))
    again.restore(index.snapshot())
    assert [c.to_pylist() for c in again.answers(*asked)] == known.answers(first, last)
    answer = index.answers(np.array([-1, 50]), np.array([0, 0]), np.array([9, 9]))
    assert [column.to_pylist() for column in answer] == [[0, 0], *[[None, None]] * 3]
    team.close()
