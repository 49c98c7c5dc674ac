"""How each kind of window finds its ranges of elements, and what it still needs afterwards."""

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
"""The aggregate that counts rows, for windows that are cut by rank."""


def ends_name(spec: PerEvent) -> str:
    """The aggregate that tells at which elements windows end."""
    return internal(f"ends{spec.every}")


@dataclass(frozen=True)
class Progress:
    """How far the stream has come."""

    promise: Promise
    final: bool
    keys: int
    rows: Ints
    """Rows so far, by partition."""
    partition: Ints
    """The partition of each key."""

    @property
    def below(self) -> Ints:
        """The instant below which rows are complete: one for all keys, or by key."""
        # No time is as far away as this, and windows around it can still be counted.
        return np.maximum(self.promise.of_keys(self.count), -_NEVER)

    @property
    def count(self) -> int:
        """How many keys arrays by key have room for: two at least, as one number holds for all keys."""
        return max(2, self.keys)

    @property
    def floor(self) -> int:
        """The instant below which the rows of all keys are complete."""
        return max(self.promise.floor, -_NEVER)


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

    def promise(self) -> Promise:
        """No window to come starts below this."""
        return Promise()

    @property
    def keeps_keys(self) -> bool:
        """Whether something is known of every key that ever came, also when its elements are gone."""
        return False

    def snapshot(self) -> dict[str, Ints]:
        """What it knows besides the elements."""
        return {name: getattr(self, f"_{name}") for name in self.remembers}

    def restore(self, state: Mapping[str, Ints]) -> None:
        """What `snapshot` gave."""
        for name in self.remembers:
            setattr(self, f"_{name}", state[name])

    _common = np.full(1, -_NEVER, dtype=np.int64)
    """What is known of keys that have not come yet."""

    remembers: ClassVar[tuple[str, ...]] = ()
    """The arrays that are its state; those whose names begin with `by_key` have a number for each key
    id, or one for all."""

    def renumber(self, kept: Ints) -> None:
        """Let the keys `kept` be `0, 1, 2, …` from now on; others are forgotten."""
        for name in (n for n in self.remembers if n.startswith("by_key")):
            limits = getattr(self, f"_{name}")
            if len(limits) > 1:
                everyone = _by_key(limits, int(kept.max(initial=1)) + 1, int(self._common[0]))
                setattr(self, f"_{name}", np.append(everyone[kept], self._common))

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

    remembers = ("by_key_after", "by_key_first", "common", "last")

    def __init__(self, spec: GridWindow, plan: WindowAggregate, panes: Panes) -> None:
        self.spec, self._size = spec, panes.size
        self._slide = spec.slide // self._size
        self._length = None if spec.length is None else spec.length // self._size
        self._shift = (spec.origin - panes.origin) // self._size
        # Where the start lies within a pane, it is that of all windows, and rows before it never get here.
        self._since = -_NEVER if spec.start is None else (spec.start - panes.origin) // self._size
        self._everyone = spec.until_end
        self._by_key_after = np.full(1, -_NEVER, dtype=np.int64)
        """The last window that was given: of all keys, or of each."""
        self._common = np.full(1, -_NEVER, dtype=np.int64)
        """The last window that was given of all keys, those to come included."""
        self._by_key_first = np.full(1, _NEVER, dtype=np.int64)
        """Where windows go on until the end: the first one of each key."""
        self._last = np.full(1, -_NEVER, dtype=np.int64)
        """Where windows go on until the end: the last one of the stream so far."""
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
        """The first pane of the window after this one."""
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
        """The last window that is complete, for all keys or for each, now that rows below are."""
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
            # Whether windows go on past the last row so far, only a row to come can say.
            return np.minimum(complete, self._last) if self._everyone else complete
        return self._last if self._everyone else np.asarray([_NEVER])

    def goes_on_to(self, pane: int) -> None:
        self._last = np.maximum(self._last, self._last_window(np.asarray([pane])))

    def _last_window(self, pane: Ints) -> Ints:
        """The last window that a pane belongs to; between sampling windows, the one before."""
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
    """A window at each event, or each n-th; the events are those of a partition.

    Where the partition is the key itself, windows are found in one compiled pass. Otherwise the
    rows of other keys make windows too, and each key looks itself up in them.
    """

    remembers = ("by_key_emitted", "common", "gone")

    def __init__(self, spec: PerEvent, plan: WindowAggregate, layout: Layout) -> None:
        self.spec = spec
        self._by_key_emitted = np.full(1, -_NEVER, dtype=np.int64)
        """Windows below this were given: those of all keys, or of each."""
        self._common = np.full(1, -_NEVER, dtype=np.int64)
        """Windows below this were given of all keys, those to come included."""
        self._own = set(plan.partition_of(spec)) == set(plan.group_keys)
        self._column: str | None = None
        self._ranked = spec.by == "rank" and spec.every > 1
        if spec.every > 1:
            name = ROWS if self._ranked else ends_name(spec)
            index = next(r.parts[0] for r in layout.results if r.name == name)
            self._column = layout.parts[index].columns.names[0]
        self._gone = np.zeros(0, dtype=np.int64)
        """Rows that were forgotten, by partition: ranks go on counting from there."""

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
        """Which elements end a window. Elements of one group and time decide together."""
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
    """Runs with small gaps, of the rows of a key or of a partition."""

    remembers = ("by_key_given", "common", "open")

    def __init__(self, spec: Session, plan: WindowAggregate) -> None:
        self.spec = spec
        self._own = set(plan.partition_of(spec)) == set(plan.group_keys)
        self._closed = np.empty(0, dtype=np.bool_)
        self._by_key_given = np.full(1, -_NEVER, dtype=np.int64)
        """Sessions whose last row is below this were given before, and may still lie there: of all keys,
        or of each."""
        self._common = np.full(1, -_NEVER, dtype=np.int64)
        """The same for keys to come."""
        self._open = np.full(1, BEGINNING, dtype=np.int64)
        """Where the first session begins that is not given yet; rows that are late may move it back."""

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



def _by_key(limits: Ints, keys: int, others: int) -> Ints:
    """Limits for each of so many keys; those that have none get the one of the `others`."""
    if 1 < keys <= len(limits):
        return limits
    more = np.full(keys, others, dtype=np.int64)
    if len(limits) > 1:  # one limit holds for all keys, and is that of the others
        more[: len(limits)] = limits
    return more


def _same(limits: Ints) -> Ints:
    """One limit for all keys, where each has the same."""
    return limits[:1] if len(limits) > 1 and (limits == limits[0]).all() else limits


def _of(limits: Ints, kid: Ints) -> Any:
    """The limit of each key, of one for all or one for each."""
    return limits[kid] if len(limits) > 1 else limits[0]


def slide_for(spec: Window, plan: WindowAggregate, panes: Panes, layout: Layout) -> Slide:
    """The slide of a window specification."""
    if isinstance(spec, GridWindow):
        return GridSlide(spec, plan, panes)
    if isinstance(spec, PerEvent):
        return EventSlide(spec, plan, layout)
    assert isinstance(spec, Session)
    return SessionSlide(spec, plan)
