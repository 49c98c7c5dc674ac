"""Steps that keep nothing run on several threads: batches are sprayed over them (paper 000, section 6.2).

A run of such steps, from a source or an operator to the next operator that keeps something, is a *chain*. A
batch goes through all of a chain on one thread. What comes out is passed on in the order of the batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa

from tidemill.core.threads import Threads, borrowed, returned

Stateless = Callable[[pa.RecordBatch], Sequence[pa.RecordBatch]]
_Step = TypeVar("_Step")


@dataclass(frozen=True)
class Chain(Generic[_Step]):
    """Steps that follow each other, of which each is the only one that reads what comes before it."""

    calls: tuple[Stateless, ...]
    last: _Step
    """The step whose results come out."""

    def run(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Take a batch through all steps."""
        found = [batch]
        for call in self.calls:
            found = [out for rows in found for out in call(rows)]
        return found


_Then = Callable[[list[pa.RecordBatch]], Iterable[pa.RecordBatch]]


class Spray:
    """Takes batches through chains on threads of its own, and does in their order what comes after."""

    def __init__(self, threads: int, few_rows: int) -> None:
        """Batches with fewer rows are not worth a thread."""
        self._most, self._few_rows = 2 * threads, few_rows
        self._pool: Threads | None = borrowed(threads)
        self._waiting: deque[tuple[Future[list[pa.RecordBatch]], _Then]] = deque()

    @property
    def busy(self) -> bool:
        """Whether some batch is on its way."""
        return bool(self._waiting)

    def start(self, chain: Chain[Any], batch: pa.RecordBatch, then: _Then) -> None:
        """Take a batch through a chain on any thread; `then` gets what comes out (`done`)."""
        found: Future[list[pa.RecordBatch]]
        if self._pool is None or batch.num_rows < self._few_rows:
            found = Future()
            found.set_result(chain.run(batch))
        else:
            found = self._pool.submit(chain.run, batch)
        self._waiting.append((found, then))

    def after(self, then: _Then) -> None:
        """Do something when all batches before are done."""
        found: Future[list[pa.RecordBatch]] = Future()
        found.set_result([])
        self._waiting.append((found, then))

    def done(self, *, all_: bool = False) -> Iterator[pa.RecordBatch]:
        """Do what comes after batches that are done, and return the results. Exhaust it.

        Batches are waited for if too many are on their way, or if `all_` must be done.
        """
        while self._waiting and (all_ or len(self._waiting) > self._most or self._waiting[0][0].done()):
            found, then = self._waiting.popleft()
            with self.apart():
                yield from then(found.result())

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Put what starts from now on before all that is on its way; only that is `done` meanwhile.

        A batch that comes out of a chain may go on through another one, while a watermark waits behind it.
        """
        before, self._waiting = self._waiting, deque()
        try:
            yield
        finally:
            self._waiting.extend(before)

    def close(self) -> None:
        """Give back the threads."""
        pool, self._pool = self._pool, None
        if pool is not None:
            returned(pool, [call for call, _ in self._waiting])
        self._waiting.clear()
