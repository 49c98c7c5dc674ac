"""Calendar windows: their rule minute by minute, and their `windows`, `extent` and `wids`."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tidemill.core.errors import UserError
from tidemill.core.time import FARTHEST, instant
from tidemill.windows.calendar_units import common_axis, parts_of, window_of
from tidemill.windows.semantics import bounds, extent, wids, windows
from tidemill.windows.spec import CALENDAR_UNITS, Calendar, calendar, tumbling

MINUTE, HOUR, DAY = 60_000_000, 3_600_000_000, 86_400_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

CHANGES = {
    "daylight saving begins": ("Europe/Berlin", "2024-03-31T01:00Z"),
    "daylight saving ends": ("Europe/Berlin", "2024-10-27T01:00Z"),
    "no midnight": ("America/Sao_Paulo", "2018-11-04T03:00Z"),
    "23:00 twice": ("America/Sao_Paulo", "2019-02-17T02:00Z"),
    "set back over midnight": ("America/St_Johns", "2010-11-07T02:31Z"),
    "no midnight on Sunday": ("Asia/Beirut", "2022-03-26T22:00Z"),
    "no midnight on Friday": ("Africa/Cairo", "2023-04-27T22:00Z"),
    "a day left out": ("Pacific/Apia", "2011-12-30T10:00Z"),
    "a day twice": ("Pacific/Kwajalein", "1969-09-30T13:00Z"),
    "half an hour": ("Australia/Lord_Howe", "2024-04-06T15:00Z"),
    "half hours, before 1970": ("Asia/Kolkata", "1941-09-30T18:30Z"),
    "mean solar time": ("Europe/Berlin", "1893-03-31T23:06:32Z"),
    "UTC": ("UTC", "1969-12-31T00:00Z"),
}
changed = pytest.mark.parametrize("what", CHANGES)


def dates(zone: str, around: int) -> dict[int, date]:
    """The latest date that the clock has shown, minute by minute over six days."""
    found, latest = {}, date.min
    for minute in range(-3 * 1440, 3 * 1440):
        tick = around + minute * MINUTE
        latest = max(latest, (EPOCH + timedelta(microseconds=tick)).astimezone(ZoneInfo(zone)).date())
        found[tick] = latest
    return found


def unit_of(day: date, unit: str) -> int:
    months = (day.year - 1970) * 12 + day.month - 1
    return {
        "day": (day - date(1970, 1, 1)).days, "week": (day - date(1969, 12, 29)).days // 7,
        "month": months, "quarter": months // 3, "year": day.year - 1970,
    }[unit]  # fmt: skip


@changed
def test_windows_have_the_dates_that_the_clock_has_shown(what: str) -> None:
    zone, around = CHANGES[what][0], instant(CHANGES[what][1])
    shown = dates(zone, around)
    for unit in CALENDAR_UNITS:
        for every in (1, 3):
            found = window_of(list(shown), calendar(unit, every, tz=zone)).tolist()
            assert found == [unit_of(day, unit) // every for day in shown.values()]


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[int], Calendar]:
    zone, change = CHANGES[draw(st.sampled_from(list(CHANGES)))]
    near = st.integers(-200, 200).map(lambda quarter: instant(change) + quarter * 15 * MINUTE)
    far = st.integers(-(10**17), 10**17)
    T = draw(st.lists(st.one_of(near, near.map(lambda t: t - 1), far), max_size=12))
    unit, every = draw(st.sampled_from(CALENDAR_UNITS)), draw(st.integers(1, 3))
    if len(T) and max(T) - min(T) > 10**14:  # do not list each day of thousands of years
        unit, every = "year", 40
    return T, calendar(unit, every, tz=zone)


@given(case=cases())
@examples(30, of=300)
def test_wids_and_extent_are_inverse(case: tuple[list[int], Calendar]) -> None:
    T, S = case
    rows, ids = wids(np.arange(len(T)), T, S)
    listed = windows(T, S).tolist()
    by_window = [(row, w) for w in listed for row in extent(w, T, S).tolist()]
    assert sorted(zip(rows.tolist(), ids.tolist())) == sorted(by_window)
    assert rows.tolist() == list(range(len(T))), "each row is in one window"
    assert listed == sorted(set(listed))


@given(case=cases())
@examples(20, of=300)
def test_windows_follow_one_another(case: tuple[list[int], Calendar]) -> None:
    T, S = case
    ids = windows(T, S)
    start, end = bounds(ids, S)
    assert (start < end).all()
    assert (end[:-1] == start[1:]).all(), "also where a day was left out"
    assert window_of(start, S).tolist() == window_of(end - 1, S).tolist() == ids.tolist()


@pytest.mark.parametrize(
    ("S", "when", "hours"),
    [
        (calendar("day", tz="Europe/Berlin"), "2024-03-31T12:00Z", 23),
        (calendar("day", tz="Europe/Berlin"), "2024-10-27T12:00Z", 25),
        (calendar("day", tz="Europe/Berlin"), "2024-10-28T12:00Z", 24),
        (calendar("day", tz="Australia/Lord_Howe"), "2024-04-06T15:00Z", 24.5),
        (calendar("week", tz="America/New_York"), "2024-03-10T12:00Z", 7 * 24 - 1),
        (calendar("month", tz="Europe/Berlin"), "2024-02-29T22:59Z", 29 * 24),
        (calendar("year", tz="Pacific/Apia"), "2011-06-01T00:00Z", 364 * 24),
        (calendar("day", 2), "1969-12-31T23:00Z", 48),
    ],
    ids=str,
)  # fmt: skip
def test_hours_of_windows(S: Calendar, when: str, hours: float) -> None:
    [w] = wids(0, [instant(when)], S)
    start, end = bounds(w, S)
    assert start <= instant(when) < end and end - start == hours * HOUR


def test_a_day_that_was_left_out_has_no_window() -> None:
    S = calendar("day", tz="Pacific/Apia")
    T = [instant("2011-12-30T09:59Z"), instant("2011-12-30T10:00Z")]
    [thursday, saturday] = windows(T, S).tolist()
    assert saturday - thursday == 2
    assert extent(thursday + 1, T, S).tolist() == []


def test_days_of_utc_are_tumbling_windows() -> None:
    T = [-DAY - 1, -1, 0, 5 * DAY]
    assert windows(T, calendar("day")).tolist() == windows(T, tumbling("1d")).tolist()
    assert [b.tolist() for b in bounds([-3, 8], calendar("day"))] == [
        b.tolist() for b in bounds([-3, 8], tumbling("1d"))
    ]


@pytest.mark.parametrize("unit", CALENDAR_UNITS)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_times_far_away(unit: str, zone: str) -> None:
    S = calendar(unit, tz=zone)
    for t in (-FARTHEST, FARTHEST):
        start, end = bounds(wids(0, [t], S), S)
        assert start[0] <= t < end[0]
    with pytest.raises(UserError, match="windows within int64 ticks"):
        windows([FARTHEST + 1], S)
    with pytest.raises(UserError, match="windows within int64 ticks"):
        bounds(1 << 60, S)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: calendar("days"), r"'day', 'week', 'month', 'quarter', 'year'.*did you mean 'day'"),
        (lambda: calendar("hour"), "got 'hour' — .*tumbling"),
        (lambda: calendar(None), "one of the units"),  # type: ignore[arg-type]
        (lambda: calendar("day", 0), "every greater than zero"),
        (lambda: calendar("day", "2"), "a number of units"),  # type: ignore[arg-type]
        (lambda: calendar("day", 10_001), "every up to 10000"),
        (lambda: calendar("day", tz="Europe/Berln"), "did you mean 'Europe/Berlin'"),
    ],
)  # fmt: skip
def test_bad_calendars_are_refused(make: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()


def test_shown_with_their_options() -> None:
    assert str(calendar("week", 2, tz="Asia/Tokyo", on="seen", fill_empty=True)) == (
        "calendar('week', every=2, tz='Asia/Tokyo', on='seen', fill_empty=True)"
    )
    assert calendar("day", tz="Etc/UTC") == calendar("day")


def test_panes_of_several_calendars() -> None:
    days, weeks, months = (calendar(u, tz="Asia/Tokyo") for u in ("day", "week", "month"))
    years = calendar("year", 2, tz="Asia/Tokyo")
    assert common_axis([weeks, weeks]) == weeks
    assert common_axis([weeks, months]) == days
    assert common_axis([years, months]) == months
    assert common_axis([days, calendar("day")]) is None
    assert (parts_of(years, months), parts_of(weeks, days), parts_of(weeks, weeks)) == (24, 7, 1)
