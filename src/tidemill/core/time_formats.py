"""Formats of times in text, as `strptime` and `strftime` of Python have them: one meaning for every engine.

| | |
|---|---|
| `%Y` `%y` | year in four digits, from 0001; in two, of 1969 to 2068 |
| `%m` `%d` `%j` | month, day, day of the year |
| `%q` | quarter, 1 to 4, which Python does not have: `%YQ%q`, its first day |
| `%b` `%B` `%a` `%A` | names of months and of days of the week in English, short or whole |
| `%H` `%I` `%p` | hour of 24; of 12, with AM or PM |
| `%M` `%S` `%f` | minute, second, fraction of a second |
| `%z` | difference from UTC: `Z`, `+02`, `+0200` or `+02:00` |
| `%s` | seconds since 1970 |
| `%F` `%T` `%R` `%D` | `%Y-%m-%d`, `%H:%M:%S`, `%H:%M`, `%m/%d/%y` |
| `%%` | a percent sign |

To parse: numbers may lack leading zeros, and names may be in any case. A space stands for one or more. The
whole text must fit, and be a time that there is: 30 February is none, nor is a time that the clock of the
zone skips. A time that it shows twice is the earlier one. Without a day or a month it is the first. Instants
are in the years 1 to 9999.

To format: numbers have leading zeros, and the fraction six digits. Years before 1 or after 9999 give null.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core import zones
from tidemill.core.errors import UserError
from tidemill.core.types import TIMESTAMP, to_arrow

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
    "November", "December",
)  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_SHORT = {"F": "%Y-%m-%d", "T": "%H:%M:%S", "R": "%H:%M", "D": "%m/%d/%y"}
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_SECOND, _MINUTE, _HOUR, _DAY = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000

_LEAST = -62_135_596_800 * _SECOND
_MOST = 253_402_300_800 * _SECOND - 1
"""The first and the last instant of the years 1 to 9999."""


def _named(names: Sequence[str]) -> str:
    # The case is spelled out: engines differ in which letters they think are the same.
    spelled = ("".join(f"[{letter.upper()}{letter.lower()}]" for letter in name) for name in names)
    return "|".join(spelled)


_PATTERNS = {
    "Y": "[0-9]{4}", "y": "[0-9]{2}", "q": "[1-4]", "m": "1[0-2]|0?[1-9]", "d": "3[01]|[12][0-9]|0?[1-9]",
    "j": "36[0-6]|3[0-5][0-9]|[12][0-9]{2}|0?[1-9][0-9]|0{0,2}[1-9]",
    "b": _named([name[:3] for name in _MONTHS]), "B": _named(_MONTHS),
    "a": _named([name[:3] for name in _DAYS]), "A": _named(_DAYS),
    "H": "2[0-3]|[01]?[0-9]", "I": "1[0-2]|0?[1-9]", "p": "[AaPp][Mm]",
    "M": "[0-5]?[0-9]", "S": "[0-5]?[0-9]", "f": "[0-9]{1,9}",
    "z": "[Zz]|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?", "s": "[+-]?[0-9]{1,12}",
}  # fmt: skip
"""What a directive can be: the syntax that RE2, Java and Python share, with the same meaning."""


@dataclass(frozen=True)
class TimeFormat:
    """A format that was checked. `parts` are texts, and directives as one letter after a percent sign."""

    text: str
    parts: tuple[str, ...]

    @functools.cached_property
    def directives(self) -> tuple[str, ...]:
        return tuple(part[1] for part in self.parts if part[0] == "%" and part != "%%")

    @functools.cached_property
    def pattern(self) -> str:
        """A regular expression for the whole text, with a group for each directive."""
        found = []
        for part in self.parts:
            if part[0] == "%" and part != "%%":
                found.append(f"(?P<{part[1]}>{_PATTERNS[part[1]]})")
            else:
                text = "%" if part == "%%" else part
                found.append(re.sub(r"(?:\\?[ \t])+", "[ \\\\t]+", re.escape(text)))
        return "".join(found)

    @functools.cached_property
    def compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern)


def time_format(text: Any, step: str, *, parsed: bool) -> TimeFormat:
    """Check a format; one that is parsed must say which time it is.

    >>> time_format("%d.%m.%Y", "strptime", parsed=True).directives
    ('d', 'm', 'Y')
    """
    if not isinstance(text, str) or not text:
        raise UserError(step, expected="a format such as '%m/%d/%Y %H:%M'", got=repr(text))
    return _checked(text, step, parsed)


@functools.lru_cache(maxsize=256)
def _checked(text: str, step: str, parsed: bool) -> TimeFormat:
    long = re.sub("%([FTRD])", lambda found: _SHORT[found[1]], text.replace("%%", "%\0"))
    parts = tuple(part.replace("%\0", "%%") for part in re.findall("%.?|[^%]+", long, re.DOTALL))
    found = TimeFormat(text, parts)
    known = {*_PATTERNS, "%"}
    unknown = [part for part in parts if part[0] == "%" and part[1:] not in known]
    if unknown:
        raise UserError(
            step, expected=f"directives of {' '.join(f'%{c}' for c in sorted({*_PATTERNS, *_SHORT}))}",
            got=f"{unknown[0]!r} in {text!r}", hint="%% is a percent sign",
        )  # fmt: skip
    if parsed:
        _check_parsed(found, step)
    return found


def _check_parsed(given: TimeFormat, step: str) -> None:
    has = given.directives
    twice = sorted({c for c in has if has.count(c) > 1})
    wrong = f"%{twice[0]} twice" if twice else ""
    if {"Y", "y"} <= {*has} or {"b", "B"} <= {*has} or ("m" in has and {"b", "B"} & {*has}):
        wrong = "a year or a month twice"
    elif not {"Y", "y", "s"} & {*has}:
        wrong = "no year"
    elif "I" in has and "p" not in has:
        wrong = "%I without %p: which half of the day it is"
    elif "p" in has and "I" not in has:
        wrong = "%p without %I, the hour of 12"
    elif "s" in has and len(has) > 1:
        wrong = "%s beside others"
    elif "j" in has and {"m", "b", "B", "d"} & {*has}:
        wrong = "%j beside a month or a day"
    elif "q" in has and {"m", "b", "B", "d", "j"} & {*has}:
        wrong = "%q beside a month or a day"
    elif "d" in has and not {"m", "b", "B"} & {*has}:
        wrong = "a day without a month"
    if wrong:
        raise UserError(
            step, expected="a format that says which time it is", got=f"{wrong}, in {given.text!r}"
        )


# --- one value: the definition --------------------------------------------------------------------


def parse_time(text: str, given: TimeFormat, tz: str) -> int | None:
    """Return the instant that a text says, in ticks; None if it does not fit.

    >>> parse_time("7/1/2026 14:30", time_format("%m/%d/%Y %H:%M", "strptime", parsed=True), "Europe/Berlin")
    1782909000000000
    """
    fits = given.compiled.fullmatch(text)
    if fits is None:
        return None
    has = fits.groupdict()
    if "s" in has:
        return _in_range(int(has["s"]) * _SECOND)
    year = int(has["Y"]) if "Y" in has else int(has["y"]) + (1900 if int(has["y"]) > 68 else 2000)
    month = int(has.get("m", 1)) if "q" not in has else 3 * int(has["q"]) - 2
    if name := has.get("b") or has.get("B"):
        month = 1 + [m[:3].lower() for m in _MONTHS].index(name[:3].lower())
    hour = int(has.get("H", 0))
    if "I" in has:
        hour = int(has["I"]) % 12 + 12 * (has["p"].lower() == "pm")
    fraction = int(has.get("f", "0")[:6].ljust(6, "0"))
    try:
        naive = datetime(
            year, month, int(has.get("d", 1)), hour, int(has.get("M", 0)), int(has.get("S", 0))
        )
        naive += timedelta(days=int(has.get("j", 1)) - 1, microseconds=fraction)
    except (ValueError, OverflowError):
        return None
    if "j" in has and naive.year != year:  # day 366 of a year that has 365
        return None
    ticks = (naive - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    return _in_range(ticks - _offset(has["z"])) if "z" in has else from_local_time(ticks, tz)


def _in_range(ticks: int) -> int | None:
    return ticks if _LEAST <= ticks <= _MOST else None


def _offset(text: str) -> int:
    if text in "Zz":
        return 0
    digits = text[1:].replace(":", "").ljust(4, "0")
    ahead = int(digits[:2]) * _HOUR + int(digits[2:]) * _MINUTE
    return -ahead if text[0] == "-" else ahead


def from_local_time(ticks: int, tz: str) -> int | None:
    """Return the first instant at which the clock of a zone shows a time; None if it skips it."""
    try:
        local = datetime(1970, 1, 1, tzinfo=ZoneInfo(tz)) + timedelta(microseconds=ticks)
        found = local.astimezone(timezone.utc)
        shown = found.astimezone(ZoneInfo(tz))
    except OverflowError:  # outside of the years 1 to 9999
        return None
    if shown.replace(tzinfo=None) != local.replace(tzinfo=None):
        return None
    return (found - _EPOCH) // timedelta(microseconds=1)


def local_time(ticks: int, tz: str) -> int | None:
    """Return what the clock of a zone shows at an instant, in ticks since its 1970; see `format_time`."""
    try:
        local = (_EPOCH + timedelta(microseconds=ticks)).astimezone(ZoneInfo(tz))
    except OverflowError:
        return None
    return (local.replace(tzinfo=None) - datetime(1970, 1, 1)) // timedelta(microseconds=1)


def format_time(ticks: int, given: TimeFormat, tz: str) -> str | None:
    """Return an instant as text, as the clock of a zone shows it; None for years outside 1 to 9999.

    >>> format_time(0, time_format("%d %b %Y, %I %p", "strftime", parsed=False), "America/New_York")
    '31 Dec 1969, 07 PM'
    """
    try:
        local = (_EPOCH + timedelta(microseconds=ticks)).astimezone(ZoneInfo(tz))
    except OverflowError:
        return None
    ahead = (local.utcoffset() or timedelta(0)) // timedelta(seconds=1)
    sign, (hours, rest) = "-" if ahead < 0 else "+", divmod(abs(ahead), 3600)
    seconds = f"{rest % 60:02}" if rest % 60 else ""
    values = {
        "Y": f"{local.year:04}", "y": f"{local.year % 100:02}", "m": f"{local.month:02}",
        "q": str((local.month + 2) // 3),
        "d": f"{local.day:02}", "j": f"{local.timetuple().tm_yday:03}", "B": _MONTHS[local.month - 1],
        "b": _MONTHS[local.month - 1][:3], "A": _DAYS[local.weekday()], "a": _DAYS[local.weekday()][:3],
        "H": f"{local.hour:02}", "I": f"{(local.hour + 11) % 12 + 1:02}",
        "p": "AM" if local.hour < 12 else "PM",
        "M": f"{local.minute:02}", "S": f"{local.second:02}", "f": f"{local.microsecond:06}",
        "z": f"{sign}{hours:02}{rest // 60:02}{seconds}", "s": str(ticks // _SECOND), "%": "%",
    }  # fmt: skip
    return "".join(values[part[1]] if part[0] == "%" else part for part in given.parts)


# --- whole columns --------------------------------------------------------------------------------


def parse_times(texts: pa.Array, formats: Sequence[TimeFormat], tz: str) -> pa.Array:
    """Return the instants that texts say, by the first format that fits; null if none does.

    >>> formats = [time_format(f, "strptime", parsed=True) for f in ("%Y-%m-%d", "%d.%m.%Y")]
    >>> parse_times(pa.array(["2026-07-01", "1.7.2026", "July"]), formats, "UTC").is_valid().to_pylist()
    [True, True, False]
    """
    import pyarrow.compute as pc  # slow to import, seldom needed

    found = pa.nulls(len(texts), to_arrow(TIMESTAMP))
    for given in formats:
        if found.null_count > texts.null_count:
            found = pc.coalesce(found, _parsed(texts, given, tz))
    return found


_DATES = (
    "%Y/%m/%d", "%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%m-%d-%Y", "%d-%m-%Y", "%Y.%m.%d", "%Y%m%d", "%d-%b-%Y",
    "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y",
    "%b %d %Y", "%B %d %Y", "%m/%d/%y", "%d/%m/%y", "%d.%m.%y", "%d-%b-%y",
)  # fmt: skip
_TIMES = (
    "",
    " %H:%M",
    " %H:%M:%S",
    " %H:%M:%S.%f",
    " %I:%M %p",
    " %I:%M:%S %p",
    "T%H:%M:%S",
    "%H%M%S",
    " %H%M",
)
_WHOLE = (
    "%d/%b/%Y:%H:%M:%S %z", "%a, %d %b %Y %H:%M:%S %z", "%a %b %d %H:%M:%S %Y", "%a %b %d %H:%M:%S %z %Y",
    "%Y-%m-%d %H:%M:%S %z", "%Y-%m-%d %I:%M:%S %p", "%Y-%m-%d %I:%M %p", "%Y-%m", "%b %Y", "%B %Y",
    "%Y %b", "%Y %B", "%Y-%b", "%b-%Y", "%b-%y", "%b-%d-%Y", "%Y%m%dT%H%M%S%z", "%Y%m%dT%H%M%S",
    "%YQ%q", "%Y Q%q", "%Y-Q%q", "Q%q %Y",
)  # fmt: skip


_BASIC = re.compile("[0-9]{8}T[0-9]{6}")


@functools.cache
def _guesses() -> list[TimeFormat]:
    joined = [
        date + time for date in _DATES for time in _TIMES if time[:2] != "%H" or date == "%Y%m%d"
    ]
    return [time_format(text, "format", parsed=True) for text in (*joined, *_WHOLE)]


def guesses(texts: pa.Array, tz: str) -> list[str]:
    """Return common formats, other than ISO, that read all texts; one of those that read them alike.

    >>> guesses(pa.array(["1/2/2026", "13/2/2026"]), "UTC"), guesses(pa.array(["1/2/2026"]), "UTC")
    (['%d/%m/%Y'], ['%m/%d/%Y', '%d/%m/%Y'])
    """
    found: dict[str, pa.Array] = {}
    texts = texts.drop_null()
    first = texts[0].as_py() if len(texts) else ""
    for given in _guesses():
        # Without anything between them, numbers have all their digits.
        wide = len(format_time(0, given, zones.UTC) or "")
        packed = given.text.startswith("%Y%m%d") and not (
            _BASIC.match(first) if "T" in given.text else len(first) == wide
        )
        if not packed and given.compiled.fullmatch(first):
            read = parse_times(texts, [given], tz)
            if not read.null_count and not any(read.equals(other) for other in found.values()):
                found[given.text] = read
    return list(found)


def near_guess(text: str) -> str | None:
    """Return a common format of which a text has the form, though it may be no time.

    >>> near_guess("31.02.2026 10:00")
    '%d.%m.%Y %H:%M'
    """
    several = (given for given in _guesses() if not given.text.startswith("%Y%m%d"))
    return next((given.text for given in several if given.compiled.fullmatch(text)), None)


def _parsed(texts: pa.Array, given: TimeFormat, tz: str) -> pa.Array:
    import pyarrow.compute as pc

    groups = pc.extract_regex(texts, rf"^(?:{given.pattern})\z")
    fits = np.asarray(groups.is_valid()).astype(bool)
    rows = len(texts)

    def of(name: str) -> pa.Array:
        return pc.struct_field(groups, name)

    def number(name: str, default: int = 0) -> Ints:
        return (
            _ints(of(name).cast(pa.int64())) if name in given.directives else np.full(rows, default)
        )

    def looked_up(name: str, value: Callable[[str], int]) -> Ints:
        words = of(name).dictionary_encode()
        values = np.array([0, *map(value, words.dictionary.to_pylist())], dtype=np.int64)
        return values[_ints(words.indices, -1) + 1]

    if "s" in given.directives:
        return _known(number("s") * _SECOND, fits)
    year = number("Y", 1970)
    if "y" in given.directives:
        short = number("y")
        year = short + np.where(short > 68, 1900, 2000)
    month = number("m", 1) if "q" not in given.directives else 3 * number("q") - 2
    for name in ("b", "B"):
        if name in given.directives:
            month = looked_up(
                name, lambda word: 1 + [m[:3].lower() for m in _MONTHS].index(word[:3].lower())
            )
    hour = number("H")
    if "I" in given.directives:
        hour = number("I") % 12 + 12 * looked_up("p", lambda word: int(word.lower() == "pm"))
    begin = _first_day(year, month)
    fits &= year > 0
    if "j" in given.directives:
        day = number("j", 1)
        fits &= day <= _first_day(year + 1, month) - begin
    else:
        day = number("d", 1)
        fits &= day <= _first_day(year, month + 1) - begin
    ticks = (begin + day - 1) * _DAY + hour * _HOUR + number("M") * _MINUTE + number("S") * _SECOND
    if "f" in given.directives:
        digits = pc.utf8_rpad(pc.utf8_slice_codeunits(of("f"), 0, 6), 6, "0")
        ticks += _ints(digits.cast(pa.int64()))
    if "z" in given.directives:
        ticks -= looked_up("z", _offset)
    elif tz != zones.UTC:
        ticks, there = from_local_times(np.where(fits, ticks, 0), tz)
        fits &= there
    return _known(ticks, fits)


def _known(ticks: Ints, fits: Bools) -> pa.Array:
    inside = fits & (ticks >= _LEAST) & (ticks <= _MOST)
    return pa.array(ticks, mask=~inside).cast(to_arrow(TIMESTAMP))


def _ints(array: pa.Array, missing: int = 0) -> Ints:
    import pyarrow.compute as pc

    found: Ints = np.asarray(pc.fill_null(array.cast(pa.int64()), missing)).astype(
        np.int64, copy=False
    )
    return found


def _first_day(year: Ints, month: Ints) -> Ints:
    """Return the days since 1970 of the first of a month; month 13 is the next January."""
    months = (year - 1970) * 12 + month - 1
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def from_local_times(ticks: Ints, tz: str) -> tuple[Ints, Bools]:
    """Return the first instants at which the clock of a zone shows times, and whether it shows them."""
    found = zones.first(tz, ticks)
    return found, zones.shown(tz, found) == ticks


def format_times(instants: pa.Array, given: TimeFormat, tz: str) -> pa.Array:
    """Return instants as texts; see `format_time`.

    >>> day = time_format("%a %d.%m.", "strftime", parsed=False)
    >>> format_times(pa.array([0, None], to_arrow(TIMESTAMP)), day, "UTC").to_pylist()
    ['Thu 01.01.', None]
    """
    import pyarrow.compute as pc

    ticks, local, valid = _local(instants, tz)
    days, within = np.divmod(local, _DAY)
    months = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    year, month = months // 12 + 1970, months % 12
    hour = within // _HOUR
    values: dict[str, Callable[[], pa.Array]] = {
        "Y": lambda: _digits(year, 4), "y": lambda: _digits(year % 100, 2),
        "q": lambda: _digits(month // 3 + 1, 1), "m": lambda: _digits(month + 1, 2),
        "d": lambda: _digits(days - _first_day(year, month + 1) + 1, 2),
        "j": lambda: _digits(days - _first_day(year, np.ones_like(year)) + 1, 3),
        "B": lambda: _words(_MONTHS, month), "b": lambda: _words([m[:3] for m in _MONTHS], month),
        "A": lambda: _words(_DAYS, (days + 3) % 7),
        "a": lambda: _words([d[:3] for d in _DAYS], (days + 3) % 7),
        "H": lambda: _digits(hour, 2), "I": lambda: _digits((hour + 11) % 12 + 1, 2),
        "p": lambda: _words(("AM", "PM"), hour // 12),
        "M": lambda: _digits(within // _MINUTE % 60, 2), "S": lambda: _digits(within // _SECOND % 60, 2),
        "f": lambda: _digits(within % _SECOND, 6), "z": lambda: _offsets((local - ticks) // _SECOND),
        "s": lambda: pa.array(ticks // _SECOND).cast(pa.string()),
    }  # fmt: skip
    parts = [
        values[part[1]]()
        if part[0] == "%" and part != "%%"
        else pa.scalar("%" if part == "%%" else part)
        for part in given.parts
    ]
    if all(isinstance(part, pa.Scalar) for part in parts):
        parts = [pa.repeat("".join(part.as_py() for part in parts), len(ticks))]
    joined = pc.binary_join_element_wise(*parts, pa.scalar(""))
    return pc.if_else(pa.array(valid), joined, pa.scalar(None, pa.string()))


def _local(instants: pa.Array, tz: str) -> tuple[Ints, Ints, Bools]:
    """Return instants, what a clock shows at them, and where both are of the years 1 to 9999."""
    ticks = _ints(instants)
    valid = np.asarray(instants.is_valid()).astype(bool) & (ticks >= _LEAST) & (ticks <= _MOST)
    ticks = np.where(valid, ticks, 0)
    local = zones.shown(tz, ticks)
    there = (local >= _LEAST) & (local <= _MOST)
    return ticks, np.where(there, local, 0), valid & there


def local_times(instants: pa.Array, tz: str) -> pa.Array:
    """Return what the clock of a zone shows at instants; null outside of the years 1 to 9999."""
    _, local, valid = _local(instants, tz)
    return pa.array(local, mask=~valid).cast(to_arrow(TIMESTAMP))


def instants_of(times: pa.Array, tz: str) -> pa.Array:
    """Return the first instants at which the clock of a zone shows times; null where it skips them."""
    ticks = _ints(times)
    valid = np.asarray(times.is_valid()).astype(bool) & (ticks >= _LEAST) & (ticks <= _MOST)
    found, there = from_local_times(np.where(valid, ticks, 0), tz)
    return _known(found, valid & there)


def _digits(values: Ints, width: int) -> pa.Array:
    import pyarrow.compute as pc

    return pc.utf8_lpad(pa.array(values).cast(pa.string()), width, "0")


def _words(words: Sequence[str], places: Ints) -> pa.Array:
    return pa.array(words, pa.string()).take(pa.array(places))


def _offsets(ahead: Ints) -> pa.Array:
    distinct, places = np.unique(ahead, return_inverse=True)
    shown = []
    for seconds in distinct.tolist():
        sign, (hours, rest) = "-" if seconds < 0 else "+", divmod(abs(seconds), 3600)
        shown.append(f"{sign}{hours:02}{rest // 60:02}{f'{rest % 60:02}' if rest % 60 else ''}")
    return _words(shown, places.astype(np.int64))
