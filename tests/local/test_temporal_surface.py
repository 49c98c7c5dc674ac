"""What a first user of the temporal algebra stumbled over."""

from __future__ import annotations

import pytest

import tidemill as tm
from tidemill import col

SESSIONS = tm.stream("sessions", time="t", end="u", schema={"t": "int64", "u": "int64", "user": "int64"})
ROWS = [{"t": 0, "u": 10, "user": 1}, {"t": 5, "u": 20, "user": 1}, {"t": 30, "u": None, "user": 2}]
USERS = tm.table("users", schema={"user": "int64", "name": "string"})
NAMES = [{"user": 1, "name": "Ann"}, {"user": 2, "name": "Ben"}]


def test_a_stream_is_joined_with_itself_as_it_comes() -> None:
    pairs = SESSIONS.join(SESSIONS, on="user", where=lambda a, b: a.t < b.t)
    expected = [{"user": 1, "valid_from": 5, "valid_to": 10}]
    assert pairs.run(sessions=ROWS).to_pylist() == expected
    live = pairs.live(tm.Disorder(slack=0))
    assert [row for one in ROWS for row in live.push(sessions=one).to_pylist()] == expected


def test_rows_of_a_table_count_if_no_column_is_read() -> None:
    assert USERS.agg(n=tm.count()).run(users=NAMES).to_pylist() == [{"n": 2}]
    assert USERS.select(one=tm.lit(1)).run(users=NAMES).to_pylist() == [{"one": 1}] * 2
    live = SESSIONS.join(USERS.select(one=tm.lit(1))).live(tm.Disorder(slack=0))
    assert live.push(users=NAMES).num_rows == 0 and live.push(sessions=ROWS).num_rows == 6


def test_a_row_that_ends_too_soon_is_an_error_whose_hint_helps() -> None:
    wrong = [*ROWS, {"t": 7, "u": 7, "user": 1}]
    counted = SESSIONS.agg(n=tm.count())
    with pytest.raises(tm.UserError, match=r"got 7, and the start is 7 — filter first: \.where"):
        counted.run(sessions=wrong)
    kept = SESSIONS.where((col.u > col.t) | col.u.is_null()).agg(n=tm.count())
    assert kept.run(sessions=wrong).equals(counted.run(sessions=ROWS))


def test_a_filter_after_chop_does_not_change_where_rows_without_an_end_are_cut() -> None:
    pieces = SESSIONS.chop(10).where(col.user == 2)
    rows = [*ROWS, {"t": 50, "u": 55, "user": 1}]
    starts = [row["t"] for row in pieces.run(sessions=rows).to_pylist()]
    assert starts == [30, 40, 50]


def test_null_is_a_key_like_any_other_in_until_next() -> None:
    rows = [{"t": 1, "user": None}, {"t": 4, "user": 7}, {"t": 9, "user": None}]
    points = tm.stream("points", time="t", schema={"t": "int64", "user": "int64"})
    found = points.until_next("user").run(points=rows).to_pylist()
    assert sorted((row["t"], row["valid_to"]) for row in found) == [(1, 9), (4, None), (9, None)]


def test_select_keeps_the_columns_of_a_lifetime_together() -> None:
    assert SESSIONS.select("user").schema.names == ("t", "u", "user")
    assert SESSIONS.select("user", "u").schema.names == ("t", "u", "user")


def test_a_table_has_no_windows() -> None:
    with pytest.raises(tm.UserError, match="expected a stream, whose rows have a time, got a table"):
        USERS.window(tm.tumbling(10)).agg(n=tm.count())


def test_a_table_is_pushed_before_sources_are_read() -> None:
    live = SESSIONS.join(USERS, on="user").live(tm.Disorder(slack=0))
    with pytest.raises(tm.UserError, match=r"push the rows of a table first: live.push\(users="):
        live.read(sessions=ROWS, users=NAMES)
    live.push(users=NAMES)
    assert sum(table.num_rows for table in live.read(sessions=iter(ROWS))) == 3


def test_each_refused_row_has_its_own_reason() -> None:
    schema = {"t": "int64", "k": "int64", "v": "int64"}
    a, b = (tm.stream(name, time="t", schema=schema) for name in "ab")
    inverse = tm.udf(lambda x, y: x / y > 0, returns="bool")
    live = a.join(b, on="k", where=lambda l, r: inverse(l.v, r.v)).live()
    live.push(a=[{"t": 1, "k": k, "v": v} for k, v in ((1, 5), (2, 6), (3, 7))])
    live.push(b=[{"t": 1, "k": k, "v": v} for k, v in ((1, 0), (2, 0), (3, 1))])
    assert live.flush()["v"].to_pylist() == [7]
    [refused] = live.refused().values()
    assert refused["v"].to_pylist() == [5, 6]
    assert all(f"[{v}, 0]" in reason for v, reason in zip((5, 6), refused["late_reason"].to_pylist()))
