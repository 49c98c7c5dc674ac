"""The clock of a time zone as a table, so that whole arrays of instants are converted at once.

The rules are those of `zoneinfo`. A clock may skip times (daylight saving begins) and show times twice (it
ends). Calendars need an order, so two questions are asked of a clock: what is the latest time it has shown
up to an instant (`latest`), and at which instant does it first show a time or a later one (`first`).
Neither ever goes back, also where a clock is set back over midnight.
"""

from __future__ import annotations

import difflib
import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import numpy.typing as npt

from tidemill.core.errors import UserError

Ints = npt.NDArray[np.int64]
UTC = "UTC"
SECOND = 1_000_000
DAY = 86_400 * SECOND
CYCLE = 146_097 * DAY
"""400 years: dates, days of the week, and so the rules that zones follow in the end, repeat after them."""
_REPEATS_FROM = 2100
"""From this year on each zone follows a rule of at most two changes a year."""
_FIRST_YEAR = 1830
"""No zone has a change before this year: earlier times are mean solar time of the place."""
_FAR = 1 << 62
"""Before and after all instants."""


@dataclass(frozen=True, eq=False)
class ClockTable:
    """From `since[i]` on a clock is `ahead[i]` ticks ahead of UTC; `shown[i]` is the latest time before."""

    since: Ints
    ahead: Ints
    shown: Ints

    def offsets(self, instants: Ints) -> Ints:
        found: Ints = self.ahead[np.searchsorted(self.since, instants, side="right") - 1]
        return found

    def latest(self, instants: Ints) -> Ints:
        at = np.searchsorted(self.since, instants, side="right") - 1
        found: Ints = np.maximum(instants + self.ahead[at], self.shown[at])
        return found

    def first(self, times: Ints) -> Ints:
        at = np.searchsorted(self.shown[1:], times)
        found: Ints = np.maximum(self.since[at], times - self.ahead[at])
        return found


def shown(zone: str, instants: Ints) -> Ints:
    """The time that the clock of a zone shows at each instant, in ticks since its 1970.

    >>> at = np.array(["2026-07-01T12:00"], dtype="datetime64[us]").astype(np.int64)
    >>> str(shown("Europe/Berlin", at).astype("datetime64[us]")[0])
    '2026-07-01T14:00:00.000000'
    """
    return _repeated(instants, lambda some: some + _table_for(zone, some).offsets(some))


def latest(zone: str, instants: Ints) -> Ints:
    """The latest time that the clock of a zone has shown up to each instant, in ticks since its 1970.

    >>> at = np.array(["2010-11-07T02:30:30", "2010-11-07T02:32"], dtype="datetime64[us]").astype(np.int64)
    >>> shown = latest("America/St_Johns", at)   # where 00:01 was 23:01 again
    >>> [str(t) for t in shown.astype("datetime64[us]")]
    ['2010-11-07T00:00:30.000000', '2010-11-07T00:00:59.999999']
    """
    return _repeated(instants, lambda some: _table_for(zone, some).latest(some))


def first(zone: str, times: Ints) -> Ints:
    """The first instant at which the clock of a zone shows each time, or a later one.

    >>> midnight = np.array(["2018-11-04"], dtype="datetime64[us]").astype(np.int64)
    >>> at = first("America/Sao_Paulo", midnight)   # where 01:00 followed 23:59
    >>> str(at.astype("datetime64[us]")[0])
    '2018-11-04T03:00:00.000000'
    """
    return _repeated(times, lambda some: _table_for(zone, some).first(some))


def changes(zone: str) -> ClockTable:
    """All changes of the clock of a zone until 2100."""
    return _table(zone, _FIRST_YEAR, _REPEATS_FROM)


def repeating_table(zone: str) -> tuple[int, ClockTable]:
    """All changes for as long as they differ: an instant, and the changes until 400 years after it.

    Later changes are those of the last 400 years again and again.
    """
    last = _REPEATS_FROM + 401  # one more year, in which times of the zone may end
    table = _NO_CHANGES if zone == UTC else _table(zone, _FIRST_YEAR, last)
    return _year_start(_REPEATS_FROM), table


@functools.lru_cache(maxsize=64)
def grain(zone: str) -> int:
    """A length in ticks that divides all instants at which days of a zone begin."""
    table = changes(zone)
    return math.gcd(DAY, *table.since[1:].tolist(), *table.ahead.tolist())


def _repeated(ticks: Ints, convert: Callable[[Ints], Ints]) -> Ints:
    """Convert ticks, those after 2100 as if they were in the first 400 years after it."""
    repeats = _year_start(_REPEATS_FROM)
    if not ticks.size or ticks.max() < repeats:
        return convert(ticks)
    later: Ints = np.maximum((ticks - repeats) // CYCLE, 0) * CYCLE
    return convert(ticks - later) + later


def _table_for(zone: str, ticks: Ints) -> ClockTable:
    """Return the changes of the years around some ticks, in whole decades so that tables are used again."""
    if zone == UTC or not ticks.size:
        return _NO_CHANGES
    years = np.array([ticks.min(), ticks.max()]).astype("datetime64[us]").astype("datetime64[Y]")
    low, high = (years.astype(np.int64) + 1970).tolist()
    return _table(zone, max((low - 1) // 10 * 10, _FIRST_YEAR), max(-(-(high + 2) // 10) * 10, _FIRST_YEAR))


@functools.lru_cache(maxsize=256)
def _table(zone: str, first_year: int, end_year: int) -> ClockTable:
    return _made(list(_changes(ZoneInfo(zone), first_year, end_year)))


def _made(found: list[tuple[int, int]]) -> ClockTable:
    since = np.array([-_FAR, *(at for at, _ in found[1:])], dtype=np.int64)
    ahead = np.array([by for _, by in found], dtype=np.int64)
    shown = np.full(len(since), -2 * _FAR, dtype=np.int64)
    shown[1:] = np.maximum.accumulate(since[1:] + ahead[:-1]) - 1
    return ClockTable(since, ahead, shown)


def _changes(zone: ZoneInfo, first_year: int, end_year: int) -> Iterator[tuple[int, int]]:
    """Yield instants and how far the clock is ahead of UTC from then on, in ticks, from the first year on.

    The clock is read so often that no offset is missed: the shortest lasted four days.
    """
    epoch = datetime(1970, 1, 1, tzinfo=zone)

    def ahead(second: int) -> timedelta | None:
        return zone.fromutc(epoch + timedelta(seconds=second)).utcoffset()

    def ticks(offset: timedelta | None) -> int:
        assert offset is not None, "a ZoneInfo knows its offset"
        return offset // timedelta(microseconds=1)

    before, end, regular = (
        _year_start(year) // SECOND for year in (first_year, end_year, _REPEATS_FROM)
    )
    found = ahead(before)
    yield before * SECOND, ticks(found)
    while before < end:
        after = min(before + (2 if before < regular else 14) * DAY // SECOND, end)
        if (now := ahead(after)) != found:
            low, high = before, after
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if ahead(middle) == found else (low, middle)
            yield high * SECOND, ticks(now)
            found = now
        before = after


def _year_start(year: int) -> int:
    return (datetime(year, 1, 1) - datetime(1970, 1, 1)) // timedelta(microseconds=1)


_NO_CHANGES = _made([(0, 0)])


def known_zone(tz: Any, *, step: str) -> str:
    """Return the name of a zone, given as a name or a `ZoneInfo`; all names of UTC become one.

    >>> known_zone("Etc/UTC", step="calendar")
    'UTC'
    >>> known_zone("Berlin", step="calendar")
    Traceback (most recent call last):
    ...
    tidemill.core.errors.UserError: calendar: expected tz= to name a time zone, such as 'Europe/Berlin', \
got 'Berlin' — did you mean 'Europe/Berlin'?
    """
    name = getattr(tz, "key", None) or str(tz)
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError) as unknown:
        raise UserError(
            step, expected="tz= to name a time zone, such as 'Europe/Berlin'", got=repr(tz), hint=_near(name)
        ) from unknown
    return zone_name(name)


def zone_name(name: str) -> str:
    """Return the name of a zone; all names of UTC become one."""
    return UTC if name in ("Etc/UTC", "Z", "Zulu", "UCT", "Etc/UCT", "GMT", "+00:00") else name


def _near(name: str) -> str:
    """Return a hint with the names of zones that look like this one."""
    known = sorted(available_timezones())
    asked = name.replace(" ", "_").lower()
    found = [zone for zone in known if zone.lower().rsplit("/", 1)[-1] == asked]
    by_lower = {zone.lower(): zone for zone in known}
    found += [by_lower[z] for z in difflib.get_close_matches(asked, by_lower, n=4, cutoff=0.7)]
    if not found:
        return "zoneinfo.available_timezones() lists all names"
    return f"did you mean {' or '.join(map(repr, dict.fromkeys(found)))}?"
