"""The results of a live query as an asynchronous iterator."""

from __future__ import annotations

import asyncio
from collections import deque

import pyarrow as pa


class LiveResults:
    """The tables of new rows since it was made; it ends when the query does.

    Other tasks push rows meanwhile, or other threads. Tables wait here until they are read.
    """

    def __init__(self) -> None:
        self._tables: deque[pa.Table] = deque()
        self._ended = False
        self._failed: BaseException | None = None
        self._loop = asyncio.get_running_loop()
        self._more = asyncio.Event()

    def add(self, table: pa.Table) -> None:
        self._tables.append(table)
        self._wake()

    def end(self, failed: BaseException | None = None) -> None:
        """End after the tables that wait; if the query failed, by what it raised."""
        self._ended, self._failed = True, failed
        self._wake()

    def _wake(self) -> None:
        if not self._loop.is_closed():  # a query may go on after the loop that read it
            self._loop.call_soon_threadsafe(self._more.set)

    def __aiter__(self) -> LiveResults:
        return self

    async def __anext__(self) -> pa.Table:
        while not self._tables:
            if self._ended:
                failed, self._failed = self._failed, None
                raise StopAsyncIteration if failed is None else failed
            self._more.clear()
            if not self._tables and not self._ended:
                await self._more.wait()
        return self._tables.popleft()
