"""History as if it came now: when rows come, and in which pieces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidemill as tm
from tidemill.core.clock import Clock
from tidemill.core.schema import schema
from tidemill.plan.nodes import Source

LOGICAL = Source("s", schema({"t": "int64", "came": "int64"}), "t", step="read s")
TIMED = Source("s", schema({"ts": "timestamp"}), "ts", step="read s")


class Manual(Clock):
    seconds = 100.0

    def now(self) -> float:
        return self.seconds


def played(feed: Any, source: Source, column: str, position: Any = None) -> list[tuple[float, list[Any]]]:
    """When rows came, in seconds after the first, and their values."""
    clock = Manual()
    opened, found = feed.open(source, position, clock), []
    while not opened.ended:
        clock.seconds += opened.due()
        arrival = opened.poll()
        if arrival is not None:
            found.append((round(clock.seconds - 100, 6), arrival.rows[column].to_pylist()))
            opened.accept()
    return found


def test_rows_come_at_their_times(tmp_path: Path) -> None:
    ts = pa.array([0, 60_000_000, 30_000_000, 64_000_000, 200_000_000], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"ts": ts}), tmp_path / "s.parquet")
    found = played(tm.replay(tmp_path / "s.parquet", speed=60), TIMED, "ts")
    assert [(at, len(rows)) for at, rows in found] == [(0, 1), (1.0, 2), (1.066667, 1), (3.333333, 1)]
    found = played(tm.replay(tmp_path / "s.parquet", speed=60, every="1m"), TIMED, "ts")
    assert [(at, len(rows)) for at, rows in found] == [(0, 1), (1.066667, 3), (3.333333, 1)]


def test_as_fast_as_possible_in_pieces() -> None:
    rows = [{"t": t, "came": 0} for t in (1, 9, 4, 10, None, 25, 1 << 62, 26)]
    assert played(tm.replay(rows, speed=None, every=10), LOGICAL, "t") == [
        (0, [1, 9, 4]), (0, [10, None]), (0, [25, 1 << 62, 26]),
    ]  # fmt: skip
    assert played(tm.replay(rows, speed=None), LOGICAL, "t") == [(0, [row["t"] for row in rows])]
    assert played(tm.replay(rows, speed=None, every=10), LOGICAL, "t", position=2) == [
        (0, [4]), (0, [10, None]), (0, [25, 1 << 62, 26]),
    ]  # fmt: skip
    assert played(tm.replay(rows, speed=None), LOGICAL, "t", position=8) == []


def test_another_column_says_when_a_row_came() -> None:
    rows = [{"t": t, "came": came} for t, came in ((5, 100), (1, 102), (3, 104))]
    read = Source("s", LOGICAL.declared, "t", ("t",), step="read s")
    feed = tm.replay(rows, speed=2, time="came")
    assert played(feed, read, "t") == [(0, [5]), (1.0, [1]), (2.0, [3])]
    assert "replay" in repr(feed)


def test_rows_without_a_time_do_not_wait() -> None:
    rows = [{"t": t, "came": 0} for t in (None, 7, 9)]
    assert played(tm.replay(rows, speed=1), LOGICAL, "t") == [(0, [None]), (0, [7]), (2.0, [9])]


def test_a_position_of_something_else_is_refused() -> None:
    with pytest.raises(tm.UserError, match="a position of this kind of source, a number"):
        tm.replay([]).open(LOGICAL, {"offset": 1}, Clock())
