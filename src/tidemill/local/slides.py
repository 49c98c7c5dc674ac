"""How each kind of window finds its ranges of elements, and what it still needs afterwards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.aggregates.layout import Layout
from tidemill.core.schema import internal
from tidemill.core.time import BEGINNING
from tidemill.kernels import ranges as kernels
from tidemill.kernels.order import order_by
from tidemill.kernels.ranges import Ranges
from tidemill.local.pane_store import Elements
from tidemill.plan.nodes import WindowAggregate
from tidemill.plan.physical import Panes
from tidemill.windows.semantics import bounds, session_runs
from tidemill.windows.spec import GridWindow, PerEvent, Rows, Session, Window

Ints = npt.NDArray[np.int64]
_NEVER = (1 << 62) - 1
ROWS = internal("rows")
"""The aggregate that counts rows, for windows that are cut by rank."""


def ends_name(spec: PerEvent) -> str:
    """The aggregate that tells at which elements windows end."""
    return internal(f"ends{spec.every}")


@dataclass(frozen=True)
class Progress:
    """How far the stream has come."""

    below: int
    final: bool
    keys: int
    rows: Ints
    """Rows so far, by partition."""
    partition: Ints
    """The partition of each key."""


class Slide(ABC):
    """One kind of window at work: its ranges so far, and what it can say about those to come."""

    @abstractmethod
    def ranges(self, elements: Elements, progress: Progress) -> Ranges:
        """The windows that close now. Each is given once."""

    @abstractmethod
    def needed(self, elements: Elements, progress: Progress) -> npt.NDArray[np.bool_]:
        """Which elements a window to come may need."""

    @abstractmethod
    def bounds(self, elements: Elements, ranges: Ranges) -> tuple[Ints, Ints]:
        """`window_start` and `window_end` of windows found."""

    def forgotten(  # noqa: B027  (most windows have nothing to note)
        self, elements: Elements, gone: npt.NDArray[np.bool_], progress: Progress
    ) -> None:
        """Take note of the elements that no window of the query needs any more."""

    def goes_on_to(self, pane: int) -> None:  # noqa: B027  (most windows end with their rows)
        """Know of a pane that one of these windows has, of the part of the stream that others hold."""

    def promise(self) -> int:
        """No window to come starts below this."""
        return BEGINNING

    @property
    def reach(self) -> int | None:
        """How many panes a window needs, where all keys move on together."""
        return None

    @property
    def needed_from(self) -> int | None:
        """The pane below which nothing is needed, where it is the same for all keys."""
        return None

    @property
    def closed_from(self) -> int | None:
        """For landmark windows: the first pane that is not yet in every window to come."""
        return None


class GridSlide(Slide):
    """Tumbling, hopping, landmark and row windows."""

    def __init__(self, spec: GridWindow, plan: WindowAggregate, panes: Panes) -> None:
        self.spec, self._size = spec, panes.size
        self._slide = spec.slide // self._size
        self._length = None if spec.length is None else spec.length // self._size
        self._shift = (spec.origin - panes.origin) // self._size
        # Where the start lies within a pane, it is that of all windows, and rows before it never get here.
        self._since = -_NEVER if spec.start is None else (spec.start - panes.origin) // self._size
        self._everyone = spec.until_end
        self._after = np.full(1, -_NEVER, dtype=np.int64)
        self._first = np.empty(0, dtype=np.int64)
        self._last = -_NEVER
        self._partitioned = isinstance(spec, Rows) and bool(plan.partition_of(spec))

    def ranges(self, elements: Elements, progress: Progress) -> Ranges:
        if self._everyone:
            self._note_first(elements, progress.keys)
        until = self._until(progress)
        if self._partitioned:
            after = np.full(progress.keys, -_NEVER, dtype=np.int64)
            after[: len(self._after)] = self._after
            self._after = after
        grid: dict[str, Any] = {
            "length": self._length, "slide": self._slide, "shift": self._shift,
            "since": self._since, "after": self._after, "until": until,
        }  # fmt: skip
        if self._everyone:
            found = kernels.every(elements.kid, elements.pane, first=self._first, **grid)
        else:
            found = kernels.grid(elements.kid, elements.pane, **grid)
        self._after = np.maximum(self._after, until)
        return found

    def needed(self, elements: Elements, progress: Progress) -> npt.NDArray[np.bool_]:
        nothing_closed = not self._partitioned and self._after[0] == -_NEVER
        if self._length is None or nothing_closed:
            return np.ones(len(elements), dtype=np.bool_)
        after = self._after[elements.kid] if self._partitioned else self._after[0]
        keep: npt.NDArray[np.bool_] = elements.pane >= self._start_after(after)
        return keep

    def _start_after(self, after: Any) -> Any:
        """The first pane of the window after this one."""
        assert self._length is not None
        return self._shift + (after + 2) * self._slide - self._length

    @property
    def reach(self) -> int | None:
        return None if self._partitioned else self._length

    @property
    def closed_from(self) -> int | None:
        if self._length is not None or self._after[0] == -_NEVER:
            return None
        return int(self._shift + (self._after[0] + 1) * self._slide)

    @property
    def needed_from(self) -> int | None:
        if self.reach is None or self._after[0] == -_NEVER:
            return None
        return int(self._start_after(self._after[0]))

    def bounds(self, elements: Elements, ranges: Ranges) -> tuple[Ints, Ints]:
        return bounds(ranges.wid, self.spec)

    def _until(self, progress: Progress) -> Ints:
        """The last window that is complete, for all keys or for each."""
        if isinstance(self.spec, Rows):
            done = progress.rows[:1]
            if self._partitioned:
                done = progress.rows[progress.partition[: progress.keys]]
            if not progress.final:
                return done // self.spec.slide - 1
            last = done - 1
            return np.where(done > 0, self._last_window(last // self._size), -1)
        if not progress.final:
            complete = (progress.below - self.spec.origin) // self.spec.slide - 1
            # Whether windows go on past the last row so far, only a row to come can say.
            return np.asarray([min(complete, self._last) if self._everyone else complete])
        return np.asarray([self._last if self._everyone else _NEVER])

    def goes_on_to(self, pane: int) -> None:
        self._last = max(self._last, int(self._last_window(np.asarray([pane]))[0]))

    def _last_window(self, pane: Ints) -> Ints:
        """The last window that a pane belongs to; between sampling windows, the one before."""
        reach = 0 if self._length is None else self._length - self._slide
        return (pane - self._shift + reach) // self._slide

    def _note_first(self, elements: Elements, keys: int) -> None:
        if keys > len(self._first):
            more = np.full(keys, _NEVER, dtype=np.int64)
            more[: len(self._first)] = self._first
            self._first = more
        offset = elements.pane - self._shift
        wid = offset // self._slide
        inside = elements.pane >= self._since
        if self._length is not None and self._length < self._slide:
            inside &= offset - wid * self._slide >= self._slide - self._length
        np.minimum.at(self._first, elements.kid[inside], wid[inside])
        if inside.any():
            self._last = max(self._last, int(self._last_window(elements.pane[inside]).max()))

    def promise(self) -> int:
        if self._length is None or self._partitioned or self._after[0] == -_NEVER:
            return BEGINNING
        assert self.spec.length is not None
        return self.spec.origin + int(self._after[0] + 2) * self.spec.slide - self.spec.length


class EventSlide(Slide):
    """A window at each event, or each n-th; the events are those of a partition.

    Where the partition is the key itself, windows are found in one compiled pass. Otherwise the
    rows of other keys make windows too, and each key looks itself up in them.
    """

    def __init__(self, spec: PerEvent, plan: WindowAggregate, layout: Layout) -> None:
        self.spec, self._emitted = spec, BEGINNING
        self._own = set(plan.partition_of(spec)) == set(plan.group_keys)
        self._column: str | None = None
        self._ranked = spec.by == "rank" and spec.every > 1
        if spec.every > 1:
            name = ROWS if self._ranked else ends_name(spec)
            index = next(r.parts[0] for r in layout.results if r.name == name)
            self._column = layout.parts[index].columns.names[0]
        self._gone: dict[int, int] = {}
        """Rows that were forgotten, by partition: ranks go on counting from there."""

    def ranges(self, elements: Elements, progress: Progress) -> Ranges:
        partition = elements.kid if self._own else progress.partition[elements.kid]
        if self._own:
            found = kernels.per_event(
                elements.kid, elements.pane, length=self.spec.range.ticks,
                defines=self._defines(partition, elements.pane, elements),
                after=self._emitted, below=progress.below,
            )  # fmt: skip
        else:
            found = self._shared(elements, partition, progress.below)
        self._emitted = progress.below
        return found

    def _shared(self, elements: Elements, partition: Ints, below: int) -> Ranges:
        order = order_by(partition, elements.pane)
        group, time = partition[order], elements.pane[order]
        ends = self._defines(group, time, elements, order)
        ends &= (time >= self._emitted) & (time < below)

        def windows(p: int) -> tuple[Ints, Ints, Ints]:
            w = np.unique(time[ends & (group == p)])
            return w, w - self.spec.range.ticks + 1, w

        return _looked_up(elements, partition, windows)

    def _defines(
        self, group: Ints, time: Ints, elements: Elements, order: Ints | None = None
    ) -> npt.NDArray[np.bool_]:
        """Which elements end a window. Elements of one group and time decide together."""
        if self._column is None:
            return np.ones(len(elements), dtype=np.bool_)
        column = elements.records[self._column]
        column = column if order is None else column[order]
        if not self._ranked:
            return np.asarray(column, dtype=np.bool_)
        starts = np.flatnonzero(np.r_[True, np.diff(group) != 0][: len(group)])
        through = np.cumsum(column)
        gone = np.asarray([self._gone.get(int(group[s]), 0) for s in starts], dtype=np.int64)
        base = gone - np.where(starts > 0, through[starts - 1], 0)
        upto = through + np.repeat(base, np.diff(np.r_[starts, len(group)]))
        result: npt.NDArray[np.bool_] = (
            upto // self.spec.every > (upto - column) // self.spec.every
        )
        return result

    def needed(self, elements: Elements, progress: Progress) -> npt.NDArray[np.bool_]:
        keep: npt.NDArray[np.bool_] = elements.pane > progress.below - self.spec.range.ticks
        return keep

    def forgotten(
        self, elements: Elements, gone: npt.NDArray[np.bool_], progress: Progress
    ) -> None:
        if not self._ranked:
            return
        assert self._column is not None
        partition = elements.kid if self._own else progress.partition[elements.kid]
        rows = elements.records[self._column][gone]
        for p, n in zip(partition[gone].tolist(), rows.tolist()):
            self._gone[p] = self._gone.get(p, 0) + n

    def bounds(self, elements: Elements, ranges: Ranges) -> tuple[Ints, Ints]:
        return bounds(ranges.wid, self.spec)


class SessionSlide(Slide):
    """Runs with small gaps, of the rows of a key or of a partition."""

    def __init__(self, spec: Session, plan: WindowAggregate) -> None:
        self.spec = spec
        self._own = set(plan.partition_of(spec)) == set(plan.group_keys)
        self._closed = np.empty(0, dtype=np.bool_)
        self._given = BEGINNING
        """Sessions whose last row is below this were given before, and may still lie there."""

    def ranges(self, elements: Elements, progress: Progress) -> Ranges:
        gap = self.spec.gap.ticks
        if self._own:
            found = kernels.sessions(elements.kid, elements.pane, gap=gap, below=progress.below)
        else:
            found = self._shared(elements, progress.partition[elements.kid], progress.below)
        marks = np.zeros(len(elements) + 1, dtype=np.int64)
        np.add.at(marks, found.low, 1)
        np.add.at(marks, found.high, -1)
        self._closed = np.cumsum(marks)[:-1] > 0
        last = elements.pane[found.high - 1] if found.end is None else found.end
        fresh = last >= self._given
        self._given = max(self._given, progress.below - gap + 1)
        return found if fresh.all() else found[fresh]

    def _shared(self, elements: Elements, partition: Ints, below: int) -> Ranges:
        gap = self.spec.gap.ticks

        def windows(p: int) -> tuple[Ints, Ints, Ints]:
            start, last = session_runs(np.sort(elements.pane[partition == p]), gap)
            closed = last < below - gap + 1
            return start[closed], start[closed], last[closed]

        return _looked_up(elements, partition, windows)

    def needed(self, elements: Elements, progress: Progress) -> npt.NDArray[np.bool_]:
        return ~self._closed

    def bounds(self, elements: Elements, ranges: Ranges) -> tuple[Ints, Ints]:
        last = elements.pane[ranges.high - 1] if ranges.end is None else ranges.end
        return ranges.wid, last + self.spec.gap.ticks


def _looked_up(
    elements: Elements, partition: Ints, windows: Callable[[int], tuple[Ints, Ints, Ints]]
) -> Ranges:
    """The windows of each partition, as ranges of each of its keys; empty ones are left out.

    `windows` gives ids, first and last time of the windows of a partition.
    """
    found: list[list[Ints]] = [[], [], [], [], []]
    known: dict[int, tuple[Ints, Ints, Ints]] = {}
    starts = np.flatnonzero(np.r_[True, np.diff(elements.kid) != 0][: len(elements)])
    for a, b in zip(starts.tolist(), np.r_[starts[1:], len(elements)].tolist()):
        p = int(partition[a])
        if p not in known:
            known[p] = windows(p)
        wid, first, last = known[p]
        low = a + np.searchsorted(elements.pane[a:b], first, side="left")
        high = a + np.searchsorted(elements.pane[a:b], last, side="right")
        some = high > low
        kid = np.full(int(some.sum()), elements.kid[a])
        for column, part in zip(found, (kid, wid[some], low[some], high[some], last[some])):
            column.append(part.astype(np.int64))
    return Ranges(*(np.concatenate(c) if c else np.empty(0, dtype=np.int64) for c in found))



def slide_for(spec: Window, plan: WindowAggregate, panes: Panes, layout: Layout) -> Slide:
    """The slide of a window specification."""
    if isinstance(spec, GridWindow):
        return GridSlide(spec, plan, panes)
    if isinstance(spec, PerEvent):
        return EventSlide(spec, plan, layout)
    assert isinstance(spec, Session)
    return SessionSlide(spec, plan)
