"""Merged wheels agree with the definition: in any order and grouping, nothing twice."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.wheels import KEYS, check_ranges, pair, separately, steps
from tidemill.core.errors import UserError
from tidemill.wheels.open_wheel import open_wheel


@pytest.mark.parametrize("keys", KEYS)
@given(
    rings=st.sampled_from(["dropped", "kept", "some kept"]),
    scripts=st.lists(steps, min_size=3, max_size=3),
    starts=st.lists(st.integers(-30, 30), min_size=3, max_size=3),
    pick=st.randoms(use_true_random=False), prefix=st.booleans(),
)  # fmt: skip
@settings(max_examples=10)
def test_merged_wheels_are_one_in_any_order_and_grouping(
    rings: str, keys: str, scripts: list[Any], starts: list[int], pick: random.Random, prefix: bool
) -> None:
    wheels, whole = separately(rings, "sum", keys, scripts, starts, prefix=prefix)
    order = pick.sample(wheels, 3)
    if pick.random() < 0.5:
        assert order[1].merge(order[2])
        assert order[0].merge(order[1])
    else:
        assert order[0].merge(order[1])
        assert order[0].merge(order[2])
    assert not order[0].merge(order[2])  # again: nothing happens
    assert order[0].watermark == whole.watermark
    check_ranges(order[0], whole, pick)


def test_two_that_go_on_from_one_save_are_not_taken_for_one(tmp_path: Path) -> None:
    wheel, _ = pair("kept", "sum", "no keys", 0)
    wheel.save(tmp_path)
    one, other = open_wheel(tmp_path), open_wheel(tmp_path)
    assert one.id == other.id == wheel.id
    for w, v in ((one, 10), (other, 100)):
        w.insert(5, {"v": v})
    with pytest.raises(UserError, match="nothing was merged before"):
        one.merge(other)


def test_windows_of_a_merged_wheel_are_of_all_its_rows() -> None:
    (a, b), _ = separately("kept", "sum", "no keys", [[], []], [0, 0])
    assert a.merge(b)
    a.window(5)
    a.insert(3, {"v": 4})
    assert a.advance_to(5).to_pylist() == [{"window_start": 0, "window_end": 5, "a": 4}]


def test_a_part_that_changed_since_it_was_merged_is_refused() -> None:
    (a, b), _ = separately("kept", "sum", "no keys", [[], []], [0, 0])
    assert a.merge(b)
    b.insert(3, {"v": 1})
    with pytest.raises(UserError, match="nothing was merged before"):
        a.merge(b)


def test_rows_that_wait_count_as_a_change_since_a_merge() -> None:
    (a, b), _ = separately("kept", "sum", "no keys", [[], []], [0, 0])
    assert a.merge(b)
    b.insert(500, {"v": 1})  # far ahead
    with pytest.raises(UserError, match="nothing was merged before"):
        a.merge(b)


@pytest.mark.parametrize("keys", ["no keys", "one"])
def test_a_merge_that_overflows_leaves_the_wheel_as_it_was(keys: str) -> None:
    (a, b, c), _ = separately("kept", "sum", keys, [[], [], []], [0, 0, 0])
    most = {"t": 3, "k": 1, "s": None, "v": (1 << 63) - 1, "x": None}
    for wheel in (a, b):
        wheel.insert([most])
    b.advance_to(20)
    before = a.stats()
    with pytest.raises(UserError, match="overflow"):
        a.merge(b)
    assert a.watermark == 0 and a.stats() == before
    c.advance_to(20)
    a.insert([{**most, "v": -1}])  # in a slot that would be closed
    assert a.merge(c) and a.watermark == 20
    found = a.query(3, 4, 1) if a._view.keyed else a.query(3, 4)
    assert found == (1 << 63) - 2 and a.stats()["left out"]["late"] == 0
