"""What a query that goes on does about rows that come out of order."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.core.errors import UserError
from tidemill.core.time import Domain, DurationLike, duration

LATE = ("drop", "adjust", "raise")
REASON = "late_reason"
"""The column that tables of late rows have besides those of the stream."""

CORRECTED = "corrected"
"""The reason of a late row that came early enough to correct what was given (`Emit`)."""
WITHIN_LATENESS = "within lateness"
"""The reason of a late row that counts nevertheless, in a query that answers on arrival."""
LATE_REASONS = ("late", "late after idle", CORRECTED, WITHIN_LATENESS)
NULL_TIME, FAR_TIME = WITHOUT_TIME = ("null time", "far time")
"""The reasons of rows that are in no window, whenever they come."""
NULL_ATTRIBUTE, FAR_ATTRIBUTE = WITHOUT_ATTRIBUTE = ("null attribute", "far attribute")
"""The reasons of rows that have a time, but no place in windows over another attribute (`on=`)."""
NO_LIFETIME = "no lifetime"
"""The reason of rows whose end is not after their start, or is too far from zero."""
REASONS = (*LATE_REASONS, *WITHOUT_TIME, *WITHOUT_ATTRIBUTE, NO_LIFETIME)
"""All that `late_reason` may say, and what is counted."""


@dataclass(frozen=True)
class Disorder:
    """How far rows may be out of order, and what happens to those that come too late.

    The *watermark* of an input is the strongest promise about it: what `punctuate` said, and, if there is a
    `slack`, the greatest time of the rows before less the slack. A row below it is *late*. That depends on
    the order of rows, not on the batches that they came in. Late rows are counted and can be read
    (`live.late()`), whatever the policy:

    - `late="drop"`: a late row counts in the windows that are not complete yet, and in no others. With
      `consistent=True` it counts in none.
    - `late="adjust"`: its time becomes the watermark.
    - `late="raise"`: a batch with a late row is refused whole, with an error.

    An input that sent nothing for as long as `idle` no longer holds the others back. What it sends below
    their watermark afterwards is late. `idle` is real time, whatever the time of the stream is.

    >>> Disorder(slack="10s", late="adjust")
    Disorder(slack='10s', late='adjust', consistent=False, idle=None)
    """

    slack: DurationLike | None = None
    late: str = "drop"
    consistent: bool = False
    idle: DurationLike | None = None

    def __post_init__(self) -> None:
        if self.late not in LATE:
            raise UserError("Disorder", expected=f"late= to be one of {LATE}", got=repr(self.late))
        if self.consistent and self.late != "drop":
            raise UserError(
                "Disorder", expected="consistent=True with late='drop'", got=f"late={self.late!r}",
                hint="adjusted rows count in all their windows; refused ones in none",
            )  # fmt: skip
        if self.slack is not None and duration(self.slack, step="Disorder").ticks < 0:
            raise UserError("Disorder", expected="a slack of at least 0", got=repr(self.slack))
        if self.idle is not None:
            idle = duration(self.idle, step="Disorder")
            if idle.domain is not Domain.CLOCK or idle.ticks <= 0:
                raise UserError("Disorder", expected="idle='30s', a positive time", got=repr(self.idle))

    def slack_ticks(self, domain: Domain) -> int | None:
        """Return the slack in ticks of a stream's time, or None if there is no slack."""
        return in_ticks("Disorder", "a slack", self.slack, domain)

    @property
    def idle_seconds(self) -> float | None:
        return None if self.idle is None else duration(self.idle).ticks / 1e6


def in_ticks(step: str, name: str, given: DurationLike | None, domain: Domain) -> int | None:
    """Return a duration in ticks of a stream's time; None if there is none."""
    if given is None:
        return None
    found = duration(given, step=step)
    if found.ticks and found.domain is not domain:
        raise UserError(step, expected=f"{name} in {domain.value}, as the stream has it", got=repr(given))
    return found.ticks
