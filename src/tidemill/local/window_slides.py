"""For each kind of window: which windows close, their ranges of elements, and what can be evicted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tidemill.aggregates.layout import Layout
from tidemill.core.schema import internal
from tidemill.core.time import BEGINNING, FOREVER
from tidemill.kernels import window_ranges as kernels
from tidemill.kernels.order import order_by
from tidemill.kernels.window_ranges import Ranges
from tidemill.local.pane_store import Elements
from tidemill.local.promise import Promise
from tidemill.plan.nodes import WindowAggregate
from tidemill.plan.physical import Panes
from tidemill.windows.semantics import bounds, session_runs
from tidemill.windows.spec import GridWindow, PerEvent, Rows, Session, Window

Ints = npt.NDArray[np.int64]
_NEVER = (1 << 62) - 1
ROWS = internal("rows")
"""The internal aggregate that counts rows, for windows defined by rank."""


def ends_name(spec: PerEvent) -> str:
    """Return the name of the internal aggregate that marks the elements at which windows end."""
    return internal(f"ends{spec.every}")


@dataclass(frozen=True)
class Progress:
    """How far the stream has been read: its watermark, keys and rows."""

    promise: Promise
    final: bool
    keys: int
    rows: Ints
    """The number of rows so far, by partition."""
    partition: Ints
    """The partition of each key."""

    @property
    def below(self) -> Ints:
        """The watermark: one for all keys, or one for each."""
        # Beyond all supported times, yet window ids around it do not overflow.
        return np.maximum(self.promise.of_keys(self.count), -_NEVER)

    @property
    def count(self) -> int:
        """The length of arrays by key: at least two, because an array of one number holds for all keys."""
        return max(2, self.keys)

    @property
    def floor(self) -> int:
        """The watermark of all keys."""
        return max(self.promise.floor, -_NEVER)


class Slide(ABC):
    """The state of one window specification: which windows were returned, and what future ones need."""

    @abstractmethod
    def ranges(self, elements: Elements, progress: Progress) -> Ranges:
        """Return the windows that close now; each window is returned once."""

    @abstractmethod
    def needed(self, elements: Elements, progress: Progress) -> npt.NDArray[np.bool_]:
        """Return a mask of the elements that a future window may need."""

    @abstractmethod
    def bounds(self, elements: Elements, ranges: Ranges) -> tuple[Ints, Ints]:
        """Return `window_start` and `window_end` of windows."""

    def forgotten(  # noqa: B027  (most windows have nothing to note)
        self, elements: Elements, gone: npt.NDArray[np.bool_], progress: Progress
    ) -> None:
        """Record that the elements `gone` are evicted."""

    def goes_on_to(self, pane: int) -> None:  # noqa: B027  (most windows end with their rows)
        """Record that another part of the stream has rows up to a pane."""

    def promise(self) -> Promise:
        """Return a lower bound on the start of future windows."""
        return Promise()

    @property
    def keeps_keys(self) -> bool:
        """Whether there is state for every key ever seen, even after its elements are evicted."""
        return False

    def snapshot(self) -> dict[str, Ints]:
        """Return the state other than the elements."""
        return {name: getattr(self, f"_{name}") for name in self.remembers}

    def restore(self, state: Mapping[str, Ints]) -> None:
        """Load what `snapshot` returned."""
        for name in self.remembers:
            setattr(self, f"_{name}", state[name])

    _common = np.full(1, -_NEVER, dtype=np.int64)
    """The limit of keys not seen yet."""

    remembers: ClassVar[tuple[str, ...]] = ()
    """The names of the arrays of state. An array named `by_key…` has a number for each key id, or one
    for all keys."""

    def renumber(self, kept: Ints) -> None:
        """Renumber the keys `kept` to `0, 1, 2, …` and drop the state of the others."""
        for name in (n for n in self.remembers if n.startswith("by_key")):
            limits = getattr(self, f"_{name}")
            if len(limits) > 1:
                everyone = _by_key(limits, int(kept.max(initial=1)) + 1, int(self._common[0]))
                setattr(self, f"_{name}", np.append(everyone[kept], self._common))

    @property
    def reach(self) -> int | None:
        """The number of panes in a window, or None if keys do not advance together."""
        return None

    @property
    def needed_from(self) -> int | None:
        """The first pane that is still needed, or None if it is not the same for all keys."""
        return None

    @property
    def closed_from(self) -> int | None:
        """For landmark windows, the first pane after the last closed window; else None."""
        return None


class GridSlide(Slide):
    """Tumbling, hopping, landmark and row windows."""

    remembers = ("by_key_after", "by_key_first", "common", "last")

    def __init__(self, spec: GridWindow, plan: WindowAggregate, panes: Panes) -> None:
        self.spec, self._size = spec, panes.size
        self._slide = spec.slide // self._size
        self._length = None if spec.length is None else spec.length // self._size
        self._shift = (spec.origin - panes.origin) // self._size
        # A start within a pane is the start of all windows: rows before it were dropped earlier.
        self._since = -_NEVER if spec.start is None else (spec.start - panes.origin) // self._size
        self._everyone = spec.until_end
        self._by_key_after = np.full(1, -_NEVER, dtype=np.int64)
        """The last window that was returned, of all keys or of each."""
        self._common = np.full(1, -_NEVER, dtype=np.int64)
        """The last window that was returned of all keys, including keys not seen yet."""
        self._by_key_first = np.full(1, _NEVER, dtype=np.int64)
        """For windows that continue until the end of the stream: the first window of each key."""
        self._last = np.full(1, -_NEVER, dtype=np.int64)
        """For windows that continue until the end of the stream: the last window so far."""
        self._partitioned = isinstance(spec, Rows) and bool(plan.partition_of(spec))

    def ranges(self, elements: Elements, progress: Progress) -> Ranges:
        if self._everyone:
            self._note_first(elements, progress.count)
        until = self._until(progress, progress.below)
        if self._partitioned or len(until) > 1 or len(self._by_key_after) > 1:
            self._by_key_after = _by_key(self._by_key_after, progress.count, int(self._common[0]))
        grid: dict[str, Any] = {
            "length": self._length, "slide": self._slide, "shift": self._shift,
            "since": self._since, "after": self._by_key_after, "until": until,
        }  # fmt: skip
        if self._everyone:
            found = kernels.every(elements.kid, elements.pane, first=self._by_key_first, **grid)
        else:
            found = kernels.grid(elements.kid, elements.pane, **grid)
        self._by_key_after = np.maximum(self._by_key_after, until)
        if not self._partitioned:
            floor = np.asarray([progress.floor])
            self._common = np.maximum(self._common, self._until(progress, floor))
            if progress.promise.by_key is None:
                self._by_key_after = _same(self._by_key_after)
        return found

    def needed(self, elements: Elements, progress: Progress) -> npt.NDArray[np.bool_]:
        if self._length is None or self._by_key_after.max(initial=-_NEVER) == -_NEVER:
            return np.ones(len(elements), dtype=np.bool_)
        after = _of(self._by_key_after, elements.kid)
        keep: npt.NDArray[np.bool_] = elements.pane >= self._start_after(after)
        return keep

    def _start_after(self, after: Any) -> Any:
        """Return the first pane of the window after window `after`."""
        assert self._length is not None
        return self._shift + (after + 2) * self._slide - self._length

    @property
    def reach(self) -> int | None:
        return None if self._partitioned else self._length

    @property
    def closed_from(self) -> int | None:
        if self._length is not None or self._common[0] == -_NEVER:
            return None
        return int(self._shift + (self._common[0] + 1) * self._slide)

    @property
    def needed_from(self) -> int | None:
        if self.reach is None or len(self._by_key_after) > 1 or self._common[0] == -_NEVER:
            return None
        return int(self._start_after(self._common[0]))

    def bounds(self, elements: Elements, ranges: Ranges) -> tuple[Ints, Ints]:
        return bounds(ranges.wid, self.spec)

    def _until(self, progress: Progress, below: Ints) -> Ints:
        """Return the last complete window for a watermark, for all keys or for each."""
        if isinstance(self.spec, Rows):
            done = progress.rows[:1]
            if self._partitioned:
                done = np.zeros(progress.count, dtype=np.int64)
                done[: progress.keys] = progress.rows[progress.partition[: progress.keys]]
            if not progress.final:
                return done // self.spec.slide - 1
            last = done - 1
            return np.where(done > 0, self._last_window(last // self._size), -1)
        if not progress.final:
            complete: Ints = (below - self.spec.origin) // self.spec.slide - 1
            # Windows after the last row exist only if a later row comes.
            return np.minimum(complete, self._last) if self._everyone else complete
        return self._last if self._everyone else np.asarray([_NEVER])

    def goes_on_to(self, pane: int) -> None:
        self._last = np.maximum(self._last, self._last_window(np.asarray([pane])))

    def _last_window(self, pane: Ints) -> Ints:
        """Return the last window that contains a pane; for a pane in a gap, the window before it."""
        reach = 0 if self._length is None else self._length - self._slide
        return (pane - self._shift + reach) // self._slide

    def _note_first(self, elements: Elements, keys: int) -> None:
        self._by_key_first = _by_key(self._by_key_first, keys, _NEVER)
        offset = elements.pane - self._shift
        wid = offset // self._slide
        inside = elements.pane >= self._since
        if self._length is not None and self._length < self._slide:
            inside &= offset - wid * self._slide >= self._slide - self._length
        np.minimum.at(self._by_key_first, elements.kid[inside], wid[inside])
        if inside.any():
            self._last = np.maximum(self._last, self._last_window(elements.pane[inside]).max())

    def promise(self) -> Promise:
        if self._length is None or self._partitioned or self._by_key_after.max() == -_NEVER:
            return Promise()
        if self._common[0] == _NEVER:
            return Promise(FOREVER)
        assert self.spec.length is not None

        def start(after: Any) -> Any:
            return self.spec.origin + (after + 2) * self.spec.slide - self.spec.length

        floor = BEGINNING if self._common[0] == -_NEVER else int(start(self._common[0]))
        if len(self._by_key_after) == 1:
            return Promise(floor)
        given = self._by_key_after > -_NEVER
        return Promise(floor, np.where(given, start(np.where(given, self._by_key_after, 0)), BEGINNING))

    @property
    def keeps_keys(self) -> bool:
        return self._everyone or self._partitioned


class EventSlide(Slide):
    """A window at each event, or each n-th event, of a partition.

    If the partition is the key itself, one compiled pass finds the windows. Otherwise rows of other keys
    define windows too, and the elements of each key are looked up in them.
    """

    remembers = ("by_key_emitted", "common", "gone")

    def __init__(self, spec: PerEvent, plan: WindowAggregate, layout: Layout) -> None:
        self.spec = spec
        self._by_key_emitted = np.full(1, -_NEVER, dtype=np.int64)
        """Windows below this were returned, of all keys or of each."""
        self._common = np.full(1, -_NEVER, dtype=np.int64)
        """Windows below this were returned of all keys, including keys not seen yet."""
        self._own = set(plan.partition_of(spec)) == set(plan.group_keys)
        self._column: str | None = None
        self._ranked = spec.by == "rank" and spec.every > 1
        if spec.every > 1:
            name = ROWS if self._ranked else ends_name(spec)
            index = next(r.parts[0] for r in layout.results if r.name == name)
            self._column = layout.parts[index].columns.names[0]
        self._gone = np.zeros(0, dtype=np.int64)
        """The number of evicted rows by partition: ranks continue from it."""

    def ranges(self, elements: Elements, progress: Progress) -> Ranges:
        partition = elements.kid if self._own else progress.partition[elements.kid]
        below = progress.below if self._own else np.asarray([progress.floor])
        if len(below) > 1 or len(self._by_key_emitted) > 1:
            self._by_key_emitted = _by_key(self._by_key_emitted, progress.count, int(self._common[0]))
        if self._own:
            found = kernels.per_event(
                elements.kid, elements.pane, length=self.spec.range.ticks,
                defines=self._defines(partition, elements.pane, elements),
                after=self._by_key_emitted, below=below,
            )  # fmt: skip
        else:
            found = self._shared(elements, partition, progress.floor)
        self._by_key_emitted = np.maximum(self._by_key_emitted, below)
        self._common = np.maximum(self._common, progress.floor)
        if progress.promise.by_key is None:
            self._by_key_emitted = _same(self._by_key_emitted)
        return found

    def _shared(self, elements: Elements, partition: Ints, below: int) -> Ranges:
        order = order_by(partition, elements.pane)
        group, time = partition[order], elements.pane[order]
        ends = self._defines(group, time, elements, order)
        ends &= (time >= self._by_key_emitted[0]) & (time < below)

        def windows(p: int) -> tuple[Ints, Ints, Ints]:
            w = np.unique(time[ends & (group == p)])
            return w, w - self.spec.range.ticks + 1, w

        return _looked_up(elements, partition, windows)

    def _defines(
        self, group: Ints, time: Ints, elements: Elements, order: Ints | None = None
    ) -> npt.NDArray[np.bool_]:
        """Return a mask of the elements that end a window."""
        if self._column is None:
            return np.ones(len(elements), dtype=np.bool_)
        column = elements.records[self._column]
        column = column if order is None else column[order]
        if not self._ranked:
            return np.asarray(column, dtype=np.bool_)
        starts = np.flatnonzero(np.r_[True, np.diff(group) != 0][: len(group)])
        through = np.cumsum(column)
        self._gone = _by_key(self._gone, int(group.max(initial=1)) + 1, 0)
        gone = self._gone[group[starts]]
        base = gone - np.where(starts > 0, through[starts - 1], 0)
        upto = through + np.repeat(base, np.diff(np.r_[starts, len(group)]))
        result: npt.NDArray[np.bool_] = (
            upto // self.spec.every > (upto - column) // self.spec.every
        )
        return result

    def needed(self, elements: Elements, progress: Progress) -> npt.NDArray[np.bool_]:
        below = _of(self._by_key_emitted, elements.kid)
        keep: npt.NDArray[np.bool_] = elements.pane > below - self.spec.range.ticks
        return keep

    def forgotten(
        self, elements: Elements, gone: npt.NDArray[np.bool_], progress: Progress
    ) -> None:
        if not self._ranked:
            return
        assert self._column is not None
        partition = elements.kid if self._own else progress.partition[elements.kid]
        self._gone = _by_key(self._gone, int(partition.max(initial=1)) + 1, 0)
        np.add.at(self._gone, partition[gone], elements.records[self._column][gone])

    def bounds(self, elements: Elements, ranges: Ranges) -> tuple[Ints, Ints]:
        return bounds(ranges.wid, self.spec)

    def promise(self) -> Promise:
        if self._common[0] == -_NEVER:
            return Promise()
        by_key = self._by_key_emitted - self.spec.range.ticks
        floor = int(self._common[0]) - self.spec.range.ticks
        return Promise(floor, by_key if len(by_key) > 1 else None)

    @property
    def keeps_keys(self) -> bool:
        return self._ranked or not self._own


class SessionSlide(Slide):
    """Sessions of the rows of a key or of a partition."""

    remembers = ("by_key_given", "common", "open")

    def __init__(self, spec: Session, plan: WindowAggregate) -> None:
        self.spec = spec
        self._own = set(plan.partition_of(spec)) == set(plan.group_keys)
        self._closed = np.empty(0, dtype=np.bool_)
        self._by_key_given = np.full(1, -_NEVER, dtype=np.int64)
        """Sessions whose last row is below this were returned, of all keys or of each. Their elements may
        still be in the store."""
        self._common = np.full(1, -_NEVER, dtype=np.int64)
        """The same for keys not seen yet."""
        self._open = np.full(1, BEGINNING, dtype=np.int64)
        """The start of the first session that was not returned yet; late rows may move it back."""

    def ranges(self, elements: Elements, progress: Progress) -> Ranges:
        gap = self.spec.gap.ticks
        below = progress.below if self._own else np.asarray([progress.floor])
        if self._own:
            found = kernels.sessions(elements.kid, elements.pane, gap=gap, below=below)
        else:
            found = self._shared(elements, progress.partition[elements.kid], progress.floor)
        marks = np.zeros(len(elements) + 1, dtype=np.int64)
        np.add.at(marks, found.low, 1)
        np.add.at(marks, found.high, -1)
        self._closed = np.cumsum(marks)[:-1] > 0
        last = elements.pane[found.high - 1] if found.end is None else found.end
        if len(below) > 1 or len(self._by_key_given) > 1:
            self._by_key_given = _by_key(self._by_key_given, progress.count, int(self._common[0]))
        fresh = last >= _of(self._by_key_given, found.kid)
        self._by_key_given = np.maximum(self._by_key_given, below - gap + 1)
        self._common = np.maximum(self._common, progress.floor - gap + 1)
        if progress.promise.by_key is None:
            self._by_key_given = _same(self._by_key_given)
        self._open[0] = elements.pane[~self._closed].min(initial=progress.floor)
        return found if fresh.all() else found[fresh]

    def promise(self) -> Promise:
        return Promise(int(self._open[0]))

    @property
    def keeps_keys(self) -> bool:
        return not self._own

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
    """Return the windows of each partition as ranges of each of its keys, without empty ranges.

    `windows` returns the ids, first times and last times of the windows of a partition.
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



def _by_key(limits: Ints, keys: int, others: int) -> Ints:
    """Return a limit for each of `keys` keys; keys without one get the limit `others`."""
    if 1 < keys <= len(limits):
        return limits
    more = np.full(keys, others, dtype=np.int64)
    if len(limits) > 1:  # a single limit holds for all keys and equals `others`
        more[: len(limits)] = limits
    return more


def _same(limits: Ints) -> Ints:
    """Return one limit for all keys if all limits are equal, otherwise the limits unchanged."""
    return limits[:1] if len(limits) > 1 and (limits == limits[0]).all() else limits


def _of(limits: Ints, kid: Ints) -> Any:
    """Return the limit of each key id, from limits by key or one for all."""
    return limits[kid] if len(limits) > 1 else limits[0]


def slide_for(spec: Window, plan: WindowAggregate, panes: Panes, layout: Layout) -> Slide:
    """Create the slide of a window specification."""
    if isinstance(spec, GridWindow):
        return GridSlide(spec, plan, panes)
    if isinstance(spec, PerEvent):
        return EventSlide(spec, plan, layout)
    assert isinstance(spec, Session)
    return SessionSlide(spec, plan)
