"""Work that threads do while the caller goes on; results come in the order of the calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future

import pyarrow as pa

from tidemill.core.threads import Threads, borrowed, returned
from tidemill.core.time import FOREVER

_Batches = Sequence[pa.RecordBatch]


class Ahead:
    """Calls that have not been read yet.

    >>> ahead = Ahead(1)
    >>> ahead.submit(5, lambda: [pa.record_batch({"a": [1]})])
    >>> ahead.since, [batch.num_rows for batch in ahead.results(0)], ahead.since == FOREVER
    (5, [1], True)
    >>> ahead.close()
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool: Threads | None = None
        self._calls: deque[tuple[int, Future[_Batches]]] = deque()

    def submit(self, since: int, call: Callable[[], _Batches]) -> None:
        """Let a thread make a call. No row of its result is before `since`."""
        if self._pool is None:
            self._pool = borrowed(self._workers)
        self._calls.append((since, self._pool.submit(call)))

    def results(self, left: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield results until so many calls are left; by default, two for each thread."""
        most = 2 * self._workers if left is None else left
        while len(self._calls) > most:
            yield from self._calls[0][1].result()
            self._calls.popleft()

    @property
    def since(self) -> int:
        """No row of a result that was not read yet is before this instant."""
        return min((since for since, _ in self._calls), default=FOREVER)

    def close(self) -> None:
        if self._pool is not None:
            returned(self._pool, [call for _, call in self._calls])
            self._pool = None
