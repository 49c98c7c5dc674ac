"""Variance and correlation where rounding or overflow could make something of nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest

import tidemill as tm
from tests.conformance.harness import Row, assert_same, by_reference, locally, on_spark
from tidemill import col

STREAM = tm.stream("s", time="t", schema={"t": "int64", "x": "float64", "y": "float64"})
QUERY = STREAM.window(tm.hopping(12, every=3)).agg(
    n=tm.count(), var=tm.var(col.x), population=tm.var(col.x, ddof=0), std=tm.std(col.x),
    covariance=tm.covariance(col.x, col.y), correlation=tm.correlation(col.x, col.y),
)  # fmt: skip
TUMBLING = STREAM.window(tm.tumbling(12)).agg(
    var=tm.var(col.x), covariance=tm.covariance(col.x, col.y), r=tm.correlation(col.x, col.y)
)


def rows(*xs: float, y: Any = float) -> list[Row]:
    return [{"t": i, "x": x, "y": float(y(i))} for i, x in enumerate(xs)]


CASES = {
    # Three times 0.1 have another mean than one or two of them, if it is a sum that is divided.
    "one side is always 0.1": rows(*[0.1] * 11),
    "both sides are constant": rows(*[1e16 / 3] * 7, y=lambda i: 0.3),
    "a constant that is huge": rows(*[1e200] * 5),
    "one value": rows(1e300),
    "squares that overflow": rows(1e200, -1e200, 3e199, 0.0),
    "differences that overflow": rows(1.7e308, -1.7e308, 1.0),
    "a side that overflows, one that does not": rows(1e300, -1e300, 1e300, -1e300),
    "NaN in the middle": rows(1.0, 2.0, math.nan, 4.0),
    "an infinity": rows(1.0, math.inf, 3.0, 4.0),
    "infinities of both signs": rows(math.inf, -math.inf, 3.0),
    "zeros of both signs": rows(0.0, -0.0, 0.0),
}


@pytest.mark.parametrize("case", CASES)
def test_in_process_as_defined(case: str) -> None:
    for query in (QUERY, TUMBLING):
        assert_same(locally(query, CASES[case]), by_reference(query, CASES[case]), query.schema)


def test_on_spark_as_defined(spark: Any) -> None:
    """All cases in one query of each way, 1000 ticks apart."""
    data = [{**r, "t": r["t"] + 1000 * i} for i, case in enumerate(CASES.values()) for r in case]
    for query in (QUERY, TUMBLING):
        assert_same(on_spark(spark, query, data), by_reference(query, data), query.schema)


def test_correlation_with_a_constant_side_is_null() -> None:
    found = by_reference(TUMBLING, CASES["one side is always 0.1"])
    assert [r["r"] for r in found] == [None]
    assert [r["var"] for r in found] == [0.0]


def test_what_overflows_is_not_a_number() -> None:
    found = by_reference(TUMBLING, CASES["squares that overflow"])
    assert [math.isnan(r["var"]) and math.isnan(r["r"]) for r in found] == [True]
    found = by_reference(TUMBLING, CASES["a constant that is huge"])
    assert [(r["var"], r["r"]) for r in found] == [(0.0, None)]
