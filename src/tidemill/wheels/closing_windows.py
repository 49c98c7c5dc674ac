"""The windows of a wheel: `advance_to` returns those that close as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.errors import UnsupportedError, UserError
from tidemill.core.schema import Schema
from tidemill.core.time import Domain
from tidemill.core.types import STRING, to_arrow
from tidemill.kernels.arrow import allocate, build
from tidemill.kernels.keys import KeyIndex
from tidemill.plan.nodes import WINDOW, WINDOW_END, WINDOW_START, WindowAggregate
from tidemill.wheels.loops.insert import has_eight_bytes
from tidemill.wheels.memory.store import RingStore
from tidemill.wheels.memory.window_state import (
    Closed,
    Rows,
    SessionWindows,
    SlidingWindows,
    WindowState,
)
from tidemill.wheels.spec import FIRST_TIME, HIDDEN, LAST_TIME
from tidemill.windows.spec import Session, Sliding, Window


class ClosingWindows:
    """The windows of a wheel, by their labels."""

    def __init__(
        self, plan: WindowAggregate, store: RingStore, domain: Domain, keys: KeyIndex,
        look_at: Callable[[int, str], None],
    ) -> None:  # fmt: skip
        self._plan, self._store, self._domain, self._keys = plan, store, domain, keys
        self.look_at = look_at
        """Raises the error that a kernel's error bits stand for."""
        self.specs: dict[str, Window] = {}
        self._grain = store.rings[0].ticks
        self._results = plan.layout.results
        self._shown = [r for r in self._results if not r.name.startswith(HIDDEN)]
        self._windows: dict[str, SlidingWindows | SessionWindows] = {}
        self._alone: SlidingWindows | None = None
        """The window, if it is the only one and `_take_alone` can handle it."""
        self._found: list[pa.Table] = []
        self._run: tuple[Rows, int, int] | None = None
        """Rows of a buffer that were taken: it, the first one, and the one after the last."""
        self._bound = to_arrow(plan.bound_type)
        self._schemas: dict[bool, pa.Schema] = {}
        self._none: dict[bool, pa.Table] = {}
        self._kinds = [allocate(r.type, 0).dtype for r in self._results]

    def __len__(self) -> int:
        return len(self._windows)

    def copy(
        self, store: RingStore, keys: KeyIndex, look_at: Callable[[int, str], None]
    ) -> ClosingWindows:
        """Copy the windows, for a store with the same slots."""
        other = ClosingWindows(self._plan, store, self._domain, keys, look_at)
        other.restore(self.specs, self.snapshot())
        return other

    # -- state

    def snapshot(self) -> dict[str, WindowState]:
        """The open windows, by label."""
        return {label: window.snapshot() for label, window in self._windows.items()}

    def restore(self, specs: Mapping[str, Window], states: Mapping[str, WindowState]) -> None:
        """Continue with windows from a snapshot, over a store with the same watermark."""
        for label, spec in specs.items():
            state = states[label]
            self.add(spec, label, state.numbers[0] if state.numbers else None)
            self._windows[label].restore(state)

    def shapes(self, label: str) -> tuple[dict[str, int], np.dtype[Any]]:
        """The rows of each array of a window's snapshot, in order, and the type of their records."""
        return self._windows[label].shapes()

    def merge(self, all: Sequence[tuple[ClosingWindows, npt.NDArray[np.int64]]]) -> int:
        """Take over the windows of `all`, each with the numbers of its keys here. Returns error bits.

        All stores have the same watermark."""
        err = 0
        for label, spec in all[0][0].specs.items():
            begins = [s.numbers[0] for w, _ in all if (s := w.snapshot()[label]).numbers]
            self.add(spec, label, min(begins, default=None))
            for windows, key_of in all:
                err |= self._windows[label].add_from(windows._windows[label], key_of)  # type: ignore[arg-type]
        return err

    def add(self, spec: Window, label: str, begin: int | None = None) -> None:
        """Add a window that starts with the next slot to close, or with `begin`, a closed slot."""
        plain = isinstance(spec, Session) and spec.partition is None
        plain = plain or (isinstance(spec, Sliding) and not spec.fill_empty)
        if not plain or spec.on is not None:
            raise UnsupportedError("wheel", f"window {spec}", instead="use the query engine")
        if label in self._windows:
            raise UserError("wheel window", expected="a unique name for each window", got=repr(label))
        self._alone = None
        if isinstance(spec, Session):
            self._windows[label], self.specs[label] = self._sessions(spec), spec
            return
        assert isinstance(spec, Sliding)
        numbers = (spec.length, spec.slide, spec.origin, spec.start or 0)
        if spec.domain is not self._domain or any(x % self._grain for x in numbers):
            grid = self._store.rings[0].shown
            raise UserError(
                "wheel window", expected=f"range, slide, origin and start on the grid of {grid}",
                got=str(spec),
            )  # fmt: skip
        length, slide, origin, first = (x // self._grain for x in numbers)
        start = None if spec.start is None else first
        sliding = SlidingWindows(self._store, length, slide, origin, start, begin)
        self._windows[label], self.specs[label] = sliding, spec
        keyed = bool(self._plan.group_keys)
        if len(self._windows) == 1 and not keyed and all(has_eight_bytes(r.type) for r in self._shown):
            self._alone = sliding

    def take(self, start: int, until: int) -> None:
        """Take the windows that close with slots `[start, until)`; `taken` returns them."""
        if self._alone is not None:
            self._take_alone(self._alone, start, until)
            return
        for label, window in self._windows.items():
            self._found += self._shown_windows(label, window.take(start, until, self._kinds))

    def taken(self) -> list[pa.Table]:
        """Return the windows that were taken since the last call."""
        self._slice()
        found, self._found = self._found, []
        return found

    def none(self) -> pa.Table:
        """An empty table, cached: making one takes longer than closing slots."""
        several = len(self._windows) > 1
        if several not in self._none:
            self._none[several] = self._schema().empty_table()
        return self._none[several]

    def _sessions(self, spec: Session) -> SessionWindows:
        names = [r.name for r in self._results]
        if FIRST_TIME not in names:
            raise UserError(
                "wheel window", expected="sessions when the wheel is made", got=str(spec),
                hint="tm.Wheel(..., windows=[tm.session('30m')]): sessions need more in each slot",
            )  # fmt: skip
        if spec.gap.domain is not self._domain or spec.gap.ticks < self._grain:
            raise UserError(
                "wheel window", expected=f"a gap of at least {self._store.rings[0].shown}", got=str(spec)
            )
        parts = [self._results[names.index(n)].parts[0] for n in (FIRST_TIME, LAST_TIME)]
        first, last = (self._plan.layout.parts[p].columns.names[0] for p in parts)
        return SessionWindows(self._store, spec.gap.ticks, first, last)

    def _shown_windows(self, label: str, found: Closed) -> Iterator[pa.Table]:
        self.look_at(found.err, f"wheel window {label}")
        if len(found.kid) == 0:
            return
        bound = self._bound
        arrays = self._keys.decode(found.kid) if self._plan.group_keys else []
        if len(self._windows) > 1:
            arrays.append(pa.repeat(pa.scalar(label), len(found.kid)))
        arrays += [build(found.start, None, bound), build(found.end, None, bound)]
        for j, r in enumerate(self._shown):
            values_, valid = found.outputs[2 * j + 1], found.outputs[2 * j]
            arrays.append(build(values_, valid, to_arrow(r.type)))
        yield pa.Table.from_arrays(arrays, schema=self._schema())

    def _take_alone(self, window: SlidingWindows, start: int, until: int) -> None:
        """As `take`, for the only window of a wheel without keys: slices of one table over its buffers."""
        begin, missing, err = window.add(start, until, self._kinds)
        rows = window.rows
        if err or missing:
            self._slice()
            self._found += self._shown_windows(next(iter(self._windows)), rows.closed(begin, err))
        elif rows.used > begin:
            if self._run is None or self._run[0] is not rows or self._run[2] != begin:
                self._slice()
                self._run = (rows, begin, begin)
            self._run = (rows, self._run[1], rows.used)

    def _slice(self) -> None:
        """Make a table of the rows of a buffer that were taken and are not in a table yet."""
        if self._run is None:
            return
        (rows, begin, end), self._run = self._run, None
        if rows.shown is None:
            arrays = [build(x, None, self._bound) for x in (rows.start, rows.end)]
            for j, r in enumerate(self._shown):
                arrays.append(build(rows.outputs[2 * j + 1], None, to_arrow(r.type)))
            rows.shown = pa.Table.from_arrays(arrays, schema=self._schema())
        self._found.append(rows.shown.slice(begin, end - begin))

    def _schema(self) -> pa.Schema:
        several = len(self._windows) > 1
        if several not in self._schemas:
            columns = self._plan.input.schema
            fields = [(k, columns[k]) for k in self._plan.group_keys]
            fields += [(WINDOW, STRING)] if several else []
            bound = self._plan.bound_type
            fields += [(WINDOW_START, bound), (WINDOW_END, bound)]
            shown = ((r.name, r.type) for r in self._shown)
            self._schemas[several] = Schema((*fields, *shown)).to_arrow()
        return self._schemas[several]
