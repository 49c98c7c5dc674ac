"""Overlaps of intervals by key, on arrays small enough to read."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.examples import TIMES
from tidemill.kernels.overlaps import (
    entered_and_left,
    merged_edges,
    resolve_absence,
    resolve_presence,
    spelled_out,
    starting_within,
)

NEVER = 99


def ints(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


def pairs(one: Sequence[tuple[int, int, int]], other: Sequence[tuple[int, int, int]], later: int) -> set[Any]:
    """Places of pairs in which the second starts within the first."""
    keys, starts, ends = (ints(*(row[at] for row in one)) for at in range(3))
    other_keys, other_starts = (ints(*(row[at] for row in other)) for at in range(2))
    low, high = ints(*[0] * len(one)), ints(*[0] * len(one))
    total = starting_within(keys, starts, ends, other_keys, other_starts, later, low, high)
    own, others = np.zeros(total, np.int64), np.zeros(total, np.int64)
    spelled_out(low, high, 0, len(one), own, others)
    return set(zip(own.tolist(), others.tolist()))


def test_pairs_where_one_starts_within_another() -> None:
    one = [(1, 0, 5), (1, 3, 4), (2, 0, 9)]
    other = [(1, 0, 1), (1, 3, 9), (1, 5, 6), (3, 1, 2)]
    assert pairs(one, other, 0) == {(0, 0), (0, 1), (1, 1)}
    assert pairs(one, other, 1) == {(0, 1)}  # those that start together are left out
    assert pairs([], other, 0) == pairs(one, [], 0) == set()


def test_each_overlap_is_found_once() -> None:
    pick = random.Random(3)
    for _ in range(60 * TIMES):
        one, other = (
            sorted(
                (pick.randint(0, 2), t, t + pick.randint(1, 9))
                for t in (pick.randint(0, 30) for _ in range(pick.randint(0, 25)))
            )
            for _ in range(2)
        )
        first, second = pairs(one, other, 0), {(i, j) for j, i in pairs(other, one, 1)}
        assert not first & second
        assert first | second == {
            (i, j)
            for i, (k, start, end) in enumerate(one)
            for j, (key, begin, until) in enumerate(other)
            if k == key and start < until and begin < end
        }


def test_pairs_of_some_rows() -> None:
    own, other = ints(0, 0, 0), ints(0, 0, 0)
    spelled_out(ints(0, 1, 7), ints(2, 1, 8), 0, 3, own, other)
    assert own.tolist() == [0, 0, 2] and other.tolist() == [0, 1, 7]
    spelled_out(ints(0, 1, 7), ints(2, 1, 8), 2, 3, own, other)
    assert own.tolist() == [2, 0, 2] and other.tolist() == [7, 1, 7]


def test_what_matches_leave() -> None:
    free, out = ints(0, 5), [ints(*[0] * 9) for _ in range(3)]
    # Row 0 holds in [0, 10) and is matched in [2, 4) and [3, 6); row 1 holds from 5 on, for ever.
    n = resolve_absence(ints(0, 0), ints(2, 3), ints(4, 6), 8, ints(0, 1), ints(10, NEVER), free, *out)
    assert list(zip(*(a[:n].tolist() for a in out))) == [(0, 0, 2)]
    assert free.tolist() == [6, 5]  # the rest may be matched by rows to come
    nothing = ints()
    n = resolve_absence(nothing, nothing, nothing, NEVER, ints(0, 1), ints(10, NEVER), free, *out)
    assert list(zip(*(a[:n].tolist() for a in out))) == [(0, 6, 10), (1, 5, NEVER)]


def test_rows_may_be_in_any_order() -> None:
    free, out = ints(5, 0), [ints(*[0] * 9) for _ in range(3)]
    n = resolve_absence(ints(1, 0), ints(2, 6), ints(4, 7), 20, ints(1, 0), ints(8, 10), free, *out)
    assert list(zip(*(a[:n].tolist() for a in out))) == [(1, 0, 2), (1, 4, 10), (0, 5, 6), (0, 7, 8)]


def test_what_matches_cover() -> None:
    since, until, out = ints(-1, -1), ints(-1, -1), [ints(*[0] * 9) for _ in range(3)]
    row, start, end = ints(0, 0, 0, 1), ints(1, 2, 6, 0), ints(3, 4, 9, 20)
    n = resolve_presence(row, start, end, 8, ints(0, 1), ints(10, 7), since, until, -1, *out)
    assert list(zip(*(a[:n].tolist() for a in out))) == [(0, 1, 4), (1, 0, 7)]
    assert (since[0], until[0]) == (6, 9)  # it may go on
    nothing = ints()
    n = resolve_presence(nothing, nothing, nothing, 10, ints(0, 1), ints(10, 7), since, until, -1, *out)
    assert list(zip(*(a[:n].tolist() for a in out))) == [(0, 6, 9)]


def test_how_many_have_started_and_ended() -> None:
    enter, leave = ints(0, 0, 0, 0), ints(0, 0, 0, 0)
    keys, at = ints(1, 1, 1, 2), ints(0, 3, 5, 3)
    entered_and_left(keys, at, ints(1, 1, 2), ints(0, 3, 1), ints(1, 1, 2), ints(3, 5, 3), enter, leave)
    assert enter.tolist() == [1, 2, 2, 3] and leave.tolist() == [0, 1, 2, 3]


def test_edges_are_merged_and_each_comes_once() -> None:
    out = ints(0, 0, 0, 0, 0, 0), ints(0, 0, 0, 0, 0, 0)
    n = merged_edges(ints(1, 1, 2), ints(0, 3, 1), ints(1, 1, 2), ints(3, 5, 3), *out)
    assert list(zip(*(a[:n].tolist() for a in out))) == [(1, 0), (1, 3), (1, 5), (2, 1), (2, 3)]
