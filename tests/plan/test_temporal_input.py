"""Bad input of the temporal algebra is refused, and the message says step, expected, got and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tidemill as tm
from tests.conformance.temporal import by_reference
from tidemill import col
from tidemill.plan.nodes import sources
from tidemill.stream import Stream

S = tm.stream(
    "s", time="t", end="u",
    schema={"t": "int64", "u": "int64", "k": "int64", "v": "int64", "l": "list<int64>", "n": "string"},
)  # fmt: skip
P = tm.stream("p", time="t", schema={"t": "int64", "k": "int64", "v": "int64", "x": "float64"})
C = tm.stream("c", time="ts", schema={"ts": "timestamp", "k": "int64"})
E = tm.stream("e", time="t", schema={"t": "int64", "id": "int64", "on": "bool"})
D = tm.table("d", schema={"k": "int64", "label": "string"})
TAKEN = tm.stream(
    "taken", time="t",
    schema=dict.fromkeys(("t", "valid_to", "valid_from", "k", "edge", "change"), "int64"),
)  # fmt: skip


def _other_groups() -> Stream:
    kept: list[Stream] = []
    S.group_by("k").apply(lambda g: (kept.append(g), g)[1])
    return P.join(kept[0], on="k")


QUERIES: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "keys of different types": (
        lambda: S.join(P, on={"n": "k"}), ["join:", "'n' is string", "'k', which is int64", "cast"],
    ),
    "key that is a list": (lambda: S.join(S, on="l"), ["join:", "'l'", "list<int64>"]),
    "key that is an expression": (lambda: S.join(P, on=col.k), ["join:", "names of columns", "with_columns"]),
    "key that is missing": (lambda: S.clip(P, on={"k": "kk"}), ["clip on=:", "['t', 'k'", "mean 'k'"]),
    "condition on one row": (
        lambda: S.join(P, where=lambda l: l.v > 1), ["join where=:", "takes two rows"],
    ),
    "condition without a lambda": (
        lambda: S.where_exists(P, where=col.v > 1), ["where_exists where=:", "a function of two rows"],
    ),
    "condition on a missing column": (
        lambda: S.join(P, where=lambda l, r: l.w > r.v), ["join where=:", "'w'"],
    ),
    "condition that is none": (
        lambda: S.join(P, where=lambda l, r: l.v + r.v), ["join where=:", "a condition (bool)"],
    ),
    "condition that is the same for all": (
        lambda: S.join(P, where=lambda l, r: True), ["join where=:", "the same for every row"],
    ),
    "unknown kind of join": (lambda: S.join(P, on="k", how="full"), ["join:", "'outer'", "'full'"]),
    "suffixed name taken": (
        lambda: S.select("k", "v", v_right=col.v).join(P, on="k"), ["join:", "'v_right'", "suffix="],
    ),
    "lifetime taken in a join": (lambda: TAKEN.join(P, on="k"), ["join:", "'valid_from'", ".select(...)"]),
    "lifetime taken": (lambda: TAKEN.lasting(3), ["lasting 3:", "'valid_to'", ".select(...)"]),
    "lifetime taken by an aggregate": (lambda: P.agg(valid_from=tm.count()), ["agg:", "'valid_from'"]),
    "lifetime taken by a key": (
        lambda: TAKEN.group_by("valid_from").agg(n=tm.count()), ["agg:", "no key 'valid_from'"],
    ),
    "column edge taken": (lambda: TAKEN.edges(), ["edges:", "'edge'", ".select(...)"]),
    "column change taken": (lambda: TAKEN.changes(), ["changes:", "'change'", ".select(...)"]),
    "two kinds of time": (lambda: S.join(C, on="k"), ["join:", "logical time", "clock time", "never mix"]),
    "two kinds of time in a cut": (lambda: C.where_not_exists(S, on="k"), ["where_not_exists:", "never mix"]),
    "two kinds of time in a union": (lambda: P.select("k").union(C), ["union:", "never mix"]),
    "length in another time": (lambda: C.lasting(5), ["lasting:", "text or a timedelta", "never mix"]),
    "length in no unit": (lambda: P.shift("1m"), ["shift:", "ints", "never mix"]),
    "length that is a month": (lambda: C.lasting("1 month"), ["lasting:", "fixed length"]),
    "length of zero": (lambda: P.lasting(0), ["lasting:", "a positive duration", "0"]),
    "length that is a name": (lambda: P.lasting("v"), ["lasting:", "write col.v"]),
    "length that is a float": (lambda: P.lasting(col.x), ["lasting:", "int64", "float64 in col.x"]),
    "end of another type": (lambda: C.until(col.k), ["until:", "timestamp", "int64"]),
    "start of another type": (lambda: P.starting(col.x), ["starting:", "int64", "float64"]),
    "length that is too far": (lambda: P.lasting(2**62), ["lasting:", "within 2**61 ticks"]),
    "shift for ever": (lambda: P.shift(tm.FOREVER), ["shift:", "within 2**61 ticks"]),
    "session for ever": (
        lambda: P.until_session_end(tm.FOREVER, "k"), ["until_session_end:", "within 2**61 ticks"],
    ),
    "chop by nothing": (lambda: S.chop(0), ["chop:", "a positive duration"]),
    "sample backwards": (lambda: S.sample(-1), ["sample:", "a positive duration"]),
    "quantised without a step": (lambda: P.quantised(5, every=0), ["quantised:", "a positive duration"]),
    "session without a gap": (lambda: P.until_session_end("k"), ["until_session_end:", "a duration", "'k'"]),
    "top by a list": (lambda: S.top(1, by="l"), ["top:", "'l' that is ordered", "list<int64>"]),
    "top by an expression": (lambda: S.top(1, by=col.v * 2), ["top:", "by= a column", "with_columns"]),
    "top of no rows": (lambda: S.top(0, by="v"), ["top:", "a positive number", "0"]),
    "distinct over a list": (lambda: S.distinct("l"), ["distinct:", "'l' that can be compared"]),
    "distinct over all, with a list": (lambda: S.distinct(), ["distinct:", "'l'"]),
    "distinct over an expression": (lambda: S.distinct(col.v + 1), ["distinct:", "columns", "with_columns"]),
    "distinct over the lifetime": (lambda: S.distinct("t"), ["distinct:", "other than the lifetime"]),
    "distinct over a bound": (lambda: TAKEN.distinct("valid_from"), ["distinct:", "other than the lifetime"]),
    "sub-query on another stream": (
        lambda: S.group_by("k").apply(lambda g: S.agg(n=tm.count())), ["apply:", "the stream that it gets"],
    ),
    "sub-query that is none": (lambda: S.group_by("k").apply(S), ["apply:", "a function from a stream"]),
    "sub-query without a result": (lambda: S.group_by("k").apply(lambda g: None), ["apply:", "NoneType"]),
    "key of the groups that equals another column": (
        lambda: S.group_by("k").apply(lambda g: g.join(g, on={"k": "v"})),
        ["join:", "'k' of the groups", "l.k == r.v"],
    ),
    "other key of the groups": (
        lambda: S.group_by("k").apply(lambda g: g.select(k=col.v)),
        ["select:", "the key 'k' unchanged", "k=col.v"],
    ),
    "key of until_next": (lambda: S.until_next("l"), ["until_next:", "'l' that can be compared"]),
    "key of lag that is computed": (lambda: S.lag(col.v + 1, b="v"), ["lag:", "with_columns"]),
    "stream of other groups": (_other_groups, ["join:", "of the same groups", "['k']"]),
    "lag of nothing": (lambda: P.lag("k"), ["lag:", "name=column", "write lag("]),
    "lag by none": (lambda: P.lag(b="v", back=0), ["lag:", "1 or more", "0"]),
    "lead backwards": (lambda: P.lead(b="v", ahead=-1), ["lead:", "1 or more", "-1"]),
    "lag with a taken name": (lambda: P.lag(v="v"), ["lag:", "not a column of", "'v'"]),
    "many of no list": (lambda: S.select_many(a="v"), ["select_many:", "a list in col.v", "int64"]),
    "many of two": (lambda: S.select_many(a="l", b="l"), ["select_many:", "expected one list"]),
    "many with a taken name": (lambda: S.select_many(v="l"), ["select_many:", "'v'"]),
    "no stream": (lambda: S.join([1]), ["join:", "a stream", "list"]),
    "end of a stream of another type": (
        lambda: tm.stream("s", time="t", end="u", schema={"t": "int64", "u": "timestamp"}),
        ["stream 's'", "end column 'u' of type int64", "timestamp"],
    ),
    "end that is the start": (
        lambda: tm.stream("s", time="t", end="t", schema={"t": "int64"}), ["stream 's'", "another column"],
    ),
    "edges without keys": (lambda: E.from_edges(start=col.on), ["from_edges:", "in common"]),
    "edges of intervals": (lambda: S.from_edges("k", start=col.v > 1), ["from_edges:", "points", "'u'"]),
    "edges without a condition": (lambda: E.from_edges("id", start=col.id), ["from_edges:", "(bool)"]),
    "window over a table": (
        lambda: D.window(tm.tumbling("1h")).agg(n=tm.count()), ["window:", "a table", "join a stream"],
    ),
    "lifetime of a table": (lambda: D.lasting("1h"), ["lasting:", "a table, whose rows hold for ever"]),
    "start of a table": (lambda: D.at_start(), ["at_start:", "a table"]),
    "end of a table": (lambda: D.at_end(), ["at_end:", "a table"]),
    "next row of a table": (lambda: D.until_next("k"), ["until_next:", "a table"]),
    "a table in a union": (lambda: S.union(D), ["union:", "a table", "join the stream"]),
    "a stream in a union of tables": (lambda: D.union(S), ["union:", "a table", "join the stream"]),
    "edges of a table": (lambda: D.changes(), ["changes:", "a table"]),
    "one name for two streams": (
        lambda: S.join(tm.stream("s", time="t", schema={"t": "int64", "k": "int64"}), on="k"),
        ["stream 's':", "one declaration for each name"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", QUERIES)
def test_refused_when_it_is_written(name: str) -> None:
    write, said = QUERIES[name]
    with pytest.raises(tm.UserError) as refused:
        write()
    assert [part for part in said if part not in str(refused.value)] == [], refused.value


S_ROW = {"t": 1, "u": 4, "k": 1, "v": 2**40, "l": [1], "n": "a"}
P_ROW = {"t": 2, "k": 1, "v": 2**40, "x": 0.5}
HUGE: Any = lambda l, r: l.v * r.v > 0

DATA: dict[str, tuple[Stream, dict[str, Any], list[str]]] = {
    "end before the start": (
        S.agg(n=tm.count()), {"s": [{**S_ROW, "u": 0}]}, ["an end in 'u' after 't'", "got 0", "filter first"],
    ),
    "end at the start": (S.extend(5), {"s": [{**S_ROW, "u": 1}]}, ["an end in 'u' after 't'", "got 1"]),
    "no start": (
        P.lasting(3), {"p": [{**P_ROW, "t": None}]}, ["'p'", "a time in 't'", "null", "is_not_null()"],
    ),
    "no start of the other side": (
        S.join(P, on="k"), {"s": [S_ROW], "p": [{**P_ROW, "t": None}]}, ["'p'", "null", "is_not_null()"],
    ),
    "start too far away": (P.stitch(), {"p": [{**P_ROW, "t": 2**62}]}, ["within 2**61 ticks"]),
    "end too far away": (S.stitch(), {"s": [{**S_ROW, "u": 2**62}]}, ["within 2**61 ticks"]),
    "end that overflows": (
        P.lasting(lambda e: e.v * 2**23).agg(n=tm.count()), {"p": [P_ROW]}, ["overflow"],
    ),
    "end edge without a start": (
        E.from_edges("id", start=col.on), {"e": [{"t": 3, "id": 1, "on": False}]},
        ["from_edges 'id'", "an end without a start before it, at 3", "filter"],
    ),
    "second start": (
        E.from_edges("id", start=col.on),
        {"e": [{"t": 1, "id": 1, "on": True}, {"t": 2, "id": 1, "on": True}]},
        ["from_edges 'id'", "a second start while one is open, at 2", "name more columns"],
    ),
    "two ends": (
        E.from_edges("id", start=col.on),
        {"e": [{"t": t, "id": 1, "on": t == 1} for t in (1, 2, 3)]},
        ["an end without a start before it, at 3"],
    ),
    "condition that fails": (
        S.join(P, on="k", where=HUGE), {"s": [S_ROW], "p": [P_ROW]}, ["overflow"],
    ),
    "condition that fails in a cut": (
        S.where_not_exists(P, on="k", where=HUGE), {"s": [S_ROW], "p": [P_ROW]}, ["overflow"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DATA)
def test_refused_when_it_is_read(name: str) -> None:
    query, inputs, said = DATA[name]
    given = {one.name: inputs[one.name] for one in sources(query.plan)}
    for answer in (lambda: query.run(**given), lambda: by_reference(query, given)):
        with pytest.raises(tm.UserError) as refused:
            answer()
        assert [part for part in said if part not in str(refused.value)] == [], refused.value


def test_a_condition_that_fails_is_shown() -> None:
    with pytest.raises(tm.UserError, match=r"where=: .*failed on a pair of rows.*leave such rows out first"):
        S.join(P, on="k", where=HUGE).run(s=[S_ROW], p=[P_ROW])


@pytest.mark.parametrize("other", [{**P_ROW, "t": 9}, {**P_ROW, "k": 2}])
def test_a_condition_is_not_asked_of_rows_that_do_not_meet(other: dict[str, Any]) -> None:
    given = {"s": [S_ROW], "p": [other]}
    for query, rows in (
        (S.join(P, on="k", where=HUGE), 0),
        (S.where_exists(P, on="k", where=HUGE), 0),
        (S.where_not_exists(P, on="k", where=HUGE), 1),
        (S.clip(P, on="k", where=HUGE), 1),
    ):
        assert query.run(**given).num_rows == len(by_reference(query, given)) == rows


def test_the_hint_for_bad_lifetimes_works() -> None:
    rows = [{**S_ROW, "u": 0}, S_ROW, {**S_ROW, "u": None}]
    query = S.where((col.u > col.t) | col.u.is_null()).agg(n=tm.count())
    expected = [{"valid_from": 1, "valid_to": 4, "n": 2}, {"valid_from": 4, "valid_to": None, "n": 1}]
    assert query.run(s=rows).to_pylist() == by_reference(query, {"s": rows}) == expected


def test_points_may_be_chopped() -> None:
    assert P.chop(5).run(p=[P_ROW]).to_pylist() == [P_ROW]


def test_a_sub_query_keeps_its_keys() -> None:
    query = S.group_by("k").apply(lambda g: g.select("v"))
    assert query.schema.names == ("k", "t", "u", "v")


def test_a_key_and_a_time_may_be_selected_by_name() -> None:
    query = S.group_by("k").apply(lambda g: g.select(k=col.k, t="t", more=col.v + 1))
    assert query.schema.names == ("k", "t", "u", "more")
    assert S.distinct(col.v, "k").schema.names == ("v", "k", "valid_from", "valid_to")


def test_forever_is_a_length_of_what_may_have_no_end() -> None:
    rows = [S_ROW, {**S_ROW, "u": None}]
    asked = S.at_most(tm.FOREVER), S.extend(tm.FOREVER)
    assert [q.run(s=rows)["u"].to_pylist() for q in asked] == [[S_ROW["u"], None], [None, None]]
    assert P.at_most(tm.FOREVER).run(p=[P_ROW])["valid_to"].to_pylist() == [P_ROW["t"] + 1]


def test_forever_is_no_end_in_rows() -> None:
    query, rows = S.agg(n=tm.count()), [{**S_ROW, "u": tm.FOREVER}]
    live = query.live()
    live.push(s=rows)
    assert live.flush().to_pylist() == query.run(s=rows).to_pylist() == by_reference(query, {"s": rows})
    assert live.late().num_rows == 0
