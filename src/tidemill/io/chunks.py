"""Chunks of rows, each with a promise about the rows to come: what every source gives."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidemill.core.batch import conform
from tidemill.core.errors import TidemillError, UserError
from tidemill.core.time import BEGINNING, FOREVER
from tidemill.core.types import to_arrow
from tidemill.io.arrow_checks import require_sound
from tidemill.kernels.arrow import values
from tidemill.plan.faults import unordered_time
from tidemill.plan.nodes import Source

BATCH_ROWS = 1 << 17
"""A chunk of so many rows is still in the cache when the next operator reads it."""


@dataclass(frozen=True)
class ChunkSizes:
    """How many rows a chunk has."""

    most: int = BATCH_ROWS
    most_held: int = 4 * BATCH_ROWS
    """The most where a table is in memory and nothing waits for promises: less work for each chunk."""
    small: int = BATCH_ROWS // 8
    """Chunks of fewer rows are joined with their neighbours."""


SIZES = ChunkSizes()


@dataclass(frozen=True)
class Chunk:
    """Rows of a source, in its schema, and what the source promises of the rows that follow.

    No later chunk has a time below `complete_below`; it is `BEGINNING` where the source cannot
    know, and `FOREVER` where it knows that nothing follows.
    """

    batch: pa.RecordBatch
    complete_below: int


@dataclass(frozen=True)
class RawChunk:
    """Rows as a source has them, neither checked nor cast yet; `place` says in errors where they are."""

    batch: pa.RecordBatch
    place: str = ""
    complete_below: int = BEGINNING


@dataclass(frozen=True)
class Reader:
    """An opened source: iterate over it for its chunks. After the last one nothing follows.

    A reader of an iterator or of a RecordBatchReader can be iterated over once.
    """

    source: Source
    about: str
    raw: Callable[[], Iterable[RawChunk]]
    total_rows: int | None = None
    sizes: ChunkSizes = SIZES

    def __iter__(self) -> Iterator[Chunk]:
        chunks = _joined(_conformed(self.raw(), self.source, self.sizes), self.sizes)
        watched = self.source.ordered and self.source.time in self.source.schema
        return _watched(chunks, self.source) if watched else chunks

    def describe(self) -> str:
        """What is read, in a few words.

        >>> from tidemill.core.schema import schema
        >>> clicks = Source("clicks", schema({"ts": "timestamp"}), "ts")
        >>> Reader(clicks, "table", tuple, total_rows=1200).describe()
        'clicks: table, 1,200 rows'
        """
        rows = "" if self.total_rows is None else f", {self.total_rows:,} rows"
        return f"{self.source.name}: {self.about}{rows}"


def step_of(source: Source, place: str = "") -> str:
    """How errors name a source: `run clicks`, or `run clicks, file b.csv`."""
    step = source.step or f"run {source.name}"
    return f"{step}, {place}" if place else step


def earliest(batch: pa.RecordBatch, source: Source, place: str = "") -> int:
    """The least time of a batch in ticks, `FOREVER` when it has none.

    Only the minimum is cast to the canonical type: these casts keep the order.
    """
    import pyarrow.compute as pc

    column = batch.column(source.time)
    if column.type == to_arrow(source.schema[source.time]) and column.null_count == 0:
        return int(values(column).min()) if len(column) else FOREVER
    if pa.types.is_dictionary(column.type):
        require_sound(batch.select([source.time]), step_of(source, place))
        column = column.cast(column.type.value_type)
    least = pa.repeat(pc.min_max(column)["min"], 1)
    one = pa.RecordBatch.from_arrays([least], names=[source.time])
    only_time = source.schema.select((source.time,))
    found = conform(one, only_time, source.reading, step=step_of(source, place)).column(0).cast(pa.int64())
    return FOREVER if found.null_count else int(found[0].as_py())


def promises(lows: Sequence[int], after: int = FOREVER) -> list[int]:
    """For each position the least of all values after it; `after` follows the last one.

    >>> promises([3, 1, 4, 5])[:3]
    [1, 4, 5]
    """
    found = []
    for low in reversed(lows):
        found.append(after)
        after = min(after, low)
    return found[::-1]


@contextmanager
def readable(source: Source, place: str) -> Iterator[None]:
    """Turn whatever fails while a file is read into a `UserError` that names the file."""
    try:
        yield
    except TidemillError:
        raise
    except Exception as broken:  # of Arrow, the system, or Python: of a damaged file anything may come
        said = f"{broken}" or type(broken).__name__
        raise UserError(step_of(source, place), f"cannot be read: {said}") from broken


def read_stream(reader: pa.RecordBatchReader, source: Source) -> Iterator[RawChunk]:
    """The batches of a reader. They may come from a file or a socket, and may be damaged."""
    for number in itertools.count(1):
        step = step_of(source, f"batch {number}")
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except (pa.ArrowException, OSError) as broken:
            raise UserError(step, f"cannot be read: {broken}") from broken
        yield RawChunk(batch, f"batch {number}")


def _conformed(chunks: Iterable[RawChunk], source: Source, sizes: ChunkSizes) -> Iterator[Chunk]:
    """Chunks in the schema of the source, cut where they are too long."""
    for raw in chunks:
        rows = raw.batch.num_rows
        if rows == 0:
            continue
        step = step_of(source, raw.place)
        batch = conform(require_sound(raw.batch, step), source.schema, source.reading, step=step)
        cut = [batch.slice(start, sizes.most) for start in range(0, rows, sizes.most)]
        if len(cut) == 1 or raw.complete_below == BEGINNING:
            bounds = [raw.complete_below] * len(cut)
        else:
            bounds = promises([earliest(b, source) for b in cut], raw.complete_below)
        yield from map(Chunk, cut, bounds)


def _joined(chunks: Iterable[Chunk], sizes: ChunkSizes) -> Iterator[Chunk]:
    """Runs of small chunks as one, so that the work for each chunk is not wasted on few rows."""
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
    # Strings past 2 GB do not fit one array; then only the last part may carry the promise.
    for batch in batches[:-1]:
        yield Chunk(batch, BEGINNING)
    yield Chunk(batches[-1], chunks[-1].complete_below)


def _watched(chunks: Iterable[Chunk], source: Source) -> Iterator[Chunk]:
    """Chunks whose rows come in time order, each with the promise that this makes."""
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
        yield Chunk(chunk.batch, max(chunk.complete_below, before))
