"""The tree of partial sums that wheels are compared with, against adding everything up."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.wheels.tree import SumTree


def brute(held: dict[int, int], a: int, b: int) -> int | None:
    found = [v for k, v in held.items() if a <= k < b]
    return sum(found) if found else None


def check_shape(node: Any, spine: bool, arity: int) -> int:
    """Keys in order, sums as they are below, but for the last one on the right spine; how many keys."""
    assert node.keys == sorted(set(node.keys))
    assert len(node.keys) == len(node.sums) <= arity
    if node.children is None:
        return len(node.keys)
    count = 0
    for i, child in enumerate(node.children):
        assert child.parent is node and child.keys and node.keys[i] <= child.keys[0]
        if i + 1 < len(node.keys):
            assert child.keys[-1] < node.keys[i + 1]
        on_spine = spine and i == len(node.keys) - 1
        assert node.sums[i] == (0 if on_spine else sum(child.sums))
        count += check_shape(child, on_spine, arity)
    return count


actions = st.one_of(
    st.tuples(st.just("add"), st.integers(-20, 20), st.integers(-5, 5)),
    st.tuples(st.just("evict"), st.integers(0, 60), st.just(0)),
)


@pytest.mark.parametrize("arity", [4, 5, 8])
@given(script=st.lists(actions, max_size=150), pick=st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_sums_are_those_of_a_dict(arity: int, script: list[Any], pick: random.Random) -> None:
    tree, held, now, low = SumTree(arity), dict[int, int](), 0, -100
    for what, by, value in script:
        now += 2
        if what == "add":
            tree.add(now + by, value)
            held[now + by] = held.get(now + by, 0) + value
        else:
            low = now - by
            tree.evict(low)
            held = {k: v for k, v in held.items() if k >= low}
        assert check_shape(tree._root, True, arity) == len(held)
    for _ in range(20):
        a, b = sorted(pick.choices(range(-30, now + 30), k=2))
        assert tree.sum(a, b) == brute(held, a, b)


def test_many_keys_far_out_of_order() -> None:
    rng, tree, held = random.Random(7), SumTree(32), dict[int, int]()
    for i in range(20_000):
        key = i - rng.choice((0, 0, 3, 500, 9_000))
        tree.add(key, i)
        held[key] = held.get(key, 0) + i
        if i % 2_000 == 1_999:
            tree.evict(i - 9_500)
            held = {k: v for k, v in held.items() if k >= i - 9_500}
            for a, b in ((i - 9_500, i), (i - 4_000, i - 20), (i - 1, i + 1), (i, i)):
                assert tree.sum(a, b) == brute(held, a, b)
    assert check_shape(tree._root, True, 32) == len(held)


def test_what_is_empty_again_goes_on() -> None:
    tree = SumTree(4)
    for key in range(30):
        tree.add(key, 1)
    tree.evict(100)
    assert tree.sum(0, 100) is None
    tree.add(50, 2)
    assert tree.sum(0, 100) == 2
