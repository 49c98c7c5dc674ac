"""The compiled form of each holistic aggregate against its definition on sorted rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.aggregates.holistic import DEFINITIONS
from tidemill.core.floats import order_key
from tidemill.kernels.holistic import _LOWER, lower

FLOATS = st.sampled_from([0.0, -0.0, 1.0, 1.5, -2.5, 7.0, math.nan, math.inf])
INTS = st.integers(-3, 3)
THERE = st.integers(0, 1)
CASES: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "quantile": ((FLOATS,), (0.3,)),
    "distinct_count": ((FLOATS,), ()),
    "entropy": ((INTS,), ()),
    "top_k": ((FLOATS,), (2,)),
    "bottom_k": ((INTS,), (3,)),
    "collect": ((INTS, FLOATS), ()),
    "first_k": ((INTS, FLOATS), (2,)),
    "last_k": ((INTS, INTS), (3,)),
    "count_by": ((FLOATS,), ()),
    "sum_by": ((INTS, INTS), ()),
    "mean_by": ((INTS, INTS), ()),
    "min_by": ((FLOATS, INTS), ()),
    "max_by": ((INTS, FLOATS), ()),
    "top_keys": ((INTS,), (2,)),
    "top_rows": ((THERE, FLOATS, THERE, INTS, THERE, FLOATS), (2, False, True, ("a", "b"))),
}


def test_every_aggregate_is_here() -> None:
    assert set(CASES) == set(DEFINITIONS) == set(_LOWER)


def plain(value: Any) -> Any:
    """Comparable: NaN as text, one zero, and floats to nine digits."""
    if isinstance(value, dict):
        return [plain(v) for v in value.values()]
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if value is None:
        return None
    if isinstance(value, float):
        return "nan" if math.isnan(value) else round(value + 0.0, 9)
    return int(value)


def usable(name: str, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The row as the aggregate gets it: what is not there is zero in the rows of `top_rows`."""
    if name != "top_rows":
        return row
    pairs = ((there, v if there else type(v)()) for there, v in zip(row[::2], row[1::2]))
    return tuple(v for pair in pairs for v in pair)


def windows_of(name: str, rows: list[tuple[Any, ...]], ranges: list[tuple[int, int]]) -> list[Any]:
    strategies, params = CASES[name]
    kinds = [np.float64 if s is FLOATS else np.int64 for s in strategies]
    columns = [np.asarray([r[j] for r in rows], dtype=kinds[j]) for j in range(len(kinds))]
    low, high = (np.asarray(side, dtype=np.int64) for side in zip(*ranges))
    found = lower(name, params, low, high, columns)
    assert found.err == 0
    if found.offsets is None:
        return [v.item() for v in found.data[0]]
    columns = [d.tolist() for d in found.data]
    if found.there is not None:
        columns = [[v if ok else None for v, ok in zip(*pair)] for pair in zip(columns, found.there)]
    items = list(zip(*columns))
    if len(found.data) == 1:
        items = [item for (item,) in items]
    return [items[a:b] for a, b in zip(found.offsets, found.offsets[1:])]


@pytest.mark.parametrize("name", CASES)
@given(data=st.data())
@settings(max_examples=40)
def test_against_the_definition(name: str, data: st.DataObject) -> None:
    strategies, params = CASES[name]
    rows = [usable(name, r) for r in data.draw(st.lists(st.tuples(*strategies), min_size=1, max_size=20))]
    cuts = st.tuples(st.integers(0, len(rows) - 1), st.integers(1, len(rows)))
    ranges = [(a, max(a + 1, b)) for a, b in data.draw(st.lists(cuts, min_size=1, max_size=4))]
    got = windows_of(name, rows, ranges)
    for (a, b), value in zip(ranges, got):
        ordered = sorted(rows[a:b], key=lambda row: tuple(order_key(v) for v in row))
        assert plain(value) == plain(DEFINITIONS[name][0](ordered, *params))


@pytest.mark.parametrize("name", CASES)
def test_an_empty_window_takes_nothing(name: str) -> None:
    row = (1,) * len(CASES[name][0])
    got = windows_of(name, [row, row], [(1, 1), (0, 2)])
    assert got[0] in (0, 0.0, [])
    assert plain(got[1]) == plain(DEFINITIONS[name][0]([row, row], *CASES[name][1]))


LONG = {
    "random": lambda draw, n: draw.random(n),
    "rising": lambda draw, n: np.arange(n) * 1.0,
    "falling": lambda draw, n: -np.arange(n) * 1.0,
    "the same": lambda draw, n: np.full(n, 2.5),
    "few values": lambda draw, n: draw.integers(0, 3, n) * 1.0,
    "far away": lambda draw, n: draw.standard_cauchy(n),
    "infinite and NaN": lambda draw, n: draw.choice([-math.inf, 0.0, 1.0, math.inf, math.nan], n),
    # Every place that a sample of 64 looks at.
    "misleading": lambda draw, n: np.where(np.arange(n) % (n // 64) == 0, 1e6, draw.random(n)),
}


@pytest.mark.parametrize("q", [0.0, 0.01, 0.5, 0.503, 0.9, 1.0])
@pytest.mark.parametrize("shape", LONG)
def test_quantiles_of_long_windows(shape: str, q: float) -> None:
    draw = np.random.default_rng(1)
    sizes = [0, 255, 256, 257, 1000, 5003]
    x = np.concatenate([LONG[shape](draw, n) for n in sizes])
    ends = np.cumsum(sizes)
    found = lower("quantile", (q,), ends - sizes, ends, [x])
    for at, (end, n) in enumerate(zip(ends, sizes)):
        rows = [(v,) for v in sorted(x[end - n : end].tolist(), key=order_key)]
        if n:
            expected = DEFINITIONS["quantile"][0](rows, q)
            assert plain(float(found.data[0][at])) == plain(expected)
