"""`live.lookup`: what a base row would get if it came now, from indexes or from rows, one row or many."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest

import tidemill as tm
from tidemill import col
from tidemill.stream import Stream

Row = dict[str, Any]
START = datetime(2026, 11, 19, tzinfo=timezone.utc)
COLUMNS = {"t": "timestamp", "user": "string", "n": "int64", "x": "float64"}
ASK = tm.stream("ask", time="t", schema={**COLUMNS, "far": "duration", "ok": "bool"})
BUY = tm.stream("buy", time="t", schema={**COLUMNS, "item": "string"})
QUERIES: dict[str, Callable[[], Stream]] = {
    "aggregates": lambda: ASK.interval_join(BUY, on="user", preceding="1h").agg(
        n_buys=tm.count(), paid=tm.sum("n"), mean=tm.mean("x"), top=tm.max("item")),
    "several intervals": lambda: ASK.interval_join(BUY, on=["user", "n"], preceding=["1m", "1h"]).agg(
        c=tm.count(), when=tm.max("t")),
    "bounds of the row": lambda: ASK.interval_join(BUY, on="user", preceding=col.far, closed="right").agg(
        c=tm.count(), y=tm.last("x")),
    "a float key": lambda: ASK.interval_join(BUY, on="x", preceding="1h", max_rows=3).agg(c=tm.sum("n")),
    "without a key": lambda: ASK.interval_join(BUY, preceding="1m").agg(c=tm.count()),
    "last": lambda: ASK.last_join(BUY, on="user"),
    "next": lambda: ASK.last_join(BUY.select("user", "n"), on="user", direction="forward"),
    "lags": lambda: ASK.last_join(BUY.select("user", "x"), on="user", lags=["0m", "10m"]).select(
        "t", "user", "ok", up=col.x_0 - col.x_10m),
    "filters and expressions": lambda: ASK.where(col.n > 0).with_columns(twice=col.n * 2).interval_join(
        BUY, on={"twice": "n"}, preceding="1h").agg(c=tm.count()).where(col.c < 9),
    "rows": lambda: ASK.interval_join(BUY, on="user", preceding="1h").agg(
        m=tm.median("n"), i=tm.collect("item")),
    "a condition": lambda: ASK.interval_join(
        BUY, on="user", preceding="1h", where=lambda a, b: a.n < b.n).agg(c=tm.count()),
    "since previous": lambda: ASK.interval_join(BUY, on="user", since_previous=True).agg(c=tm.count()),
    "pairs": lambda: ASK.interval_join(BUY, on="user", preceding="2m").pairs(),
    "lifetimes": lambda: ASK.shift("1m").interval_join(BUY, on="user", preceding="1h").agg(
        c=tm.count()).lasting("5m"),
}  # fmt: skip


def some(pick: random.Random, count: int, *names: str) -> list[Row]:
    columns: dict[str, Callable[[], Any]] = {
        "t": lambda: START + timedelta(seconds=pick.randrange(7200)),
        "user": lambda: pick.choice(["ann", "ben", "", None]), "n": lambda: pick.choice([0, 1, 2, 3, None]),
        "x": lambda: pick.choice([0.5, -0.0, 0.0, math.nan, None]),
        "item": lambda: pick.choice(["tea", "cup", "jam", None]),
        "ok": lambda: pick.choice([True, False, None]),
        "far": lambda: pick.choice([timedelta(minutes=9), timedelta(seconds=-1), None]),
    }  # fmt: skip
    return [{n: columns[n]() for n in names} for _ in range(count)]


@pytest.mark.parametrize("name", QUERIES)
def test_a_lookup_is_what_a_push_would_give(name: str) -> None:
    live, pick = QUERIES[name]().live(answers="on arrival"), random.Random(7)
    for _ in range(2):
        for each in (some(pick, 12, *BUY.schema.names), some(pick, 1, *BUY.schema.names)):
            live.push(buy=each)
        asked = some(pick, 12, *ASK.schema.names)
        before = live.stats().inputs["ask"]
        table = live.lookup(asked)
        found = [] if name == "pairs" else [live.lookup(row) for row in asked]
        assert live.stats().inputs["ask"] == before
        assert live.refused().get("ask", []) == []
        if name != "pairs":
            assert repr(table.to_pylist()) == repr([row for row in found if row is not None])
        if name != "since previous":  # where rows of a push see each other
            assert repr(live.push(ask=asked).to_pylist()) == repr(table.to_pylist())


def test_a_row_that_is_looked_up_is_in_no_stream() -> None:
    query = ASK.interval_join(ASK, on="user", preceding="1h").agg(c=tm.count())
    live = query.live(tm.Disorder(slack="1m"), answers="on arrival")
    [row] = some(random.Random(1), 1, *ASK.schema.names)
    row["user"] = "ann"
    live.push(ask=row)
    assert [live.lookup(row)["c"], live.lookup(row)["c"]] == [1, 1]
    live.lookup({**row, "t": row["t"] + timedelta(days=1)})
    assert live.push(ask=row)["c"].to_pylist() == [2]


def test_values_are_read_as_those_of_a_push() -> None:
    live = QUERIES["aggregates"]().live(answers="on arrival")
    [row] = some(random.Random(2), 1, *ASK.schema.names)
    row |= {"x": 1.0, "more": "ignored"}
    plain = live.lookup({**row, "t": row["t"].replace(tzinfo=None)})
    assert plain == live.lookup({**row, "x": 1}) == live.lookup(pa.Table.from_pylist([row])).to_pylist()[0]
    for wrong, words in (
        ({"x": "1"}, "column 'x' of float64"), ({"n": 1 << 70}, "column 'n'"), ({"t": None}, "a time in 't'"),
        ({"t": "noon"}, "timestamp"),
    ):  # fmt: skip
        with pytest.raises(tm.UserError, match=words):
            live.lookup({**row, **wrong})
    with pytest.raises(tm.UserError, match=r"lookup ask, row 1: expected a column 'user'"):
        live.lookup({"t": START})


def test_a_row_whose_probe_rows_may_be_gone_is_refused() -> None:
    query = ASK.interval_join(BUY, on="user", preceding="1h", lateness="5m").agg(c=tm.count())
    live = query.live(answers="on arrival")
    live.punctuate(START)
    [row] = some(random.Random(3), 1, *ASK.schema.names)
    assert live.lookup({**row, "t": START - timedelta(minutes=5)})["c"] == 0
    late = {**row, "t": START - timedelta(minutes=5, seconds=1)}
    for rows in (late, [row, late]):
        with pytest.raises(tm.UserError, match=r"a time in 't' from 2026-11-18T23:55.* on: older rows"):
            live.lookup(rows)


def test_who_can_be_asked() -> None:
    with pytest.raises(tm.UserError, match="expected a query with answers='on arrival', got answers='exact'"):
        QUERIES["last"]().live().lookup({})
    both = ASK.union(BUY.with_columns(far=tm.lit(timedelta(1)), ok=tm.lit(True)).select(*ASK.schema.names))
    joined = both.last_join(BUY, on="user").live(answers="on arrival")
    with pytest.raises(tm.UserError, match=r"base rows of one stream, got base rows of \['ask', 'buy'\]"):
        joined.lookup({})


def test_several_answers_to_one_row_are_not_cut_to_one() -> None:
    live = QUERIES["pairs"]().live(answers="on arrival")
    [row] = some(random.Random(1), 1, *ASK.schema.names)
    row["user"] = "ann"
    live.push(buy=[row | {"item": item} for item in ("tea", "cup")])
    assert live.lookup([row]).num_rows == 2
    with pytest.raises(tm.UserError, match="expected one answer to one row, got 2 rows"):
        live.lookup(row)


@pytest.mark.parametrize(
    "query",
    [
        lambda: ASK.lag("user", before=col.n).last_join(BUY, on="user"),
        lambda: ASK.last_join(BUY, on="user").group_by("user").window(tm.tumbling("1h")).agg(c=tm.count()),
    ],
)
def test_a_step_that_keeps_rows_has_no_answer_for_one_that_is_not_kept(query: Callable[[], Stream]) -> None:
    live, [row] = query().live(answers="on arrival"), some(random.Random(1), 1, *ASK.schema.names)
    for asked in (row, [row]):
        with pytest.raises(tm.UserError, match=r"lookup: expected interval joins, .* which keeps rows"):
            live.lookup(asked)


def test_a_step_before_probe_rows_may_keep_rows() -> None:
    hours = ASK.group_by("user").window(tm.tumbling("1h")).agg(c=tm.count()).shift("1h")
    live = ASK.last_join(hours.select("user", "c"), on="user").live(answers="on arrival")
    [row] = some(random.Random(1), 1, *ASK.schema.names)
    assert live.lookup(row)["c"] is None
