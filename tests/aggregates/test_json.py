"""Built-in aggregates come back from JSON as they were."""

from __future__ import annotations

import json

import pytest

import tidemill as tm
from tidemill import col
from tidemill.aggregates.algebra import Aggregate
from tidemill.aggregates.json import from_record, to_record


@pytest.mark.parametrize(
    "aggregate",
    [
        tm.count(), tm.count(col.x), tm.sum(col.x + 1), tm.mean(col.x), tm.min(col.x), tm.max(col.x),
        tm.var(col.x), tm.std(col.x, ddof=0), tm.covariance(col.x, col.y), tm.correlation(col.x, col.y),
        tm.any(col.x > 1), tm.all(col.x > 1.5), tm.count_if(col.s == "a"), tm.product(col.x),
        tm.arg_max(col.x, col.y), tm.arg_min(col.x, col.y), tm.first(col.x), tm.last(col.x),
        tm.sum(tm.lit(1).cast("float64")), tm.median(col.x), tm.quantile(col.x, 0.2, method="kll", size=99),
        tm.distinct_count(col.s), tm.distinct_count(col.s, method="hll"), tm.top_k(col.x, 3),
        tm.collect(col.s), tm.entropy(col.s), tm.count_by(col.s), tm.sum_by(col.x, col.s),
        tm.top_keys(col.s, 2), tm.distinct_sketch(col.s, size=9), tm.quantile_sketch(col.x),
    ],
    ids=str,
)  # fmt: skip
def test_there_and_back(aggregate: Aggregate) -> None:
    record = to_record(aggregate)
    assert record is not None
    again = from_record(json.loads(json.dumps(record)))
    assert (again.parts, again.params) == (aggregate.parts, aggregate.params)


@pytest.mark.parametrize("name", ["sum", "top_k", "entropy", "math", "inspect"])
def test_a_user_s_own_is_not_told_by_its_name(name: str) -> None:
    own = tm.aggregate(
        name, identity=lambda: 0, lift=lambda x: x, combine=lambda a, b: a + b, lower=lambda a: a
    )
    assert to_record(own(col.x)) is None
