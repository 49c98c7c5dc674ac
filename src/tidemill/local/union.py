"""Several streams of chunks as one, and one as several."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from tidemill.core.time import BEGINNING
from tidemill.io.chunks import Chunk


def merged(inputs: Iterable[Iterable[Chunk]]) -> Iterator[Chunk]:
    """The chunks of all inputs; no later row is below the least promise of those that have not ended.

    The input that is behind the others in time is read next, so that windows over all close soon and what
    several inputs share need not wait long for the last of them.

    >>> import pyarrow as pa
    >>> rows = pa.record_batch({"t": [8]})
    >>> [c.complete_below for c in merged([[Chunk(rows, 5), Chunk(rows, 9)], [Chunk(rows, 7)]])][1:]
    [5, 7]
    """
    waiting = [(BEGINNING, iter(chunks)) for chunks in inputs]
    while waiting:
        at = min(range(len(waiting)), key=lambda i: waiting[i][0])
        promise, chunks = waiting.pop(at)
        chunk = next(chunks, None)
        if chunk is None:
            continue
        # At the back: those that promise alike take turns.
        waiting.append((max(promise, chunk.complete_below), chunks))
        yield Chunk(chunk.batch, min(below for below, _ in waiting))


class SharedChunks:
    """Chunks that several readers read, each all of them; a chunk waits until the last has read it."""

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        self._chunks = iter(chunks)
        self._waiting: list[deque[Chunk]] = []

    def reader(self) -> Iterator[Chunk]:
        """One more reader. All are asked for before the first one reads."""
        own: deque[Chunk] = deque()
        self._waiting.append(own)
        return self._read(own)

    def _read(self, own: deque[Chunk]) -> Iterator[Chunk]:
        while True:
            if not own:
                chunk = next(self._chunks, None)
                if chunk is None:
                    return
                for waiting in self._waiting:
                    waiting.append(chunk)
            yield own.popleft()
