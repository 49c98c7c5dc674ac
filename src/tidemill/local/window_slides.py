"""For each kind of window: which windows close, their ranges of elements, and what can be evicted."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tidemill.aggregates.layout import Layout
from tidemill.core.schema import internal
from tidemill.core.time import BEGINNING, FOREVER
from tidemill.kernels import window_ranges as kernels
from tidemill.kernels.memory import empty_like
from tidemill.kernels.order import order_by
from tidemill.kernels.window_ranges import Ranges
from tidemill.local.limits import Limits
from tidemill.local.pane_store import Elements
from tidemill.plan.nodes import WindowAggregate
from tidemill.plan.physical import Panes
from tidemill.windows.calendar_units import parts_of, start_of, window_of
from tidemill.windows.semantics import bounds
from tidemill.windows.spec import Calendar, GridWindow, PerEvent, Rows, Session, Window, tumbling

Ints = npt.NDArray[np.int64]
NEVER = (1 << 62) - 1
"""Beyond every window."""
ROWS = internal("rows")
"""The internal aggregate that counts rows, for windows defined by rank."""


def ends_name(spec: PerEvent) -> str:
    """Return the name of the internal aggregate that marks the elements at which windows end."""
    return internal(f"ends{spec.every}")


@dataclass(frozen=True)
class Progress:
    """How far the stream has been read: its watermark, keys and rows."""

    promise: Limits
    final: bool
    keys: int
    rows: Ints
    """The number of rows so far, by partition."""
    partition: Ints
    """The partition of each key."""

    @functools.cached_property
    def below(self) -> Limits:
        """The instant below which rows are complete, for each key."""
        # No time is as far away as this, and windows around it can still be counted.
        return self.promise.mapped(lambda below: _least(_most(below, -NEVER), NEVER))

    @property
    def floor(self) -> int:
        """The instant below which the rows of all keys are complete."""
        return self.below.common


class Grid(NamedTuple):
    """Windows to return, and where they lie; all in panes."""

    begin: int
    """The first window."""
    until: int
    """The last window."""
    length: int
    slide: int
    shift: int
    """Window `w` ends at `shift + (w + 1) * slide`."""
    since: int
    """Panes below this are in no window."""


class Slide(ABC):
    """The state of one window specification: which windows were returned, and what future ones need."""

    @abstractmethod
    def ranges(self, elements: Elements, progress: Progress, room: int) -> Iterable[Ranges]:
        """Return the windows that close now, each once; if they can be very many, at most `room` at once."""

    @abstractmethod
    def closes(self, progress: Progress) -> bool:
        """Return False if no window closes now, without a look at the elements."""

    def closing(self, progress: Progress) -> npt.NDArray[np.bool_] | None:
        """Return a mask of the keys of which windows close, if that is known without the elements."""
        return None

    @property
    def closes_at(self) -> int | None:
        """The least watermark of all keys at which a window closes; None if it is not known."""
        return None

    def grid(self, progress: Progress) -> Grid | None:
        """Return the windows that close and where they lie in panes, as `codegen.plane_windows` needs it.

        None if they are not a grid, or not the same for all keys.
        """
        return None

    def close(self, progress: Progress) -> None:
        """Record that the windows of `grid` were returned."""
        raise NotImplementedError

    def reads_below(self, progress: Progress) -> int | None:
        """Return the pane below which all elements of the windows that close lie; None if it is not known."""
        return None

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

    def promise(self) -> Limits:
        """No window to come starts below this."""
        return Limits()

    @property
    def keeps_keys(self) -> bool:
        """Whether there is state for every key ever seen, even after its elements are evicted."""
        return False

    state: dict[str, Limits]
    """What it knows besides the elements; limits by key are by the ids of keys."""

    def renumber(self, kept: Ints) -> None:
        """Let the keys `kept` be `0, 1, 2, …` from now on; others are forgotten."""
        self.state = {name: limits.renumbered(kept) for name, limits in self.state.items()}

    @property
    def reach(self) -> int | None:
        """The number of panes in a window, or None if keys do not advance together."""
        return None

    @property
    def needed_from(self) -> int | None:
        """The first pane that is still needed, or None if it is not the same for all keys."""
        return None

    @property
    def kept_from(self) -> Limits | None:
        """The first pane of each key that is still needed; None if that is not all there is to it."""
        return None

    @property
    def closed_from(self) -> int | None:
        """For landmark windows, the first pane after the last closed window; else None."""
        return None


class GridSlide(Slide):
    """Tumbling, hopping, landmark and row windows."""

    def __init__(self, spec: GridWindow, plan: WindowAggregate, panes: Panes) -> None:
        self.spec, self._size = spec, panes.size
        self._slide = spec.slide // self._size
        self._length = None if spec.length is None else spec.length // self._size
        self._shift = (spec.origin - panes.origin) // self._size
        # A start within a pane is the start of all windows: rows before it were dropped earlier.
        self._since = -NEVER if spec.start is None else (spec.start - panes.origin) // self._size
        self._everyone = spec.until_end
        self._ticks = spec.slide
        self._first_end = None if self._everyone or isinstance(spec, Rows) else spec.origin + 2 * spec.slide
        """Where window 1 ends: watermarks close windows there, and each so many ticks."""
        # after: the last window that was given. Where windows go on until the end, also
        # first: the first window of each key, and last: the last one of the stream so far.
        self.state = {"after": Limits(-NEVER), "first": Limits(NEVER), "last": Limits(-NEVER)}
        self._partitioned = isinstance(spec, Rows) and bool(plan.partition_of(spec))

    def closes(self, progress: Progress) -> bool:
        if self._everyone:  # only the elements say how far windows go on
            return True
        until, after = self._until(progress), self.state["after"]
        if until.common > after.common:
            return True
        if until.by_key is None and after.by_key is None:
            return False
        keys = progress.keys
        return bool((until.full(keys) > after.full(keys)).any())

    def closing(self, progress: Progress) -> npt.NDArray[np.bool_] | None:
        if self._everyone or not self._partitioned:
            return None
        found: npt.NDArray[np.bool_] = (
            self._until(progress).full(progress.keys) > self.state["after"].full(progress.keys)
        )
        return found

    @property
    def closes_at(self) -> int | None:
        after = self.state["after"]
        if self._first_end is None or after.by_key is not None:
            return None
        return self._first_end + after.common * self._ticks

    def reads_below(self, progress: Progress) -> int | None:
        if self._everyone:
            return None
        return int(self._shift + (self._until(progress).highest + 1) * self._slide)

    def grid(self, progress: Progress) -> Grid | None:
        until, after = self._until(progress), self.state["after"]
        if self.reach is None or self._everyone or not (until.by_key is None and after.by_key is None):
            return None
        assert self._length is not None
        return Grid(after.common + 1, until.common, self._length, self._slide, self._shift, self._since)

    def close(self, progress: Progress) -> None:
        self.state["after"] = self.state["after"].raised(self._until(progress))

    def ranges(self, elements: Elements, progress: Progress, room: int) -> Iterator[Ranges]:
        if self._everyone:
            self._note_first(elements, progress.keys)
        until, after, keys = self._until(progress), self.state["after"], progress.keys
        grid: dict[str, Any] = {
            "length": self._length, "slide": self._slide, "shift": self._shift,
            "since": self._since, "after": after.array(keys), "until": until.array(keys),
        }  # fmt: skip
        if self._everyone:
            first = self.state["first"].full(keys)
            yield kernels.every(elements.kid, self._on_grid(elements), first=first, **grid)
        else:
            yield from kernels.grid(elements.kid, self._on_grid(elements), room=room, **grid)
        self.state["after"] = after.raised(until)

    def needed(self, elements: Elements, progress: Progress) -> npt.NDArray[np.bool_]:
        if self._length is None:
            return np.ones(len(elements), dtype=np.bool_)
        keep: npt.NDArray[np.bool_] = (
            self._on_grid(elements) >= self._start_after(self.state["after"].of(elements.kid))
        )
        return keep

    def _on_grid(self, elements: Elements) -> Ints:
        """Return the pane of each element, on the grid of the windows."""
        return elements.pane

    def _start_after(self, after: Any) -> Any:
        """Return the first pane of the window after window `after`."""
        assert self._length is not None
        return self._shift + (after + 2) * self._slide - self._length

    @property
    def reach(self) -> int | None:
        return None if self._partitioned else self._length

    @property
    def since(self) -> int:
        """Panes below this are in no window."""
        return self._since

    @property
    def closed_from(self) -> int | None:
        after = self.state["after"].common
        if self._length is not None or after == -NEVER:
            return None
        return int(self._shift + (after + 1) * self._slide)

    @property
    def needed_from(self) -> int | None:
        after = self.state["after"]
        if self.reach is None or after.by_key is not None or after.common == -NEVER:
            return None
        return int(self._start_after(after.common))

    @property
    def kept_from(self) -> Limits | None:
        return None if self._length is None else _kept(self.state["after"], self._start_after)

    def bounds(self, elements: Elements, ranges: Ranges) -> tuple[Ints, Ints]:
        return bounds(ranges.wid, self.spec, new=empty_like)

    def _until(self, progress: Progress) -> Limits:
        """The last window that is complete."""
        if isinstance(self.spec, Rows):
            return self._rows_so_far(progress).mapped(self._last_begun if progress.final else self._last_full)
        last = self.state["last"].common
        if progress.final:
            return Limits(last if self._everyone else NEVER)
        # Whether windows go on past the last row so far, only a row to come can say.
        most = last if self._everyone else NEVER
        return progress.below.mapped(
            lambda below: _least((below - self.spec.origin) // self.spec.slide - 1, most)
        )

    def _rows_so_far(self, progress: Progress) -> Limits:
        if not self._partitioned:
            return Limits(int(progress.rows[0]))
        return Limits(0, progress.rows[progress.partition[: progress.keys]])

    def _last_full(self, rows: Any) -> Any:
        return rows // self.spec.slide - 1

    def _last_begun(self, rows: Any) -> Any:
        return np.where(rows > 0, self._last_window((rows - 1) // self._size), -1)

    def goes_on_to(self, pane: int) -> None:
        last = int(self._last_window(np.asarray([pane]))[0])
        self.state["last"] = self.state["last"].raised(Limits(last))

    def _last_window(self, pane: Any) -> Any:
        """Return the last window that contains a pane; for a pane in a gap, the window before it."""
        reach = 0 if self._length is None else self._length - self._slide
        return (pane - self._shift + reach) // self._slide

    def _note_first(self, elements: Elements, keys: int) -> None:
        first = self.state["first"].full(keys)
        pane = self._on_grid(elements)
        offset = pane - self._shift
        wid = offset // self._slide
        inside = pane >= self._since
        if self._length is not None and self._length < self._slide:
            inside &= offset - wid * self._slide >= self._slide - self._length
        if self._length is not None:  # a late row may be in complete windows only, and makes no key known
            inside &= self._last_window(pane) > self.state["after"].of(elements.kid)
        np.minimum.at(first, elements.kid[inside], wid[inside])
        self.state["first"] = Limits(NEVER, first)
        if inside.any():
            last = int(self._last_window(pane[inside]).max())
            self.state["last"] = self.state["last"].raised(Limits(last))

    def promise(self) -> Limits:
        if self._length is None or self._partitioned:
            return Limits()
        assert self.spec.length is not None
        length = self.spec.length
        return _promised(
            self.state["after"], lambda after: self.spec.origin + (after + 2) * self.spec.slide - length
        )

    @property
    def keeps_keys(self) -> bool:
        return self._everyone or self._partitioned


class CalendarSlide(GridSlide):
    """Windows of a calendar: a grid of their ids, to which panes and instants are converted.

    Panes are windows of a calendar of the same zone, or stretches of time that do not cross a midnight.
    """

    def __init__(self, spec: Calendar, plan: WindowAggregate, panes: Panes) -> None:
        super().__init__(tumbling(1, fill_empty=spec.fill_empty), plan, Panes(0, 1))
        self.calendar, self._panes = spec, panes
        self._same = panes.axis == spec.cut
        self._now = (NEVER, 0, 0)
        """The window that the watermark was in last, with its bounds: mostly it is in there again."""

    def grid(self, progress: Progress) -> Grid | None:
        return super().grid(progress) if self._same else None

    def ranges(self, elements: Elements, progress: Progress, room: int) -> Iterator[Ranges]:
        for found in super().ranges(elements, progress, room):
            if not self._everyone:
                yield found
                continue
            # A day that the zone left out has no window, so it is not filled, either.
            wid, places = np.unique(found.wid, return_inverse=True)
            start, end = bounds(wid, self.calendar)
            yield found[(start < end)[places]]

    def reads_below(self, progress: Progress) -> int | None:
        if self._everyone:
            return None
        return self._first_pane(self._until(progress).highest + 1)

    def bounds(self, elements: Elements, ranges: Ranges) -> tuple[Ints, Ints]:
        return bounds(ranges.wid, self.calendar)

    def promise(self) -> Limits:
        return _promised(self.state["after"], lambda after: self._start(after + 1))

    def _start(self, window: Any) -> Any:
        """Return where windows begin, of one or of an array."""
        if isinstance(window, int) and window == self._now[0]:
            return self._now[1]
        return start_of(window, self.calendar)

    def _window(self, instant: Any) -> Any:
        """Return the window of an instant or of each of an array."""
        if not isinstance(instant, int):
            return window_of(instant, self.calendar)
        if not self._now[1] <= instant < self._now[2]:
            found = int(window_of(instant, self.calendar))
            start, end = start_of([found, found + 1], self.calendar).tolist()
            self._now = (found, start, end)
        return self._now[0]

    @property
    def closes_at(self) -> int | None:
        after, (window, _, end) = self.state["after"], self._now
        if self._everyone or after.by_key is not None or after.common + 1 != window:
            return None
        return end

    @property
    def kept_from(self) -> Limits | None:
        return super().kept_from if self._same else None

    def goes_on_to(self, pane: int) -> None:
        super().goes_on_to(int(self._windows(np.array([pane]))[0]))

    @property
    def reach(self) -> int | None:
        axis = self._panes.axis
        return None if axis is None else parts_of(self.calendar, axis)

    @property
    def needed_from(self) -> int | None:
        window = super().needed_from
        return None if window is None else self._first_pane(window)

    def _until(self, progress: Progress) -> Limits:
        last = self.state["last"].common
        most = last if self._everyone else NEVER
        if progress.final:
            return Limits(most)
        return progress.below.mapped(lambda below: _least(self._window(below) - 1, most))

    def _on_grid(self, elements: Elements) -> Ints:
        return self._windows(elements.pane)

    def _windows(self, panes: Ints) -> Ints:
        """Return the window that each pane is in."""
        if self._same:
            return panes
        axis = self._panes.axis
        starts = panes * self._panes.size + self._panes.origin if axis is None else start_of(panes, axis)
        return window_of(starts, self.calendar)

    def _first_pane(self, window: int) -> int:
        """Return the first pane of a window."""
        if self._same or not -NEVER < window < NEVER:
            return window
        start, panes = start_of(window, self.calendar), self._panes
        if panes.axis is not None:
            return int(window_of(start, panes.axis))
        return int((start - panes.origin) // panes.size)


class EventSlide(Slide):
    """A window at each event, or each n-th event, of a partition.

    If the partition is the key itself, one compiled pass finds the windows. Otherwise rows of other keys
    define windows too, and the elements of each key are looked up in them.
    """

    def __init__(self, spec: PerEvent, plan: WindowAggregate, layout: Layout) -> None:
        self.spec = spec
        # emitted: windows below this were given.
        # gone: rows that were forgotten, by partition; ranks go on counting from there.
        self.state = {"emitted": Limits(-NEVER), "gone": Limits(0)}
        self._own = set(plan.partition_of(spec)) == set(plan.group_keys)
        self._column: str | None = None
        self._ranked = spec.by == "rank" and spec.every > 1
        if spec.every > 1:
            name = ROWS if self._ranked else ends_name(spec)
            index = next(r.parts[0] for r in layout.results if r.name == name)
            self._column = layout.parts[index].columns.names[0]

    def closes(self, progress: Progress) -> bool:
        return progress.below.highest > self.state["emitted"].common

    def ranges(self, elements: Elements, progress: Progress, room: int) -> Iterable[Ranges]:
        partition = elements.kid if self._own else progress.partition[elements.kid]
        below = progress.below if self._own else Limits(progress.floor)
        emitted, keys = self.state["emitted"], progress.keys
        if self._own:
            found = kernels.per_event(
                elements.kid, elements.pane, length=self.spec.range.ticks,
                defines=self._defines(partition, elements.pane, elements),
                after=emitted.array(keys), below=below.array(keys),
            )  # fmt: skip
        else:
            found = self._shared(elements, partition, below.common)
        self.state["emitted"] = emitted.raised(below)
        return (found,)

    def _shared(self, elements: Elements, partition: Ints, below: int) -> Ranges:
        order = order_by(partition, elements.pane)
        group, time = partition[order], elements.pane[order]
        ends = self._defines(group, time, elements, order)
        ends &= (time >= self.state["emitted"].common) & (time < below)

        group, time = group[ends], time[ends]
        new = np.ones(len(time), dtype=np.bool_)
        new[1:] = (np.diff(group) != 0) | (np.diff(time) != 0)
        w = time[new]
        partitions = int(partition.max(initial=-1)) + 1
        windows = kernels.PartitionWindows.of(group[new], w, w - self.spec.range.ticks + 1, w, partitions)
        return kernels.looked_up(elements.kid, elements.pane, partition, windows)

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
        gone = self.state["gone"].of(group[starts])
        base = gone - np.where(starts > 0, through[starts - 1], 0)
        upto = through + np.repeat(base, np.diff(np.r_[starts, len(group)]))
        result: npt.NDArray[np.bool_] = (
            upto // self.spec.every > (upto - column) // self.spec.every
        )
        return result

    def needed(self, elements: Elements, progress: Progress) -> npt.NDArray[np.bool_]:
        emitted = self.state["emitted"].of(elements.kid)
        keep: npt.NDArray[np.bool_] = elements.pane > emitted - self.spec.range.ticks
        return keep

    @property
    def kept_from(self) -> Limits | None:
        return _kept(self.state["emitted"], lambda emitted: emitted - self.spec.range.ticks + 1)

    def forgotten(
        self, elements: Elements, gone: npt.NDArray[np.bool_], progress: Progress
    ) -> None:
        if not self._ranked:
            return
        assert self._column is not None
        partition = elements.kid if self._own else progress.partition[elements.kid]
        before = self.state["gone"]
        known = 0 if before.by_key is None else len(before.by_key)
        rows = before.full(max(known, int(partition.max(initial=-1)) + 1))
        np.add.at(rows, partition[gone], elements.records[self._column][gone])
        self.state["gone"] = Limits(0, rows)

    def bounds(self, elements: Elements, ranges: Ranges) -> tuple[Ints, Ints]:
        return bounds(ranges.wid, self.spec, new=empty_like)

    def promise(self) -> Limits:
        return _promised(self.state["emitted"], lambda emitted: emitted - self.spec.range.ticks)

    @property
    def keeps_keys(self) -> bool:
        return self._ranked or not self._own


class SessionSlide(Slide):
    """Runs with small gaps, of the rows of a key or of a partition. Late rows do not get here."""

    def __init__(self, spec: Session, plan: WindowAggregate) -> None:
        self.spec = spec
        self._own = set(plan.partition_of(spec)) == set(plan.group_keys)
        self._closed = np.empty(0, dtype=np.bool_)
        # given: sessions whose last row is below this were given before, and may still lie there.
        # open: where the first session begins that is not given yet.
        self.state = {"given": Limits(-NEVER), "open": Limits(-NEVER)}

    def closes(self, progress: Progress) -> bool:
        return True

    def ranges(self, elements: Elements, progress: Progress, room: int) -> Iterable[Ranges]:
        gap = self.spec.gap.ticks
        below = progress.below if self._own else Limits(progress.floor)
        if self._own:
            found = kernels.sessions(
                elements.kid, elements.pane, elements.end, gap=gap, below=below.array(progress.keys)
            )
        else:
            found = self._shared(elements, progress.partition[elements.kid], below.common)
        marks = np.zeros(len(elements) + 1, dtype=np.int64)
        np.add.at(marks, found.low, 1)
        np.add.at(marks, found.high, -1)
        self._closed = np.cumsum(marks)[:-1] > 0
        last = elements.end[found.high - 1] if found.end is None else found.end
        given = self.state["given"]
        fresh = np.asarray(last >= given.of(found.kid))
        begins = int(elements.pane[~self._closed].min(initial=progress.floor))
        self.state = {
            "given": given.raised(below.mapped(lambda limit: limit - gap + 1)), "open": Limits(begins),
        }  # fmt: skip
        return (found if fresh.all() else found[fresh],)

    def promise(self) -> Limits:
        return _promised(self.state["open"], lambda begins: begins)

    @property
    def keeps_keys(self) -> bool:
        return not self._own

    def _shared(self, elements: Elements, partition: Ints, below: int) -> Ranges:
        order = order_by(partition, elements.pane)
        group, time = partition[order], elements.pane[order]
        found = kernels.sessions(group, time, time, gap=self.spec.gap.ticks, below=np.array([below]))
        partitions = int(partition.max(initial=-1)) + 1
        windows = kernels.PartitionWindows.of(
            found.kid, found.wid, found.wid, time[found.high - 1], partitions
        )
        return kernels.looked_up(elements.kid, elements.pane, partition, windows)

    def needed(self, elements: Elements, progress: Progress) -> npt.NDArray[np.bool_]:
        return ~self._closed

    def bounds(self, elements: Elements, ranges: Ranges) -> tuple[Ints, Ints]:
        last = elements.end[ranges.high - 1] if ranges.end is None else ranges.end
        return ranges.wid, last + self.spec.gap.ticks


def _kept(limits: Limits, first: Callable[[Any], Any]) -> Limits:
    """The first pane that is needed, by the last window that was given; all of them before the first one."""

    def change(limit: Any) -> Any:
        given = limit > -NEVER
        return np.where(given, first(np.where(given, limit, 0)), -NEVER)

    return limits.mapped(change)


def _promised(limits: Limits, start: Callable[[Any], Any]) -> Limits:
    """What limits say about the start of windows to come; nothing, or everything, at their ends."""

    def change(limit: Any) -> Any:
        if isinstance(limit, int):  # most often, and quick
            return start(limit) if -NEVER < limit < NEVER else BEGINNING if limit <= -NEVER else FOREVER
        inside = (limit > -NEVER) & (limit < NEVER)
        at_ends = np.where(limit <= -NEVER, BEGINNING, FOREVER)
        return np.where(inside, start(np.where(inside, limit, 0)), at_ends)

    return limits.mapped(change)


def _least(limits: Any, bound: int) -> Any:
    return min(limits, bound) if isinstance(limits, int) else np.minimum(limits, bound)


def _most(limits: Any, bound: int) -> Any:
    return max(limits, bound) if isinstance(limits, int) else np.maximum(limits, bound)


def slide_for(spec: Window, plan: WindowAggregate, panes: Panes, layout: Layout) -> Slide:
    """Create the slide of a window specification."""
    if isinstance(spec, GridWindow):
        return GridSlide(spec, plan, panes)
    if isinstance(spec, Calendar):
        return CalendarSlide(spec, plan, panes)
    if isinstance(spec, PerEvent):
        return EventSlide(spec, plan, layout)
    assert isinstance(spec, Session)
    return SessionSlide(spec, plan)
