"""Convert numbers, text and naive times to instants, with the unit, format and zone that a stream declares.

A number has no unit, text has many formats, and a naive time has no zone. Numbers are instants only if the
stream declares their unit, text only if it declares the format. Naive times are UTC unless the stream
declares a zone. The rule is the same on every engine.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.core.text_form import NULLS
from tidemill.core.time_formats import guesses, near_guess, parse_times, time_format
from tidemill.core.types import TIMESTAMP, to_arrow
from tidemill.core.zones import UTC, known_zone

UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}
"""The ticks of each unit; nanoseconds are floored to ticks."""
NANOS = 1_000
ISO = "iso"
# A date alone has no zone, although its end looks like an offset.
_ZONED = r":[0-9.]*(Z|[+-][0-9]{2}(:?[0-9]{2})?)$|T[0-9]{2}(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
_FINER = r"(\.[0-9]{6})[0-9]+"


@dataclass(frozen=True)
class Reading:
    """The units of columns of numbers and the formats of text that hold instants; the zone of naive times.

    A local time that occurs twice in a zone is the earlier one; one that does not occur is an error.
    """

    units: tuple[tuple[str, str], ...] = ()
    tz: str = UTC
    formats: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """By column, formats that are tried in this order; `iso` is ISO text."""

    @property
    def zoned(self) -> bool:
        """Whether naive times are in a zone other than UTC."""
        return self.tz != UTC

    def unit(self, column: str) -> str | None:
        """Return the unit of the ints in a column of instants; None if it has none."""
        return dict(self.units).get(column)

    def formats_of(self, column: str) -> tuple[str, ...]:
        """Return the formats of the text in a column of instants; none if it has no text."""
        return next((formats for name, formats in self.formats if name == column), ())

    def from_text(self, array: pa.Array, column: str) -> pa.Array:
        """Convert text to instants by the formats of a column, ISO by default; null where none fits.

        >>> Reading(formats=(("ts", ("iso", "%d.%m.%Y")),)).from_text(
        ...     pa.array(["1970-01-02", "2.1.1970", "soon"]), "ts").cast("int64").to_pylist()
        [86400000000, 86400000000, None]
        """
        import pyarrow.compute as pc  # slow to import, seldom needed

        found = pa.nulls(len(array), to_arrow(TIMESTAMP))
        for text in self.formats_of(column) or (ISO,):
            if found.null_count > array.null_count:
                more = self._from_iso(array, column) if text == ISO else (
                    parse_times(array, [time_format(text, "format", parsed=True)], self.tz)
                )
                found = pc.coalesce(found, more)
        return found

    def _from_iso(self, array: pa.Array, column: str) -> pa.Array:
        try:
            return iso_times(array, self, column)
        except pa.ArrowInvalid:
            distinct = array.dictionary_encode()
            read = [self._one_iso(text, column) for text in distinct.dictionary.to_pylist()]
            return pa.array(read, to_arrow(TIMESTAMP)).take(distinct.indices)

    def _one_iso(self, text: str, column: str) -> Any:
        try:
            return iso_times(pa.array([text]), self, column).cast(pa.int64())[0].as_py()
        except pa.ArrowInvalid:
            return None

    def unread(self, column: str, text: str, place: str, *, step: str) -> UserError:
        """Return the error for text that is no instant, with the option that would read it."""
        formats = self.formats_of(column)
        wanted = " or ".join(map(repr, formats)) if formats not in ((), (ISO,)) else (
            "ISO, such as 2026-01-01T00:05:00Z"
        )
        skipped = self.zoned and not replace(self, tz=UTC).from_text(pa.array([text]), column).null_count
        return UserError(
            step, expected=f"times in column {column!r} to be {wanted}", got=f"{text!r}{place}",
            hint=f"{self.tz} skips this time: it is in another zone, such as tz='Etc/GMT+8', or wrong"
            if skipped else option_for(text, self.tz),
        )  # fmt: skip

    def from_floats(self, array: pa.Array, column: str, *, step: str) -> pa.Array:
        """Convert numbers since the epoch to instants, each to the nearest microsecond.

        >>> Reading((("ts", "s"),)).from_floats(pa.array([0.25]), "ts", step="run").cast("int64").to_pylist()
        [250000]
        """
        unit = self._unit_of(array, column, step)
        import pyarrow.compute as pc  # slow to import, seldom needed

        there = np.asarray(array.is_valid()).astype(bool)
        numbers = np.asarray(pc.fill_null(array.cast(pa.float64()), 0.0))
        with np.errstate(over="ignore", invalid="ignore"):
            ticks = np.rint(numbers * UNITS[unit] if unit != "ns" else numbers / NANOS)
            if not (np.abs(ticks) < float(1 << 63)).all():
                raise _far(column, unit, f"{numbers[~(np.abs(ticks) < float(1 << 63))][0]}", step)
        return pa.array(ticks.astype(np.int64), mask=~there).cast(to_arrow(TIMESTAMP))

    def _unit_of(self, array: pa.Array, column: str, step: str) -> str:
        unit = self.unit(column)
        if unit is None:
            raise UserError(
                step, expected=f"instants in column {column!r}, or the unit of its numbers",
                got=str(array.type),
                hint="give the stream, or the insert, unit='s' (or 'ms', 'us', 'ns'), or declare it int64",
            )  # fmt: skip
        return unit

    def from_ints(self, array: pa.Array, column: str, *, step: str) -> pa.Array:
        """Convert ints since the epoch to instants.

        >>> Reading((("ts", "s"),)).from_ints(pa.array([1, None]), "ts", step="run").cast("int64").to_pylist()
        [1000000, None]
        """
        if self.formats_of(column):  # such as 20260131
            return self._all_of(array.cast(pa.string()), column, step)
        unit = self._unit_of(array, column, step)
        import pyarrow.compute as pc  # slow to import, seldom needed

        try:
            ticks = array.cast(pa.int64())
            ticks = floored(ticks) if unit == "ns" else pc.multiply_checked(ticks, UNITS[unit])
        except pa.ArrowInvalid as far:
            raise _far(column, unit, str(far), step) from far
        return ticks.cast(to_arrow(TIMESTAMP))

    def from_strings(self, array: pa.Array, column: str, *, step: str) -> pa.Array:
        """Convert a column of strings, of which all must fit its formats."""
        if not self.formats_of(column):
            first = next((text for text in array.to_pylist() if text is not None), None)
            raise UserError(
                step, expected=f"instants in column {column!r}, or the format of its text",
                got="strings" if first is None else f"strings such as {first!r}",
                hint="format='%Y-%m-%d %H:%M' (or 'iso', or a list of them) says how to read it"
                if first is None else option_for(first, self.tz),
            )  # fmt: skip
        return self._all_of(array, column, step)

    def _all_of(self, array: pa.Array, column: str, step: str) -> pa.Array:
        import pyarrow.compute as pc  # slow to import, seldom needed

        found = self.from_text(array, column)
        if found.null_count > array.null_count:
            wrong = pc.and_(array.is_valid(), found.is_null())
            raise self.unread(column, array.filter(wrong)[0].as_py(), "", step=step)
        return found

    def from_naive(self, array: pa.Array, column: str, *, step: str) -> pa.Array:
        """Convert times or dates without a zone to instants.

        >>> naive = pa.array(["2026-07-01T12:00"]).cast(pa.timestamp("us"))
        >>> str(Reading(tz="Europe/Berlin").from_naive(naive, "ts", step="run")[0])
        '2026-07-01 10:00:00+00:00'
        """
        naive = array.cast(pa.timestamp("us"))
        if self.zoned:
            import pyarrow.compute as pc  # slow to import, seldom needed

            try:
                naive = pc.assume_timezone(naive, self.tz, ambiguous="earliest", nonexistent="raise")
            except pa.ArrowInvalid as gap:
                raise UserError(
                    step, expected=f"times that {self.tz} has in column {column!r}", got=str(gap),
                    hint=f"{self.tz} skips this time: it is in another zone, or wrong",
                ) from gap  # fmt: skip
        return naive.cast(to_arrow(TIMESTAMP))


def iso_times(text: pa.Array, reading: Reading, column: str = "", *, step: str = "read") -> pa.Array:
    """Parse ISO text; text without a zone is in the zone of `reading`. Finer digits are floored.

    >>> iso_times(pa.array(["1970-01-01T01:00:00+01:00", "1970-01-01"]), PLAIN).cast("int64").to_pylist()
    [0, 0]
    """
    want, naive = to_arrow(TIMESTAMP), pa.timestamp("us")
    if (all_zoned := _cast(text, want)) is not None:
        return all_zoned
    if (none_zoned := _cast(text, naive)) is not None:
        return reading.from_naive(none_zoned, column, step=step)
    import pyarrow.compute as pc

    text = pc.replace_substring_regex(text, _FINER, r"\1")
    zoned = pc.match_substring_regex(text, _ZONED)
    with_zone = pc.if_else(zoned, text, None).cast(want)
    without = reading.from_naive(pc.if_else(zoned, None, text).cast(naive), column, step=step)
    return pc.coalesce(with_zone, without)


def _cast(text: pa.Array, kind: pa.DataType) -> pa.Array | None:
    try:
        return text.cast(kind)
    except pa.ArrowInvalid:
        return None


def _far(column: str, unit: str, got: str, step: str) -> UserError:
    return UserError(
        step, expected=f"instants within int64 microseconds in column {column!r}",
        got=f"numbers of unit {unit!r} outside this range: {got}", hint="check the unit",
    )  # fmt: skip


def likely_unit(number: float) -> str | None:
    """Return the unit in which a number is an instant between 1973 and 2286, if there is one.

    >>> likely_unit(1_700_000_000), likely_unit(1_700_000_000_000), likely_unit(7)
    ('s', 'ms', None)
    """
    sizes = {"s": 1e8, "ms": 1e11, "us": 1e14, "ns": 1e17}
    return next((unit for unit, least in sizes.items() if least <= abs(number) < 100 * least), None)


def likely_option(number: int) -> str | None:
    """Return the option by which a number would be an instant of our time, if it looks like one.

    >>> likely_option(1_700_000_000), likely_option(20260131), likely_option(20261331)
    ("unit='s'", "format='%Y%m%d'", None)
    """
    if unit := likely_unit(number):
        return f"unit={unit!r}"
    if 1700 <= number <= 2100:
        return "format='%Y'"
    if 1000_01_01 <= number <= 2999_12_31 and guesses(pa.array([str(number)]), UTC):
        return "format='%Y%m%d'"
    return None


def meaning_of(number: float, column: str) -> str:
    """Return what to do about floats in a time column, by the first of them; empty if it says nothing.

    A whole number may also be one of logical time.

    >>> meaning_of(1_700_000_000.25, "t"), meaning_of(45123.5, "t")[:47]
    ("unit='s' reads them", 'as days since 1899-12-30, which Excel counts: t')
    """
    if unit := likely_unit(number):
        return f"unit={unit!r} reads them"
    if 20_000 <= number <= 80_000:
        days = f"pandas.to_datetime(frame[{column!r}], unit='D', origin='1899-12-30')"
        return f"as days since 1899-12-30, which Excel counts: tm.read a frame with {days}"
    if math.isfinite(number) and number == int(number):
        whole = f"schema={{{column!r}: 'int64'}} makes logical time of them"
        return f"unit='s' (or 'ms', 'us', 'ns') counts since 1970, and {whole}"
    if 1700 <= number <= 2100:
        return "years with a fraction have no unit: make instants of them first"
    return ""


def option_for(text: str, tz: str) -> str:
    """Return the option that would read a text as a time.

    >>> option_for("2026-01-31 10:00", "UTC"), option_for("31.1.2026", "UTC")
    ("format='iso' reads it", "format='%d.%m.%Y' reads it")
    """
    if not PLAIN.from_text(pa.array([text.strip()]), "").null_count:
        return f"format={ISO!r} reads it"
    if text.strip() in NULLS:
        return f"nulls=[{text.strip()!r}] makes it null"
    formats = guesses(pa.array([text.strip()]), tz)
    if formats:
        several = " or ".join(f"format={one!r}" for one in formats)
        return f"{several} reads it" + (": say which" if len(formats) > 1 else "")
    if nearly := near_guess(text.strip()):
        return f"it looks like {nearly!r}, but there is no such time; nulls=[{text.strip()!r}] makes it null"
    if re.fullmatch("[12][0-9]{3}", text.strip()):
        return "format='%Y' reads years, and the type int64 leaves them"
    try:
        unit = likely_unit(float(text))
    except ValueError:
        return _written(text.strip())
    return f"unit={unit!r} reads numbers" if unit else "unit= reads numbers, and the type int64 leaves them"


def _written(text: str) -> str:
    """Return what to do about a text that no common format reads."""
    rest, _, zone = text.rpartition(" ")
    if rest and re.fullmatch("[A-Z]{2,5}", zone):
        iso = re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{5,8}", rest)
        clock = "%H:%M:%S" if len(rest) > 16 else "%H:%M"
        if formats := [f"%Y-%m-%d {clock}"] if iso else guesses(pa.array([rest]), UTC):
            said = f"format={f'{formats[0]} {zone}'!r} and tz= the zone that is meant"
            return f"{said} (tz='Etc/GMT+5' is always five hours behind UTC)"
    if re.match(r"([0-9]+ days? )?[0-9]{1,2}:[0-9]{2}(:[0-9]{2})?", text):
        return "it has no date: make instants of times of day and durations first, by adding one"
    return "format='%d.%m.%Y %H:%M', or a list of formats, says how to read it"


def inside(step: str, column: str, got: str) -> UserError:
    """Return the error for naive times in lists and structs, which `tz=` does not cover."""
    return UserError(
        step, expected=f"times with a zone inside {column!r}", got=got,
        hint="tz= applies to columns of times only: convert these to instants first",
    )  # fmt: skip


PLAIN = Reading()
"""The default: ints have no unit and are rejected; naive times are UTC."""


def floored(nanos: pa.Array) -> pa.Array:
    """Floor nanoseconds to microseconds; Arrow's division would round instants before 1970 up."""
    import pyarrow.compute as pc  # slow to import, seldom needed

    micros = pc.divide(nanos, NANOS)
    short = pc.less(nanos, pc.multiply(micros, NANOS))
    return pc.subtract(micros, short.cast(pa.int64()))


def reading(
    schema: Schema, time: str, unit: Any, tz: Any, format: Any = None, *, step: str
) -> Reading:
    """Read `unit=`, `format=` and `tz=` of a stream.

    One unit, format or list of formats is for the time column; a dict has those of several columns.
    """
    given = {} if unit is None else unit if isinstance(unit, Mapping) else {time: unit}
    for column, name in given.items():
        kind = schema.type_of(column, step=f"{step} unit=")
        if kind != TIMESTAMP:
            raise UserError(
                step, expected=f"unit= for a column of timestamps, as {column!r} should be", got=repr(kind)
            )
        if name not in UNITS:
            raise UserError(step, expected=f"unit= to be one of {list(UNITS)}", got=repr(name))
    formats = {}
    by_column = {} if format is None else format if isinstance(format, Mapping) else {time: format}
    for column, several in by_column.items():
        kind = schema.type_of(column, step=f"{step} format=")
        if kind != TIMESTAMP:
            raise UserError(
                step, expected=f"format= for a column of timestamps, as {column!r} should be", got=repr(kind)
            )
        if column in given:
            raise UserError(step, expected=f"unit= or format= for {column!r}", got="both")
        listed = (several,) if isinstance(several, str) else tuple(several)
        for one in listed:
            if one != ISO:
                time_format(one, f"{step} format=", parsed=True)
        formats[column] = listed
    zone = UTC if tz is None else known_zone(tz, step=step)
    return Reading(tuple(given.items()), zone, tuple(formats.items()))
