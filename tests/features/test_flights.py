"""Flights from New York and the weather there: features from history and from a server are the same."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from examples.flight_features import Tables, in_their_hour, known, load, sample, training


@pytest.fixture(scope="module")
def flights() -> Tables:
    return load()


@pytest.fixture(scope="module")
def day(flights: Tables) -> Tables:
    """A Sunday on which clocks went forward an hour, and the day before."""
    return sample(flights, "2013-03-09T18:00", "2013-03-10T12:00", ("LGA",))


def test_a_server_gives_the_features_that_history_has(day: Tables) -> None:
    found = known.verify(day, runs=2, seed=19)
    assert found and found.rows == 2 * day["flights"].num_rows > 100, found.differing


def test_times_of_new_york_meet_hours_of_the_weather_in_utc(day: Tables) -> None:
    """By a loop over the raw rows, with the hour that the package has in UTC beside the local one."""
    rows = training(day)
    assert in_their_hour(rows) == rows.num_rows
    hours: dict[tuple[str, datetime], dict[str, Any]] = {}
    for row in day["weather"].to_pylist():
        hours[row["origin"], row["hour"]] = row
    for row in rows.to_pylist():
        asked = row["asked"].replace(minute=0)
        assert row["temp"] == hours[row["origin"], asked]["temp"]
        rain = [h["precip"] for (_, at), h in hours.items() if 0 <= _hours(row["asked"], at) <= 6]
        assert row["rain"] == pytest.approx(sum(rain))


def _hours(asked: datetime, at: datetime) -> float:
    return (asked - at.astimezone(timezone.utc)).total_seconds() / 3600


@pytest.mark.compiled
def test_features_of_departures_are_those_of_a_loop(day: Tables) -> None:
    rows, departures = training(day), day["departures"].to_pylist()
    for row in rows.to_pylist():
        local = np.datetime64(row["asked"].replace(tzinfo=None)) - _offset(row["asked"])
        before = [d for d in departures if 0 <= _minutes(local, d["left"]) <= 180]
        assert row["left_3h"] == len(before)
        delays = [d["delay"] for d in before]
        assert row["delay_3h"] == (pytest.approx(np.mean(delays)) if delays else None)
        plane = [d for d in departures if d["tailnum"] == row["tailnum"] and d["left"] <= local.item()]
        last = max(plane, key=lambda d: (d["left"], d["delay"]), default=None)
        near = last is not None and _minutes(local, last["left"]) <= 24 * 60
        assert row["plane_delay"] == (last["delay"] if last is not None and near else None)


def _offset(at: datetime) -> np.timedelta64:
    """How far clocks in New York are behind: an hour less from 7:00 UTC of that Sunday on."""
    forward = datetime(2013, 3, 10, 7, tzinfo=timezone.utc)
    return np.timedelta64(4 if at >= forward else 5, "h")


def _minutes(local: np.datetime64, left: datetime) -> float:
    forward, later = np.datetime64("2013-03-10T02:00"), np.datetime64(left)
    lost = np.timedelta64(60, "m") if later < forward <= local else np.timedelta64(0, "m")
    return float((local - later - lost) / np.timedelta64(1, "m"))


@pytest.mark.soak
def test_the_whole_year(flights: Tables) -> None:
    rows = training(flights)
    assert in_their_hour(rows) == rows.num_rows == 336_776
    found = known.verify(flights, runs=3, seed=2013)
    assert found and found.rows == 3 * 336_776, found.differing
    assert isinstance(found.differing, pa.Table)
