"""Instants and durations, as people write them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.errors import UserError
from tidemill.core.time import (
    Domain,
    Duration,
    duration,
    format_duration,
    instant,
    to_datetime,
)  # fmt: skip

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("text", "ticks"),
    [
        ("1s", SECOND), ("250ms", 250_000), ("3us", 3), ("3µs", 3), ("1h30m", 5400 * SECOND),
        ("10 minutes", 600 * SECOND), ("1 day 2 hours", 93_600 * SECOND), ("2w", 1_209_600 * SECOND),
        ("0.5s", 500_000), ("1.5 hours", 5400 * SECOND), ("-5m", -300 * SECOND), (" 1S ", SECOND),
        ("0s", 0),
    ],
)  # fmt: skip
def test_durations_as_text(text: str, ticks: int) -> None:
    assert duration(text) == Duration(ticks, Domain.CLOCK)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", "a duration such as"), ("5", "a duration such as"), ("5 parsecs", "a duration such as"),
        ("1h and more", "a duration such as"), ("1 month", "fixed length"), ("2 years", "fixed length"),
        ("1.0000001s", "whole number of microseconds"), (1.5, "a duration:"), (True, "a duration:"),
        (None, "a duration:"),
    ],
)  # fmt: skip
def test_what_is_no_duration(value: Any, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        duration(value, step="tumbling")


@given(st.integers(-(10**15), 10**15))
def test_a_duration_reads_what_it_writes(ticks: int) -> None:
    assert duration(format_duration(ticks)).ticks == ticks
    assert duration(timedelta(microseconds=ticks)).ticks == ticks
    assert duration(ticks) == Duration(ticks, Domain.LOGICAL)


@given(st.datetimes(timezones=st.just(timezone.utc)))
def test_an_instant_reads_what_it_writes(moment: datetime) -> None:
    assert to_datetime(instant(moment)) == moment
    assert instant(moment.isoformat()) == instant(moment)


def test_an_instant_is_utc_unless_it_says_otherwise() -> None:
    assert instant("1970-01-01T00:00:01") == instant("1970-01-01T01:00:01+01:00") == SECOND
    assert instant(datetime(1969, 12, 31, 23, 59, 59)) == -SECOND


@pytest.mark.parametrize("value", ["yesterday", True, 1.5, None])
def test_what_is_no_instant(value: Any) -> None:
    with pytest.raises(UserError, match="origin"):
        instant(value, step="origin")
