"""Answers written by hand, one or two for each operator: the definition and this process give both."""

from __future__ import annotations

from typing import Any

import pytest

import tidemill as tm
from tests.conformance.temporal import assert_rows, by_reference, in_process
from tidemill import col
from tidemill.core.time import instant, to_datetime
from tidemill.stream import Stream

Row = dict[str, Any]
S = tm.stream("s", time="t", end="u", schema={"t": "int64", "u": "int64", "k": "int64", "v": "int64"})
P = tm.stream("p", time="t", schema={"t": "int64", "k": "int64", "v": "int64"})

S_ROWS = [
    {"t": 0, "u": 5, "k": 1, "v": 10},
    {"t": 3, "u": 8, "k": 1, "v": 20},
    {"t": 8, "u": None, "k": 1, "v": 20},
    {"t": 2, "u": 4, "k": 2, "v": 30},
]
P_ROWS = [
    {"t": 1, "k": 1, "v": 15},
    {"t": 4, "k": 1, "v": 5},
    {"t": 9, "k": 2, "v": 7},
    {"t": 6, "k": None, "v": 1},
]


def rows(names: str, *values: tuple[Any, ...]) -> list[Row]:
    return [dict(zip(names.split(), one)) for one in values]


ANSWERS: dict[str, tuple[Stream, list[Row]]] = {
    "where": (S.where(col.v > 20), rows("t u k v", (2, 4, 2, 30))),
    "lasting": (P.lasting(3).where(col.k == 1), rows("t k v valid_to", (1, 1, 15, 4), (4, 1, 5, 7))),
    "lasting an expression": (
        P.where(col.k.is_not_null()).lasting(lambda e: e.v - 7),  # 8, -2 and 0 instants
        rows("t k v valid_to", (1, 1, 15, 9)),
    ),
    "until": (P.until(lambda e: e.v).where(col.k == 1), rows("t k v valid_to", (1, 1, 15, 15), (4, 1, 5, 5))),
    "starting": (S.starting(lambda e: e.t + e.k * 2).select("v"), rows(
        "t u v", (2, 5, 10), (5, 8, 20), (10, None, 20))),  # the fourth would start after its end
    "extend": (S.extend(2).select("v"), rows("t u v", (0, 7, 10), (3, 10, 20), (8, None, 20), (2, 6, 30))),
    "shift": (S.shift(-1).select("v"), rows("t u v", (-1, 4, 10), (2, 7, 20), (7, None, 20), (1, 3, 30))),
    "at_most": (S.at_most(3).select("v"), rows("t u v", (0, 3, 10), (3, 6, 20), (8, 11, 20), (2, 4, 30))),
    "at_start": (S.at_start().select("v"), rows("t v", (0, 10), (3, 20), (8, 20), (2, 30))),
    "at_end": (S.at_end().select("v"), rows("t v", (5, 10), (8, 20), (4, 30))),
    "quantised": (P.quantised(4, every=2).select("v"), rows(
        "t v valid_to", (2, 15, 6), (6, 5, 10), (10, 7, 14), (8, 1, 12))),
    "until_session_end": (P.until_session_end(4, "k").where(col.k == 1).select("v"), rows(
        "t v valid_to", (1, 15, 8), (4, 5, 8))),
    "until_session_end, gap": (P.until_session_end(3, "k").where(col.k == 1).select("v"), rows(
        "t v valid_to", (1, 15, 4), (4, 5, 7))),
    "until_next": (P.until_next("k").select("v"), rows(
        "t v valid_to", (1, 15, 4), (4, 5, None), (9, 7, None), (6, 1, None))),
    "chop": (S.where(col.k == 1).chop(4).select("v"), rows(
        "t u v", (0, 4, 10), (4, 5, 10), (3, 4, 20), (4, 8, 20), (8, None, 20))),
    "sample": (S.sample(4).select("v"), rows("t v", (0, 10), (4, 10), (4, 20), (8, 20))),
    "stitch": (S.select("k", "v").stitch(), rows(
        "t u k v", (0, 5, 1, 10), (3, None, 1, 20), (2, 4, 2, 30))),
    "stitch layers": (S.select("k").stitch(), rows("t u k", (0, None, 1), (3, 5, 1), (2, 4, 2))),
    "agg": (S.agg(n=tm.count(), sm=tm.sum(col.v)), rows(
        "valid_from valid_to n sm",
        (0, 2, 1, 10), (2, 3, 2, 40), (3, 4, 3, 60), (4, 5, 2, 30), (5, None, 1, 20))),
    "agg by key": (S.group_by("k").agg(last=tm.last(col.v)), rows(
        "k valid_from valid_to last", (1, 0, 3, 10), (1, 3, None, 20), (2, 2, 4, 30))),
    "distinct": (S.distinct("k"), rows("k valid_from valid_to", (1, 0, None), (2, 2, 4))),
    "top": (S.top(1, by="v").select("v"), rows(
        "t u v", (0, 2, 10), (2, 4, 30), (4, 8, 20), (8, None, 20))),
    "top by key, least": (S.group_by("k").top(1, by="v", least=True), rows(
        "t u k v", (0, 5, 1, 10), (5, 8, 1, 20), (8, None, 1, 20), (2, 4, 2, 30))),
    "join": (S.join(P, on="k"), rows(
        "k v v_right valid_from valid_to", (1, 10, 15, 1, 2), (1, 10, 5, 4, 5), (1, 20, 5, 4, 5))),
    "join where": (S.join(P, on="k", where=lambda l, r: l.v < r.v), rows(
        "k v v_right valid_from valid_to", (1, 10, 15, 1, 2))),
    "left": (S.where(col.v == 10).join(P, on="k", how="left"), rows(
        "k v v_right valid_from valid_to",
        (1, 10, None, 0, 1), (1, 10, 15, 1, 2), (1, 10, None, 2, 4), (1, 10, 5, 4, 5))),
    "right": (S.where(col.v == 10).join(P, on="k", how="right"), rows(
        "k v v_right valid_from valid_to",
        (1, 10, 15, 1, 2), (1, 10, 5, 4, 5), (2, None, 7, 9, 10), (None, None, 1, 6, 7))),
    "outer": (S.where(col.k == 2).join(P.where(col.k == 2), on="k", how="outer"), rows(
        "k v v_right valid_from valid_to", (2, 30, None, 2, 4), (2, None, 7, 9, 10))),
    "where_exists": (S.where_exists(P, on="k").select("v"), rows(
        "t u v", (1, 2, 10), (4, 5, 10), (4, 5, 20))),
    "where_not_exists": (S.where(col.v != 20).where_not_exists(P, on="k").select("v"), rows(
        "t u v", (0, 1, 10), (2, 4, 10), (2, 4, 30))),
    "clip": (S.clip(P, on="k").select("v"), rows(
        "t u v", (0, 1, 10), (3, 4, 20), (8, None, 20), (2, 4, 30))),
    "union": (P.where(col.k == 1).union(P.where(col.v > 10)).select("v"), rows(
        "t v", (1, 15), (4, 5), (1, 15))),
    "lag": (P.lag("k", b="v").select("v", "b"), rows(
        "t v b", (1, 15, None), (4, 5, 15), (9, 7, None), (6, 1, None))),
    "lead of all": (P.lead(a="v").select("v", "a"), rows(
        "t v a", (1, 15, 5), (4, 5, 1), (6, 1, 7), (9, 7, None))),
    "edges": (S.where(col.k == 2).edges(), rows(
        "edge t k v", ("start", 2, 2, 30), ("end", 4, 2, 30))),
    "changes": (S.select("k").changes(), rows(
        "change t k", (1, 0, 1), (1, 3, 1), (-1, 5, 1), (1, 2, 2), (-1, 4, 2))),
    "select_many": (S.group_by("k").agg(vs=tm.collect(col.v)).where(col.valid_from == 3).select_many(
        v="vs"), rows("k valid_from valid_to v", (1, 3, 5, 10), (1, 3, 5, 20))),
    "apply": (S.group_by("k").apply(lambda g: g.join(g.agg(n=tm.count()))).where(col.n == 2), rows(
        "k v n valid_from valid_to", (1, 10, 2, 3, 5), (1, 20, 2, 3, 5))),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_answer(name: str) -> None:
    query, expected = ANSWERS[name]
    inputs = {n: r for n, r in {"s": S_ROWS, "p": P_ROWS}.items() if n in repr(query).split()}
    assert_rows(by_reference(query, inputs), expected, f"{name}, by definition")
    assert_rows(in_process(query, inputs), expected, f"{name}, run")


def test_edges_put_together() -> None:
    edges = tm.stream("e", time="t", schema={"t": "int64", "id": "int64", "on": "bool", "v": "int64"})
    query = edges.from_edges("id", start=col.on).select("id", "v")
    given = rows(
        "t id on v", (1, 7, True, 5), (4, 7, False, None), (4, 7, True, 6), (2, 8, True, 9), (3, 8, False, 0)
    )
    expected = rows("t id v valid_to", (1, 7, 5, 4), (4, 7, 6, None), (2, 8, 9, 3))
    assert_rows(by_reference(query, {"e": given}), expected, "by definition")
    assert_rows(query.run(e=given).to_pylist(), expected, "run")


def test_rows_of_a_table_alone_start_where_every_clock_can_show_it() -> None:
    schema = {"t": "timestamp", "u": "timestamp", "k": "int64"}
    visits = tm.stream("visits", time="t", end="u", schema=schema)
    limits = tm.table("limits", schema={"k": "int64", "limit": "int64"})
    query = visits.join(limits, on="k", how="right")
    old, later, first, now, then = (instant(f"{year}-01-01") for year in (1500, 1600, 1678, 2026, 2027))
    given = {
        "visits": rows("t u k", (old, later, 1), (old, later, 2), (later, None, 2), (now, then, 1)),
        "limits": rows("k limit", (1, 10), (2, 20), (3, 30)),
    }
    alone = [(1, 10, first, now), (1, 10, then, None), (3, 30, first, None)]
    both = [(1, 10, old, later), (1, 10, now, then), (2, 20, old, later), (2, 20, later, None)]
    expected = rows("k limit valid_from valid_to", *alone, *both)
    assert_rows(by_reference(query, given), expected, "by definition")
    assert_rows(in_process(query, given), expected, "run")
    shown = [{**row, **{n: row[n] and to_datetime(row[n]) for n in ("t", "u")}} for row in given["visits"]]
    live = query.live()
    live.push(limits=given["limits"])
    tables = [*(live.push(visits=row) for row in shown), live.flush()]
    got = [row for table in tables for row in table.to_pylist()]
    ticks = [{**row, **{n: row[n] and instant(row[n]) for n in ("valid_from", "valid_to")}} for row in got]
    assert_rows(ticks, expected, "live")
    # A table that a stream has cut is one as well; a query on tables alone has no times.
    cut = limits.where_not_exists(visits, on="k").join(visits, on="k", how="left").select("k")
    assert rows("k valid_from valid_to", (3, first, None))[0] in in_process(cut, given)
    assert limits.join(limits, on="k", how="outer").run(limits=given["limits"]).num_rows == 3


def test_a_table_holds_for_ever() -> None:
    limits = tm.table("limits", schema={"k": "int64", "limit": "int64"})
    query = P.join(limits, on="k", where=lambda l, r: l.v > r.limit, how="left").select("v", "limit")
    given = {"p": P_ROWS[:3], "limits": rows("k limit", (1, 10), (2, 9))}
    expected = rows(
        "v limit valid_from valid_to", (15, 10, 1, 2), (5, None, 4, 5), (7, None, 9, 10)
    )
    assert_rows(by_reference(query, given), expected, "by definition")
    assert_rows(query.run(**given).to_pylist(), expected, "run")
