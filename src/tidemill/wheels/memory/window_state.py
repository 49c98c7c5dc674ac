"""The state of windows over the closed slots of a wheel, between advances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.jit.addresses import frame_of
from tidemill.wheels.loops.range_plan import ROOM
from tidemill.wheels.loops.slide import (
    FIRST_SLICE,
    MIDDLE,
    PUSHED,
    add_slices_kernel,
    no_slice,
    session_kernel,
    slide_kernel,
)  # fmt: skip
from tidemill.wheels.memory.store import RingStore

Ints = npt.NDArray[np.int64]
ROWS, MOST_ROWS = 128, 1024
"""The least capacity of a buffer of closed windows, and the most if few close at a time. Large enough that
allocation costs little per window; small enough that a result that is kept or pickled holds little else."""
BEFORE_ALL = -(1 << 61)
"""A number below that of any slot."""


@dataclass(frozen=True)
class Closed:
    """Windows that closed: keys, bounds in ticks, validity and values of each result."""

    kid: Ints
    start: Ints
    end: Ints
    outputs: list[npt.NDArray[Any]]
    err: int
    """Error bits."""


@dataclass(frozen=True)
class WindowState:
    """A snapshot of open windows: a few numbers, and records by row and key."""

    numbers: list[int]
    arrays: dict[str, npt.NDArray[Any]]


class Rows:
    """A buffer for windows that close.

    New arrays for each window would take longer than the rest. Rows never change once written.
    """

    def __init__(self, size: int, kinds: Sequence[Any]) -> None:
        self.size, self.used = size, 0
        self.kid, self.start, self.end = (np.empty(size, dtype=np.int64) for _ in range(3))
        self.outputs = _outputs(size, kinds)
        self.frame = frame_of([self.kid, self.start, self.end, *self.outputs])
        self.shown: Any = None
        """A cache of the owner: its table over the whole buffer."""

    def closed(self, begin: int, err: int) -> Closed:
        """The rows from `begin` on."""
        own = slice(begin, self.used)
        return Closed(self.kid[own], self.start[own], self.end[own], [o[own] for o in self.outputs], err)


class SlidingWindows:
    """A hopping or tumbling window, in finest slots, that starts with the next slot to close.

    Slots before its `start` are in no window. If it continues from a snapshot, it started at slot `begin`.
    """

    def __init__(
        self, store: RingStore, range: int, slide: int, origin: int, start: int | None,
        begin: int | None = None,
    ) -> None:  # fmt: skip
        self._store, self._slide, self._origin = store, slide, origin
        first = store.now if begin is None else begin
        self._begin = first if start is None else max(first, start)
        short = range % slide
        each, slices = (2, 2 * (range // slide) + 1) if short else (1, range // slide)
        past = (self._begin - origin) % slide
        coming = 1 if short == 0 or past >= slide - short else 2
        self._window = np.array(
            [range, slide, origin, slices, each, 0, coming - slices, 0, store.rings[0].ticks,
             BEFORE_ALL if start is None else start], dtype=np.int64,
        )  # fmt: skip
        # Positions in the arrays are computed from times alone, so that no file can set them.
        ends = (store.now - origin) // slide - (self._begin - origin) // slide
        bounds = ends
        if short:
            bounds += (store.now - origin + short) // slide - (self._begin - origin + short) // slide
        self._window[PUSHED] = max(0, bounds)
        self._window[FIRST_SLICE] += max(0, ends) * each
        self._kernel = slide_kernel(store.layout)
        self._fresh = no_slice(store.slots)
        self._size = slices + each + 1
        self._stacks = 1 if self._kernel.subtracts else self._size
        self._slices = self._empty(self._size)
        self._suffixes = self._empty(self._stacks)
        self._running, self._current = self._empty(1)[0], self._empty(1)[0]
        self._settled = -1
        self.rows = Rows(0, ())  # until the types of the results are known

    # -- state

    def snapshot(self) -> WindowState:
        """The state that future windows need from closed slots."""
        self._fit()
        keys = slice(self._store.keys)
        return WindowState(
            [self._begin, int(self._window[MIDDLE])],
            {
                "slices": self._slices[:, keys].copy(), "suffixes": self._suffixes[:, keys].copy(),
                "running": self._running[None, keys].copy(), "current": self._current[None, keys].copy(),
            },
        )  # fmt: skip

    def shapes(self) -> tuple[dict[str, int], np.dtype[Any]]:
        """The rows of each array of a snapshot, in order, and the type of their records."""
        rows = {"slices": self._size, "suffixes": self._stacks, "running": 1, "current": 1}
        return rows, self._fresh.dtype

    def restore(self, state: WindowState) -> None:
        """Continue from a snapshot of windows that started at the same slot, at the same watermark."""
        self._fit()
        self._window[MIDDLE] = state.numbers[1]
        keys = slice(self._store.keys)
        self._slices[:, keys], self._suffixes[:, keys] = state.arrays["slices"], state.arrays["suffixes"]
        self._running[keys], self._current[keys] = state.arrays["running"][0], state.arrays["current"][0]

    def add_from(self, other: SlidingWindows, key_of: Ints) -> int:
        """Add the same windows of another store, whose keys are `key_of` here; returns error bits.

        Both stores have the same watermark, and these windows started no later than the others."""
        add = add_slices_kernel(self._store.layout)
        self._fit()
        other._fit()
        pushed, theirs = int(self._window[PUSHED]), int(other._window[PUSHED])
        err = add(key_of, other._current[: len(key_of)], self._current)
        for back in range(1, min(theirs, self._size) + 1):
            mine = self._slices[(pushed - back) % self._size]
            err |= add(key_of, other._slices[(theirs - back) % self._size, : len(key_of)], mine)
        low = max(int(self._window[FIRST_SLICE]), 0)
        self._running[:] = self._fresh[0]
        everyone = np.arange(len(self._running))
        for i in range(low, pushed):
            err |= add(everyone, self._slices[i % self._size], self._running)
        self._window[MIDDLE] = low  # suffixes are rebuilt when the next window ends
        return int(err)

    def _empty(self, rows: int) -> npt.NDArray[Any]:
        room = int(self._store.head[ROOM])
        return np.repeat(self._fresh, rows * room).reshape(rows, room)

    def _fit(self) -> None:
        """Grow the arrays to the store's number of allocated keys."""
        room, had = int(self._store.head[ROOM]), self._slices.shape[1]
        if room == had:
            return
        for name, rows in (("_slices", self._size), ("_suffixes", self._stacks)):
            grown = self._empty(rows)
            grown[:, :had] = getattr(self, name)
            setattr(self, name, grown)
        for name in ("_running", "_current"):
            wider = self._empty(1)[0]
            wider[:had] = getattr(self, name)
            setattr(self, name, wider)

    def take(self, start: int, until: int, kinds: Sequence[Any]) -> Closed:
        """Return the windows that close with slots `[start, until)`. `kinds` are the results' NumPy types."""
        begin, _, err = self.add(start, until, kinds)
        return self.rows.closed(begin, err)

    def add(self, start: int, until: int, kinds: Sequence[Any]) -> tuple[int, bool, int]:
        """As `take`, into `rows`: returns the first new row, whether a result is missing, and error bits."""
        start = max(start, self._begin)
        until = max(start, until)
        ends = (until - self._origin) // self._slide - (start - self._origin) // self._slide
        most = ends * self._store.keys
        full = self.rows.used + most > self.rows.size or self._settled < 0
        if full:
            self.rows = Rows(max(most, min(8 * most, MOST_ROWS), ROWS), kinds)
        if self._settled != self._store.settled:
            self._settle()
        elif full:
            self._frame = np.concatenate((self._own_frame, self.rows.frame))
        begin = self.rows.used
        self.rows.used, missing, err = self._kernel.run_at(self._frame, start, until, begin)
        return begin, missing, err

    def _settle(self) -> None:
        """Update the frame after arrays were replaced."""
        self._fit()
        store = self._store
        # The frame has only addresses: this reference keeps the arrays alive.
        self._arrays = (
            self._window, store.head, store.marks, *store.columns, self._slices, self._suffixes,
            self._running, self._current, self._fresh,
        )  # fmt: skip
        self._own_frame = frame_of(self._arrays)
        self._frame = np.concatenate((self._own_frame, self.rows.frame))
        self._settled = store.settled


class SessionWindows:
    """Sessions of each key, with gaps below `gap` ticks; `gap` is at least a slot.

    The fields `first` and `last` of closed slots hold the first and the last instant in them.
    """

    def __init__(self, store: RingStore, gap: int, first: str, last: str) -> None:
        self._store, self._gap = store, gap
        self._kernel = session_kernel(store.layout, first, last)
        self._fresh = no_slice(store.slots)
        self._sessions = np.repeat(self._fresh, int(store.head[ROOM]))

    def snapshot(self) -> WindowState:
        """The open sessions."""
        self._fit()
        return WindowState([], {"sessions": self._sessions[None, : self._store.keys].copy()})

    def shapes(self) -> tuple[dict[str, int], np.dtype[Any]]:
        """See `SlidingWindows.shapes`."""
        return {"sessions": 1}, self._fresh.dtype

    def restore(self, state: WindowState) -> None:
        """Continue from a snapshot."""
        self._fit()
        self._sessions[: self._store.keys] = state.arrays["sessions"][0]

    def add_from(self, other: SessionWindows, key_of: Ints) -> int:
        """Add the open sessions of another store. Open sessions of a key are within a gap, so they merge."""
        self._fit()
        other._fit()
        add = add_slices_kernel(self._store.layout)
        return int(add(key_of, other._sessions[: len(key_of)], self._sessions))

    def _fit(self) -> None:
        """Grow the array to the store's number of allocated keys."""
        grown = int(self._store.head[ROOM]) - len(self._sessions)
        if grown:
            self._sessions = np.concatenate((self._sessions, np.repeat(self._fresh, grown)))

    def take(self, start: int, until: int, kinds: Sequence[Any]) -> Closed:
        """Return the sessions that close with slots `[start, until)`. `kinds` are NumPy types of results."""
        store = self._store
        self._fit()
        most = (until - start + 1) * store.keys
        found = [np.empty(most, dtype=np.int64) for _ in range(3)]
        outputs = _outputs(most, kinds)
        rows, err = self._kernel.run(
            start, until, until * store.rings[0].ticks, self._gap, store.head, store.marks,
            *store.columns, self._sessions, self._fresh, *found, *outputs,
        )  # fmt: skip
        kid, first, last = (x[:rows] for x in found)
        return Closed(kid, first, last + self._gap, [o[:rows] for o in outputs], int(err))


def _outputs(most: int, kinds: Sequence[Any]) -> list[npt.NDArray[Any]]:
    """Arrays for the validity and values of each result."""
    return [x for kind in kinds for x in (np.empty(most, dtype=np.bool_), np.empty(most, dtype=kind))]
