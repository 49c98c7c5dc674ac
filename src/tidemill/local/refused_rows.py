"""Rows that an operator of a live query could not use: the newest ones, and how many there were."""

from __future__ import annotations

import pyarrow as pa

from tidemill.plan.disorder import REASON

MOST = 1 << 16
"""So many rows of a port are kept; all are counted."""


class RefusedRows:
    """The rows of one port.

    >>> refused = RefusedRows(pa.schema([("t", pa.int64())]), most=2)
    >>> for t in range(3):
    ...     refused.add(pa.record_batch({"t": [t]}), "too odd")
    >>> refused.count, refused.table()["t"].to_pylist()
    (3, [1, 2])
    """

    def __init__(self, schema: pa.Schema, most: int = MOST) -> None:
        self.schema = schema.append(pa.field(REASON, pa.string()))
        self.count = 0
        self._most, self._kept, self._batches = most, 0, list[pa.RecordBatch]()

    def add(self, rows: pa.RecordBatch, reason: str | list[str]) -> None:
        """Take rows that have at least the columns of the port; a list has the reason of each."""
        columns = rows.select(self.schema.names[:-1]).columns
        one = isinstance(reason, str)
        reasons = pa.repeat(pa.scalar(reason), rows.num_rows) if one else pa.array(reason, pa.string())
        rows = pa.RecordBatch.from_arrays([*columns, reasons], schema=self.schema)
        self.count += rows.num_rows
        self._kept += rows.num_rows
        self._batches.append(rows)
        while self._kept > self._most:
            first = self._batches.pop(0)
            left = max(0, self._most - self._kept + first.num_rows)
            self._kept += left - first.num_rows
            if left:
                self._batches.insert(0, first.slice(first.num_rows - left))

    def table(self) -> pa.Table:
        """Return the rows that are kept."""
        return pa.Table.from_batches(self._batches, schema=self.schema)

    def restore(self, rows: pa.Table, count: int) -> None:
        """Go on with the rows of another one."""
        self._batches, self._kept, self.count = rows.to_batches(), len(rows), count
