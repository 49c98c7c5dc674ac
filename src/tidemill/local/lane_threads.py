"""Threads that each run calls in order, for the lanes and collectors of a window aggregate."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.core.threads import Strand, borrowed, returned
from tidemill.local.limits import Limits


@dataclass(frozen=True)
class Done:
    """What a call returned: the windows that a lane closed, or how full a collector is."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    promise: Limits | None = None
    """A lane's promise for windows to come."""
    collector: int | None = None
    crowded: bool = False
    spilled: int = 0
    keys: int = 0


class LaneThreads:
    """A thread for each lane or collector. Each thread runs its calls in the order in which they came.

    >>> threads = LaneThreads(2)
    >>> threads.start({0: Done, 1: lambda: Done(keys=3)})
    >>> threads.waiting, [done.keys for done in threads.oldest()], threads.waiting
    (1, [0, 3], 0)
    >>> threads.close()
    """

    def __init__(self, count: int, pool: Executor | None = None) -> None:
        """Start no thread if `count` is 1: the caller makes the calls. Use those of a pool, if given."""
        numbers = range(count if count > 1 else 0)
        self._workers = [borrowed(1) if pool is None else Strand(pool) for _ in numbers]
        self._running: deque[dict[int, Future[Done]]] = deque()
        self._submitted: deque[Future[Any]] = deque()
        """All calls that may not have finished yet."""
        self._process = os.getpid()

    @property
    def _left_behind(self) -> bool:
        """Whether this is a forked child, which has none of the threads."""
        return bool(self._workers) and os.getpid() != self._process

    def _require_threads(self) -> None:
        if self._left_behind:
            raise UserError(
                "query", expected="the process that started it with its threads",
                got="a process that was forked from it", hint="start or restore the query in the child",
            )  # fmt: skip

    def _submit(self, number: int, call: Callable[..., Any], *args: Any) -> Future[Any]:
        self._require_threads()
        while self._submitted and self._submitted[0].done():
            self._submitted.popleft()
        future = self._workers[number].submit(call, *args)
        self._submitted.append(future)
        return future

    def busy(self, number: int) -> int:
        """The number of calls that a thread has not finished."""
        return sum(number in group and not group[number].done() for group in self._running)

    def start(self, calls: dict[int, Callable[[], Done]]) -> None:
        """Start a group of calls, by the number of the thread."""
        self._running.append({number: self._submit(number, c) for number, c in calls.items()})

    def finish(self, calls: dict[int, Callable[[], Done]]) -> None:
        """Make a group of calls on the caller's thread, in place of starting it."""
        futures = {number: Future[Done]() for number in calls}
        for number, call in calls.items():
            futures[number].set_result(call())
        self._running.append(futures)

    @property
    def waiting(self) -> int:
        """The number of groups that `oldest` has not returned yet."""
        return len(self._running)

    def oldest(self) -> list[Done]:
        """Wait for the oldest group of calls and return their results."""
        self._require_threads()
        return [future.result() for future in self._running.popleft().values()]

    def each(self, call: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """Call a function for one item on each thread, and wait for the results."""
        futures = [self._submit(number, call, item) for number, item in enumerate(items)]
        return [future.result() for future in futures]

    def interleaved(self, results: Iterable[Iterator[Any]]) -> Iterator[Any]:
        """Yield the items of iterators in turn, each computed by a thread of its own, one item ahead."""
        coming = deque((n, r, self._submit(n, next, r, None)) for n, r in enumerate(results))
        while coming:
            number, result, future = coming.popleft()
            if (item := future.result()) is not None:
                coming.append((number, result, self._submit(number, next, result, None)))
                yield item

    def close(self) -> None:
        """Wait for the calls that run, drop those that do not run yet, and return the threads."""
        if self._left_behind:
            self._workers.clear()
        while self._workers:
            worker = self._workers.pop()
            if not isinstance(worker, Strand):
                returned(worker, self._submitted)
                continue
            for call in self._submitted:
                call.cancel()
            wait(self._submitted)
