"""Sums, means and products of ints: an error exactly where a result is outside int64.

The order of rows, their batches, lanes and partials do not matter, on any engine.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import tidemill as tm
from tests.conformance.harness import (
    HASTE,
    by_reference,
    in_batches,
    locally,
    on_spark,
    same,
    split,
)
from tidemill import col
from tidemill.core.errors import UserError
from tidemill.stream import Stream

MOST, LEAST = (1 << 63) - 1, -(1 << 63)
S = tm.stream("s", time="t", schema={"t": "int64", "k": "int64", "v": "int64"})
BY_KEY = S.group_by("k")
QUERIES = {
    "tumbling": BY_KEY.window(tm.tumbling(8)).agg(s=tm.sum(col.v)),
    "hopping": BY_KEY.window(tm.hopping(6, every=2)).agg(s=tm.sum(col.v)),
    "landmark": BY_KEY.window(tm.landmark(every=4)).agg(s=tm.sum(col.v)),
    "mean": BY_KEY.window(tm.tumbling(8)).agg(m=tm.mean(col.v)),
    "product": BY_KEY.window(tm.hopping(6, every=2)).agg(p=tm.product(col.v)),
    "by category": S.window(tm.tumbling(8)).agg(s=tm.sum_by(col.v, col.k), m=tm.mean_by(col.v, col.k)),
}
EDGES = (MOST, MOST, LEAST, -MOST, 1, -1, 0, 1 << 62, -(1 << 62), 3_037_000_500, 2, -3)


FACTORS = (1, -1, 2, -3, 1, 1, 0, 1 << 62, 3_037_000_500, LEAST)


def rows_of(pick: random.Random, edges: tuple[int, ...], n: int = 12) -> list[dict[str, int]]:
    values = [pick.choice(edges) for _ in range(n)]
    keys = [pick.randint(0, 1) for _ in range(n)]
    if pick.random() < 0.7:  # what goes up comes down, so that many sums fit
        values[1::2] = [MOST if v == LEAST else -v for v in values[::2]]
        keys[1::2] = keys[::2]
    return [{"t": i, "k": k, "v": v} for i, (k, v) in enumerate(zip(keys, values))]


def told(run: Callable[[], Any]) -> Any:
    """The result, or that there is none."""
    try:
        return sorted(run(), key=repr)
    except UserError as failed:
        assert "overflow" in str(failed)
        return "overflow"


def check(query: Stream, rows: list[dict[str, int]], pick: random.Random, *others: Any) -> str:
    want = told(lambda: by_reference(query, rows))
    for turn in range(3):
        arrived = pick.sample(rows, len(rows))
        batches = split(arrived, pick)
        in_parts = partial(in_batches, query, batches, promises=bool(turn % 2), speed=list(HASTE)[turn])
        whole = [partial(run, query, arrived) for run in (by_reference, locally, *others)]
        for way in (in_parts, *whole):
            got = told(way)
            agrees = got == want if "overflow" in (got, want) else all(map(same, got, want))
            assert agrees, f"{query.plan}\n{arrived}\n{got}\n{want}"
    return "fails" if want == "overflow" else "fits"


@pytest.mark.parametrize("name", QUERIES)
def test_whether_an_int_overflows_does_not_depend_on_the_order_of_arrival(name: str) -> None:
    pick = random.Random(name)
    edges = FACTORS if name == "product" else EDGES
    found = {check(QUERIES[name], rows_of(pick, edges), pick) for _ in range(12)}
    assert found == ({"fits"} if name == "mean" else {"fits", "fails"})


@pytest.mark.parametrize("name", ["hopping", pytest.param("product", marks=pytest.mark.soak)])
def test_nor_on_spark(spark: Any, name: str) -> None:
    pick = random.Random(name)

    def run(query: Stream, rows: list[dict[str, int]]) -> Any:
        try:
            return on_spark(spark, query, rows)
        except Exception as failed:
            if "overflow" not in str(failed).lower():
                raise
            raise UserError("spark", "overflow") from failed

    up_and_down = [{"t": i, "k": 0, "v": v} for i, v in enumerate((MOST, MOST, -MOST, -MOST, LEAST, 0))]
    assert check(QUERIES["tumbling"], up_and_down[:3], pick, run) == "fits"
    check(QUERIES[name], up_and_down, pick, run)


def test_every_order_of_a_few_extreme_values() -> None:
    query = S.window(tm.tumbling(8)).agg(s=tm.sum(col.v), p=tm.product(col.v))
    for values in ((MOST, 1, -1, 0), (LEAST, -1, 1, 0), (1 << 62, -2, 1, 1), (1 << 62, 2, 0, -MOST)):
        want = {"window_start": 0, "window_end": 8, "s": sum(values), "p": math.prod(values)}
        for order in itertools.permutations(values):
            rows = [{"t": i, "k": 0, "v": v} for i, v in enumerate(order)]
            assert locally(query, rows) == [want]


def test_a_wheel_takes_rows_of_one_insert_in_any_order() -> None:
    for order in itertools.permutations((MOST, 5, -7, LEAST, MOST)):
        wheel = tm.Wheel(tm.sum(col.v), schema={"t": "int64", "v": "int64"}, time="t", start=0,
                         granularities=[(4, "keep"), (8, "keep")])  # fmt: skip
        wheel.insert([{"t": i % 2, "v": v} for i, v in enumerate(order)])
        wheel.insert([{"t": 9, "v": MOST}, {"t": 13, "v": MOST}])
        wheel.advance_to(12)
        assert wheel.query(0, 4) == sum(order)


def test_a_wheel_refuses_a_slot_that_does_not_fit_and_a_range_only_where_its_sum_does_not() -> None:
    wheel = tm.Wheel(tm.sum(col.v), schema={"t": "int64", "v": "int64"}, time="t", start=0,
                     granularities=[(4, "keep")])  # fmt: skip
    wheel.insert([{"t": 1, "v": MOST}, {"t": 5, "v": MOST}, {"t": 9, "v": -MOST}])
    wheel.advance_to(12)
    assert wheel.query(0, 12) == MOST
    assert wheel.query(4, 12) == 0
    with pytest.raises(UserError, match="overflow"):
        wheel.query(0, 8)
    with pytest.raises(UserError, match="overflow"):
        wheel.insert([{"t": 13, "v": MOST}, {"t": 14, "v": 1}])

