"""Agrees with the definition: Spark batch against the reference, on one awkward set of rows."""

from __future__ import annotations

from typing import Any

import pytest

import tidemill as tm
from tests.conformance.cases import (
    BY_EACH_WAY,
    FAMILIES,
    STREAM,
    TYPICAL,
    WINDOWS,
    Row,
    ask,
    seeded,
)  # fmt: skip
from tests.conformance.harness import assert_same, by_reference, on_spark
from tests.examples import later
from tidemill import col
from tidemill.spark.batch.blocks import Blocks
from tidemill.spark.batch.windows import strategy

ALIKE = (
    "tumbling on another column", "hopping", "hopping, origin", "hopping, range no multiple of slide",
    "per_event, whole stream", "session, whole stream", "per_event, n-th", "rows", *BY_EACH_WAY, "tumbling",
)  # fmt: skip
"""Others go the same way on Spark, or `test_engines_agree` has the same query: these are for the soak."""


@pytest.mark.parametrize(
    "window", [pytest.param(w, marks=pytest.mark.soak if w in ALIKE else ()) for w in WINDOWS]
)
def test_every_window(spark: Any, window: str) -> None:
    query = ask(WINDOWS[window], "one of each")
    assert_same(on_spark(spark, query, TYPICAL), by_reference(query, TYPICAL), query.schema)


WAYS = {
    ("tumbling", "counting"): "jvm",
    ("tumbling", "extremes"): "jvm",
    ("tumbling", "moments"): "jvm",
    ("tumbling", "sums"): "partials",  # Spark multiplies in double
    ("tumbling", "ordered"): "partials",  # Spark has no smallest string that takes ties our way
    ("hopping", "counting"): "panes",
    ("hopping", "extremes"): "panes",
    ("hopping", "moments"): "panes",
    ("hopping", "sums"): "partials",
    ("hopping", "ordered"): "partials",
    ("hopping", "paths"): "colocated",
    ("hopping", "holistic"): "panes",
    ("hopping", "histograms"): "panes",
    ("hopping", "sketches"): "panes",
    ("hopping", "user"): "partials",
    ("landmark", "paths"): "colocated",
    ("hopping, filled", "paths"): "colocated",
    ("session", "paths"): "colocated",
    ("session", "holistic"): "colocated",
    ("session", "sketches"): "colocated",
    ("session", "user"): "colocated",
    ("hopping, many panes", "containers"): "partials",
    ("per_event", "containers in order"): "colocated",
}
"""Every family, by each way it takes on Spark."""


SLOW = {
    ("hopping", "ordered"), ("hopping", "sums"), ("session", "sketches"), ("session", "user"),
    ("tumbling", "extremes"), ("hopping", "extremes"), ("tumbling", "moments"), ("landmark", "paths"),
    ("hopping, filled", "paths"), ("hopping", "counting"), ("session", "paths"), ("hopping", "histograms"),
    ("hopping", "moments"), ("hopping", "holistic"), ("session", "holistic"), ("tumbling", "ordered"),
}  # fmt: skip
"""Another family takes the same way by the same window: these are for the soak. One aggregate of each family
is in `one of each`."""


@pytest.mark.parametrize(
    ("window", "family"),
    [pytest.param(*way, marks=pytest.mark.soak if way in SLOW else ()) for way in WAYS],
)
def test_every_family_by_each_way(spark: Any, window: str, family: str) -> None:
    query = ask(WINDOWS[window], family)
    assert strategy(query.optimized).name == WAYS[window, family]
    assert_same(on_spark(spark, query, TYPICAL), by_reference(query, TYPICAL), query.schema)


def test_no_family_is_left_out() -> None:
    assert {family for _, family in WAYS} == set(FAMILIES) - {"one of each", "few"}


@pytest.mark.parametrize(
    ("window", "rows"),
    [
        pytest.param("tumbling", [], id="tumbling-no row"),
        pytest.param("landmark", TYPICAL[:1], id="landmark-one row", marks=pytest.mark.soak),
        pytest.param("tumbling", TYPICAL[:1], id="tumbling-one row", marks=pytest.mark.soak),
        pytest.param("landmark", [], id="landmark-no row", marks=pytest.mark.soak),
    ],
)
def test_next_to_nothing(spark: Any, window: str, rows: list[Row]) -> None:
    query = ask(WINDOWS[window], "counting")
    assert_same(on_spark(spark, query, rows), by_reference(query, rows), query.schema)


def test_several_windows_in_one_query(spark: Any) -> None:
    query = STREAM.group_by("k").window(
        short=tm.tumbling(4), long=tm.hopping(12, every=4, origin=-2), all=tm.landmark(8, start=-20),
        sampled=tm.hopping(2, every=6),
    ).agg(n=tm.count(), total=tm.sum(col.v), last=tm.last(col.x))  # fmt: skip
    assert_same(on_spark(spark, query, TYPICAL), by_reference(query, TYPICAL), query.schema)


@pytest.mark.parametrize(
    ("window", "width", "aggregates"),
    [
        (tm.hopping(6, every=2), 8, {"n": tm.count(), "total": tm.sum(col.v), "mean": tm.mean(col.x)}),
        (tm.hopping(17, every=1, origin=-4), 16, {"low": tm.min(col.x), "word": tm.max(col.s)}),
        *later((tm.hopping(3, every=1, origin=3), 8, {"any": tm.any(col.b), "all": tm.all(col.b)})),
        pytest.param(tm.hopping(40, every=1), 16, {"total": tm.sum(col.v)}, marks=pytest.mark.soak),
        pytest.param(
            tm.hopping(40, every=1), 16, {"low": tm.min(col.x), "n": tm.count(col.x)}, marks=pytest.mark.soak
        ),
        *later((tm.hopping(40, every=1), 16, {"total": tm.sum(col.x), "mean": tm.mean(col.x)})),
    ],
    ids=str,
)
def test_several_panes_to_a_row(
    spark: Any, window: tm.Window, width: int, aggregates: dict[str, Any]
) -> None:
    query = STREAM.group_by("k").window(window).agg(**aggregates)
    assert Blocks(query.optimized).width == width
    assert f"{width} panes to a row" in query.on_spark(spark).explain()
    rows = seeded(150, 5, span=90)
    assert_same(on_spark(spark, query, rows), by_reference(query, rows), query.schema)


@pytest.mark.parametrize(
    "query",
    [
        STREAM.window(tm.hopping(32, every=1, fill_empty=True)).agg(n=tm.count()),
        STREAM.window(tm.landmark(every=1)).agg(n=tm.count()),
        STREAM.window(tm.hopping(32, every=1)).agg(n=tm.var(col.x)),
        STREAM.window(tm.hopping(32, every=1)).agg(n=tm.median(col.x)),
        STREAM.window(tm.hopping(32, every=1)).agg(**{f"n{i}": tm.sum(col.v * i) for i in range(9)}),
    ],
)
def test_one_pane_to_a_row_where_more_would_not_do(query: Any) -> None:
    assert Blocks(query.optimized).width == 1
