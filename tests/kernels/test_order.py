"""Radix orders against Python's sort."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.kernels.order import float_key, order_by

narrow = st.integers(-4, 4)
wide = st.integers(-(1 << 63), (1 << 63) - 1)


@given(st.lists(st.tuples(narrow, st.one_of(narrow, wide)), max_size=40))
def test_order_by_is_stable_and_lexicographic(rows: list[tuple[int, int]]) -> None:
    a = np.asarray([r[0] for r in rows], dtype=np.int64)
    b = np.asarray([r[1] for r in rows], dtype=np.int64)
    expected = sorted(range(len(rows)), key=lambda i: rows[i])
    assert order_by(a, b).tolist() == expected


def test_order_by_of_keys_that_make_one_dense_number() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.integers(-50, 50, 30_000), rng.integers(7_000_000, 7_000_300, 30_000)
    c = rng.integers(-(1 << 62), 1 << 62, 30_000)
    assert (order_by(a, b) == np.lexsort((b, a))).all()
    assert (order_by(a, b, c) == np.lexsort((c, b, a))).all()


def test_order_by_of_many_bits_takes_several_passes() -> None:
    keys = np.random.default_rng(3).integers(0, 1 << 40, 10_000)
    assert (keys[order_by(keys)] == np.sort(keys)).all()


@given(st.lists(st.floats(), min_size=1, max_size=30))
def test_float_key_is_the_one_order_of_floats(values: list[float]) -> None:
    keys = float_key(np.asarray(values)).tolist()
    for x, k in zip(values, keys):
        for y, j in zip(values, keys):
            if math.isnan(x) or math.isnan(y):
                assert (k < j) == (math.isnan(y) and not math.isnan(x))
            else:
                assert (k < j) == (x < y)


@pytest.mark.parametrize("bits", [30, 50, 58, 61, 63, 64])
@pytest.mark.parametrize("equal", [1, 3, 200])
def test_order_by_of_keys_that_differ_in_their_last_bits(bits: int, equal: int) -> None:
    rng = np.random.default_rng(bits)
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    keys = rng.integers(low, high, 3_000 // equal, endpoint=True)
    keys = np.concatenate([keys + np.minimum(i, high - keys) for i in range(equal)])
    rng.shuffle(keys)
    assert (order_by(keys) == np.argsort(keys, kind="stable")).all()
    second = rng.integers(0, 3, len(keys))
    assert (order_by(second, keys) == np.lexsort((keys, second))).all()
