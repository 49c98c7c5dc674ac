"""Answer the windows of a query from a wheel: one range of slots for each window and key."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tidemill.core.time import BEGINNING
from tidemill.core.types import STRING, to_arrow
from tidemill.io.chunks import Chunk
from tidemill.kernels.arrow import build
from tidemill.plan.nodes import (
    WINDOW,
    WINDOW_END,
    WINDOW_ID,
    WINDOW_START,
    NamedWindow,
    WheelWindows,
)  # fmt: skip
from tidemill.wheels.view import Bools, Ints, Outputs, WheelView
from tidemill.windows.semantics import bounds, wid_range
from tidemill.windows.spec import GridWindow


def read_windows(node: WheelWindows, wheel: WheelView) -> Iterator[Chunk]:
    """Yield the windows that a plan asks of a wheel, as a source of rows in time order.

    They cover the rows below the watermark at the time of the call.
    """
    answers = _Answers(node, wheel)
    for window in node.windows:
        yield from answers.of(window)


class _Answers:
    """The part of a wheel's current state that a query reads."""

    def __init__(self, node: WheelWindows, wheel: WheelView) -> None:
        self._node, self._wheel, self._grain = node, wheel, wheel.grain
        own = {r.name: j for j, r in enumerate(wheel.results)}
        self._asked, self._at = None, own
        if any(not isinstance(a, str) for _, a in node.aggregates):
            given = dict(wheel.plan.aggregates)
            named = [(n, given[a] if isinstance(a, str) else a) for n, a in node.aggregates]
            self._asked = wheel.layout_for(named, "wheel query")
            self._at = {r.name: j for j, r in enumerate(self._asked.results)}
        now, self._kid = wheel.closed()
        self._first, self._end = wheel.beginning, now * self._grain
        if node.since is not None:
            self._first = max(self._first, node.since)
        if node.until is not None:
            self._end = min(self._end, node.until)
        self._at_once = max(1, wheel.spec.tuning.batch_cells // max(1, len(self._kid)))
        self._arrow = node.schema.to_arrow()

    def of(self, window: NamedWindow) -> Iterator[Chunk]:
        spec = window.spec
        assert isinstance(spec, GridWindow)
        ids = self._ids(spec)
        for at in range(0, len(ids), self._at_once):
            wid = np.array(ids[at : at + self._at_once])
            start, end = bounds(wid, spec)
            batch = self._batch(window.label, wid, start, end)
            if batch.num_rows:
                # The next window of the query starts from the beginning again.
                below = BEGINNING if len(self._node.windows) > 1 else int(start[-1])
                yield Chunk(batch, below)

    def _ids(self, spec: GridWindow) -> range:
        """The windows that may have rows."""
        first = self._first if spec.start is None else max(self._first, spec.start)
        if first >= self._end or len(self._kid) == 0:
            return range(0)
        begin, end = wid_range([first, self._end - 1], spec)
        ids = range(int(begin[0]), int(end[1]) + 1)
        return ids if spec.length is not None else self._until_last_row(ids, spec)

    def _until_last_row(self, ids: range, spec: GridWindow) -> range:
        """The last landmark window is the one whose last slide contains the last row."""
        for stop in range(len(ids), 0, -self._at_once):
            some = ids[max(0, stop - self._at_once) : stop]
            _, end = bounds(np.array(some), spec)
            rows, _ = self._cells(end - spec.slide, end)
            found = np.flatnonzero(rows.reshape(len(some), -1).any(axis=1))
            if len(found):
                return range(ids.start, some[int(found[-1])] + 1)
        return range(0)

    def _cells(self, start: Ints, end: Ints) -> tuple[Bools, Outputs]:
        """Whether there are rows, and validity and values of each result: window by window, all keys."""
        keys, wheel = len(self._kid), self._wheel
        # Ranges end at the watermark that was read first: it may have moved since.
        low = np.repeat(np.clip(start, self._first, self._end) // self._grain, keys)
        high = np.repeat(np.clip(end, self._first, self._end) // self._grain, keys)
        kid = np.tile(self._kid, len(start))
        rows = np.empty(len(kid), dtype=np.bool_)
        found = []
        step = wheel.spec.tuning.call_cells
        for at in range(0, len(kid), step):
            some = slice(at, at + step)
            found.append(wheel.answers(low[some], high[some], kid[some], self._asked, rows=rows[some]))
        return rows, [np.concatenate(o) for o in zip(*found)]

    def _batch(self, label: str | None, wid: Ints, start: Ints, end: Ints) -> pa.RecordBatch:
        """A batch of the windows that have rows."""
        rows, outputs = self._cells(start, end)
        at = np.flatnonzero(rows)
        which = at // len(self._kid)
        found: dict[str, pa.Array] = {WINDOW_ID: build(wid[which], None, pa.int64())}  # only if asked for
        if self._node.keys:
            columns = self._wheel.key_columns(self._kid[at % len(self._kid)])
            found |= {name: columns[own] for name, own in self._node.keys}
        if len(self._node.windows) > 1:
            found[WINDOW] = pa.repeat(pa.scalar(label, to_arrow(STRING)), len(at))
        bound = to_arrow(self._node.schema[WINDOW_START])
        found |= {n: build(x[which], None, bound) for n, x in ((WINDOW_START, start), (WINDOW_END, end))}
        for name, own in self._node.aggregates:
            j = self._at[name if self._asked is not None else str(own)]
            valid, values = outputs[2 * j][at], outputs[2 * j + 1][at]
            found[name] = self._wheel.column(values, valid, self._node.schema[name])
        return pa.RecordBatch.from_arrays([found[n] for n in self._arrow.names], schema=self._arrow)
