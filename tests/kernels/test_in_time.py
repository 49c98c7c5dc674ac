"""Rows of keys followed in order of time, against a look at all rows."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from tests.examples import TIMES
from tidemill.kernels.in_time import joined_by_key, meet_parts, next_starts, session_ends
from tidemill.kernels.meeting import BEGIN, both_in_order, chain_slots, chain_up, meet
from tidemill.kernels.order import ordered

NEVER = 99
Rows = list[tuple[int, int, int]]


def ints(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


def random_rows(pick: random.Random, below: int = -1) -> tuple[Rows, Any, Any, Any]:
    """Rows, of which some match nothing: key, start, end; and the same as arrays.

    Those that start below an instant come first.
    """
    starts = [pick.randint(0, 20) for _ in range(pick.randint(1, 15))]
    starts.sort(key=lambda t: t >= below)
    rows = [(pick.randint(-1, 2), t, t + pick.randint(1, 7)) for t in starts]
    return rows, *(ints(*(row[at] for row in rows)) for at in range(3))  # type: ignore[return-value]


def test_the_next_start() -> None:
    pick = random.Random(5)
    for _ in range(50 * TIMES):
        one, keys, starts, _ = random_rows(pick)
        other, other_keys, other_starts, _ = random_rows(pick)
        out = ints(*[0] * len(one))
        others = other_keys, other_starts, ordered(other_starts)
        next_starts(keys, starts, ordered(starts), *others, ints(0, 0, 0), NEVER, out)
        assert out.tolist() == [
            min([NEVER, *(start for k, start, _ in other if k == key >= 0 and start > t)])
            for key, t, _ in one
        ]


def test_sessions() -> None:
    keys, starts, out = ints(0, 1, 0, 0, 0), ints(0, 2, 4, -7, 9), ints(0, 0, 0, 0, 0)
    session_ends(keys, starts, ordered(starts), 5, ints(0, 0), ints(0, 0), out)
    assert out.tolist() == [9, 7, 9, -2, 14]  # a gap as long as that of sessions is one


def test_where_rows_meet_unions() -> None:
    pick = random.Random(6)
    for _ in range(50 * TIMES):
        one, *own = random_rows(pick)
        other, *others = random_rows(pick)
        parts, heads, tails = np.zeros((len(other), 3), np.int64), ints(0, 0, 0), ints(0, 0, 0)
        joined_by_key(*others, ordered(others[1]), parts, heads, tails)
        at, found, room = ints(0, -2), [], pick.randint(1, 4)
        while at[0] < len(one):
            out = [ints(*[0] * room) for _ in range(3)]
            n = meet_parts(*own, ordered(own[1]), parts, heads, at, *out)
            met = zip(*(a[:n].tolist() for a in out))
            found += [(i, t) for i, start, end in met for t in range(start, end)]
        assert sorted(found) == sorted(
            (i, t) for i, (key, start, end) in enumerate(one) for t in range(start, end)
            if any(k == key >= 0 and s <= t < e for k, s, e in other)
        )  # fmt: skip


def test_each_pair_that_holds_together_is_found_once() -> None:
    pick = random.Random(7)
    for _ in range(50 * TIMES):
        below = pick.randint(0, 20)  # rows that were kept start before all new ones
        sides = [random_rows(pick, below) for _ in range(2)]
        kept = [sum(t < below for _, t, _ in rows) for rows, *_ in sides]
        keys, starts, ends = (np.concatenate([side[i] for side in sides]) for i in (1, 2, 3))
        first = len(sides[0][0])
        slots = np.zeros(len(keys), np.int64)
        for side, part in enumerate((slice(0, first), slice(first, None))):
            chain_slots(keys[part], side, slots[part])
        nodes, heads = np.zeros((len(keys), 2), np.int64), ints(*[-1] * 6)
        chain_up(slots, ends, 0, kept[0], nodes, heads)
        chain_up(slots, ends, first, kept[1], nodes, heads)
        news = [ordered(starts[count:], count) for (_, _, starts, _), count in zip(sides, kept)]
        order = np.zeros(sum(map(len, news)), np.int64)
        both_in_order(starts, *news, first, order)
        at, found, room = ints(*BEGIN), [], pick.randint(1, 4)
        while True:
            out = [ints(*[0] * room) for _ in range(4)]
            n = meet(slots, starts, ends, order, first, nodes, heads, at, *out)
            found += list(zip(*(a[:n].tolist() for a in out)))
            if n < room:
                break
        (left, *_), (right, *_) = sides
        assert sorted(found) == sorted(
            (i, j, max(a[1], b[1]), min(a[2], b[2])) for i, a in enumerate(left) for j, b in enumerate(right)
            if a[0] == b[0] >= 0 and max(a[1], b[1]) < min(a[2], b[2]) and (i >= kept[0] or j >= kept[1])
        )  # fmt: skip
