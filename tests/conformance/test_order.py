"""`sort` and `limit`: the same rows in the same order in process and on Spark, as by the definition."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

import tidemill as tm
from tests.conformance.harness import Row, by_reference, same, table_of
from tests.examples import later
from tidemill.core.batch import conform, to_rows
from tidemill.query import Ordered
from tidemill.reference.order import ordered

SCHEMA = {
    "t": "int64", "k": "string", "x": "float64", "b": "bool", "at": "timestamp", "d": "duration",
    "l": "list<int64>", "X": "int64",
}  # fmt: skip
STREAM = tm.stream("s", time="t", schema=SCHEMA)
PICK = random.Random(3)
ROWS: list[Row] = [
    {
        "t": PICK.randrange(4), "k": PICK.choice(["a", "B", "é", "\U0001f600", "\uffff", "", None]),
        "x": PICK.choice([0.0, -0.0, math.nan, math.inf, -1.5, None]), "b": PICK.choice([True, False, None]),
        "at": PICK.choice([5, -5, None]), "d": PICK.choice([5, -5, None]), "l": [1], "X": at,
    }
    for at in range(60)
]  # fmt: skip
ORDERS: dict[str, Ordered] = {
    "up and down": STREAM.sort("x", "k", descending=[True, False]),
    "all down": STREAM.sort("b", "at", "d", "k", "x", "t", "X", descending=True).limit(40),
    "by text": STREAM.sort("k"),
    "the first rows": STREAM.limit(7),
    "sorted again": STREAM.sort("b", descending=True).sort("x").limit(30).limit(50).sort("X"),
    "of windows": STREAM.group_by("k").window(tm.tumbling(2)).agg(tm.count(), tm.max("x"))
    .sort("max_x", descending=True).limit(5),
}  # fmt: skip


def expected(query: Ordered) -> list[Row]:
    return ordered(by_reference(query, ROWS), query._orders, query.schema)  # type: ignore[arg-type]


def assert_in_order(query: Ordered, batches: Any) -> None:
    found = to_rows([conform(b, query.schema, step="test") for b in batches], query.schema)
    wanted = expected(query)
    assert len(found) == len(wanted)
    assert all(map(same, found, wanted)), (found, wanted)


@pytest.mark.parametrize("name", ORDERS)
def test_in_process(name: str) -> None:
    query = ORDERS[name]
    table = table_of(query, ROWS)  # type: ignore[arg-type]
    assert_in_order(query, query.run(table).to_batches())
    assert_in_order(query, query.batches(table))
    *_, last = query.progressive(s=table)
    assert_in_order(query, last.table.to_batches())


@pytest.mark.parametrize("name", ["up and down", "of windows", *later(*ORDERS)])
def test_on_spark(spark: Any, name: str) -> None:
    query = ORDERS[name]
    frame = spark.createDataFrame(table_of(query, ROWS)).repartition(3)  # type: ignore[arg-type]
    assert_in_order(query, query.on_spark(spark).run(frame).toArrow().to_batches())


def test_a_live_query_has_no_order() -> None:
    for ask in (STREAM.sort("k").live, lambda: tm.restore(STREAM.limit(3), "nowhere")):
        with pytest.raises(tm.UnsupportedError, match="which are first is known at the end"):
            ask()  # type: ignore[operator]
