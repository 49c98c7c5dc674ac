"""Windows of different kinds in one query: what one of them keeps must not disturb the others."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

import tidemill as tm
from tests.conformance.cases import STREAM, TYPICAL, Row, numbered
from tests.conformance.harness import HASTE, assert_same, by_reference, in_batches, on_spark, split
from tests.examples import later
from tidemill import col

MIXED: dict[str, dict[str, tm.Window]] = {
    "session, long hopping": {"a": tm.session(2), "b": tm.hopping(30, every=15)},
    "session, landmark": {"a": tm.session(3), "b": tm.landmark(every=10)},
    "two sessions": {"a": tm.session(2), "b": tm.session(9)},
    "session, filled": {"a": tm.session(2), "b": tm.tumbling(7, fill_empty=True)},
    "ranks, long per_event": {
        "a": tm.per_event(5, every=3, by="rank"), "b": tm.per_event(40),
    },
    "hopping, n-th event": {"a": tm.hopping(12, every=4), "b": tm.per_event(5, every=3)},
    "n-th event, hopping": {"a": tm.per_event(5, every=3), "b": tm.hopping(12, every=4)},
    "filled samples, landmark": {
        "a": tm.hopping(2, every=10, fill_empty=True), "b": tm.landmark(every=5),
    },
    "filled samples, filled": {
        "a": tm.hopping(2, every=7, fill_empty=True), "b": tm.tumbling(3, fill_empty=True),
        "c": tm.hopping(1, every=11, fill_empty=True),
    },
    "short and long": {"a": tm.tumbling(2), "b": tm.hopping(40, every=2), "c": tm.per_event(3)},
}  # fmt: skip


def ask(name: str) -> tm.Stream:
    windows = MIXED[name]
    return STREAM.group_by("k").window(**windows).agg(n=tm.count(), top=tm.max(col.x), v=tm.sum(col.v))


@pytest.mark.parametrize(
    ("name", "how"),
    [
        pytest.param(name, how, marks=pytest.mark.soak if how == "patient" else ())
        for name in MIXED for how in HASTE
    ],
)  # fmt: skip
def test_in_batches(name: str, how: str) -> None:
    query, rows = ask(name), _in_time(TYPICAL)
    expected = by_reference(query, rows)
    for seed in range(3):
        batches = split(rows, random.Random(seed))
        for promises in (True, False):
            got = in_batches(query, batches, promises=promises, speed=how)
            assert_same(got, expected, query.schema, f"seed {seed}")


@pytest.mark.parametrize(
    "name",
    ["session, filled", "filled samples, filled", *later("session, landmark", "short and long")],
)
def test_on_spark_in_several_tasks(plain_shuffles: Any, name: str) -> None:
    query = ask(name)
    rows = _in_time(TYPICAL)
    assert_same(on_spark(plain_shuffles, query, rows), by_reference(query, rows), query.schema)


@pytest.mark.parametrize("beside", [tm.landmark(every=5), *later(tm.tumbling(7, fill_empty=True))])
def test_filled_samples_end_with_their_own_last_one(plain_shuffles: Any, beside: tm.Window) -> None:
    """The samples [8, 10), [18, 20), … have a row at 9; the rows after it are in the other window only."""
    windows = {"a": tm.hopping(2, every=10, fill_empty=True), "b": beside}
    query = STREAM.group_by("k").window(**windows).agg(n=tm.count())
    given = [{**TYPICAL[0], "t": t, "k": k} for t, k in ((9, 1), (12, 2), (43, 2), (19, 3), (35, 1))]
    rows = _in_time(given)
    assert_same(on_spark(plain_shuffles, query, rows), by_reference(query, rows), query.schema)


@pytest.fixture
def plain_shuffles(spark: Any) -> Iterator[Any]:
    """Adaptive execution joins small partitions, and would so hide what each task cannot know."""
    before = spark.conf.get("spark.sql.adaptive.enabled")
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    yield spark
    spark.conf.set("spark.sql.adaptive.enabled", before)


@pytest.mark.parametrize(
    "windows",
    [
        {"a": tm.per_event(5, every=3), "b": tm.per_event(9, every=2, order_by="u")},
        {"a": tm.rows(4, every=2, order_by="u"), "b": tm.rows(6, every=2)},
    ],
)
def test_rows_have_one_number(windows: dict[str, tm.Window]) -> None:
    with pytest.raises(tm.UserError, match="order"):
        STREAM.window(**windows).agg(n=tm.count())


def _in_time(rows: list[Row]) -> list[Row]:
    return numbered(sorted(rows, key=lambda row: row["t"]))
