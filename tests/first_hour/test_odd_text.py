"""What new users met in text files: each test has the name of what somebody did."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidemill as tm


def test_read_a_file_without_a_header(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("2026-01-01;3\n2026-01-02;x\n")
    with pytest.raises(tm.UserError, match=r"columns= with all columns of the stream, also \['v'\]"):
        tm.stream("log", time="t", schema={"t": "timestamp", "v": "int64"}, columns=["t"])
    with pytest.raises(tm.UserError, match="column 'n' of int64, got 'x' in row 2"):
        tm.read(path, time="t", columns=["t", "n"], schema={"n": "int64"}).window(tm.tumbling("1d")).agg(
            n=tm.sum("n")
        ).run()
    read = tm.read(path, time="t", columns=["t", "n"], nulls="x")
    assert [row["n"] for row in read.run().to_pylist()] == [3, None]


def test_followed_a_file_without_a_header(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("1;3\n2;4\n")
    log = tm.stream("log", time="t", schema={"n": "int64", "t": "int64"}, columns=["t", "n"])
    live = log.window(tm.tumbling(2)).agg(n=tm.sum("n")).live()
    found = [*live.read(log=tm.replay(path, speed=None)), live.flush()]
    assert [row["n"] for table in found for row in table.to_pylist()] == [3, 4]


def test_read_dates_that_are_written_as_ints(tmp_path: Path) -> None:
    path = tmp_path / "co2.csv"
    path.write_text("date,co2\n19580329,316.1\n19580405,317.3\n")
    plain = tm.read(path, time="date")
    assert "format='%Y%m%d' makes it clock time" in repr(plain)
    with pytest.raises(tm.UserError, match=r"format='%Y%m%d' makes ints in 'date' clock time"):
        plain.window(tm.tumbling("7d")).agg(n=tm.count())
    weekly = tm.read(path, time="date", format="%Y%m%d").window(tm.tumbling("7d")).agg(n=tm.count())
    assert weekly.run()["n"].to_pylist() == [1, 1]


def test_read_months_without_a_comma_and_nil(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text("date,price\nJan 1 2000,39.81\nFeb 1 2000,nil\n")
    assert tm.read(path, time="date").run()["price"].to_pylist() == [39.81, None]


def test_asked_for_windows_of_a_year() -> None:
    with pytest.raises(tm.UserError, match=r"tm.calendar\('month'\) are windows of them"):
        tm.tumbling("1y")
