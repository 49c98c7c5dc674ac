"""Each event with the aggregates before it, as hands ask for it."""

from __future__ import annotations

from typing import Any

import pytest

import tidemill as tm
from tidemill import col

STREAM = tm.stream("s", time="t", schema={"t": "int64", "user": "string", "paid": "int64"})
ROWS = [
    {"t": 1, "user": "ann", "paid": 5}, {"t": 4, "user": "ann", "paid": 7},
    {"t": 4, "user": "bob", "paid": 1}, {"t": 30, "user": "ann", "paid": 2},
]  # fmt: skip


def test_asked_for_each_payment_beside_the_mean_of_those_before() -> None:
    windows = STREAM.group_by("user").window(tm.per_event(10, keep=True))
    found = (
        windows.agg(tm.count(), mean=tm.mean("paid"))
        .run(ROWS)
        .sort_by([("t", "ascending"), ("user", "ascending")])
    )
    assert found.column_names == ["t", "user", "paid", "count", "mean"]
    assert found["count"].to_pylist() == [1, 2, 1, 1]
    assert found["mean"].to_pylist() == [5.0, 6.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: tm.per_event(10, 2, keep=True), "keep=True, every=2"),
        (lambda: tm.per_event(10, on="paid", keep=True), "keep=True, on='paid'"),
        (lambda: tm.per_event(10, by="rank", keep=True), "by='rank'"),
        (lambda: tm.per_event(10, keep="yes"), "keep='yes'"),
        (
            lambda: STREAM.window(tm.per_event(10, keep=True)).agg(paid=tm.count()),
            "not a column of the base rows",
        ),
        (
            lambda: STREAM.window(a=tm.per_event(10, keep=True), b=tm.tumbling(5)).agg(tm.count()),
            "keep=True alone",
        ),
        (lambda: STREAM.window(tm.per_event(10, keep=True)).top(1, by="paid"), "keep=True alone"),
        (lambda: STREAM.window(tm.per_event("1h", keep=True)).agg(tm.count()), "in logical time"),
        (
            lambda: STREAM.window(tm.per_event(10, keep=True)).agg(x=col.paid),
            "expected an aggregate",
        ),
    ],
)
def test_asked_for_what_cannot_be_kept(ask: Any, message: str) -> None:
    with pytest.raises(tm.UserError) as error:
        ask()
    assert message in str(error.value)


def test_looked_at_the_window() -> None:
    assert (
        repr(tm.per_event("1h", partition_by="user", keep=True))
        == "per_event(1h, partition_by=['user'], keep=True)"
    )
