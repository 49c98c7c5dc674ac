"""Which keys are divided by time, and where, on samples of rows without Spark."""

from __future__ import annotations

import numpy as np
import pytest

from tests.examples import TIMES
from tidemill.spark.batch.slice_choice import HotKey, Sample, Slices, SliceTuning, choose

TUNING = SliceTuning()


def side(keys: object, at: object, before: int = 0, each: float = 1.0) -> Sample:
    at = np.asarray(at, dtype=np.int64)
    return Sample(np.asarray(keys, dtype=np.int64), at, at, at + before, each)


def places(slices: Slices, key: HotKey, ticks: object) -> np.ndarray:
    found = key.first + np.searchsorted(key.bounds, ticks, side="right")
    return np.asarray(slices.places)[found]


def test_one_key_uses_all_tasks() -> None:
    at = np.arange(10_000)
    found = choose([side(np.zeros(10_000), at), side(np.zeros(10_000), at, 10)], 4, 4, TUNING)
    assert found is not None and found.tasks == 4 and found.places == (0, 1, 2, 3)
    [key] = found.hot
    assert key.hash == 0 and np.allclose(key.bounds, [2500, 5000, 7500], atol=2)
    assert found.largest < 5100 and found.undivided == 20_000 and 25 <= found.copied <= 35


def test_many_keys_are_not_divided() -> None:
    rng = np.random.default_rng(1)
    assert choose([side(rng.integers(0, 1 << 40, 20_000), rng.integers(0, 99, 20_000))], 4, 2, TUNING) is None


def test_nothing_is_divided_if_rows_belong_to_all_later_ones() -> None:
    at = np.arange(10_000)
    assert choose([side(np.zeros(10), at[:10]), side(np.zeros(10_000), at, 1 << 61)], 4, 4, TUNING) is None


def test_no_rows() -> None:
    assert choose([side([], []), side([], [])], 4, 2, TUNING) is None


def test_so_many_rows_that_they_need_more_tasks() -> None:
    at = np.arange(10_000)
    found = choose([side(np.zeros(10_000), at, each=1e4)], 4, 2, TUNING)
    assert found is not None and found.tasks == 48
    assert found.largest < 1.2 * TUNING.task_rows


@pytest.mark.parametrize("seed", range(6 * TIMES))
def test_a_task_has_one_stretch_of_a_key(seed: int) -> None:
    rng = np.random.default_rng(seed)
    keys = np.concatenate([np.full(n, k * 977 - 1500) for k, n in enumerate(rng.integers(1, 3000, 5))])
    keys = np.append(keys, rng.integers(0, 1 << 40, rng.integers(0, 4000)))
    at = rng.integers(0, rng.choice([3, 10_000]), len(keys))
    tasks = int(rng.integers(2, 9))
    found = choose([side(keys, at)], tasks, tasks, SliceTuning(gain=0.0))
    if found is None:
        return
    loads = np.zeros(found.tasks)
    for key in found.hot:
        own = np.arange(key.first, key.last + 1)
        assert len({found.places[place] for place in own}) == len(own)
        assert list(key.bounds) == sorted(key.bounds)
        loads += np.bincount(places(found, key, at[keys == key.hash]), minlength=found.tasks)
    hot = np.isin(keys, [key.hash for key in found.hot])
    loads += np.bincount(keys[~hot] % found.tasks, minlength=found.tasks)
    assert loads.max() == found.largest and loads.sum() == len(keys) == found.rows
