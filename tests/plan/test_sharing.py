"""Equal sub-plans are one: found, shown once, and no longer to work with than they are to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tidemill as tm
from tidemill import col
from tidemill.plan.format import format_plan
from tidemill.plan.nodes import sources
from tidemill.plan.sharing import share, used_often

COLUMNS = {"t": "int64", "x": "int64"}
A, B = (tm.stream(name, time="t", schema=COLUMNS) for name in "ab")


def ten(aggregate: Any) -> tm.Stream:
    return A.window(tm.tumbling(10)).agg(r=aggregate)


FAMILIES: dict[str, Callable[[], Any]] = {
    "count": tm.count, "mean": lambda: tm.mean(col.x), "std": lambda: tm.std(col.x),
    "last": lambda: tm.last(col.x), "quantile": lambda: tm.quantile(col.x, 0.5),
    "collect": lambda: tm.collect(col.x), "ewma": lambda: tm.ewma(col.x.cast("float64"), half_life=3),
    "drawdown": lambda: tm.drawdown(col.x), "distinct_count": lambda: tm.distinct_count(col.x),
    "distinct_sketch": lambda: tm.distinct_sketch(col.x),
}  # fmt: skip


def test_a_plan_without_anything_shared_is_the_same_object() -> None:
    plan = A.where(col.x > 1).union(B).plan
    assert share(plan) is plan
    assert used_often(plan) == frozenset()


def test_equal_sub_plans_become_one() -> None:
    tens = [A.where(col.x > 1).window(tm.tumbling(10)).agg(n=tm.count()) for _ in range(2)]
    plan = share(tens[0].union(tens[1].where(col.n > 1)).plan)
    assert plan.schema == tens[0].schema
    assert [str(n) for n in plan.walk() if id(n) in used_often(plan)] == [str(tens[0].plan)]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (A.where(col.x > 1), A.where(col.x > 1.0)),
        (A, B),
        (ten(tm.sum(col.x)), ten(tm.product(col.x))),
        (ten(tm.quantile(col.x, 0.5)), ten(tm.quantile(col.x, 0.9))),
        (ten(tm.std(col.x)), ten(tm.std(col.x, ddof=0))),
        (ten(tm.sum(col.x)), ten(tm.sum(col.x + 1))),
    ],
)
def test_what_differs_stays_apart(left: tm.Stream, right: tm.Stream) -> None:
    one, other = share(left.union(right).plan).children()
    assert one is not other
    assert one.schema == left.schema and other.schema == right.schema


@pytest.mark.parametrize("name", FAMILIES)
def test_aggregates_of_one_meaning_are_equal(name: str) -> None:
    """Each is written twice: it has functions of its own each time."""
    one, other = share(ten(FAMILIES[name]()).union(ten(FAMILIES[name]())).plan).children()
    assert one is other


def test_a_shared_sub_plan_is_shown_once() -> None:
    tens = A.window(tm.tumbling(10)).agg(n=tm.count())
    assert format_plan(tens.union(tens.where(col.n > 1)).plan) == """
union of 2
  [1] aggregate n=count() over tumbling(10)
    source a time=t
  where (col.n > 1)
    [1] as above
""".strip("\n")


def test_a_union_of_unions_of_itself_takes_no_time() -> None:
    """It has 2**60 paths."""
    stream = A
    for _ in range(60):
        stream = stream.union(stream)
    assert len(format_plan(stream.plan).splitlines()) == 121
    assert len(list(stream.optimized.walk())) == 61
    assert [s.name for s in sources(stream.plan)] == ["a"]


def test_the_streams_of_a_plan_each_once() -> None:
    assert [s.name for s in sources(B.union(A, B.where(col.x > 1)).plan)] == ["b", "a"]
