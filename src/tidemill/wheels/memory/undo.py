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
"""Places (their number, then the row and key of each), and the records before the change."""


def copies(cells: int, rows: int) -> bool:
    """Whether copying all records costs less than logging those that change."""
    return cells <= FEW_CELLS or cells * ROWS_TO_COPY <= rows


class OpenSlotsUndo:
    """The contents of a store's open slots when this was made.

    Keys may have been added since, and with them the number of open slots may have changed."""

    def __init__(self, store: RingStore) -> None:
        self._store = store
        self._copy: npt.NDArray[Any] | None = None
        self._logs: list[tuple[Log, int]] = []
        """Logs, and the number of open slots of each."""

    def log_for(self, rows: int) -> Log:
        """The log for an insert of `rows` rows; empty if a copy makes it unnecessary."""
        store = self._store
        if self._copy is None and not self._logs and copies(store.ahead.size, rows):
            self._copy = store.ahead.copy()
        if self._copy is not None:
            return np.zeros(1, dtype=np.int64), store.fresh[:0]
        if sum(int(places[0]) for (places, _), _ in self._logs) > store.ahead.size:
            before = store.ahead.copy()
            self._undo_logs(before)
            self._copy, self._logs = before, []
            return np.zeros(1, dtype=np.int64), store.fresh[:0]
        places = np.empty(rows + 1, dtype=np.int64)
        places[0] = 0
        log = places, np.empty(rows, dtype=store.ahead.dtype)
        self._logs.append((log, len(store.ahead)))
        return log

    def roll_back(self) -> None:
        """Restore the contents, in the store's current arrays."""
        store, before = self._store, self._copy
        if before is not None:
            store.ahead[...] = store.fresh[0]
            held = np.flatnonzero(before["rows"].any(axis=1))
            store.ahead[store.moved(held, len(before)), : before.shape[1]] = before[held]
        self._undo_logs(store.ahead)

    def _undo_logs(self, ahead: npt.NDArray[Any]) -> None:
        for (places, records), slots in reversed(self._logs):
            count = int(places[0])
            where = places[count:0:-1]
            rows = self._store.moved(where >> 32, slots)
            ahead[rows, where & 0xFFFFFFFF] = records[:count][::-1]


def undo_log(ahead: npt.NDArray[Any], places: npt.NDArray[np.int64], records: npt.NDArray[Any]) -> None:
    """Restore records, the newest first, so that the oldest record of a place remains."""
    count = int(places[0])
    where = places[count:0:-1]
    ahead[where >> 32, where & 0xFFFFFFFF] = records[:count][::-1]
