"""What a server does with rows that it cannot use, in both modes: stated, counted, readable."""

from __future__ import annotations

from typing import Any

import pytest

import tidemill as tm
from tidemill import col

ASK = tm.stream("ask", time="t", schema={"t": "int64", "user": "int64", "back": "int64"})
BUY = tm.stream("buy", time="t", schema={"t": "int64", "user": "int64"})
KNOWN = tm.features("known", entity=ASK, features=[
    ASK.interval_join(BUY, on="user", preceding=30, lateness=4).agg(n=tm.count()),
    ASK.interval_join(BUY, on="user", preceding=col.back).agg(few=tm.count()),
    ASK.interval_join(BUY, on="user", preceding=col.back).agg(mid=tm.median("user")),
])  # fmt: skip


@pytest.fixture(params=["exact", "on arrival"])
def server(request: Any) -> Any:
    found = KNOWN.online(tm.Disorder(slack=10), answers=request.param)
    found.push(buy=[{"t": t, "user": 1} for t in (5, 15, 25)])
    return found


def answers(server: Any, *rows: dict[str, Any]) -> list[tuple[Any, ...]]:
    """The features of rows, once all of them are answered."""
    now = server.push(ask=list(rows)).to_pylist()
    found = now or server.flush().to_pylist()
    return [(row["n"], row["few"], row["mid"]) for row in found]


def test_a_row_of_an_unknown_source(server: Any) -> None:
    with pytest.raises(tm.UserError, match=r"inputs \['ask', 'buy'\], got 'sell'"):
        server.push(ask={"t": 30, "user": 1, "back": 9}, sell={"t": 1})
    assert server.stats().inputs["ask"].events == 0  # nothing of the call is taken
    assert answers(server, {"t": 30, "user": 1, "back": 9}) == [(3, 1, 1.0)]


def test_a_null_key(server: Any) -> None:
    server.push(buy={"t": 26, "user": None})
    assert answers(server, {"t": 30, "user": None, "back": 9}) == [(0, 0, None)]
    refused = server.refused()
    assert sorted(rows["user"].to_pylist() for rows in refused.values()) == [[None]] * 6
    assert {why for rows in refused.values() for why in rows["late_reason"].to_pylist()} == {
        "null key: nothing is equal to it"
    }
    assert server.stats().refused == dict.fromkeys(refused, 1)


def test_a_null_time(server: Any) -> None:
    server.push(buy={"t": None, "user": 1})
    good = {"t": 30, "user": 1, "back": 9}
    assert answers(server, {**good, "t": None}, good) == [(3, 1, 1.0)]
    for name in ("ask", "buy"):
        assert server.late(name)["late_reason"].to_pylist() == ["null time"]
        assert server.stats().inputs[name].null_time == 1


@pytest.mark.parametrize("back", [None, -1])
def test_a_bound_that_is_null_or_negative(server: Any, back: int | None) -> None:
    assert answers(server, {"t": 30, "user": 1, "back": back}) == [(3, 0, None)]
    refused = server.refused()
    assert [rows["back"].to_pylist() for rows in refused.values()] == [[back]] * 2
    assert server.stats().refused == dict.fromkeys(refused, 1)


def test_a_negative_bound() -> None:
    with pytest.raises(tm.UserError, match="at least 0"):
        ASK.interval_join(BUY, on="user", preceding=-1)


def test_rows_of_the_entity_that_are_late(server: Any) -> None:
    rows = [{"t": t, "user": 1, "back": 9} for t in (40, 26, 25)]
    exact = server._answers == "exact"
    assert len(answers(server, *rows)) == (1 if exact else 2)
    late = server.late("ask")
    found = dict(zip(late["t"].to_pylist(), late["late_reason"].to_pylist()))
    assert found == {26: "late" if exact else "within lateness", 25: "late"}
    stats = server.stats().inputs["ask"]
    assert (stats.late, stats.within_lateness) == ((2, 0) if exact else (1, 1))
