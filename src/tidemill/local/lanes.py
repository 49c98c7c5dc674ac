"""One lane of a window aggregate: the partials of some of the keys, and the windows over them.

Partials are stored by key and pane (`pane_store`), windows become ranges of them (`window_slides`), and
ranges become results (`results`). A lane keeps only the partials that an open window needs. Lanes share
no key and no state, so each can run on its own thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.aggregates.layout import Layout
from tidemill.codegen.kernel_errors import raise_for
from tidemill.codegen.plane_windows import PlaneWindowsKernel
from tidemill.codegen.state_plan import StatePlan
from tidemill.core.errors import UserError
from tidemill.core.time import BEGINNING, FARTHEST
from tidemill.core.types import STRING, to_arrow
from tidemill.kernels.arrow import build
from tidemill.kernels.keys import KeyIndex
from tidemill.kernels.memory import empty, empty_like
from tidemill.kernels.pane_records import pick
from tidemill.local.changes import ChangedPartials
from tidemill.local.collector import Collector, Prepared
from tidemill.local.last_rows import LastRowsSlide
from tidemill.local.limits import Limits
from tidemill.local.marks import FIRST, Marks
from tidemill.local.pane_store import Elements, PaneStore, Planes
from tidemill.local.results import Results
from tidemill.local.snapshot import column, ids
from tidemill.local.state_columns import add_states, saved_fields, state_columns
from tidemill.local.tuning import DEFAULT, Tuning
from tidemill.local.window_slides import Grid, Progress, Slide, slide_for
from tidemill.plan.nodes import WindowAggregate
from tidemill.plan.physical import WindowChoices
from tidemill.windows.semantics import bounds
from tidemill.windows.spec import LastRows

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Share:
    """The keys of a lane: those with `id % lanes == number`.

    `lanes` is a power of two. In its own state a lane numbers its keys `0, 1, 2, …`.
    """

    number: int = 0
    lanes: int = 1

    @property
    def shift(self) -> int:
        return self.lanes.bit_length() - 1

    def keys(self, count: int) -> int:
        """Return how many of the first `count` key ids belong to this lane."""
        return (count - self.number + self.lanes - 1) >> self.shift

    def ids(self, own: Ints) -> Ints:
        """Return the ids of keys, given their numbers in this lane."""
        if self.lanes == 1:
            return own
        found: Ints = np.left_shift(own, self.shift, out=empty_like(own))
        found |= self.number
        return found


class Lane:
    """The state of a window aggregate for some of its keys."""

    def __init__(
        self, plan: WindowAggregate, choices: WindowChoices, results: Results, layout: Layout,
        parts: StatePlan, keys: KeyIndex, share: Share, tuning: Tuning = DEFAULT, gap: int | None = None,
    ) -> None:  # fmt: skip
        self.plan, self._parts, self._panes = plan, parts, choices.panes
        self._keys, self._share, self._tuning = keys, share, tuning
        self.slides: list[Slide] = [
            LastRowsSlide(w.spec, layout) if isinstance(w.spec, LastRows)
            else slide_for(w.spec, plan, choices.panes, layout)
            for w in plan.windows
        ]  # fmt: skip
        reaches = [s.reach for s in self.slides]
        self.reach = None if None in reaches else max(r for r in reaches if r is not None)
        """The number of panes that the longest window covers, or None if it is not known."""
        self.store = PaneStore(plan, choices.panes, layout, parts, self.reach, share.lanes, tuning, gap)
        self._results = results
        self._arrow = plan.schema.to_arrow()
        self._numbers = np.empty(0, dtype=np.uint32)
        self._retained = 0
        self.before_start = 0
        """The number of rows in no window because they lie before the start of all windows."""

    def add(self, collector: Collector, found: Prepared) -> None:
        """Accumulate the rows of a batch whose keys belong to this lane."""
        if found.rows > len(self._numbers):
            self._numbers = np.empty(found.rows, dtype=np.uint32)
        rows = pick(found.kid, self._share.lanes, self._share.number, self._numbers)
        if found.wanted is not None:
            rows = rows[found.wanted[rows]]
        keys, shift = self._share.keys(found.keys), self._share.shift
        self.before_start += collector.add_rows(found, rows, self.store, keys, shift)

    def absorb(self, store: PaneStore, ids: Ints, keys: int) -> None:
        """Take the partials of this lane's keys from the store of a collector.

        `ids` has the id of each key there; there are `keys` ids.
        """
        mine = (ids & (self._share.lanes - 1)) == self._share.number
        self.store.fit(self._share.keys(keys))
        self.store.absorb(store, np.where(mine, ids >> self._share.shift, -1))

    def advance(self, progress: Progress, *, prompt: bool) -> Iterator[pa.RecordBatch]:
        """Return the windows that close; without `prompt`, they may be returned by a later call."""
        progress = self._own(progress)
        if progress.final:
            yield from self._close(progress)
            return
        if self.due(progress, self.store.spilled - self._retained, self.store.crowded, prompt):
            if progress.promise.highest > BEGINNING and self._closes(progress):
                yield from self._close(progress)
            else:
                self._combine()

    def rests(self, below: int) -> bool:
        """Return whether an advance of all keys to a watermark would find nothing to do."""
        for slide in self.slides:
            at = slide.closes_at
            if at is None or below >= at:
                return False
        return not self._many(self.store.spilled - self._retained)

    def so_far(self, progress: Progress) -> Iterator[pa.RecordBatch]:
        """Return the windows that the end of the stream would close now; they stay open. Exhaust it.

        Closing at the end evicts no partials, so only what windows know besides them has to be put back.
        """
        before = [dict(slide.state) for slide in self.slides]
        yield from self._close(self._own(progress))
        for slide, state in zip(self.slides, before):
            slide.state = state
        self.store.into_planes()
        self._retained = self.store.spilled

    def due(self, progress: Progress, waiting: int, crowded: bool, prompt: bool) -> bool:
        """Return whether it is time to close windows, or at least to combine partials.

        So many new partials are spilled and `waiting` to be sorted; planes are `crowded` if more rows would
        soon spill partials.
        """
        if progress.promise.highest == BEGINNING:
            return waiting > max(self._tuning.many_partials, self._retained)
        return self._many(waiting) or ((prompt or crowded) and self._closes(progress))

    def _many(self, waiting: int) -> bool:
        return waiting > max(self._tuning.few_partials, 2 * self._retained)

    def pressed(self, waiting: int | None = None, crowded: bool | None = None) -> bool:
        """Return whether `due` could be true for some watermark, unless windows must close promptly.

        By default, for the partials in this lane.
        """
        if waiting is None or crowded is None:
            waiting, crowded = self.store.spilled - self._retained, self.store.crowded
        return crowded or waiting > max(self._tuning.few_partials, self._retained)

    def _closes(self, progress: Progress) -> bool:
        return any(slide.closes(progress) for slide in self.slides)

    def settle(self) -> None:
        """Combine the waiting partials if they are many, so that memory is bounded by keys times panes."""
        if self.store.spilled - self._retained > max(self._tuning.many_partials, self._retained):
            self._combine()

    def _combine(self) -> None:
        self.store.elements()
        self._retained = self.store.spilled

    def goes_on_to(self, window: int, pane: int) -> None:
        """Record that another part of the stream has rows up to a pane of this window."""
        self.slides[window].goes_on_to(pane)

    def _own(self, progress: Progress) -> Progress:
        """How far this lane has come: it counts keys of its own."""
        if self._share.lanes == 1:
            return progress
        promise = progress.promise.shared(self._share.number, self._share.lanes)
        return replace(progress, keys=self._share.keys(progress.keys), promise=promise)

    @property
    def promise(self) -> Limits:
        """No row of the result to come has a window that starts below this."""
        found = [s.promise() for s in self.slides]
        return found[0] if len(found) == 1 else Limits(min(p.common for p in found))

    @property
    def keeps_keys(self) -> bool:
        """Whether keys must stay in the index after their partials are gone."""
        return any(s.keeps_keys for s in self.slides)

    def live_keys(self, keys: int) -> npt.NDArray[np.bool_]:
        """Return a mask of the keys that have partials, indexed by the lane's own key numbers."""
        return self.store.live_keys(self._share.keys(keys))

    def renumber(self, kept: Ints, keys: int, index: KeyIndex) -> None:
        """Renumber the keys `kept` (the lane's own numbers) to `0, 1, 2, …` and drop the other keys."""
        self._keys = index
        self.store.renumber(kept, self._share.keys(keys))
        for slide in self.slides:
            slide.renumber(kept)

    def share_keys(self, index: KeyIndex) -> None:
        """Use a key index that other operators add keys to."""
        self._keys = index

    # -- state

    def track(self) -> None:
        """Mark what changes from now on."""
        self.store.marks = Marks(all_panes=any(s.kept_from is None for s in self.slides))

    def untrack(self) -> None:
        """Mark nothing any more."""
        self.store.marks = None

    @property
    def changed_panes(self) -> tuple[int, int]:
        """The first and the last pane in which partials changed since `track`."""
        assert self.store.marks is not None
        return self.store.marks.first, self.store.marks.last

    def changes(self, first: int, last: int) -> ChangedPartials:
        """Return the partials that changed since `track`, and which ones they replace in a range of panes.

        The range has all panes in which partials changed, also those of other lanes.
        """
        marks = self.store.marks
        assert marks is not None
        marks.first, marks.last = first, last
        return ChangedPartials(
            self._table(self.store.changed()), self._share.ids(marks.keys), marks.first, marks.last,
            self._kept_from() if marks.evicted else Limits(FIRST),
        )  # fmt: skip

    def _kept_from(self) -> Limits:
        """The first pane of each key that was not evicted."""
        found = [s.kept_from for s in self.slides]
        known = [limits for limits in found if limits is not None]
        if len(known) < len(found):
            return Limits(self.store.needed)  # what else was evicted is marked
        keys = max((len(k.by_key) for k in known if k.by_key is not None), default=None)
        common = min(limits.common for limits in known)
        by_key = None if keys is None else np.minimum.reduce([limits.full(keys) for limits in known])
        return Limits(common, by_key)

    def snapshot(self) -> pa.Table:
        """Return the partials of this lane by key id and pane."""
        return self._table(self.store.elements())

    def _table(self, elements: Elements) -> pa.Table:
        if len(elements) == 1:  # Arrow copies fields of several records, but would refer to those of one
            elements = replace(elements, records=elements.records.copy())
        columns: dict[str, pa.Array] = {
            "kid": pa.array(self._share.ids(elements.kid)), "pane": pa.array(elements.pane),
        }  # fmt: skip
        if self.store.gap is not None:
            columns["end"] = pa.array(elements.end)
        for index in range(len(self.store.layout.parts)):
            arrays = state_columns(self.store, index, elements, saved=True)
            for (name, kind), array in zip(saved_fields(self.store, index), arrays):
                columns[name] = array.cast(to_arrow(kind))
        return pa.table(columns)

    @property
    def saved_schema(self) -> pa.Schema:
        """The columns of `snapshot`."""
        states = [f for i in range(len(self.store.layout.parts)) for f in saved_fields(self.store, i)]
        spans = [("end", pa.int64())] if self.store.gap is not None else []
        fields = [("kid", pa.int64()), ("pane", pa.int64()), *spans]
        return pa.schema([*fields, *((name, to_arrow(kind)) for name, kind in states)])

    def restore(self, elements: pa.Table, windows: Sequence[Mapping[str, Limits]], keys: int) -> None:
        """What all lanes had, as far as it is of this one."""
        kid = ids(elements, "kid", keys)
        mine = np.flatnonzero(kid & (self._share.lanes - 1) == self._share.number)
        some = elements.take(pa.array(mine))
        farthest = FARTHEST // self._panes.size + 1
        for name in ("pane", "end") if self.store.gap is not None else ("pane",):
            if len(some) and np.abs(column(some, name)).max() > farthest:
                raise UserError("restore", expected=f"{name} within {farthest} of zero", got="one beyond")
        if self.store.gap is not None and (column(some, "end") < column(some, "pane")).any():
            raise UserError("restore", expected="sessions that end after they start", got="one that does not")
        for index in self.store.parts.fixed:
            for name, kind in saved_fields(self.store, index):
                if kind.kind != "string" and some.column(name).null_count:
                    raise UserError("restore", expected=f"no null in {name!r}", got="null")
        self.store.fit(self._share.keys(keys))
        add_states(self.store, kid[mine] >> self._share.shift, column(some, "pane"), some, saved=True)
        self.continue_windows(windows)
        self._retained = self.store.spilled

    def continue_windows(self, windows: Sequence[Mapping[str, Limits]]) -> None:
        """Load what the windows of all lanes had, besides partials."""
        for slide, state in zip(self.slides, windows):
            slide.state = {n: s.shared(self._share.number, self._share.lanes) for n, s in state.items()}
        bounds = [s.needed_from for s in self.slides]
        if all(b is not None for b in bounds):
            self.store.forget(min(b for b in bounds if b is not None))

    def _close(self, progress: Progress) -> Iterator[pa.RecordBatch]:
        some = None if progress.final else self._of_closing_keys(progress)
        if some is not None:
            yield from self._windows(some, progress)
            return
        grids = [slide.grid(progress) for slide in self.slides]
        known_grids = [grid for grid in grids if grid is not None]
        planes, kernel = self.store.planes(), self._results.from_planes
        if planes is not None and kernel is not None and len(known_grids) == len(grids):
            yield from self._close_from_planes(progress, known_grids, planes, kernel)
        else:
            yield from self._close_elements(progress)
        if not progress.final:
            self.store.trim()
        self._retained = self.store.spilled

    def _close_from_planes(
        self, progress: Progress, grids: list[Grid], planes: Planes, kernel: PlaneWindowsKernel
    ) -> Iterator[pa.RecordBatch]:
        """Close windows of a few panes, where no partial was spilled and keys advance together."""
        records, keys, first, last = planes
        texts = self.store.texts
        # Later panes are in no window that closes.
        last = min(last, max(g.shift + (g.until + 1) * g.slide - 1 for g in grids))
        for window, slide, grid in zip(self.plan.windows, self.slides, grids):
            state = np.array([0, BEGINNING], dtype=np.int64)
            closing = min(grid.until - grid.begin, (last - first + grid.length) // grid.slide) + 1
            rows = min(self._tuning.output_rows, keys * closing) if first <= last else 0
            while state[0] < keys and rows > 0:
                kid, wid, outputs = empty(rows), empty(rows), self._results.outputs(rows)
                n, err = kernel.run(
                    records, keys, (first, last), tuple(grid), state, texts.table, kid, wid,
                    *(a for pair in outputs for a in pair),
                )  # fmt: skip
                raise_for(err, "window aggregate")
                if n:
                    found = self._results.arrays(outputs, n, texts)
                    results = [found[j] for j in range(len(found))]
                    extent = bounds(wid[:n], window.spec, new=empty_like)
                    yield self._batch(window.label, kid[:n], wid[:n], extent, results)
            slide.close(progress)
        if not progress.final:
            needed = [slide.needed_from for slide in self.slides]
            known = [pane for pane in needed if pane is not None]
            assert len(known) == len(needed), "grids evict panes for all keys together"
            self.store.forget(min(known))

    def _close_elements(self, progress: Progress) -> Iterator[pa.RecordBatch]:
        read = [slide.reads_below(progress) for slide in self.slides]
        known = [pane for pane in read if pane is not None]
        elements = self.store.elements(max(known) if len(known) == len(read) else None)
        yield from self._windows(elements, progress)
        if not progress.final:
            self._forget(elements, progress)

    def _of_closing_keys(self, progress: Progress) -> Elements | None:
        """Return the partials of the keys of which windows close, where these can be told from the others.

        What their windows no longer need stays in the store. When partials have doubled, all are read (None),
        and such ones are evicted: this costs as much as was added since the last time.
        """
        if self.store.spilled > self._tuning.few_unneeded + 2 * self._retained:
            return None
        closing = [slide.closing(progress) for slide in self.slides]
        known = [keys for keys in closing if keys is not None]
        return self.store.elements_of(np.logical_or.reduce(known)) if len(known) == len(closing) else None

    def _windows(self, elements: Elements, progress: Progress) -> Iterator[pa.RecordBatch]:
        """Return the windows that close, given the elements that they are over."""
        for window, slide in zip(self.plan.windows, self.slides):
            rows = self._tuning.output_rows
            for ranges in slide.ranges(elements, progress, rows):
                for start in range(0, len(ranges), rows):
                    some = ranges[start : start + rows]
                    results = self._results.columns(elements, some, self.store.texts)
                    extent = slide.bounds(elements, some)
                    yield self._batch(window.label, some.kid, some.wid, extent, results)

    def _forget(self, elements: Elements, progress: Progress) -> None:
        """Evict the partials that no future window needs."""
        bounds = [s.needed_from for s in self.slides]
        known = [b for b in bounds if b is not None]
        if len(known) == len(bounds) and self.store.forget(min(known)):
            return
        keep = np.zeros(len(elements), dtype=np.bool_)
        for slide in self.slides:
            keep |= slide.needed(elements, progress)
        for slide in self.slides:
            slide.forgotten(elements, ~keep, progress)
        self.store.retain(elements, keep)
        closed = [s.closed_from for s in self.slides]
        # Panes before a start are in no window: where starts differ, they must be told apart.
        alike = len({getattr(s, "since", None) for s in self.slides}) == 1
        if alike and all(c is not None for c in closed) and not self._parts.saved_rows:
            self.store.collapse(min(c for c in closed if c is not None))

    def _batch(
        self, label: str | None, kid: Ints, wid: Ints, bounds: tuple[Ints, Ints], results: list[pa.Array]
    ) -> pa.RecordBatch:
        arrays = []
        if self.plan.group_keys:
            arrays = self._keys.decode(self._share.ids(kid))
        if len(self.plan.windows) > 1:
            arrays.append(pa.repeat(pa.scalar(label, to_arrow(STRING)), len(kid)))
        arrays += [build(bound, None, to_arrow(self.plan.bound_type)) for bound in bounds]
        if self.plan.ids:
            arrays.append(build(wid, None, to_arrow(self.plan.id_type)))
        arrays += results[: len(self.plan.layout.results)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow)
