"""Compressed wheels agree with the definition, and with plain ones."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.wheels import RINGS, check_ranges, pair, play, separately, steps
from tests.examples import examples
from tidemill.wheels.open_wheel import open_wheel


@pytest.mark.parametrize(
    ("held", "keys"),
    [
        ("mean and more", "two"),
        pytest.param("sum", "no keys", marks=pytest.mark.soak),
        pytest.param("sum", "two", marks=pytest.mark.soak),
    ],
)
@given(
    rings=st.sampled_from(list(RINGS)), script=steps, more=steps, start=st.integers(-30, 30),
    pick=st.randoms(use_true_random=False), slots=st.integers(1, 5),
)  # fmt: skip
@examples(5, of=10)
def test_compressed_rings(
    rings: str, held: str, keys: str, script: list[Any], more: list[Any], start: int, pick: random.Random,
    slots: int,
) -> None:  # fmt: skip
    wheel, reference = pair(rings, held, keys, start, write_ahead=4, compress=slots)
    play(wheel, reference, script)
    with tempfile.TemporaryDirectory() as path:
        wheel.save(path)
        check_ranges(wheel, reference, pick)
        play(wheel, reference, more)
        wheel.save(path)  # only what is new
        check_ranges(wheel, reference, pick)
        again = open_wheel(path)
        assert again.stats() | {"bytes": 0} == wheel.stats() | {"bytes": 0}
        check_ranges(again, reference, pick)
        play(again, reference, script)
        check_ranges(again, reference, pick)


@pytest.mark.parametrize(
    ("held", "keys"), [("mean and more", "two"), pytest.param("sum", "no keys", marks=pytest.mark.compiled)]
)
@given(
    scripts=st.lists(steps, min_size=2, max_size=2), pick=st.randoms(use_true_random=False),
    starts=st.lists(st.integers(-30, 30), min_size=2, max_size=2),
)  # fmt: skip
@examples(5)
def test_compressed_wheels_are_merged(
    held: str, keys: str, scripts: list[Any], starts: list[int], pick: random.Random
) -> None:
    wheels, whole = separately("some kept", held, keys, scripts, starts, compress=2)
    assert wheels[0].merge(wheels[1])
    check_ranges(wheels[0], whole, pick)


def test_windows_of_a_compressed_wheel_whose_finest_ring_is_short() -> None:
    found = []
    for compress in (False, True):
        wheel, _ = pair("dropped", "sum", "no keys", 0, compress=compress)
        wheel.window(20, 10)
        closed = []
        for start in range(0, 600, 50):
            wheel.insert([{"t": start + t, "k": 0, "s": "a", "v": t, "x": None} for t in range(9)])
            closed += wheel.advance_to(start + 50).to_pylist()
        found.append(closed)
    assert found[0] == found[1] and len(found[0]) > 20


def test_a_compressed_wheel_without_rows_jumps_far() -> None:
    wheel, _ = pair("kept", "sum", "no keys", 0, compress=4)
    for far in (10_000, 200_000_000):
        wheel.advance_to(far)
    wheel.insert(200_000_003, {"v": 6})
    wheel.advance_to(200_010_000)
    assert wheel.landmark() == wheel.query(200_000_000, 200_000_005) == 6


@pytest.mark.compiled
def test_a_save_of_a_compressed_wheel_writes_only_what_is_new(tmp_path: Path) -> None:
    wheel, _ = pair("kept", "sum", "no keys", 0, compress=8)
    days = 40
    for day in range(days):
        ts = range(200 * day, 200 * (day + 1))
        wheel.insert([{"t": t, "k": 0, "s": "a", "v": t * t % 97, "x": None} for t in ts])
        wheel.advance_to(200 * (day + 1))
        before = {f.name for f in tmp_path.glob("cold*")}
        wheel.save(tmp_path)
        new = {f.name for f in tmp_path.glob("cold*")} - before
        assert len(new) == 1, "one piece for what is new, or one for all"
    assert len(list(tmp_path.glob("cold*"))) < days
    again = open_wheel(tmp_path)
    assert again.landmark() == wheel.landmark() and again.query(37, 6001) == wheel.query(37, 6001)
