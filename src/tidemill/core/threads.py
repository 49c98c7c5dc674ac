"""The number of threads, and an ordered parallel map."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from tidemill.core.errors import UserError

In = TypeVar("In")
Out = TypeVar("Out")


def threads() -> int:
    """Return `TIDEMILL_THREADS` if it is set, otherwise the number of CPUs this process may use."""
    asked = os.environ.get("TIDEMILL_THREADS")
    if asked:
        if not asked.isdecimal() or int(asked) == 0:
            raise UserError("run", expected="TIDEMILL_THREADS to be a positive integer", got=asked)
        return int(asked)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def on_threads(call: Callable[[In], Out], items: Iterable[In], workers: int) -> Iterator[Out]:
    """Call a function for each item on several threads, and return the results in order.

    Items are read only a few ahead of the results.

    >>> list(on_threads(abs, [-1, 2, -3], workers=2))
    [1, 2, 3]
    """
    if workers == 1:
        yield from map(call, items)
        return
    running: deque[Future[Out]] = deque()
    pool = ThreadPoolExecutor(workers, "tidemill-stage")
    try:
        for item in items:
            running.append(pool.submit(call, item))
            if len(running) > 2 * workers:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
