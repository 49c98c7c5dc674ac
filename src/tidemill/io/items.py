"""Items of Python as a source that goes on: an iterator of batches or dicts, or an async one."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any

from tidemill.core.clock import Clock
from tidemill.core.errors import UserError
from tidemill.core.time import DurationLike
from tidemill.io.feeds import Arrival, Feed, OnceFeed, OpenFeed, count_of
from tidemill.plan.nodes import Source
from tidemill.plan.punctuation import Punctuation

_TOGETHER = 1024
"""Dicts of a list that are given together."""

Items = Iterable[Any] | AsyncIterable[Any]


def items(
    source: Items | Callable[[int], Items], *, resume: str | None = None, poll: DurationLike = "10ms",
    until: Callable[[], bool] | None = None, idle: DurationLike | None = None,
) -> ItemFeed:  # fmt: skip
    """Read the items of an iterable or an async iterable, each as soon as it comes.

    An item is rows in any form that `live.push` takes, a `tm.Punctuation`, or None if there is nothing now,
    after which others have their turn, and the next one is asked for after `poll`. The position is the number
    of items. After a restore, a function of that number is called to get the items from there on. For other
    iterables, `resume="skip"` says that the same items come again from the first one, and `"continue"` that
    the next one comes first. Async iterables are for `live.read_async`.

    >>> from tidemill.stream import stream
    >>> from tidemill.aggregates.basic import count
    >>> from tidemill.windows.spec import tumbling
    >>> live = stream("s", time="t", schema={"t": "int64"}).window(tumbling(10)).agg(n=count()).live()
    >>> [table.to_pylist() for table in live.read(s=items([{"t": 3}, {"t": 14}, Punctuation(10)]))]
    [[{'window_start': 0, 'window_end': 10, 'n': 1}]]
    """
    if not callable(source) and not isinstance(source, (Iterable, AsyncIterable)):
        raise UserError(
            "items", expected="an iterable, or a function that returns one", got=f"{source!r:.80}"
        )
    made = callable(source) and not isinstance(source, (Iterable, AsyncIterable))
    return ItemFeed(source, resume="continue" if made else resume, poll=poll, until=until, idle=idle)


class ItemFeed(OnceFeed):
    """Items of an iterable."""

    about = "items"

    def __init__(self, source: Any, **more: Any) -> None:
        super().__init__(**more)
        self._source = source

    def __repr__(self) -> str:
        return f"items of {self._source!r:.60}"

    def _start(self, source: Source, position: Any, clock: Clock) -> OpenFeed:
        count = count_of(position, source)
        given = self._source
        if callable(given) and not isinstance(given, (Iterable, AsyncIterable)):
            given = given(count)
        skip = count if self._resume == "skip" else 0
        if isinstance(given, AsyncIterable):
            return OpenAsyncItems(given.__aiter__(), count, skip, clock, self._poll)
        if isinstance(given, Sequence):
            items = [item for item in given if item is not None]  # None says that nothing is there: no item
            return _OpenItems(_gathered(items[skip:]), count, 0, clock, self._poll)
        return _OpenItems(((item, 1) for item in given), count, skip, clock, self._poll)


class _OpenItems(OpenFeed):
    blocks = True

    def __init__(
        self, found: Iterator[tuple[Any, int]], count: int, skip: int, clock: Clock, poll: float
    ) -> None:
        super().__init__(count or None, clock, poll)
        self._items, self._count, self._skip = found, count, skip

    def _look(self) -> Arrival | None:
        while not self.ended:
            try:
                item, number = next(self._items)
            except StopIteration:
                self.ended = True
                break
            if item is None:
                break
            if self._skip:
                self._skip -= 1
                continue
            self._count += number
            return _arrival(item, self._count)
        return None


def _gathered(given: Sequence[Any]) -> Iterator[tuple[Any, int]]:
    """Yield items with how many they are: dicts in a row are given together, up to some number."""
    for dicts, group in itertools.groupby(given, lambda item: isinstance(item, Mapping)):
        if not dicts:
            yield from ((item, 1) for item in group)
            continue
        while block := list(itertools.islice(group, _TOGETHER)):
            yield block, len(block)


class OpenAsyncItems(OpenFeed):
    """Items of an async iterator. Whoever polls waits for `future` before, in the event loop.

    An item that was asked for stays asked for when nobody reads any more: to cancel it would end the
    iterator.
    """

    def __init__(self, found: AsyncIterator[Any], count: int, skip: int, clock: Clock, poll: float) -> None:
        super().__init__(count or None, clock, poll)
        self._items, self._count, self._skip = found, count, skip
        self._future: asyncio.Future[Any] | None = None

    def due(self) -> float:
        """Return 0 if an item was asked for: the iterator says itself when it comes."""
        waits = self._future is None and self._arrived is None and not self.ended
        return math.inf if waits else 0.0

    def future(self) -> asyncio.Future[Any]:
        """Ask for the next item, if nobody has, and return its future."""
        if self._future is None:
            self._future = asyncio.ensure_future(_next(self._items))
        return self._future

    def _look(self) -> Arrival | None:
        if self.ended or self._future is None or not self._future.done():
            return None
        done, self._future = self._future, None
        if done.cancelled():
            raise UserError(
                "items", expected="an async iterator that goes on",
                got="one that was cancelled with its event loop",
                hint="tm.items takes a function of the position, which returns another one",
            )  # fmt: skip
        item = done.result()
        if item is _NO_MORE:
            self.ended = True
        elif item is not None and self._skip:
            self._skip -= 1
        elif item is not None:
            self._count += 1
            return _arrival(item, self._count)
        return None


_NO_MORE = object()


async def _next(found: AsyncIterator[Any]) -> Any:
    try:
        return await found.__anext__()
    except StopAsyncIteration:  # which a future cannot hold
        return _NO_MORE


def _arrival(item: Any, count: int) -> Arrival:
    if isinstance(item, Punctuation):
        return Arrival(count, None, (item,))
    return Arrival(count, item)


def as_feed(name: str, value: Any) -> Feed:
    """Return a source that goes on: a feed as it is, or the items of an iterable."""
    if isinstance(value, Feed):
        return value
    hint = "tm.follow(path) for a file that grows, tm.replay(table) for history, tm.items(rows) for rows"
    plain = isinstance(value, (Iterator, AsyncIterable, list, tuple))
    if not plain:
        raise UserError(
            f"read {name}", expected="a source that goes on, or an iterator", got=f"{value!r:.80}", hint=hint
        )
    return items(value)
