"""Feeds: sources that go on. A feed says what is there now, never waits, and knows its position.

A `Feed` is what a user makes: `tm.follow(...)`, `tm.lines(...)`. Opened for a stream, at a position, it is an
`OpenFeed`, which `live.read` polls. What a poll returned stays there until it is accepted, so that nothing
is lost if it cannot be pushed.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidemill.core.clock import Clock
from tidemill.core.errors import UserError
from tidemill.core.time import Domain, DurationLike, duration
from tidemill.io.other_columns import Others, PartlyRead
from tidemill.plan.nodes import Source
from tidemill.plan.punctuation import Punctuation

RESUME = ("skip", "continue")


@dataclass(frozen=True)
class Arrival:
    """What a source had at one moment: rows, then promises; and the position after them, as JSON."""

    position: Any
    rows: Any = None
    """In any form that `live.push` takes; None if there are none."""
    promises: tuple[Punctuation, ...] = ()
    others: Others | None = None
    """Reads columns of these rows that were left out, because the query does not read them."""


def arrival_of(position: Any, rows: PartlyRead | None) -> Arrival:
    """Return the arrival of rows, if there are any."""
    return Arrival(position) if rows is None else Arrival(position, rows.batch, others=rows.others)


class OpenFeed:
    """A feed that is being read. A subclass implements `_look`."""

    ended = False
    """Whether no more rows can come. A feed that was only stopped has not ended."""
    blocks = False
    """Whether a poll may wait, because it calls code of the user."""
    file: int | None = None
    """A descriptor that becomes readable when there is something new."""

    def __init__(self, position: Any, clock: Clock, poll: float = 0.0) -> None:
        self.position = position
        """Up to where everything was accepted."""
        self._clock, self._interval = clock, poll
        self._next_look = -math.inf
        self._arrived: Arrival | None = None

    def due(self) -> float:
        """Return after how many seconds it makes sense to poll; 0 for now."""
        return max(0.0, self._next_look - self._clock.now())

    def poll(self) -> Arrival | None:
        """Return what is there, the same until it is accepted; None if there is nothing."""
        if self._arrived is None:
            self._arrived = self._look()
            if self._arrived is None:
                self._next_look = self._clock.now() + self._interval
        return self._arrived

    def accept(self) -> None:
        """Go on behind what `poll` returned."""
        assert self._arrived is not None
        self.position, self._arrived = self._arrived.position, None

    def close(self) -> None:
        """Close files."""

    def _look(self) -> Arrival | None:
        raise NotImplementedError


class Feed:
    """A source that goes on, for `live.read`.

    It ends by itself if the source has an end. Otherwise it is stopped: by `stop()`, if nothing came for as
    long as `idle`, or if nothing is there and `until()` is true.
    """

    about = "feed"

    def __init__(
        self, *, poll: DurationLike = "100ms", until: Callable[[], bool] | None = None,
        idle: DurationLike | None = None,
    ) -> None:  # fmt: skip
        self._poll = seconds(poll, f"{self.about} poll=")
        self._idle = None if idle is None else seconds(idle, f"{self.about} idle=")
        if until is not None and not callable(until):
            raise UserError(self.about, expected="until= a function", got=f"{until!r:.80}")
        self._until = until
        self.stopped = threading.Event()

    def stop(self) -> None:
        """Read no more, for good. Any thread may call it."""
        self.stopped.set()

    def finished(self, quiet: float) -> bool:
        """Return whether to stop, if nothing is there, and nothing came for some seconds."""
        return (
            self.stopped.is_set()
            or (self._until is not None and self._until())
            or (self._idle is not None and quiet >= self._idle)
        )

    def open(self, source: Source, position: Any, clock: Clock) -> OpenFeed:
        """Open it for a stream, at a position that was accepted before, or at its beginning if it is None."""
        raise NotImplementedError


class OnceFeed(Feed):
    """A feed that cannot be opened again: what was read of it is gone. It goes on where it was left.

    At a position of another feed, `resume` says what its first row is: with `"skip"` it begins at the same
    beginning, so that rows up to the position are skipped; with `"continue"` it begins with the next row.
    """

    def __init__(self, resume: Any = None, **more: Any) -> None:
        super().__init__(**more)
        if resume is not None and resume not in RESUME and not callable(resume):
            raise UserError(self.about, expected=f"resume= one of {RESUME}", got=f"{resume!r:.80}")
        self._resume = resume
        self._opened: OpenFeed | None = None
        self._stream = ""

    def open(self, source: Source, position: Any, clock: Clock) -> OpenFeed:
        if self._opened is None:
            if position is not None and self._resume is None:
                raise UserError(
                    f"read {source.name}",
                    expected="to know where the input begins, since rows of it were read",
                    got=f"position {position!r:.80}",
                    hint="resume='skip' if it begins at its beginning again, 'continue' if with the next row",
                )  # fmt: skip
            self._opened, self._stream = self._start(source, position, clock), source.name
        elif self._stream != source.name or self._opened.position != position:
            raise UserError(
                f"read {source.name}",
                expected=f"a {self.about} that was not read, or that goes on from there",
                got=f"one that was read for {self._stream!r} up to {self._opened.position!r:.80}",
                hint="an input that cannot be read again has one reader",
            )  # fmt: skip
        return self._opened

    def _start(self, source: Source, position: Any, clock: Clock) -> OpenFeed:
        raise NotImplementedError


def seconds(value: DurationLike, step: str) -> float:
    """Read a duration of real time, in seconds."""
    found = duration(value, step=step)
    if found.domain is not Domain.CLOCK or found.ticks < 0:
        raise UserError(step, expected="a time such as '100ms' or '5s'", got=repr(value))
    return found.ticks / 1e6


def count_of(position: Any, source: Source) -> int:
    """Return a position that is a number of rows or lines, checked."""
    if position is None:
        return 0
    if not isinstance(position, int) or isinstance(position, bool) or position < 0:
        raise unfit_position(position, source, "a number")
    return position


def unfit_position(position: Any, source: Source, expected: str) -> UserError:
    """Return the error about a position of another kind of source."""
    return UserError(
        f"read {source.name}", expected=f"a position of this kind of source, {expected}",
        got=f"{position!r:.80}",
        hint=f"read from the source of before, or forget it: live.positions.pop({source.name!r})",
    )  # fmt: skip
