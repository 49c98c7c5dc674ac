"""The buffer of rows beyond the open slots: the overflow of a wheel (paper 001, section 3.3)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidemill.core.time import FOREVER
from tidemill.kernels.arrow import values


class EarlyRows:
    """A buffer of rows beyond the open slots, sorted by time when some are taken out."""

    def __init__(self, time: str, grain: int) -> None:
        self._time, self._grain = time, grain
        self._new: list[pa.RecordBatch] = []
        self._sorted: pa.RecordBatch | None = None
        self._first = FOREVER
        self._last = -FOREVER

    def __len__(self) -> int:
        held = 0 if self._sorted is None else self._sorted.num_rows
        return int(held + sum(b.num_rows for b in self._new))

    @property
    def first_slot(self) -> int:
        """The slot of the earliest row; a slot in the far future if there is none."""
        return self._first // self._grain

    @property
    def last_slot(self) -> int:
        """A slot at or after that of the latest row."""
        return self._last // self._grain

    def add(self, rows: pa.RecordBatch) -> None:
        if rows.num_rows:
            self._new.append(rows)
            times = values(rows.column(self._time))
            self._first, self._last = min(self._first, int(times.min())), max(self._last, int(times.max()))

    def batches(self) -> list[pa.RecordBatch]:
        """All rows."""
        return [*([] if self._sorted is None else [self._sorted]), *self._new]

    def cut_back(self, batches: int, first: int) -> None:
        """Return to an earlier `state`: drop the batches that were added since."""
        del self._new[batches:]
        self._first = first

    @property
    def state(self) -> tuple[int, int]:
        """The arguments with which `cut_back` returns to this state."""
        return len(self._new), self._first

    def copy(self) -> EarlyRows:
        """Return an independent copy."""
        other = EarlyRows(self._time, self._grain)
        other.add_all(self)
        return other

    def add_all(self, other: EarlyRows) -> None:
        for rows in other.batches():
            self.add(rows)

    def below(self, tick: int) -> pa.RecordBatch | None:
        """Take out the rows before a time; None if there are none."""
        if self._first >= tick:
            return None
        if self._new:
            held = [] if self._sorted is None else [self._sorted]
            table = pa.Table.from_batches([*held, *self._new]).combine_chunks()
            [batch] = table.to_batches()
            times = values(batch.column(self._time))
            if (times[1:] < times[:-1]).any():
                batch = batch.take(pa.array(np.argsort(times, kind="stable")))
            self._sorted, self._new = batch, []
        assert self._sorted is not None
        times = values(self._sorted.column(self._time))
        count = int(np.searchsorted(times, tick))
        found, rest = self._sorted.slice(0, count), self._sorted.slice(count)
        self._sorted = rest if rest.num_rows else None
        self._first = int(times[count]) if rest.num_rows else FOREVER
        if not rest.num_rows:
            self._last = -FOREVER
        return found
