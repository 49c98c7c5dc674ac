"""Convert ints and naive times to instants, with the unit and the zone that a stream declares.

A number has no unit and a naive time has no zone. Ints are instants only if the stream declares their unit.
Naive times are UTC unless the stream declares a zone. The rule is the same on every engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.core.types import TIMESTAMP, to_arrow
from tidemill.core.zones import UTC, known_zone

UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}
"""The ticks of each unit; nanoseconds are floored to ticks."""
NANOS = 1_000


@dataclass(frozen=True)
class Reading:
    """The units of int columns that hold instants, and the zone of naive times.

    A local time that occurs twice in a zone is the earlier one; one that does not occur is an error.
    """

    units: tuple[tuple[str, str], ...] = ()
    tz: str = UTC

    @property
    def zoned(self) -> bool:
        """Whether naive times are in a zone other than UTC."""
        return self.tz != UTC

    def unit(self, column: str) -> str | None:
        """Return the unit of the ints in a column of instants; None if it has none."""
        return dict(self.units).get(column)

    def from_ints(self, array: pa.Array, column: str, *, step: str) -> pa.Array:
        """Convert ints since the epoch to instants.

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
                got=f"ints of unit {unit!r} outside this range: {far}", hint="check the unit",
            ) from far  # fmt: skip
        return ticks.cast(to_arrow(TIMESTAMP))

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


def reading(schema: Schema, time: str, unit: Any, tz: Any, *, step: str) -> Reading:
    """Read `unit=` and `tz=` of a stream. One unit is for the time column; a dict maps columns to units."""
    given = {} if unit is None else unit if isinstance(unit, Mapping) else {time: unit}
    for column, name in given.items():
        kind = schema.type_of(column, step=f"{step} unit=")
        if kind != TIMESTAMP:
            raise UserError(
                step, expected=f"unit= for a column of timestamps, as {column!r} should be", got=repr(kind)
            )
        if name not in UNITS:
            raise UserError(step, expected=f"unit= to be one of {list(UNITS)}", got=repr(name))
    if tz is None:
        return Reading(tuple(given.items()))
    return Reading(tuple(given.items()), known_zone(tz, step=step))
