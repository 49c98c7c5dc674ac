"""Chunks: what every source returns. A chunk is a batch of rows with a watermark."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from tidemill.core.batch import conform
from tidemill.core.errors import TidemillError, UserError
from tidemill.core.threads import on_threads
from tidemill.core.time import BEGINNING, FOREVER
from tidemill.core.types import to_arrow
from tidemill.io.arrow_checks import checks_by_row, require_sound
from tidemill.kernels.arrow import values
from tidemill.plan.faults import unordered_time
from tidemill.plan.nodes import Source

BATCH_ROWS = 1 << 17
"""The rows of a chunk, few enough to be in the CPU cache when the next operator reads them."""


@dataclass(frozen=True)
class ChunkSizes:
    """The number of rows in a chunk."""

    most: int = BATCH_ROWS
    held: int = 4 * BATCH_ROWS
    """The maximum for a long table in memory: nobody waits for the first rows."""
    most_held: int = 4 * BATCH_ROWS
    """The maximum for a table in memory if no operator needs watermarks: fewer chunks mean less overhead."""
    small: int = BATCH_ROWS // 8
    """Smaller chunks are concatenated with their neighbours."""
    ahead: int = 1 << 15
    """Of files that are not large, so many rows are read when they are opened, to know how many there are."""


SIZES = ChunkSizes()

Promise: TypeAlias = int | Callable[[], int]
"""A watermark, or a function that computes it: to find the least time of all later rows takes a pass over
them, and a query whose open windows take little memory never asks for it."""


def _computed(promise: Promise) -> int:
    return promise() if callable(promise) else promise


@dataclass(frozen=True)
class Chunk:
    """Rows of a source, in its schema, and the watermark of the source after them.

    No later chunk has a time below `complete_below`. It is `BEGINNING` if the source does not know, and
    `FOREVER` if the source knows that nothing follows.
    """

    batch: pa.RecordBatch
    promise: Promise

    @property
    def complete_below(self) -> int:
        return _computed(self.promise)


@dataclass(frozen=True)
class RawChunk:
    """Rows as a source returns them, neither checked nor cast; errors name their `place`."""

    batch: pa.RecordBatch
    place: str = ""
    promise: Promise = BEGINNING

    @property
    def complete_below(self) -> int:
        return _computed(self.promise)

    @property
    def promised(self) -> bool:
        """Whether the source may know a watermark."""
        return callable(self.promise) or self.promise > BEGINNING


@dataclass(frozen=True)
class Reader:
    """An opened source. Iterate over it to get its chunks; the end of the iteration is the end of the stream.

    A reader of an iterator or of a RecordBatchReader can be iterated over only once.
    """

    source: Source
    about: str
    raw: Callable[[], Iterable[RawChunk]]
    total_rows: int | None = None
    sizes: ChunkSizes = SIZES
    exact: bool = True
    """Whether promises follow from the rows. Statistics of files may be wrong, so rows may break them."""
    workers: int = 1
    """The number of threads that check and convert chunks; text takes long to check."""

    def __iter__(self) -> Iterator[Chunk]:
        chunks = _joined(_conformed(self.raw(), self.source, self.sizes, self.workers), self.sizes)
        watched = self.source.ordered and self.source.time in self.source.schema
        return _watched(chunks, self.source) if watched else chunks

    def describe(self) -> str:
        """Describe the source in a few words.

        >>> from tidemill.core.schema import schema
        >>> clicks = Source("clicks", schema({"ts": "timestamp"}), "ts")
        >>> Reader(clicks, "table", tuple, total_rows=1200).describe()
        'clicks: table, 1,200 rows'
        """
        rows = "" if self.total_rows is None else f", {self.total_rows:,} rows"
        return f"{self.source.name}: {self.about}{rows}"


def read_ahead(
    raw: Callable[[], Iterable[RawChunk]], rows: int
) -> tuple[Callable[[], Iterable[RawChunk]], int | None]:
    """Read up to so many rows now. Return what gives all chunks, and the number of rows if these were all.

    >>> batch = pa.record_batch({"t": [1, 2]})
    >>> three = lambda: iter([RawChunk(batch)] * 3)
    >>> [(len(list(raw())), len(list(raw())), n) for raw, n in (read_ahead(three, 4), read_ahead(three, 100))]
    [(3, 3, None), (3, 3, 6)]
    """
    rest, head, known = iter(raw()), [], 0
    for chunk in rest:
        head.append(chunk)
        known += chunk.batch.num_rows
        if known >= rows:
            break
    else:
        return lambda: head, known
    begun = [itertools.chain(head, rest)]
    return lambda: begun.pop() if begun else raw(), None  # who asks again reads again


def step_of(source: Source, place: str = "") -> str:
    """Return how errors name a source: `run clicks`, or `run clicks, file b.csv`."""
    step = source.step or f"run {source.name}"
    return f"{step}, {place}" if place else step


def earliest(batch: pa.RecordBatch, source: Source, place: str = "") -> int:
    """Return the minimum time of a batch in ticks; `FOREVER` if it has no time.

    Only the minimum is cast to the canonical type, because these casts keep the order. (Formats do not.)
    """
    import pyarrow.compute as pc

    column = batch.column(source.time)
    if column.type == to_arrow(source.schema[source.time]) and column.null_count == 0:
        return int(values(column).min()) if len(column) else FOREVER
    if pa.types.is_dictionary(column.type):
        require_sound(batch.select([source.time]), step_of(source, place))
        column = column.cast(column.type.value_type)
    if not source.reading.formats_of(source.time):
        column = pa.repeat(pc.min_max(column)["min"], 1)
    rows = pa.RecordBatch.from_arrays([column], names=[source.time])
    only_time = source.schema.select((source.time,))
    found = conform(rows, only_time, source.reading, step=step_of(source, place)).column(0).cast(pa.int64())
    low = pc.min(found).as_py()
    return FOREVER if low is None else int(low)


def promises(lows: Sequence[int], after: int = FOREVER) -> list[int]:
    """Return for each position the minimum of all values after it; `after` follows the last one.

    >>> promises([3, 1, 4, 5])[:3]
    [1, 4, 5]
    """
    found = []
    for low in reversed(lows):
        found.append(after)
        after = min(after, low)
    return found[::-1]


def readable(source: Source, place: str) -> AbstractContextManager[None]:
    """Turn any error while a file is read into a `UserError` that names the file."""
    return readable_at(step_of(source, place))


@contextmanager
def readable_at(step: str) -> Iterator[None]:
    """Turn any error while a file is read into a `UserError` of a step."""
    try:
        yield
    except TidemillError:
        raise
    except Exception as broken:  # a damaged file can cause any error of Arrow, the system or Python
        said = f"{broken}" or type(broken).__name__
        raise UserError(step, f"cannot be read: {said}") from broken


def read_stream(reader: pa.RecordBatchReader, source: Source) -> Iterator[RawChunk]:
    """Yield the batches of a reader. They may come from a file or a socket, and may be damaged."""
    for number in itertools.count(1):
        step = step_of(source, f"batch {number}")
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except (pa.ArrowException, OSError) as broken:
            raise UserError(step, f"cannot be read: {broken}") from broken
        yield RawChunk(batch, f"batch {number}")


def _conformed(
    chunks: Iterable[RawChunk], source: Source, sizes: ChunkSizes, workers: int
) -> Iterator[Chunk]:
    """Convert chunks to the schema of the source, and split those that are too long."""

    def conformed(raw: RawChunk) -> list[Chunk]:
        rows, step = raw.batch.num_rows, step_of(source, raw.place)
        if rows == 0:
            return []
        batch = conform(require_sound(raw.batch, step), source.schema, source.reading, step=step)
        cut = [batch.slice(start, sizes.most) for start in range(0, rows, sizes.most)]
        bounds: Sequence[Promise] = [raw.promise] * len(cut)
        if len(cut) > 1 and raw.promised:
            bounds = promises([earliest(b, source) for b in cut], raw.complete_below)
        return list(map(Chunk, cut, bounds))

    for found in on_threads(conformed, _divided(chunks, sizes), workers):
        yield from found


def _divided(chunks: Iterable[RawChunk], sizes: ChunkSizes) -> Iterator[RawChunk]:
    """Split long chunks without a promise before they are checked, so that work on the first part begins."""
    for raw in chunks:
        if raw.promised or not checks_by_row(raw.batch.schema):
            yield raw
            continue
        for start in range(0, raw.batch.num_rows, sizes.most):
            yield RawChunk(raw.batch.slice(start, sizes.most), raw.place)


def _joined(chunks: Iterable[Chunk], sizes: ChunkSizes) -> Iterator[Chunk]:
    """Concatenate consecutive small chunks, to reduce the overhead per chunk."""
    waiting: list[Chunk] = []
    rows = 0
    for chunk in chunks:
        size = chunk.batch.num_rows
        if waiting and (size >= sizes.small or rows + size > sizes.most):
            yield from _as_one(waiting)
            waiting, rows = [], 0
        if size >= sizes.small:
            yield chunk
        else:
            waiting.append(chunk)
            rows += size
    yield from _as_one(waiting)


def _as_one(chunks: list[Chunk]) -> Iterator[Chunk]:
    if len(chunks) < 2:
        yield from chunks
        return
    table = pa.Table.from_batches([c.batch for c in chunks]).combine_chunks()
    batches = table.to_batches()
    # More than 2 GB of strings make several batches; only the last one may have the watermark.
    for batch in batches[:-1]:
        yield Chunk(batch, BEGINNING)
    yield Chunk(batches[-1], chunks[-1].promise)


def _watched(chunks: Iterable[Chunk], source: Source) -> Iterator[Chunk]:
    """Check that rows are in time order, and raise the watermark of each chunk to its last time."""
    before = BEGINNING
    for chunk in chunks:
        column = chunk.batch.column(source.time)
        times = values(column.drop_null() if column.null_count else column)
        if len(times):
            back = np.flatnonzero(times[1:] < times[:-1])
            if times[0] < before:
                raise unordered_time(source, before, int(times[0]))
            if len(back):
                raise unordered_time(source, int(times[back[0]]), int(times[back[0] + 1]))
            before = int(times[-1])
        yield Chunk(chunk.batch, partial(_raised, chunk, before))


def _raised(chunk: Chunk, least: int) -> int:
    return max(chunk.complete_below, least)
