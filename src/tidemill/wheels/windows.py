"""Windows that slide over the closed slots of a wheel, kept from one advance to the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.codegen.wheel_plan import ROOM
from tidemill.codegen.wheel_windows import no_slice, slide_kernel
from tidemill.wheels.store import RingStore

Ints = npt.NDArray[np.int64]


class SlidingWindows:
    """One hopping or tumbling window, in finest slots, from the next slot to close on.

    Where it is `bounded`, slots before the origin are in no window.
    """

    def __init__(
        self, store: RingStore, range: int, slide: int, origin: int, *, bounded: bool
    ) -> None:
        self._store, self._slide, self._origin = store, slide, origin
        self._range, self._bounded = range, bounded
        self._begin = max(store.now, origin) if bounded else store.now
        short = range % slide
        each, slices = (2, 2 * (range // slide) + 1) if short else (1, range // slide)
        past = (self._begin - origin) % slide
        coming = 1 if short == 0 or past >= slide - short else 2
        self._window = np.array(
            [range, slide, origin, slices, each, 0, coming - slices, 0], dtype=np.int64
        )
        self._kernel = slide_kernel(store.layout)
        self._fresh = no_slice(store.slots)
        self._size = slices + each + 1
        self._stacks = 1 if self._kernel.subtracts else self._size
        self._slices = self._empty(self._size)
        self._suffixes = self._empty(self._stacks)
        self._running, self._current = self._empty(1)[0], self._empty(1)[0]

    def _empty(self, rows: int) -> npt.NDArray[Any]:
        room = int(self._store.head[ROOM])
        return np.repeat(self._fresh, rows * room).reshape(rows, room)

    def _fit(self) -> None:
        """There may be room for more keys by now."""
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

    def take(
        self, start: int, until: int, kinds: Sequence[Any]
    ) -> tuple[Ints, Ints, Ints, list[npt.NDArray[Any]], int]:
        """Slots `[start, until)` have closed: keys, starts, ends, results of windows; bits of failures.

        `kinds` are the NumPy types of the results.
        """
        self._fit()
        store = self._store
        start = max(start, self._begin)
        until = max(start, until)
        ends = (until - self._origin) // self._slide - (start - self._origin) // self._slide
        most = ends * store.keys
        kid, end = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64)
        outputs: list[npt.NDArray[Any]] = []
        for kind in kinds:
            outputs += [np.empty(most, dtype=np.bool_), np.empty(most, dtype=kind)]
        rows, err = self._kernel.run(
            start, until, self._window, store.head, store.marks, *store.columns, self._slices,
            self._suffixes, self._running, self._current, self._fresh, kid, end, *outputs,
        )  # fmt: skip
        begin = end[:rows] - self._range
        if self._bounded:
            begin = np.maximum(begin, self._origin)
        return kid[:rows], begin, end[:rows], [o[:rows] for o in outputs], int(err)
