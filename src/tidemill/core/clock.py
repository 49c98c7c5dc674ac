"""Real time, and waiting. Whoever waits does it with a `Clock`, so that tests can give one that does not."""

from __future__ import annotations

import asyncio
import math
import select
import threading
import time
from collections.abc import Collection, Sequence
from typing import Any


class Clock:
    """The clock of the machine.

    A clock of a test has its own `now`, and moves it in `wait` and `wait_async` instead of waiting.
    """

    def now(self) -> float:
        """Return seconds since some moment; they never go back."""
        return time.monotonic()

    def wait(self, seconds: float, files: Sequence[int] = (), woken: threading.Event | None = None) -> None:
        """Wait until so much time has passed, one of some descriptors can be read, or an event is set."""
        if not files:
            (woken or threading.Event()).wait(seconds)
            return
        poll = select.poll()
        for file in files:
            poll.register(file, select.POLLIN)
        poll.poll(math.ceil(seconds * 1000))

    async def wait_async(
        self, seconds: float, files: Sequence[int] = (), futures: Collection[asyncio.Future[Any]] = ()
    ) -> None:
        """As `wait`, while other tasks of the event loop go on; futures that are done end it as well."""
        loop = asyncio.get_running_loop()
        readable: asyncio.Future[None] = loop.create_future()

        def note() -> None:
            if not readable.done():
                readable.set_result(None)

        for file in files:
            loop.add_reader(file, note)
        try:
            await asyncio.wait([readable, *futures], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            readable.cancel()
            for file in files:
                loop.remove_reader(file)
