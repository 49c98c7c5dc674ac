"""Calendar windows as arithmetic: the window of each instant, and where windows begin.

A zone's clock (`core/zones.py`) turns instants into times that never go back; dates of these times are
counted.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidemill.core.zones import DAY, first, latest
from tidemill.windows.spec import Calendar

Ints = npt.NDArray[np.int64]

_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_MOST_DAYS = {"day": 1, "week": 7, "month": 31, "quarter": 92, "year": 366}
_MONDAY = 3
"""1970-01-01 was a Thursday: weeks are counted from three days before."""


def window_of(instants: npt.ArrayLike, S: Calendar) -> Ints:
    """The window of each instant.

    >>> from tidemill.windows.spec import calendar
    >>> window_of([-1, 0, 25 * 3_600_000_000], calendar("day"))
    array([-1,  0,  1])
    """
    days = latest(S.tz, np.asarray(instants, dtype=np.int64)) // DAY
    if S.unit == "day":
        units = days
    elif S.unit == "week":
        units = (days + _MONDAY) // 7
    else:
        months = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
        units = months // _MONTHS[S.unit]
    return units // S.every


def start_of(windows: npt.ArrayLike, S: Calendar) -> Ints:
    """The instant at which each window begins; it ends where the next one begins.

    >>> from tidemill.windows.spec import calendar
    >>> [str(t) for t in start_of([0, 1], calendar("month", tz="Europe/Berlin")).astype("datetime64[us]")]
    ['1969-12-31T23:00:00.000000', '1970-01-31T23:00:00.000000']
    """
    units = np.asarray(windows, dtype=np.int64) * S.every
    if S.unit == "day":
        days = units
    elif S.unit == "week":
        days = units * 7 - _MONDAY
    else:
        months = (units * _MONTHS[S.unit]).astype("datetime64[M]")
        days = months.astype("datetime64[D]").astype(np.int64)
    return first(S.tz, days * DAY)


def most_ticks(S: Calendar) -> int:
    """A length that no window exceeds, also where a clock is set back."""
    return S.every * _MOST_DAYS[S.unit] * DAY + 2 * DAY


def common_axis(calendars: list[Calendar]) -> Calendar | None:
    """The longest calendar windows of which all others consist; None where they are of several zones."""
    kinds = {calendar.cut for calendar in calendars}
    if len(kinds) == 1:
        return kinds.pop()
    zones = {calendar.tz for calendar in calendars}
    if len(zones) > 1:
        return None
    by_month = all(calendar.unit in _MONTHS for calendar in calendars)
    return Calendar("month" if by_month else "day", tz=zones.pop())


def parts_of(S: Calendar, axis: Calendar) -> int:
    """The greatest number of windows of `axis` in a window of `S`."""
    if S.cut == axis:
        return 1
    each = _MONTHS[S.unit] if axis.unit == "month" else _MOST_DAYS[S.unit]
    return S.every * each
