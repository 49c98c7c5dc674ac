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
    with pytest.raises(tm.UserError, match=r"got 7, and the start is 7 — .*\.until\('u'\)"):
        SESSIONS.where(col.user == 2).run(sessions=wrong)
    points = tm.stream("sessions", time="t", schema=SESSIONS.schema.to_arrow())
    assert points.until("u").run(sessions=wrong).num_rows == 3
