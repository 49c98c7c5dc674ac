"""Rows that are kept, by their keys: an advance looks at those of a few keys, and not at the others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tidemill.core.schema import Schema
from tidemill.core.time import FOREVER
from tidemill.kernels.keys import KeyIndex
from tidemill.kernels.order import ordered
from tidemill.kernels.row_batches import taken_column, taken_rows
from tidemill.kernels.rows_by_id import arranged
from tidemill.local.lifetimes import Ints, Mask


class KeptByKey:
    """Rows with their keys, the instants at which they end, and those that they hold back, if they do.

    >>> from tidemill.core.types import INT64
    >>> rows = pa.record_batch({"k": [7, 8, 7]})
    >>> kept = KeptByKey(rows, Schema((("k", INT64),)), np.array([5, 3, 4]))
    >>> kept.ended(4), kept.of([pa.array([7, 9])])
    (array([1, 2]), array([0, 2]))
    >>> kept.leave(np.array([1, 2]))
    >>> kept.first_end, kept.rows.to_pydict()
    (5, {'k': [7]})
    """

    def __init__(
        self, rows: pa.RecordBatch, keys: Schema, ends: Ints, held: Ints | None = None
    ) -> None:
        """`keys` are some columns of the rows."""
        self._rows, self._index = rows, KeyIndex(keys)
        ids = self._index.encode([rows.column(n) for n in keys.names])
        self._begin, self._of_key = arranged(ids, self._index.count)
        self._there = np.ones(rows.num_rows, dtype=np.bool_)
        self._ends = _InOrder(ends)
        self._held = None if held is None else _InOrder(held)
        self.count = rows.num_rows
        """The number of rows that are there."""

    @property
    def rows(self) -> pa.RecordBatch:
        """The rows that are there."""
        places = np.flatnonzero(self._there)
        return self._rows if len(places) == len(self._there) else taken_rows(self._rows, places)

    @property
    def nbytes(self) -> int:
        return int(self._rows.nbytes)

    def rows_at(self, places: Ints) -> pa.RecordBatch:
        """Return rows by their places."""
        return taken_rows(self._rows, places)

    def taken(self, places: Ints, name: str) -> pa.Array:
        """Return a column of rows."""
        return taken_column(self._rows.column(name), places)

    def ended(self, last: int) -> Ints:
        """Return the places of the rows that end at an instant at the latest; they are to `leave`."""
        found = self._ends.up_to(last)
        return found[self._there[found]]

    def of(self, keys: Sequence[pa.Array]) -> Ints:
        """Return the places of the rows with one of some keys, which may be there several times."""
        ids = np.unique(self._index.find(list(keys)))
        runs = [self._of_key[self._begin[i] : self._begin[i + 1]] for i in ids[ids >= 0].tolist()]
        if not runs:
            return np.empty(0, dtype=np.int64)
        places = np.concatenate(runs)
        places = places[self._there[places]]
        places.sort()
        return places

    def leave(self, places: Ints) -> None:
        """Take rows away that are there."""
        self._there[places] = False
        self.count -= len(places)

    @property
    def first_end(self) -> int:
        """The first end of a row, `FOREVER` if none ends."""
        return self._ends.first(self._there)

    @property
    def first_held(self) -> int:
        """The first instant that a row holds back."""
        return FOREVER if self._held is None else self._held.first(self._there)


class _InOrder:
    """Instants of rows, in order; those of the first ones that are gone are skipped for good."""

    def __init__(self, ticks: Ints) -> None:
        self._order = ordered(ticks)
        self._ticks = ticks[self._order]
        self._at = 0

    def first(self, there: Mask) -> int:
        at = self._at
        while at < len(self._order) and not there[self._order[at]]:
            at += 1
        self._at = at
        return int(self._ticks[at]) if at < len(self._order) else FOREVER

    def up_to(self, last: int) -> Ints:
        end = self._at + int(np.searchsorted(self._ticks[self._at :], last, side="right"))
        found: Ints = self._order[self._at : end]
        return found
