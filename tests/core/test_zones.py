"""Clocks of zones as tables, against `zoneinfo` instant by instant."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tidemill.core.errors import UserError
from tidemill.core.zones import CYCLE, changes, first, grain, known_zone, latest

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
NAMES = sorted(available_timezones() - {"Factory", "localtime"})
MICRO = timedelta(microseconds=1)
YEARS = st.integers((datetime(1700, 1, 1) - datetime(1970, 1, 1)) // MICRO, (1 << 40) * 10_000)


def shown(zone: str, tick: int) -> int:
    """What the clock shows at an instant, in ticks."""
    local = (EPOCH + timedelta(microseconds=tick)).astimezone(ZoneInfo(zone))
    return (local.replace(tzinfo=None) - EPOCH.replace(tzinfo=None)) // MICRO


@given(zone=st.sampled_from(NAMES), tick=YEARS)
@examples(60, of=400)
def test_the_clock_is_that_of_zoneinfo_unless_it_was_set_back(zone: str, tick: int) -> None:
    late, now = int(latest(zone, np.array([tick]))[0]), shown(zone, tick)
    # The clock may have been set back in the last day: then it showed a later time before.
    assert late == now or late == max(shown(zone, tick - m * 60_000_000) for m in range(26 * 60)) + 59_999_999


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/St_Johns", "Asia/Gaza", "Africa/Freetown"])
def test_all_changes_are_found(zone: str) -> None:
    table = changes(zone)
    assert len(table.since) > 10
    for at, before, after in zip(table.since[1:].tolist(), table.ahead.tolist(), table.ahead[1:].tolist()):
        assert (shown(zone, at - 1) - at + 1, shown(zone, at) - at) == (before, after)


@given(zone=st.sampled_from(NAMES), tick=YEARS)
@examples(40, of=400)
def test_both_questions_are_inverse(zone: str, tick: int) -> None:
    """A time was shown up to an instant exactly if the first instant that shows it is not after it."""
    [time] = latest(zone, np.array([tick])).tolist()
    assert first(zone, np.array([time]))[0] <= tick < first(zone, np.array([time + 1]))[0]


def test_rules_repeat_after_400_years() -> None:
    ticks = np.array(["2110-07-01T12:00", "2110-12-01T12:00"], dtype="datetime64[us]").astype(np.int64)
    for zone in ("Europe/Berlin", "America/New_York", "UTC"):
        near = latest(zone, ticks)
        assert (latest(zone, ticks + 20 * CYCLE) - 20 * CYCLE).tolist() == near.tolist()
        assert near.tolist() == [shown(zone, t) for t in ticks.tolist()]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Kolkata", "Pacific/Apia"])
def test_days_begin_at_multiples_of_the_grain(zone: str) -> None:
    midnights = np.arange(-60_000, 60_000, 7) * 86_400_000_000
    assert not (first(zone, midnights) % grain(zone)).any()


@pytest.mark.parametrize(
    ("tz", "hint"),
    [("Berlin", "Europe/Berlin"), ("europe/berlin", "Europe/Berlin"), ("Europe/Berlim", "Europe/Berlin"),
     ("new york", "America/New_York"), ("??", "available_timezones"), (7, "available_timezones"),
     ("../etc/passwd", "")],
)  # fmt: skip
def test_unknown_zones_are_refused_with_names_alike(tz: object, hint: str) -> None:
    if tz == "europe/berlin" and known(tz):
        pytest.skip("the file system does not tell cases apart")
    with pytest.raises(UserError, match="name a time zone") as refused:
        known_zone(tz, step="calendar")
    assert hint in str(refused.value)


def known(tz: object) -> bool:
    try:
        return bool(ZoneInfo(str(tz)))
    except (KeyError, OSError):
        return False


def test_zones_may_be_given_as_objects() -> None:
    assert known_zone(ZoneInfo("Asia/Tokyo"), step="calendar") == "Asia/Tokyo"
    assert known_zone(timezone.utc, step="calendar") == "UTC"
