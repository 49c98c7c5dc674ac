"""Read sources that go on into a live query: each in its turn, in the thread of the caller.

A source is polled, and what it has is pushed; then it is the next one's turn. If none has anything, the query
looks which inputs are idle, and the thread waits. A checkpoint is written between two turns, after the caller
has had all rows up to there.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, Protocol

import pyarrow as pa

from tidemill.core.clock import Clock
from tidemill.core.errors import UserError
from tidemill.core.time import BEGINNING, FARTHEST, DurationLike
from tidemill.io.feeds import Arrival, Feed, OpenFeed, seconds
from tidemill.io.items import OpenAsyncItems, as_feed
from tidemill.io.other_columns import PartlyRead
from tidemill.local.late_sink import LateSink, LateTo
from tidemill.local.live_input import LiveInput
from tidemill.plan.punctuation import Punctuation

_LONGEST_WAIT = 0.2
"""Seconds after which the query looks again which inputs are idle."""


class LiveQuery(Protocol):
    """What this module needs of a live query."""

    positions: dict[str, Any]

    @property
    def inputs(self) -> Mapping[str, LiveInput]: ...

    def push(self, *, position: Any = None, **batches: Any) -> pa.Table: ...

    def punctuate(self, below: int, *, input: str, key: Mapping[str, Any] | None = None) -> pa.Table: ...

    def advance(self) -> pa.Table: ...

    def checkpoint(self, path: str | PathLike[str]) -> object: ...


@dataclass
class _Turn:
    """A source that is being read."""

    feed: Feed
    opened: OpenFeed
    last: float
    """When something came."""


@dataclass(frozen=True)
class Options:
    """What else happens while sources are read."""

    checkpoint: str | PathLike[str] | None = None
    every: DurationLike = "10s"
    late: LateTo | None = None
    clock: Clock | None = None


class FeedReader:
    """Sources that are read into a live query, until all of them have ended or were stopped."""

    def __init__(self, live: LiveQuery, sources: Mapping[str, Any], options: Options) -> None:
        if not sources:
            raise UserError("read", expected="a source for an input, by name", got="none")
        for name in sources:
            if name not in live.inputs:
                raise UserError("read", expected=f"inputs {sorted(live.inputs)}", got=repr(name))
        self._live, self._path = live, options.checkpoint
        self._feeds = {name: as_feed(name, value) for name, value in sources.items()}
        self._every = seconds(options.every, "read every=")
        self._late = None if options.late is None else LateSink(options.late)
        self._clock = options.clock or Clock()
        self._turns: dict[str, _Turn] = {}
        self._ended: set[str] = set()
        self._came = self._unsaved = False
        self._interrupts = _Interrupts()
        self._failed: Exception | None = None
        self._saved = self._clock.now()

    # -- the two ways to read

    def tables(self) -> Iterator[pa.Table]:
        """Yield what is complete, as sources send rows."""
        try:
            self._open()
            while self._turns:
                self._came = False
                for name in list(self._turns):
                    yield from self._turn(name)
                    self._raise_held()
                if not self._came:
                    yield from self._advance()
                self._settle()
                self._raise_held()
                if self._turns and not self._came:
                    self._require_no_async()
                    self._clock.wait(*self._waiting(), self._woken())
            self._settle(last=True)
            self._raise_held()
        finally:
            self._close()

    async def tables_async(self) -> AsyncIterator[pa.Table]:
        """As `tables`; other tasks of the event loop go on while nothing is there."""
        try:
            self._open()
            while self._turns:
                self._came = False
                for name in list(self._turns):
                    for table in self._turn(name):
                        yield table
                    self._raise_held()
                    await asyncio.sleep(0)  # others have their turn, too
                if not self._came:
                    for table in self._advance():
                        yield table
                self._settle()
                self._raise_held()
                if self._turns and not self._came:
                    opened = [turn.opened for turn in self._turns.values()]
                    futures = [o.future() for o in opened if isinstance(o, OpenAsyncItems)]
                    if not any(future.done() for future in futures):
                        await self._clock.wait_async(*self._waiting(), futures)
            self._settle(last=True)
            self._raise_held()
        finally:
            self._close()

    # -- a round

    def _open(self) -> None:
        if self._late is not None:
            self._late.require_own(self._live.inputs)
        for name, feed in self._feeds.items():
            source = replace(self._live.inputs[name].source, step=f"read {name}")
            opened = feed.open(source, self._live.positions.get(name), self._clock)
            self._turns[name] = _Turn(feed, opened, self._clock.now())

    def _turn(self, name: str) -> list[pa.Table]:
        """Take what a source has, and return what is complete by it: one table, or none.

        One, because a caller who leaves after a table has had all that the positions stand for.
        """
        turn = self._turns[name]
        opened = turn.opened
        if turn.feed.stopped.is_set():
            self._leave(name)
            return []
        if opened.due() > 0:
            return []
        if opened.blocks:  # it may wait for long: Ctrl-C must end that
            opened.poll()
        with self._interrupts.held():
            arrival = opened.poll()
            if arrival is not None:
                self._came = self._unsaved = True
                turn.last = self._clock.now()
                return self._take(name, opened, arrival)
        if opened.ended:
            self._ended.add(name)
            self._leave(name)
            self._unsaved = True
            with self._interrupts.held():
                return _as_one(self._no_longer_waiting())
        if turn.feed.finished(self._clock.now() - turn.last):
            self._leave(name)
        return []

    def _take(self, name: str, opened: OpenFeed, arrival: Arrival) -> list[pa.Table]:
        at = {name: arrival.position}
        rows = arrival.rows if arrival.others is None else PartlyRead(arrival.rows, arrival.others)
        found = [] if rows is None else [self._live.push(position=at, **{name: rows})]
        opened.accept()
        self._live.positions[name] = opened.position
        try:
            for promise in arrival.promises:
                found += self._promised(name, promise)
            found += self._no_longer_waiting()
            if self._late is not None:
                self._late.take(name, self._live.inputs[name])
        except Exception as failed:  # of a promise that cannot be, or of a user's function
            self._failed = failed
        return _as_one(found)

    def _promised(self, name: str, promise: Punctuation) -> list[pa.Table]:
        """Pass a promise on. One that says less than is known already, by the slack, is no news."""
        given = self._live.inputs[name]
        ticks = given.instant(promise.below, f"read {name}")
        if promise.key is None:
            return [] if ticks < given.watermark else [self._live.punctuate(ticks, input=name)]
        keys = given.keyed(promise.key)
        news = ticks >= given.watermarks_of(keys)
        if not news.any():
            return []
        some = {column: values.filter(pa.array(news)) for column, values in keys.items()}
        return [self._live.punctuate(ticks, input=name, key=some)]

    def _raise_held(self) -> None:
        """Raise what went wrong in a turn after its rows were pushed, now that the caller has its table."""
        self._interrupts.release()
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed

    def _no_longer_waiting(self) -> list[pa.Table]:
        """An input that has ended promises what the others promise: it sends nothing below that."""
        others = [given.promise for name, given in self._live.inputs.items() if name not in self._ended]
        below = min(others, default=BEGINNING)
        if abs(below) > FARTHEST:
            return []
        behind = [name for name in self._ended if below > self._live.inputs[name].watermark]
        return [self._live.punctuate(below, input=name) for name in behind]

    def _advance(self) -> list[pa.Table]:
        with self._interrupts.held():
            found = _as_one([self._live.advance()])
        self._unsaved |= bool(found)
        return found

    def _settle(self, *, last: bool = False) -> None:
        """Write late rows and a checkpoint, if it is time."""
        if not (last or self._clock.now() - self._saved >= self._every):
            return
        self._saved = self._clock.now()
        with self._interrupts.held():
            if self._late is not None:
                self._late.write(self._live.inputs)
            if self._path is not None and self._unsaved:
                self._live.checkpoint(self._path)
        self._unsaved = False

    def _leave(self, name: str) -> None:
        self._turns.pop(name).opened.close()

    def _close(self) -> None:
        for name in list(self._turns):
            self._leave(name)

    # -- waiting

    def _waiting(self) -> tuple[float, list[int]]:
        """Return how long to wait, and for which descriptors."""
        opened = [turn.opened for turn in self._turns.values()]
        files = [o.file for o in opened if o.file is not None]
        timed = [o.due() for o in opened if o.file is None and not isinstance(o, OpenAsyncItems)]
        return min([_LONGEST_WAIT, *timed]), files

    def _woken(self) -> threading.Event:
        return next(iter(self._turns.values())).feed.stopped

    def _require_no_async(self) -> None:
        for name, turn in self._turns.items():
            if isinstance(turn.opened, OpenAsyncItems):
                raise UserError(
                    f"read {name}", expected="an iterator", got="an async iterator",
                    hint="async for table in live.read_async(...)",
                )  # fmt: skip


def _as_one(tables: list[pa.Table]) -> list[pa.Table]:
    found = [table for table in tables if table.num_rows]
    return [pa.concat_tables(found)] if found else []


class _Interrupts:
    """Ctrl-C comes after a piece of work and its rows; in the middle of it, it would break the query."""

    def __init__(self) -> None:
        self._came: tuple[int, Any] | None = None
        self._handler: Callable[[int, Any], Any] = signal.default_int_handler

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold an interrupt back, if it would be raised in this thread as usual."""
        handler = signal.getsignal(signal.SIGINT)
        main = threading.current_thread() is threading.main_thread()
        if not main or not callable(handler) or handler == self._note:  # ignored, or left to the system
            yield
            return
        self._handler = handler  # Python's own, or another one that raises: PySpark has one
        signal.signal(signal.SIGINT, self._note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, handler)

    def release(self) -> None:
        """Raise what came."""
        if self._came is not None:
            came, self._came = self._came, None
            self._handler(*came)

    def _note(self, number: int, frame: Any) -> None:
        self._came = number, frame
