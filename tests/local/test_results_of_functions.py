"""What a user's function may give where an int, an instant or a duration is declared."""

from __future__ import annotations

import math
from typing import Any

import pytest

import tidemill as tm
from tests.conformance.harness import by_reference, locally
from tidemill import col
from tidemill.core.errors import UserError

S = tm.stream("s", time="t", schema={"t": "int64", "x": "float64"})
BAD = [math.nan, math.inf, -math.inf, 1e300, 9223372036854775808.0]


def halved(x: float) -> float:
    return x / 2.0 * 2.0


def spelled(x: float) -> float:
    return float(str(x))  # Numba has no such text


@pytest.mark.parametrize("function", [halved, spelled])
@pytest.mark.parametrize("returns", ["int64", "timestamp", "duration"])
def test_nan_from_a_function_declared_int_is_an_error_that_names_it(function: Any, returns: str) -> None:
    query = S.select(z=tm.udf(function, returns=returns)(col.x))
    rows = [{"t": 0, "x": 2.5}, {"t": 1, "x": None}, {"t": 2, "x": -9223372036854775808.0}]
    want = [2, None, -(1 << 63)]
    assert [row["z"] for row in locally(query, rows)] == want
    assert [row["z"] for row in by_reference(query, rows)] == want
    for bad in BAD:
        for run in (locally, by_reference):
            with pytest.raises(UserError, match=function.__name__):
                run(query, [*rows, {"t": 3, "x": bad}])


def lowered(s: float) -> float:
    return s + 0.0 if s > 0.0 else s - 0.0


def lowered_by_text(s: float) -> float:
    return float(str(s))


@pytest.mark.parametrize("lower", [lowered, lowered_by_text])
def test_nan_from_the_lower_of_an_aggregate_declared_int_is_an_error(lower: Any) -> None:
    total = tm.aggregate(
        "total", identity=lambda: 0.0, lift=lambda x: x, combine=lambda a, b: a + b, lower=lower,
        returns="int64",
    )  # fmt: skip
    query = S.window(tm.tumbling(10)).agg(z=total(col.x))
    rows = [{"t": 0, "x": 2.5}, {"t": 1, "x": None}]
    assert [row["z"] for row in locally(query, rows)] == [2]
    assert [row["z"] for row in by_reference(query, rows)] == [2]
    for bad in BAD:
        for run in (locally, by_reference):
            with pytest.raises(UserError, match="total|lowered"):
                run(query, [{"t": 3, "x": bad}])


def test_an_aggregate_that_gives_floats_for_an_int_of_its_identity_rounds_nothing() -> None:
    def lift(x: float) -> float:
        return x / 2.0 if x > 0.0 else 0.0

    sums = tm.aggregate(
        "sums", identity=lambda: (0, 0.0), lift=lambda x: (lift(x), 1.0),
        combine=lambda a, b: (a[0] + b[0], a[1] + b[1]), lower=lambda s: s[0] * 1.0, returns="float64",
    )  # fmt: skip
    query = S.window(tm.tumbling(10)).agg(z=sums(col.x))
    rows = [{"t": 0, "x": 1.0}, {"t": 1, "x": 1.0}]
    assert [row["z"] for row in by_reference(query, rows)] == [1.0]
    assert [row["z"] for row in locally(query, rows)] == [1.0]


def test_the_mean_by_category_of_large_ints_does_not_wrap_around() -> None:
    stream = tm.stream("s", time="t", schema={"t": "int64", "k": "string", "v": "int64"})
    query = stream.window(tm.tumbling(10)).agg(m=tm.mean_by(col.v, col.k))
    most = (1 << 63) - 1
    rows = [{"t": i, "k": k, "v": v} for i, (k, v) in enumerate(
        [("a", most), ("a", most), ("b", -most), ("b", -most), ("b", -most), ("c", 3), ("c", 4)]
    )]  # fmt: skip
    want = [{"key": "a", "value": float(most)}, {"key": "b", "value": -float(most)}, {"key": "c", "value": 3.5}]
    assert locally(query, rows)[0]["m"] == want
    assert by_reference(query, rows)[0]["m"] == want
