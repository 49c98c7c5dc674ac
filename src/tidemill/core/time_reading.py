"""How times are read where the data has no unit or no zone.

A number has no unit and a naive time has no zone. A stream declares both: ints are instants only where it
names their unit, and naive times are UTC unless it names a zone. The rule is the same on every engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.core.types import TIMESTAMP, to_arrow

UTC = "UTC"
UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}
"""Ticks of a unit; nanoseconds are floored to ticks."""
NANOS = 1_000


@dataclass(frozen=True)
class Reading:
    """Units of the int columns that hold instants, and the zone of naive times.

    A local time that occurs twice in a zone is the earlier one; one that does not occur is refused.
    """

    units: tuple[tuple[str, str], ...] = ()
    tz: str = UTC

    @property
    def zoned(self) -> bool:
        """Whether naive times are of another zone than UTC."""
        return self.tz != UTC

    def unit(self, column: str) -> str | None:
        """The unit of the ints in a column of instants."""
        return dict(self.units).get(column)

    def from_ints(self, array: pa.Array, column: str, *, step: str) -> pa.Array:
        """Ints since the epoch as instants.

        >>> Reading((("ts", "s"),)).from_ints(pa.array([1, None]), "ts", step="run").cast("int64").to_pylist()
        [1000000, None]
        """
        unit = self.unit(column)
        if unit is None:
            raise UserError(
                step, expected=f"instants in column {column!r}, or the unit of its ints", got=str(array.type),
                hint="give the stream, or the insert, unit='s' (or 'ms', 'us', 'ns'), or declare it int64",
            )  # fmt: skip
        import pyarrow.compute as pc  # slow to import, seldom needed

        try:
            ticks = array.cast(pa.int64())
            ticks = floored(ticks) if unit == "ns" else pc.multiply_checked(ticks, UNITS[unit])
        except pa.ArrowInvalid as far:
            raise UserError(
                step, expected=f"instants within int64 microseconds in column {column!r}",
                got=f"ints of unit {unit!r} beyond: {far}", hint="check the unit",
            ) from far  # fmt: skip
        return ticks.cast(to_arrow(TIMESTAMP))

    def from_naive(self, array: pa.Array, column: str, *, step: str) -> pa.Array:
        """Times or dates without a zone as instants.

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
                    hint=f"{self.tz} skips a time here: it is of another zone, or wrong",
                ) from gap  # fmt: skip
        return naive.cast(to_arrow(TIMESTAMP))


def inside(step: str, column: str, got: str) -> UserError:
    """The error for naive times in lists and structs, which `tz=` does not cover."""
    return UserError(
        step, expected=f"times with a zone inside {column!r}", got=got,
        hint="tz= is for columns of times: make them instants before",
    )  # fmt: skip


PLAIN = Reading()
"""No unit, so that ints are refused; naive times are UTC."""


def floored(nanos: pa.Array) -> pa.Array:
    """Nanoseconds as microseconds. Arrow's own division would move instants before 1970 forward."""
    import pyarrow.compute as pc  # slow to import, seldom needed

    micros = pc.divide(nanos, NANOS)
    short = pc.less(nanos, pc.multiply(micros, NANOS))
    return pc.subtract(micros, short.cast(pa.int64()))


def reading(schema: Schema, time: str, unit: Any, tz: Any, *, step: str) -> Reading:
    """Read `unit=` and `tz=` of a stream. One unit is that of the time column; a dict has one for each."""
    given = {} if unit is None else unit if isinstance(unit, Mapping) else {time: unit}
    for column, name in given.items():
        kind = schema.type_of(column, step=f"{step} unit=")
        if kind != TIMESTAMP:
            raise UserError(
                step, expected=f"unit= for columns of timestamps, so that {column!r} is one", got=repr(kind)
            )
        if name not in UNITS:
            raise UserError(step, expected=f"unit= to be one of {list(UNITS)}", got=repr(name))
    if tz is None:
        return Reading(tuple(given.items()))
    name = getattr(tz, "key", None) or str(tz)
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError) as unknown:
        raise UserError(
            step, expected="tz= to name a time zone, such as 'Europe/Berlin'", got=repr(tz)
        ) from unknown
    return Reading(tuple(given.items()), zone_name(name))


def zone_name(name: str) -> str:
    """The name of a zone, with one name for UTC, which has many."""
    return UTC if name in ("Etc/UTC", "Z", "Zulu", "UCT", "Etc/UCT", "GMT", "+00:00") else name
