"""The number of threads, and an ordered parallel map."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

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


_NAME = "tidemill"


class Threads(ThreadPoolExecutor):
    """Threads that were started for one user, and are later used by another one."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers, _NAME)
        self.workers, self.process = workers, os.getpid()


_MOST_IDLE = max(8, os.cpu_count() or 1)
"""The number of threads that wait to be used again, at most, in pools of one size."""
_idle: dict[int, list[Threads]] = {}
"""Threads that nobody uses, by the size of their pool."""
if hasattr(os, "register_at_fork"):  # a forked child has none of its parent's threads
    os.register_at_fork(after_in_child=_idle.clear)


def borrowed(workers: int) -> Threads:
    """Return threads that only the caller uses, until it passes them to `returned`.

    They are used again, because to start threads may take longer than a small query.
    """
    try:
        return _idle[workers].pop()
    except (KeyError, IndexError):
        return Threads(workers)


def returned(pool: Threads, calls: Collection[Future[Any]]) -> None:
    """Take back threads that `borrowed` returned, when they have finished or cancelled these calls.

    In a forked child of the process that borrowed them, there are no such threads.
    """
    if pool.process != os.getpid():
        return
    for call in calls:
        call.cancel()
    if threading.current_thread().name.startswith(_NAME):
        # This thread collected garbage, among which was a result that nobody read: it cannot wait for itself.
        pool.shutdown(wait=False)
        return
    wait(calls)
    idle = _idle.setdefault(pool.workers, [])
    if pool.workers * len(idle) < _MOST_IDLE:
        idle.append(pool)
    else:
        pool.shutdown()


class Strand:
    """Makes calls one after another, on threads that belong to somebody else.

    >>> with ThreadPoolExecutor(2) as pool:
    ...     strand, seen = Strand(pool), []
    ...     calls = [strand.submit(seen.append, i) for i in range(3)]
    ...     _ = wait(calls)
    >>> seen
    [0, 1, 2]
    """

    def __init__(self, pool: Executor) -> None:
        self._pool = pool
        self._waiting: deque[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]] = deque()
        self._lock, self._working = threading.Lock(), False

    def submit(self, call: Callable[..., Any], *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            self._waiting.append((future, call, args))
            begins, self._working = not self._working, True
        if begins:
            self._pool.submit(self._work)
        return future

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._working = False
                    return
                future, call, args = self._waiting.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call(*args))
            except BaseException as failed:  # whatever it is: who waits for the result gets it
                future.set_exception(failed)


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
    pool = borrowed(workers)
    try:
        for item in items:
            running.append(pool.submit(call, item))
            if len(running) > 2 * workers:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        returned(pool, running)
