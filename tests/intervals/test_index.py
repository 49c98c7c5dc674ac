"""The time-travel index against the definition of interval joins, whatever comes in whatever order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tests.examples import examples
from tidemill import col
from tidemill.core.errors import UnsupportedError
from tidemill.expr.nodes import Node
from tidemill.intervals.index import TimeTravelIndex
from tidemill.local.expressions import evaluate
from tidemill.plan.intervals import IntervalAggregate
from tidemill.reference.intervals import interval_join

PROBE = tm.stream(
    "probe", time="t", schema={"t": "int64", "k": "int64", "x": "int64", "y": "float64", "w": "string"},
)  # fmt: skip
BASE = tm.stream("base", time="t", schema={"t": "int64", "k": "int64", "back": "int64", "ahead": "int64"})
ALL = {
    "n": tm.count(), "xs": tm.count(col.x), "total": tm.sum(col.x), "mean": tm.mean(col.y),
    "low": tm.min(col.x), "high": tm.max(col.y), "last": tm.last(col.w), "first": tm.first(col.x),
    "best": tm.arg_max(col.x, col.y), "some": tm.any(col.x > 3), "spread": tm.var(col.y),
    "word": tm.max(col.w),
}  # fmt: skip


def planned(aggregates: dict[str, Any], **options: Any) -> IntervalAggregate:
    bounds = {"preceding": col.back, "following": col.ahead} | options
    plan = BASE.interval_join(PROBE, on="k", **bounds).agg(**aggregates).plan
    assert isinstance(plan, IntervalAggregate)
    return plan


def arguments_of(index: TimeTravelIndex, rows: list[dict[str, Any]]) -> list[pa.Array]:
    batch = pa.RecordBatch.from_pylist(rows, schema=PROBE.schema.to_arrow())
    return [evaluate(node, batch, PROBE.schema) for node in index.arguments]


def insert(index: TimeTravelIndex, rows: list[dict[str, Any]]) -> None:
    keys, times = (np.array([row[name] for row in rows], dtype=np.int64) for name in ("k", "t"))
    index.insert(keys, times, arguments_of(index, rows))


def asked(base: list[dict[str, Any]]) -> tuple[Any, Any, Any]:
    of = {name: np.array([row[name] for row in base], dtype=np.int64) for name in ("k", "t", "back", "ahead")}
    return of["k"], of["t"] - of["back"], of["t"] + of["ahead"]


def check(
    index: TimeTravelIndex, plan: IntervalAggregate, rows: list[Any], base: list[Any], **how: Any
) -> None:
    wanted = list(interval_join(plan, base, rows))
    found = index.answers(*asked(base), **how)
    for result, column in zip(plan.layout.results, found):
        for one, value in zip(wanted, column.to_pylist()):
            assert value == pytest.approx(one[result.name], nan_ok=True), result.name


small = st.integers(0, 12)
probe_rows = st.fixed_dictionaries({
    "t": st.integers(-5, 40), "k": st.integers(0, 2), "x": st.none() | st.integers(-5, 5),
    "y": st.none() | st.floats(-9, 9), "w": st.none() | st.sampled_from(["a", "b", "ä", ""]),
})  # fmt: skip
base_rows = st.fixed_dictionaries({
    "t": st.integers(-5, 40), "k": st.integers(0, 3), "back": small, "ahead": small,
})  # fmt: skip
batches = st.lists(st.lists(probe_rows, max_size=12), max_size=6)


@examples(8, of=100)
@given(batches, st.lists(base_rows, max_size=8))
def test_what_comes_in_any_order_is_found(batches: list[list[Any]], base: list[Any]) -> None:
    plan = planned(ALL)
    index = TimeTravelIndex(plan.layout)
    rows: list[Any] = []
    for batch in batches:
        insert(index, batch)
        rows += batch
        check(index, plan, rows, base)
    assert index.rows == len(rows)


@examples(6, of=60)
@given(batches, st.lists(base_rows, max_size=8), st.integers(1, 4))
def test_the_nearest_rows(batches: list[list[Any]], base: list[Any], most: int) -> None:
    # Of rows of one time that all fit or are all left out, the order does not matter.
    asked_for = {"n": tm.count(), "first": tm.min(col.t), "last": tm.max(col.t)}
    plan = planned(asked_for, max_rows=most)
    index = TimeTravelIndex(plan.layout)
    rows = [row for batch in batches for row in batch]
    for batch in batches:
        insert(index, batch)
    at = np.array([row["t"] for row in base], dtype=np.int64)
    check(index, plan, rows, base, max_rows=most, at=at)


@examples(6, of=60)
@given(batches, st.lists(base_rows, max_size=8))
def test_the_prevailing_row(batches: list[list[Any]], base: list[Any]) -> None:
    plan = planned({"n": tm.count(), "first": tm.min(col.t)}, prevailing=True)
    index = TimeTravelIndex(plan.layout)
    rows = [row for batch in batches for row in batch]
    for batch in batches:
        insert(index, batch)
    check(index, plan, rows, base, prevailing=True)


@examples(6, of=60)
@given(batches, st.lists(base_rows, max_size=8), st.integers(0, 30))
def test_expired_rows_are_not_missed(batches: list[list[Any]], base: list[Any], below: int) -> None:
    plan = planned({"n": tm.count(), "total": tm.sum(col.x), "high": tm.max(col.x)})
    index = TimeTravelIndex(plan.layout)
    rows: list[Any] = []
    for batch in batches:
        rows += batch
        insert(index, batch)
        index.expire(below)
        later = [row for row in base if row["t"] - row["back"] >= below]
        check(index, plan, rows, later)
    index.expire(100)
    assert index.rows == 0


@examples(6, of=60)
@given(batches, st.lists(base_rows, max_size=8), st.integers(0, 30))
def test_the_prevailing_row_is_spared(batches: list[list[Any]], base: list[Any], below: int) -> None:
    plan = planned({"n": tm.count(), "first": tm.min(col.t)}, prevailing=True)
    index = TimeTravelIndex(plan.layout)
    rows: list[Any] = []
    for batch in batches:
        rows += batch
        insert(index, batch)
        index.expire(below, spare=1)
    later = [row for row in base if row["t"] - row["back"] >= below]
    check(index, plan, rows, later, prevailing=True)
    index.expire(100, spare=1)
    assert len({row["k"] for row in rows}) <= index.rows <= len(rows)
    check(index, plan, rows, [row | {"t": 100, "back": 0} for row in base], prevailing=True)


@examples(5, of=40)
@given(batches, st.lists(base_rows, max_size=8))
def test_a_restored_index_answers_the_same(batches: list[list[Any]], base: list[Any]) -> None:
    plan = planned(ALL)
    index, again = TimeTravelIndex(plan.layout), TimeTravelIndex(plan.layout)
    rows = [row for batch in batches for row in batch]
    half = len(batches) // 2
    for batch in batches[:half]:
        insert(index, batch)
    again.restore(index.snapshot())
    for batch in batches[half:]:
        insert(again, batch)
    check(again, plan, rows, base)


def test_rows_by_place() -> None:
    plan = planned({"n": tm.count()})
    index = TimeTravelIndex(plan.layout, ties=1)
    keys, times, ties = np.array([0, 0, 1, 0, -1]), np.array([4, 2, 4, 2, 4]), np.array([0, 9, 0, 7, 0])
    index.insert(keys, times, (), places=np.array([10, 20, 30, 40, 50]), ties=[ties])
    offsets, places = index.rows_in(np.array([0, 1, 5, 0]), np.array([0, 5, 0, 3]), np.array([4, 9, 9, 3]))
    assert offsets.tolist() == [0, 3, 3, 3, 3]
    assert places.tolist() == [40, 20, 10]
    _, places = index.rows_in(np.array([0]), np.array([3]), np.array([3]), prevailing=True)
    assert places.tolist() == [20]
    _, places = index.rows_in(np.array([0]), np.array([0]), np.array([9]), max_rows=2, at=np.array([4]))
    assert places.tolist() == [20, 10]


def test_one_answer() -> None:
    plan = planned({"n": tm.count(), "total": tm.sum(col.x), "last": tm.last(col.w), "at": tm.max(col.t)})
    index = TimeTravelIndex(plan.layout)
    insert(index, [{"t": 1, "k": 0, "x": 5, "w": "a"}, {"t": 4, "k": 0, "x": 6, "w": "b"}])
    assert index.answer(0, 1, 9) == (2, 11, "b", 4)
    assert index.answer(0, 2, 3) == index.answer(7, 2, 3) == index.answer(-1, 2, 3) == (0, None, None, None)
    assert index.answer(0, 2, 3, prevailing=True) == (1, 5, "a", 1)
    assert index.answer(0, 0, 9, max_rows=1, at=3) == (1, 6, "b", 4)


@pytest.mark.parametrize("aggregate", [tm.median(col.x), tm.collect(col.x), tm.distinct_count(col.x)])
def test_what_needs_rows_is_refused(aggregate: Any) -> None:
    with pytest.raises(UnsupportedError, match="rows_in"):
        TimeTravelIndex(planned({"a": aggregate}).layout)


def test_arguments_are_expressions_each_once() -> None:
    index = TimeTravelIndex(planned({"a": tm.sum(col.x), "b": tm.mean(col.x), "c": tm.sum(col.x * 2)}).layout)
    assert [str(node) for node in index.arguments] == ["col.x", "(col.x * 2)"]
    assert all(isinstance(node, Node) for node in index.arguments)
