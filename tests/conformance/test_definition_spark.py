"""Agrees with the definition: Spark batch against the reference, on one awkward set of rows.

Aggregates are grouped by the way they take on Spark, so that a query here is one of each way.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.cases import ASK_SPARK, TYPICAL, WINDOWS, ask_spark
from tests.conformance.harness import assert_same, by_reference, on_spark
from tidemill.spark.windows import strategy

GRIDS = [name for name in WINDOWS if name.startswith(("tumbling", "hopping", "landmark"))]


@pytest.mark.parametrize("group", ASK_SPARK)
@pytest.mark.parametrize("window", WINDOWS)
def test_every_window_and_family(spark: Any, window: str, group: str) -> None:
    query = ask_spark(WINDOWS[window], group)
    assert_same(on_spark(spark, query, TYPICAL), by_reference(query, TYPICAL), query.schema)


@pytest.mark.parametrize("window", ["tumbling", "hopping, origin", "landmark", "hopping, filled"])
def test_rows_in_order_of_time(spark: Any, window: str) -> None:
    query = ask_spark(WINDOWS[window], "paths")
    assert strategy(query.optimized).name == "colocated"
    assert_same(on_spark(spark, query, TYPICAL), by_reference(query, TYPICAL), query.schema)


@pytest.mark.parametrize(
    ("window", "group", "way"),
    [
        ("tumbling", "jvm", "jvm"),
        ("hopping", "jvm", "panes"),
        ("hopping", "rows", "panes"),
        ("hopping", "python", "partials"),
        ("landmark", "python", "partials"),
        ("session", "jvm", "colocated"),
        ("rows", "jvm", "colocated"),
    ],
)
def test_the_ways_that_are_tested_here(window: str, group: str, way: str) -> None:
    assert strategy(ask_spark(WINDOWS[window], group).optimized).name == way
