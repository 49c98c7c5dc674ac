"""Instants and durations: int64 ticks, either microseconds since the epoch or logical time.

A stream runs on *clock* time (ticks are microseconds, UTC) or on *logical* time (ticks are the integers of a
column). Mixing values of the two is a `UserError`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import Union

from tidemill.core.errors import UserError

FOREVER = (1 << 63) - 1
"""Above every instant: the end of a lifetime that is still open, and the watermark after the last row."""

BEGINNING = -(1 << 63)
"""Below every instant: the initial watermark."""

FARTHEST = 1 << 61
"""The maximum distance of an event from zero, so that window arithmetic cannot overflow: 73 000 years."""

FIRST_SHOWN = -9_214_560_000_000_000
"""1678-01-01, the first year that all clocks can show: those of 64 bits of nanoseconds begin in 1677."""

_UNITS = {
    "us": 1, "µs": 1, "microsecond": 1, "microseconds": 1,
    "ms": 1_000, "millisecond": 1_000, "milliseconds": 1_000,
    "s": 1_000_000, "sec": 1_000_000, "second": 1_000_000, "seconds": 1_000_000,
    "m": 60_000_000, "min": 60_000_000, "minute": 60_000_000, "minutes": 60_000_000,
    "h": 3_600_000_000, "hour": 3_600_000_000, "hours": 3_600_000_000,
    "d": 86_400_000_000, "day": 86_400_000_000, "days": 86_400_000_000,
    "w": 604_800_000_000, "week": 604_800_000_000, "weeks": 604_800_000_000,
}  # fmt: skip
_CALENDAR = {"mo", "month", "months", "y", "year", "years", "quarter", "quarters"}
_TERM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Zµ]+)\s*")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Domain(Enum):
    """The time domain of a stream: what its ticks count."""

    CLOCK = "clock time"
    LOGICAL = "logical time"
    REAL = "real numbers"
    """Of windows over floats. No stream has such a time. Ticks are steps of a grid (`windows.real_grid`)."""


@dataclass(frozen=True)
class Duration:
    """A length of time, in ticks of its domain."""

    ticks: int
    domain: Domain

    def __str__(self) -> str:
        return format_duration(self.ticks) if self.domain is Domain.CLOCK else str(self.ticks)


DurationLike = Union[str, int, timedelta, Duration]
InstantLike = Union[str, int, datetime]


def duration(value: DurationLike, *, step: str = "duration") -> Duration:
    """Read a duration: text and `timedelta` are clock time, an int is logical time.

    >>> duration("1h30m")
    Duration(ticks=5400000000, domain=<Domain.CLOCK: 'clock time'>)
    >>> duration(10).domain
    <Domain.LOGICAL: 'logical time'>
    """
    if isinstance(value, Duration):
        return value
    if hasattr(value, "__index__") and not isinstance(value, bool):  # including ints of NumPy
        value = value.__index__()
    if isinstance(value, bool) or not isinstance(value, (str, int, timedelta)):
        raise UserError(
            step,
            expected="a duration: '1h30m', a timedelta, or an int on logical time",
            got=f"{value!r} ({type(value).__name__})",
        )
    if isinstance(value, int):
        return Duration(value, Domain.LOGICAL)
    if isinstance(value, timedelta):
        return Duration(value // timedelta(microseconds=1), Domain.CLOCK)
    return Duration(_parse_duration(value, step), Domain.CLOCK)


def _parse_duration(text: str, step: str) -> int:
    position, total, found = 0, 0, False
    sign = -1 if text.strip().startswith("-") else 1
    body = text.strip().lstrip("-") if sign < 0 else text.strip()
    while position < len(body):
        term = _TERM.match(body, position)
        if term is None:
            break
        number, unit = term.group(1), term.group(2)
        if unit.lower() in _CALENDAR or unit == "M":
            raise UserError(
                step,
                expected="a duration of fixed length",
                got=repr(text),
                hint="months and years vary in length: tm.calendar('month') are windows of them; durations "
                "are in days or weeks, and m is minutes",
            )
        scale = _UNITS.get(unit) or _UNITS.get(unit.lower())
        if scale is None:
            break
        whole, _, fraction = number.partition(".")
        ticks = int(whole) * scale
        if fraction:
            part, rest = divmod(int(fraction) * scale, 10 ** len(fraction))
            if rest:
                raise UserError(
                    step, expected="a whole number of microseconds", got=repr(text),
                    hint="a microsecond is the finest grain of clock time",
                )  # fmt: skip
            ticks += part
        total, position, found = total + ticks, term.end(), True
    if not found or position != len(body):
        raise UserError(
            step,
            expected="a duration such as '1h30m', '250ms' or '10 minutes'",
            got=repr(text),
            hint="units: us, ms, s, m, h, d, w",
        )
    return sign * total


def format_duration(ticks: int) -> str:
    """Format clock ticks as a duration.

    >>> format_duration(5_400_000_000)
    '1h30m'
    """
    if ticks == 0:
        return "0s"
    sign, rest, parts = "-" if ticks < 0 else "", abs(ticks), []
    for unit in ("d", "h", "m", "s", "ms", "us"):
        count, rest = divmod(rest, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return sign + "".join(parts)


def instant(value: InstantLike, *, step: str = "instant") -> int:
    """Read an instant: ISO text or `datetime` (UTC unless it has a zone), or ticks.

    >>> instant("1970-01-01T00:00:01Z")
    1000000
    """
    if isinstance(value, bool):
        raise UserError(step, expected="an instant", got=repr(value))
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip().replace("Z", "+00:00"))
        except ValueError as bad:
            raise UserError(
                step, expected="an ISO instant such as '2026-01-01T00:05Z'", got=repr(value)
            ) from bad
    if not isinstance(value, datetime):
        raise UserError(
            step, expected="a datetime, ISO text or int", got=f"{value!r} ({type(value).__name__})"
        )
    if value.tzinfo is None:
        value = value.replace(tzinfo=timezone.utc)
    return (value - _EPOCH) // timedelta(microseconds=1)


def instant_domain(value: InstantLike) -> Domain | None:
    """Return the time domain of an instant; None for an int, which is valid in both."""
    return None if isinstance(value, int) else Domain.CLOCK


def to_datetime(ticks: int) -> datetime:
    """Convert clock ticks to a `datetime`.

    >>> to_datetime(0).isoformat()
    '1970-01-01T00:00:00+00:00'
    """
    return _EPOCH + timedelta(microseconds=ticks)


def shown_instant(ticks: int, domain: Domain) -> str:
    """Return an instant for people; also the ends of time, which watermarks can be.

    >>> shown_instant(1_000_000, Domain.CLOCK), shown_instant(7, Domain.LOGICAL)
    ('1970-01-01T00:00:01+00:00', '7')
    """
    if ticks == BEGINNING:
        return "none"
    if ticks == FOREVER:
        return "the end"
    if domain is Domain.LOGICAL:
        return str(ticks)
    try:
        return to_datetime(ticks).isoformat()
    except OverflowError:
        return f"{ticks} µs"
