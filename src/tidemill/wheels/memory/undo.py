"""Undo for open slots, so that an insert can be rolled back.

If there are few records for many rows, all records are copied first: less than a nanosecond a row. Otherwise
kernels log each record before it changes. A log with more entries than there are records is replaced by a
copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from tidemill.wheels.memory.store import RingStore

FEW_CELLS = 256
"""Up to this many records are copied for any number of rows."""
ROWS_TO_COPY = 8
"""Copying a record takes an eighth of the time of inserting a row."""
Log = tuple[npt.NDArray[np.int64], npt.NDArray[Any]]
"""Places (their number, then the slot and key of each), and the records before the change."""


def copies(cells: int, rows: int) -> bool:
    """Whether copying all records costs less than logging those that change."""
    return cells <= FEW_CELLS or cells * ROWS_TO_COPY <= rows


class OpenSlotsUndo:
    """The contents of a store's open slots when this was made. Keys may have been added since."""

    def __init__(self, store: RingStore) -> None:
        self._store = store
        self._room = store.ahead.shape[1]
        self._copy: npt.NDArray[Any] | None = None
        self._logs: list[Log] = []

    def log_for(self, rows: int) -> Log:
        """The log for an insert of `rows` rows; empty if a copy makes it unnecessary."""
        store = self._store
        if self._copy is None and not self._logs and copies(store.ahead.size, rows):
            self._copy, self._room = store.ahead.copy(), store.ahead.shape[1]
        if self._copy is not None:
            return np.zeros(1, dtype=np.int64), store.fresh[:0]
        if sum(int(places[0]) for places, _ in self._logs) > store.ahead.size:
            before = store.ahead.copy()
            self._undo_logs(before)
            self._copy, self._room, self._logs = before, before.shape[1], []
            return np.zeros(1, dtype=np.int64), store.fresh[:0]
        places = np.empty(rows + 1, dtype=np.int64)
        places[0] = 0
        log = places, np.empty(rows, dtype=store.ahead.dtype)
        self._logs.append(log)
        return log

    def roll_back(self) -> None:
        """Restore the contents, in the store's current arrays."""
        ahead = self._store.ahead
        if self._copy is not None:
            ahead[:, : self._room] = self._copy
            ahead[:, self._room :] = self._store.fresh[0]
        self._undo_logs(ahead)

    def _undo_logs(self, ahead: npt.NDArray[Any]) -> None:
        for places, records in reversed(self._logs):
            undo_log(ahead, places, records)


def undo_log(ahead: npt.NDArray[Any], places: npt.NDArray[np.int64], records: npt.NDArray[Any]) -> None:
    """Restore records, the newest first, so that the oldest record of a place remains."""
    count = int(places[0])
    where = places[count:0:-1]
    ahead[where >> 32, where & 0xFFFFFFFF] = records[:count][::-1]
