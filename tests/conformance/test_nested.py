"""Steps before, after and between aggregates, on every engine."""

from __future__ import annotations

import random
from typing import Any

import pytest

import tidemill as tm
from tests.conformance.cases import STREAM, TYPICAL
from tests.conformance.harness import (
    arrivals,
    assert_same,
    by_reference,
    in_batches,
    locally,
    on_spark,
    split,
)  # fmt: skip
from tests.examples import later
from tidemill import col
from tidemill.stream import Stream

QUERIES: dict[str, Stream] = {
    "filter": STREAM.where(col.v > 2).select("k", "s", twice=col.v * 2),
    "filter on strings": STREAM.where(col.s.starts_with("a") | (col.s == "b")).select("s", n=col.s.len()),
    "filter before": STREAM.where((col.v > 0) & col.s.is_not_null())
    .group_by("k").window(tm.hopping(6, every=2)).agg(n=tm.count(), top=tm.max(col.s)),
    "filter that drops the last rows": STREAM.where(col.t < 3)
    .group_by("k").window(tm.hopping(6, every=2, fill_empty=True)).agg(n=tm.count()),
    "filter that drops the last rows of a landmark": STREAM.where(col.t < 3)
    .group_by("k").window(tm.landmark(4, start=-20)).agg(n=tm.count()),
    "computed arguments": STREAM.with_columns(w=col.v * 2 + 1)
    .group_by("k").window(tm.tumbling(8)).agg(total=tm.sum(col.w * col.v), big=tm.count_if(col.w > 3)),
    "computed keys": STREAM.group_by(odd=col.v % 2, initial=col.s.substring(0, 1))
    .window(tm.tumbling(8)).agg(n=tm.count()),
    "having": STREAM.group_by("k").window(tm.hopping(6, every=2)).agg(n=tm.count(), total=tm.sum(col.v))
    .where(col.n > 2).select("k", "n", mean=col.total / col.n),
    "having on a key": STREAM.group_by("k", "s").window(tm.hopping(6, every=2)).agg(n=tm.count())
    .where((col.k == 1) & (col.s != "a")),
    "nested": STREAM.group_by("k").window(tm.tumbling(2)).agg(n=tm.count(), total=tm.sum(col.v))
    .group_by("k").window(tm.hopping(12, every=4)).agg(most=tm.max(col.n), mean=tm.mean(col.total)),
    "nested over all keys": STREAM.group_by("k").window(tm.hopping(6, every=2)).agg(n=tm.count())
    .where(col.n > 1).window(tm.session(5)).agg(keys=tm.distinct_count(col.k), top=tm.max(col.n)),
    "nested in sessions": STREAM.group_by("k").window(tm.session(2)).agg(n=tm.count())
    .group_by("k").window(tm.tumbling(10)).agg(sessions=tm.count(), longest=tm.max(col.n)),
    "nested twice": STREAM.group_by("k").window(tm.tumbling(2)).agg(n=tm.count())
    .group_by("k").window(tm.tumbling(8)).agg(n=tm.sum(col.n)).window(tm.tumbling(24)).agg(n=tm.sum(col.n)),
    "nested after a landmark": STREAM.group_by("k").window(tm.landmark(6, start=-24)).agg(n=tm.count())
    .group_by("k").window(tm.tumbling(12)).agg(n=tm.max(col.n), ends=tm.count()),
}  # fmt: skip


@pytest.mark.parametrize("name", QUERIES)
def test_locally(name: str) -> None:
    query = QUERIES[name]
    expected = by_reference(query, TYPICAL)
    assert expected
    assert_same(locally(query, TYPICAL), expected, query.schema)


@pytest.mark.parametrize("promises", [True, False])
@pytest.mark.parametrize("name", QUERIES)
def test_locally_in_batches(name: str, promises: bool) -> None:
    query, pick = QUERIES[name], random.Random(11)
    expected = by_reference(query, TYPICAL)
    for order, arrived in arrivals(TYPICAL, "t", pick).items():
        got = in_batches(query, split(arrived, pick), promises=promises, speed="eager")
        assert_same(got, expected, query.schema, order)


@pytest.mark.parametrize(
    "name",
    [*later("filter that drops the last rows"), "computed keys", "nested over all keys",
     *later("nested in sessions", "filter on strings", "having", "nested")],
)  # fmt: skip
def test_on_spark(spark: Any, name: str) -> None:
    query = QUERIES[name]
    assert_same(on_spark(spark, query, TYPICAL), by_reference(query, TYPICAL), query.schema)


def test_windows_of_windows_count_every_row_once() -> None:
    (total,) = {row["n"] for row in locally(QUERIES["nested twice"], [r for r in TYPICAL if r["t"] >= 0])}
    assert total == sum(0 <= row["t"] < 24 for row in TYPICAL)
