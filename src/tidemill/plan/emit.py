"""When a query that goes on gives rows, besides when they are complete."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.core.errors import UserError
from tidemill.core.time import Domain, DurationLike, duration
from tidemill.plan.disorder import in_ticks

REVISION, FINAL, WITHDRAWN = "revision", "final", "withdrawn"
"""The columns that tell revisions of a row apart."""


@dataclass(frozen=True)
class Emit:
    """Rows of windows that are still open, and new rows for windows that a late event has changed.

    - `early="10s"`: each time that the greatest time so far passes a multiple of it, the rows of open windows
      come that are new or have changed: what the answer would be if no more events came.
    - `correct="1h"`: an event that is late by no more than this still counts. If it changes rows that were
      given, new revisions of them come. The state of complete windows is kept for so long.

    Each row of the result then has three more columns. `revision` counts how often its values have changed.
    `final` is true once it can no longer change, and each row of the answer comes once with it. `withdrawn`
    rows are no longer part of the answer: two sessions became one, or a filter no longer lets the row pass.
    The last revisions of all rows, without the withdrawn ones, are the answer over the events so far.

    >>> Emit(early="10s")
    Emit(early='10s', correct=None)
    """

    early: DurationLike | None = None
    correct: DurationLike | None = None

    def __post_init__(self) -> None:
        if self.early is None and self.correct is None:
            raise UserError("Emit", expected="early= or correct=, or both", got="none of them")
        for name in ("early", "correct"):
            given = getattr(self, name)
            if given is not None and duration(given, step="Emit").ticks <= 0:
                raise UserError("Emit", expected=f"{name} greater than zero", got=repr(given))

    def early_ticks(self, domain: Domain) -> int | None:
        """Return the time between early answers in ticks of a stream's time."""
        return in_ticks("Emit", "early", self.early, domain)

    def correct_ticks(self, domain: Domain) -> int:
        """Return how long complete windows are kept, in ticks of a stream's time; 0 if they are not."""
        return in_ticks("Emit", "correct", self.correct, domain) or 0


@dataclass(frozen=True)
class Latency:
    """How long results may wait so that rows are processed in larger batches.

    Rows wait until the greatest time has passed a multiple of `every`; then all of them are processed at
    once, and the watermark advances. Under higher load there are thus larger batches. When `rows` rows wait,
    they are processed before that.

    >>> Latency("10s")
    Latency(every='10s', rows=1000000)
    """

    every: DurationLike
    rows: int = 1_000_000

    def __post_init__(self) -> None:
        if duration(self.every, step="Latency").ticks <= 0:
            raise UserError("Latency", expected="a time greater than zero", got=repr(self.every))
        if isinstance(self.rows, bool) or not isinstance(self.rows, int) or self.rows <= 0:
            raise UserError("Latency", expected="rows= at least 1", got=repr(self.rows))

    def ticks(self, domain: Domain) -> int:
        """Return the time between watermarks in ticks of a stream's time."""
        found = in_ticks("Latency", "a time", self.every, domain)
        assert found is not None
        return found
