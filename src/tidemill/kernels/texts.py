"""Texts by id: those of a pool, and those of columns that are held until it is known which are needed.

An id is `source << 32 | row`, and -1 is null. Source 0 is the pool; the others are columns, so the ids of a
column's rows follow each other. Kernels read texts through a table with the place of each source: the
addresses of its offsets and of its bytes, and the width of an offset (`text_at` in `kernels.functions`).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.kernels.index import StringIndex
from tidemill.kernels.text_arrays import strings

Ints = npt.NDArray[np.int64]
_HELD = 1 << 32
"""The first id of the first column."""
_OVERHEAD = 1 << 10
"""What a column counts for besides its text."""


class Texts:
    """The texts that ids stand for.

    >>> texts = Texts()
    >>> first = texts.hold(pa.array(["b", None, "a"]))
    >>> ids = np.array([first + 2, -1, first])
    >>> texts.decode(ids).to_pylist()
    ['a', None, 'b']
    >>> texts.settle([ids])
    >>> ids.tolist(), texts.decode(ids).to_pylist(), texts.held
    ([0, -1, 1], ['a', None, 'b'], 0)
    """

    def __init__(self) -> None:
        self.pool = StringIndex()
        self.held = 0
        """Approximate size of the columns that are held, in bytes."""
        self._columns: list[pa.Array] = []
        self._table = np.zeros((16, 3), dtype=np.int64)
        self._table[0, 2] = 8

    def hold(self, column: pa.Array) -> int:
        """Keep a column of strings, and return the id of its first row."""
        _, offsets, data = column.buffers()
        if len(column) == 0 or offsets is None:
            return _HELD
        source = len(self._columns) + 1
        if source == len(self._table):
            self._table = np.concatenate((self._table, np.zeros_like(self._table)))
        start = offsets.address + 4 * column.offset
        self._table[source] = start, 0 if data is None else data.address, 4
        self._columns.append(column)
        first, last = np.frombuffer(offsets, np.int32)[[column.offset, column.offset + len(column)]]
        self.held += int(last - first) + 4 * len(column) + _OVERHEAD
        return source << 32

    @property
    def table(self) -> Ints:
        """The place of each source; valid until the pool grows or another column is held."""
        if self.pool.count:
            self._table[0, :2] = [a.ctypes.data for a in self.pool.arrays]
        return self._table

    def decode(self, ids: Ints) -> pa.Array:
        """Return texts by id; negative ids are null. Another thread may add strings to the pool."""
        arrays, table = self.pool.arrays, self._table.copy()
        table[0, :2] = [a.ctypes.data for a in arrays]
        return strings(ids, table)

    def settle(self, columns: Iterable[Ints]) -> None:
        """Copy the texts with the ids in these arrays to the pool, change the ids, release all columns."""
        for ids in columns:
            held = ids >= _HELD
            if held.any():
                ids[held] = self.pool.encode(self.decode(ids[held]))
        self._columns.clear()
        self.held = 0
