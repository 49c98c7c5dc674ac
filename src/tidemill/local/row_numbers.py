"""Number the rows of each partition, and record the partition of each key."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.core.schema import Schema, internal
from tidemill.core.types import to_arrow
from tidemill.kernels.arrow import build
from tidemill.kernels.keys import KeyIndex
from tidemill.kernels.window_ranges import number_rows
from tidemill.local.snapshot import column, ids, numbers, tables

Ints = npt.NDArray[np.int64]

ROW = internal("row")
"""The column with the position of a row in its partition."""


class RowNumbers:
    """Counts rows by the partition columns of a stream."""

    def __init__(self, schema: Schema) -> None:
        self._index = KeyIndex(schema)
        self._batch = np.zeros(0, dtype=np.int64)
        self.rows = np.zeros(1, dtype=np.int64)
        """The number of rows so far, by partition."""
        self.of_key = np.zeros(0, dtype=np.int64)
        """The partition of each key."""

    def number(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with an additional column `ROW`, the position of each row in its partition."""
        names = self._index.schema.names
        self._batch = np.zeros(batch.num_rows, dtype=np.int64)
        if names:
            self._batch = self._index.encode([batch.column(n) for n in names])
        self.rows = _grown(self.rows, self._index.count)
        numbers = build(number_rows(self._batch, self.rows), None, pa.int64())
        return batch.append_column(pa.field(ROW, pa.int64()), numbers)

    def note(self, kid: Ints, keys: int) -> None:
        """Record the partition of each key id of the batch that was numbered last."""
        self.of_key = _grown(self.of_key, keys)
        if len(kid):
            self.of_key[kid] = self._batch


    def snapshot(self) -> dict[str, pa.Table]:
        """Return the partitions, the row count of each, and the partition of each key."""
        names = [f"k{i}" for i in range(len(self._index.schema.names))]
        keys = self._index.decode(np.arange(self._index.count)) if names else []
        return {
            "keys": pa.table(dict(zip(names, keys))),
            "rows": numbers(rows=self.rows[: self._index.count]),
            "of_key": numbers(partition=self.of_key),
        }

    def restore(self, state: Mapping[str, pa.Table], keys: int) -> None:
        """What `snapshot` gave; there are so many keys."""
        kinds = [to_arrow(kind) for _, kind in self._index.schema]
        of_int = {n: pa.schema([(c, pa.int64())]) for n, c in (("rows", "rows"), ("of_key", "partition"))}
        named = pa.schema([(f"k{i}", kind) for i, kind in enumerate(kinds)])
        partitions, rows, of_key = tables(dict(state), {"keys": named, **of_int})
        if len(partitions):
            self._index.restore([pa.concat_arrays(c.chunks) for c in partitions.columns])
        if len(rows) != self._index.count:
            raise UserError("restore", expected=f"rows of {self._index.count} partitions", got=str(len(rows)))
        self.rows = _grown(column(rows, "rows"), self._index.count)
        self.of_key = _grown(ids(of_key, "partition", max(1, self._index.count)), keys)


def _grown(counts: Ints, size: int) -> Ints:
    if size <= len(counts):
        return counts
    more = np.zeros(2 * size, dtype=np.int64)
    more[: len(counts)] = counts
    return more
