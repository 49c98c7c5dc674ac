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
from tidemill.kernels.window_ranges import PartitionWindows, Ranges, begins, last_rows, looked_up
from tidemill.local.limits import Ints, Limits
from tidemill.local.pane_store import Elements
from tidemill.local.window_slides import NEVER, Progress, Slide
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
        none = np.empty(0, dtype=np.int64)
        self._rows = _Rows(none, none, none, 0)
        self._partition = none
        self._seen: int | None = None
        """The number of rows whose last window is known."""

    def closes(self, progress: Progress) -> bool:
        known = self._seen is not None and self._seen == int(progress.rows.sum())
        return self._until(progress, self.state["last"].common if known else NEVER) > self._after

    @property
    def closes_at(self) -> int | None:
        if self._after == -NEVER:  # the first row may be in any window
            return None
        return self.spec.origin + (self._after + 2) * self.spec.every.ticks

    @property
    def _after(self) -> int:
        return self.state["after"].common

    def ranges(self, elements: Elements, progress: Progress, room: int) -> Iterator[Ranges]:
        self._partition = progress.partition
        partition = self._partition[elements.kid]
        self._rows = self._read(elements, partition, len(progress.rows))
        self._note()
        if not progress.final:
            self._seen = int(progress.rows.sum())
        until = self._until(progress, self.state["last"].common)
        first = np.maximum(self.state["first"].full(len(progress.rows)), self._after + 1)
        yield looked_up(elements.kid, elements.pane, partition, self._windows(first, until))
        self.state["after"] = self.state["after"].raised(Limits(until))

    def _read(self, elements: Elements, partition: Ints, partitions: int) -> _Rows:
        order = order_by(partition, elements.pane)
        ticks = elements.records[self._column]
        return _Rows(partition[order], elements.pane[order], ticks[order], partitions)

    def _note(self) -> None:
        """Note the first window of new partitions, and the last one of the stream so far."""
        rows = self._rows
        if not len(rows.ticks):
            return
        wid = (rows.ticks - self.spec.origin) // self.spec.every.ticks
        known = self.state["first"]
        size = max(0 if known.by_key is None else len(known.by_key), int(rows.partition[-1]) + 1)
        first = known.full(size)
        np.minimum.at(first, rows.partition, wid)
        self.state["first"] = Limits(NEVER, first)
        self.state["last"] = self.state["last"].raised(Limits(int(wid.max())))

    def _windows(self, first: Ints, until: int) -> PartitionWindows:
        """Return the windows of each partition from its first one on, as ranges of the numbers of rows."""
        rows, spec = self._rows, self.spec
        return last_rows(
            rows.begin, rows.number, rows.ticks, first=first, until=until, length=spec.range,
            origin=spec.origin, every=spec.every.ticks,
        )  # fmt: skip

    def _until(self, progress: Progress, last: int) -> int:
        """The last window that is complete; whether there are any after the last row, rows to come say."""
        if progress.final:
            return last
        return min((progress.floor - self.spec.origin) // self.spec.every.ticks - 1, last)

    def needed(self, elements: Elements, progress: Progress) -> npt.NDArray[np.bool_]:
        if self._after == -NEVER:
            return np.ones(len(elements), dtype=np.bool_)
        partitions = len(self._rows.begin) - 1
        given = self._windows(np.full(partitions, self._after), self._after)
        lowest = np.zeros(partitions, dtype=np.int64)
        lowest[np.diff(given.begin) > 0] = given.first
        keep: npt.NDArray[np.bool_] = elements.pane >= lowest[self._partition[elements.kid]]
        return keep

    def bounds(self, elements: Elements, ranges: Ranges) -> tuple[Ints, Ints]:
        assert ranges.end is not None, "the number of the last row"
        first = np.maximum(ranges.end - self.spec.range + 1, 0)
        start = self._rows.ticks_of(self._partition[ranges.kid], first)
        return start, self.spec.origin + (ranges.wid + 1) * self.spec.every.ticks

    @property
    def keeps_keys(self) -> bool:
        return True


class _Rows:
    """Rows in order of partition and number: the attribute of each."""

    def __init__(self, partition: Ints, number: Ints, ticks: Ints, partitions: int) -> None:
        self.partition, self.number, self.ticks = partition, number, ticks
        self.begin = begins(partition, partitions)
        """Where the rows of each partition begin, and the number of all rows."""

    def ticks_of(self, partition: Ints, number: Ints) -> Ints:
        """Return the attribute of rows."""
        begin = self.begin[partition]
        found: Ints = self.ticks[begin + number - self.number[begin]]
        return found
