"""Feature sets on Spark: training sets with labels and metadata, and the proof that servers answer alike."""

from __future__ import annotations

import random
from typing import Any

import pytest

import tidemill as tm
from tests.conformance.temporal import assert_rows
from tidemill import col
from tidemill.core.batch import from_rows
from tidemill.core.errors import UserError

ASK = tm.stream("ask", time="t", schema={"t": "int64", "user": "string", "item": "int64"})
BUY = tm.stream("buy", time="t", schema={"t": "int64", "user": "string", "paid": "int64", "shop": "string"})
PRICE = tm.stream("price", time="t", schema={"t": "int64", "item": "int64", "price": "float64"})
KNOWN = tm.features(
    "known", entity=ASK,
    features=[
        tm.feature(
            ASK.interval_join(BUY, on="user", preceding=[20, 60]).agg(n=tm.count(), paid=tm.sum("paid")),
            n_20="orders of late",
        ),
        ASK.interval_join(BUY, on="user", since_previous=True, closed="left").agg(by=tm.count_by("shop")),
        ASK.last_join(PRICE, on="item", lags=[0, 10]).select(dearer=col.price_0 - col.price_10),
        ASK.interval_join(BUY, on="user", following=5).agg(soon=tm.count()),
    ],
)  # fmt: skip


def given() -> dict[str, list[dict[str, Any]]]:
    pick = random.Random(3)

    def some(count: int, **columns: list[Any]) -> list[dict[str, Any]]:
        rows = [{n: pick.choice(v) for n, v in columns.items()} for _ in range(count)]
        return [{"t": pick.randrange(200), **row} for row in rows]

    users, items = ["ann", "ben", None], [1, 2]
    return {
        "ask": some(40, user=users, item=items),
        "buy": some(60, user=users, paid=[3, 4, None], shop=["x", "y"]),
        "price": some(20, item=items, price=[0.5, 2.0, None]),
    }


def frames(spark: Any, rows: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    streams = {"ask": ASK, "buy": BUY, "price": PRICE}
    return {n: spark.createDataFrame(from_rows(rows[n], streams[n].schema)) for n in rows}


def test_a_training_set_has_the_features_labels_and_what_they_are(spark: Any) -> None:
    rows = given()
    expected = KNOWN.run(**rows).to_pylist()
    found = frames(spark, rows)
    asked = found.pop("ask").selectExpr("*", "item = 2 AS bought", "t AS seen")
    training = KNOWN.offline(spark, asked, found, labels="bought")
    about = {field.name: field.metadata for field in training.schema.fields}
    assert about["n_20"]["tidemill.feature"] == "known.n_20: count() of buy on user in [t-20, t]"
    assert about["n_20"]["comment"] == "orders of late" and "tidemill.leaks" not in about["n_20"]
    assert about["soon"]["tidemill.leaks"] == "5" and about["bought"] == {}
    table = training.toArrow()
    assert table.column_names == ["t", "user", "item", "bought", *KNOWN.features]
    labelled = [{**row, "bought": row["item"] == 2} for row in expected]
    assert_rows(table.to_pylist(), labelled, "offline")


def test_a_server_answers_as_history_on_spark(spark: Any) -> None:
    found = KNOWN.verify(given(), runs=2, spark=spark)
    assert found and found.rows == 80, found


def test_what_is_refused(spark: Any) -> None:
    found = frames(spark, given())
    with pytest.raises(UserError, match=r"expected labels= among .*, got 'bought'"):
        KNOWN.offline(spark, found["ask"], found, labels=["bought"])
    with pytest.raises(UserError, match="price"):
        KNOWN.offline(spark, found["ask"], {"buy": found["buy"]})
