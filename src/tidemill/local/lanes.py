"""One lane of a window aggregate: partials of some of the keys, and the windows over them.

Partials pile up by key and pane (`panes`), windows become ranges over them (`slides`), ranges become
results (`results`). Memory holds the partials that some open window still needs. Lanes share no key
and no state, so each can have a thread of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.aggregates.layout import Layout
from tidemill.codegen.accumulate import AccumulateKernel
from tidemill.core.errors import UserError
from tidemill.core.time import BEGINNING
from tidemill.core.types import STRING, to_arrow
from tidemill.kernels.arrow import build
from tidemill.kernels.keys import KeyIndex
from tidemill.kernels.planes import pick
from tidemill.kernels.ranges import Ranges
from tidemill.local.pane_store import Elements, PaneStore
from tidemill.local.results import Results
from tidemill.local.slides import Progress, Slide, slide_for
from tidemill.local.state_plan import PartPlan
from tidemill.plan.nodes import WindowAggregate
from tidemill.plan.physical import WindowChoices

Ints = npt.NDArray[np.int64]
FEW_PARTIALS = 1 << 18
"""Below this many waiting partials, closing windows can wait: sorting little is not worth it."""
MANY_PARTIALS = 1 << 22
"""From this many on, combine them even if no window closes, so that memory follows keys and panes."""
OUTPUT_ROWS = 1 << 17
"""Rows of a result batch: few enough to stay in the processor's cache."""


@dataclass(frozen=True)
class Share:
    """Which keys a lane has: those whose id leaves `number` when divided by `lanes`.

    The lanes are a power of two; in its own state a lane counts its keys `0, 1, 2, …`.
    """

    number: int = 0
    lanes: int = 1

    @property
    def shift(self) -> int:
        return self.lanes.bit_length() - 1

    def keys(self, count: int) -> int:
        """How many of the first keys are in this share."""
        return (count - self.number + self.lanes - 1) >> self.shift

    def ids(self, own: Ints) -> Ints:
        """The ids of keys that the lane counts itself."""
        return own if self.lanes == 1 else (own << self.shift) | self.number


class Lane:
    """The state of a window aggregate for a share of its keys."""

    def __init__(
        self, plan: WindowAggregate, choices: WindowChoices, layout: Layout, parts: PartPlan,
        keys: KeyIndex, share: Share,
    ) -> None:  # fmt: skip
        self.plan, self._parts, self._panes = plan, parts, choices.panes
        self._keys, self._share = keys, share
        self._slides = [slide_for(w.spec, plan, choices.panes, layout) for w in plan.windows]
        reaches = [s.reach for s in self._slides]
        reach = None if None in reaches else max(r for r in reaches if r is not None)
        self.store = PaneStore(plan, choices.panes, layout, parts, reach, share.lanes)
        sliding = (*choices.sliding, *("merge",) * (len(layout.parts) - len(choices.sliding)))
        self._results = Results(layout, parts, sliding)
        self._arrow = plan.schema.to_arrow()
        self._numbers = np.empty(0, dtype=np.uint32)
        self._retained = 0
        self.before_start = 0
        """Rows that belong to no window, because they lie before the start of all."""

    def add(
        self, kernel: Callable[[bool], AccumulateKernel], n: int, keys: int, args: list[Any],
        kid: Ints, failure: UserError | None, wanted: npt.NDArray[np.bool_] | None = None,
    ) -> None:  # fmt: skip
        """Accumulate the rows of a batch that are of this share; there are `keys` keys in all.

        Where some rows are in no window, only those `wanted` are looked at.
        """
        rows = self._rows(n, kid)
        if wanted is not None:
            rows = rows[wanted[rows]]
        start = BEGINNING if self.plan.start is None else self.plan.start
        grid = (start, self._panes.origin, self._panes.size)
        self.before_start += self.store.add(
            kernel, rows, self._share.keys(keys), args, kid, self._share.shift, grid, failure
        )

    def _rows(self, n: int, kid: Ints) -> npt.NDArray[np.uint32]:
        if n > len(self._numbers):
            self._numbers = np.arange(n, dtype=np.uint32)
        if self._share.lanes == 1:
            return self._numbers[:n]
        return pick(kid, self._share.lanes, self._share.number, self._numbers)

    def advance(self, progress: Progress, *, prompt: bool) -> Iterator[pa.RecordBatch]:
        """The windows that close; unless it is `prompt`, it may wait until enough has come."""
        if progress.final:
            yield from self._close(progress)
            return
        waiting = self.store.spilled - self._retained
        enough = self.store.crowded or waiting > max(FEW_PARTIALS, 2 * self._retained)
        if progress.below > BEGINNING and (prompt or enough):
            yield from self._close(progress)
        else:
            self.settle()

    def settle(self) -> None:
        """Combine the partials that wait, if they are many: memory then follows keys and panes."""
        if self.store.spilled - self._retained > max(MANY_PARTIALS, self._retained):
            self.store.elements()
            self._retained = self.store.spilled

    def goes_on_to(self, window: int, pane: int) -> None:
        """Know of a pane that a window has in the part of the stream that others hold."""
        self._slides[window].goes_on_to(pane)

    @property
    def promise(self) -> int:
        """No row of the result to come has a window that starts below this."""
        return min(s.promise() for s in self._slides)

    def _close(self, progress: Progress) -> Iterator[pa.RecordBatch]:
        elements = self.store.elements()
        for window, slide in zip(self.plan.windows, self._slides):
            ranges = slide.ranges(elements, progress)
            for start in range(0, len(ranges), OUTPUT_ROWS):
                some = ranges[start : start + OUTPUT_ROWS]
                yield self._batch(window.label, slide, elements, some)
        if not progress.final:
            self._forget(elements, progress)
            self.store.trim()
        self._retained = self.store.spilled

    def _forget(self, elements: Elements, progress: Progress) -> None:
        """Let go of what no window to come can need."""
        bounds = [s.needed_from for s in self._slides]
        known = [b for b in bounds if b is not None]
        if len(known) == len(bounds) and self.store.forget(min(known)):
            return
        keep = np.zeros(len(elements), dtype=np.bool_)
        for slide in self._slides:
            keep |= slide.needed(elements, progress)
        for slide in self._slides:
            slide.forgotten(elements, ~keep, progress)
        self.store.retain(elements, keep)
        closed = [s.closed_from for s in self._slides]
        if all(c is not None for c in closed) and not self._parts.ordered:
            self.store.collapse(min(c for c in closed if c is not None))

    def _batch(
        self, label: str | None, slide: Slide, elements: Elements, ranges: Ranges
    ) -> pa.RecordBatch:
        arrays = []
        if self.plan.group_keys:
            arrays = self._keys.decode(self._share.ids(ranges.kid))
        if len(self.plan.windows) > 1:
            arrays.append(pa.repeat(pa.scalar(label, to_arrow(STRING)), len(ranges)))
        bound = to_arrow(self.plan.bound_type)
        start, end = slide.bounds(elements, ranges)
        arrays += [build(start, None, bound), build(end, None, bound)]
        results = self._results.columns(elements, ranges, self.store.pool)
        arrays += results[: len(self.plan.layout.results)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow)
