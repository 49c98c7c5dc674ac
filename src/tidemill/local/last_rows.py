"""Windows of the last rows at each multiple of a slide: rows numbered by an attribute, slides over it.

Every element is one row; its pane is the number of the row in its partition, and an internal aggregate has
its attribute (`TICKS`). Rows of a partition that are still there have consecutive numbers up to the last one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tidemill.aggregates.layout import Layout
from tidemill.core.schema import internal
from tidemill.kernels.order import order_by
from tidemill.kernels.window_ranges import Ranges
from tidemill.local.limits import Ints, Limits
from tidemill.local.pane_store import Elements
from tidemill.local.window_slides import NEVER, Progress, Slide, looked_up
from tidemill.windows.spec import LastRows

TICKS = internal("ticks")
"""The internal aggregate that has the attribute of a row."""


class LastRowsSlide(Slide):
    """Which windows of the last rows were given. Every partition has windows until the end of the stream."""

    def __init__(self, spec: LastRows, layout: Layout) -> None:
        self.spec = spec
        # after: the last window that was given. first: the first one of each partition.
        # last: the last one of the stream so far.
        self.state = {"after": Limits(-NEVER), "first": Limits(NEVER), "last": Limits(-NEVER)}
        index = next(r.parts[0] for r in layout.results if r.name == TICKS)
        self._column = layout.parts[index].columns.names[0]
        self._rows = _Rows.of(np.empty((3, 0), dtype=np.int64))
        self._partition = np.empty(0, dtype=np.int64)

    def closes(self, progress: Progress) -> bool:
        return self._until(progress, NEVER) > self.state["after"].common

    def ranges(self, elements: Elements, progress: Progress, room: int) -> Iterator[Ranges]:
        self._partition = progress.partition
        self._rows = rows = self._read(elements)
        self._note(rows)
        after = self.state["after"].common
        until = self._until(progress, self.state["last"].common)
        first = self.state["first"].full(len(progress.rows))

        def windows(p: int) -> tuple[Ints, Ints, Ints]:
            wid = np.arange(max(after + 1, int(first[p])), until + 1)
            last = rows.below(p, self._end(wid)) - 1
            return wid, last - self.spec.range + 1, last

        yield looked_up(elements, self._partition[elements.kid], windows)
        self.state["after"] = self.state["after"].raised(Limits(until))

    def _read(self, elements: Elements) -> _Rows:
        partition = self._partition[elements.kid]
        order = order_by(partition, elements.pane)
        ticks = elements.records[self._column]
        return _Rows.of(np.stack((partition[order], elements.pane[order], ticks[order])))

    def _note(self, rows: _Rows) -> None:
        """Note the first window of new partitions, and the last one of the stream so far."""
        if not len(rows.ticks):
            return
        wid = (rows.ticks - self.spec.origin) // self.spec.every.ticks
        known = self.state["first"]
        size = max(0 if known.by_key is None else len(known.by_key), int(rows.partition[-1]) + 1)
        first = known.full(size)
        np.minimum.at(first, rows.partition, wid)
        self.state["first"] = Limits(NEVER, first)
        self.state["last"] = self.state["last"].raised(Limits(int(wid.max())))

    def _until(self, progress: Progress, last: int) -> int:
        """The last window that is complete; whether there are any after the last row, rows to come say."""
        if progress.final:
            return last
        return min((progress.floor - self.spec.origin) // self.spec.every.ticks - 1, last)

    def _end(self, wid: Ints) -> Ints:
        return self.spec.origin + (wid + 1) * self.spec.every.ticks

    def needed(self, elements: Elements, progress: Progress) -> npt.NDArray[np.bool_]:
        after = self.state["after"].common
        if after == -NEVER:
            return np.ones(len(elements), dtype=np.bool_)
        end = self._end(np.array([after]))
        partitions = np.unique(self._rows.partition)
        lowest = np.zeros(int(partitions.max(initial=-1)) + 1, dtype=np.int64)
        for p in partitions.tolist():
            lowest[p] = self._rows.below(p, end)[0] - self.spec.range
        keep: npt.NDArray[np.bool_] = elements.pane >= lowest[self._partition[elements.kid]]
        return keep

    def bounds(self, elements: Elements, ranges: Ranges) -> tuple[Ints, Ints]:
        assert ranges.end is not None, "the number of the last row"
        first = np.maximum(ranges.end - self.spec.range + 1, 0)
        return self._rows.ticks_of(self._partition[ranges.kid], first), self._end(ranges.wid)

    @property
    def keeps_keys(self) -> bool:
        return True


class _Rows:
    """Rows by partition and number: the attribute of each."""

    def __init__(self, partition: Ints, number: Ints, ticks: Ints) -> None:
        self.partition, self.number, self.ticks = partition, number, ticks
        self._ids, self._begin = np.unique(partition, return_index=True)
        self._stop = np.append(self._begin[1:], len(partition))

    @staticmethod
    def of(columns: npt.NDArray[np.int64]) -> _Rows:
        return _Rows(columns[0], columns[1], columns[2])

    def below(self, partition: int, end: Ints) -> Ints:
        """Return how many rows of a partition, from its first one on, have an attribute below each value."""
        at = int(np.searchsorted(self._ids, partition))
        begin, stop = int(self._begin[at]), int(self._stop[at])
        found: Ints = int(self.number[begin]) + np.searchsorted(self.ticks[begin:stop], end)
        return found

    def ticks_of(self, partition: Ints, number: Ints) -> Ints:
        """Return the attribute of rows."""
        begin = self._begin[np.searchsorted(self._ids, partition)]
        found: Ints = self.ticks[begin + number - self.number[begin]]
        return found
