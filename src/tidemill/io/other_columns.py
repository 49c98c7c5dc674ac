"""Rows in the columns that a query reads, and a way to read other columns of the same rows later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidemill.io.sources import open_source
from tidemill.plan.nodes import Source

Others = Callable[[Source], pa.Table]
"""Reads the columns of a source, of all rows of a batch."""


@dataclass(frozen=True)
class PartlyRead:
    """Rows of a source that goes on."""

    batch: pa.RecordBatch
    others: Others


def is_read_once(value: Any) -> bool:
    """Return whether an input is empty after it was read."""
    return isinstance(value, (Iterator, pa.RecordBatchReader))


class ReadAgain:
    """Reads columns of some rows of an input again, from front to back: each column at most once.

    >>> from tidemill.core.schema import schema
    >>> clicks = Source("clicks", schema({"t": "int64", "ad": "int64"}), "t", ("ad",))
    >>> again = ReadAgain(pa.table({"t": [1, 2, 3], "ad": [7, 8, 9]}))
    >>> again.rows(clicks, 1, 1).to_pylist(), again.rows(clicks, 2, 1).to_pylist()
    ([{'ad': 8}], [{'ad': 9}])
    """

    def __init__(self, value: Any) -> None:
        self._value = value
        self._at: dict[tuple[str, ...], tuple[int, Iterator[Any], pa.Table]] = {}
        """For the columns of a source: the first row that is held, the chunks to come, the rows held."""

    def others(self, start: int, count: int) -> Others:
        """Return what reads columns of so many rows from a position on."""
        return lambda source: self.rows(source, start, count)

    def rows(self, source: Source, start: int, count: int) -> pa.Table:
        """Return so many rows from a position on."""
        columns = source.schema.names
        found = self._at.get(columns)
        if found is None or found[0] > start:
            chunks = iter(open_source(self._value, source, promises=False))
            found = 0, chunks, source.schema.to_arrow().empty_table()
        first, chunks, held = found
        while first + held.num_rows < start + count:
            chunk = next(chunks, None)
            if chunk is None:
                break
            if first + held.num_rows <= start:  # nothing of it is needed
                first, held = first + held.num_rows, held.slice(0, 0)
            held = pa.concat_tables([held, pa.Table.from_batches([chunk.batch])])
        self._at[columns] = first, chunks, held
        return held.slice(start - first, count)
