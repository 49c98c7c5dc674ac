"""What hands write for the best rows, and what they get."""

from __future__ import annotations

from typing import Any

import pytest

import tidemill as tm
from tidemill import col

SCHEMA = {"t": "int64", "who": "string", "v": "int64", "tags": "list<string>"}
STREAM = tm.stream("s", time="t", schema=SCHEMA)
ROWS = [
    {"t": 1, "who": "ann", "v": 5, "tags": ["x", "y"]}, {"t": 2, "who": None, "v": 7, "tags": []},
    {"t": 3, "who": "bob", "v": 7, "tags": ["x"]}, {"t": 11, "who": "eve", "v": 1, "tags": None},
]  # fmt: skip
PLAIN = STREAM.select("who", "v")


def rows(query: tm.Stream, *names: str) -> list[Any]:
    return [tuple(row[n] for n in names) for row in query.run(ROWS).to_pylist()]


def test_asked_for_the_top_rows_of_each_window() -> None:
    best = PLAIN.window(tm.tumbling(10)).top(2, by="v")
    assert rows(best, "window_start", "t", "who") == [(0, 3, "bob"), (0, 2, None), (10, 11, "eve")]


def test_asked_for_all_rows_at_the_maximum() -> None:
    best = PLAIN.window(tm.tumbling(100)).top(1, by="v", ties=True)
    assert rows(best, "who") == [("bob",), (None,)]


def test_asked_for_the_last_row_and_not_the_last_value_of_each_column() -> None:
    last = PLAIN.where(col.t < 3).window(tm.tumbling(100))
    assert rows(last.top(1, by="t"), "who", "v") == [(None, 7)]
    assert rows(last.agg(who=tm.last("who"), v=tm.last("v")), "who", "v") == [("ann", 7)]


def test_asked_for_whole_rows_where_a_column_is_a_list() -> None:
    with pytest.raises(tm.UserError, match=r"col\.tags, which is list.*name the columns"):
        STREAM.window(tm.tumbling(10)).top(1, by="v")
    with pytest.raises(tm.UserError, match="columns by name"):
        STREAM.window(tm.tumbling(10)).agg(x=tm.top_rows("v", col.v * 2))


def test_exploded_a_list() -> None:
    assert rows(STREAM.select_many(tag="tags"), "t", "tag") == [(1, "x"), (1, "y"), (3, "x")]
    with pytest.raises(tm.UserError, match=r"select_many\(x=col\.tags\)"):
        STREAM.select_many("tags")
    with pytest.raises(tm.UserError, match="one list, got 2"):
        STREAM.select_many("tags", x="tags")


def test_took_a_number_out_of_a_text() -> None:
    found = STREAM.select(letter=col.who.extract("^(.)"), rest=col.who.extract("(.)(?P<rest>.*)", "rest"))
    assert rows(found, "letter", "rest")[:2] == [("a", "nn"), (None, None)]
    for ask, message in (
        (lambda: col.who.extract("(a"), "extract: expected a regular expression that RE2 reads"),
        (lambda: col.who.extract("(a)", 2), r"one of \[0, 1\], got 2"),
        (lambda: col.who.extract("(?P<x>a)", "y"), r"one of \[0, 1, 'x'\], got 'y'"),
    ):
        with pytest.raises(tm.UserError, match=message):
            ask()
