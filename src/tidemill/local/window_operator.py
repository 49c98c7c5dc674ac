"""The operator of a window aggregate: push rows, advance the watermark, get the closed windows.

Collectors (`collector`) turn rows into partials; lanes (`lanes`) turn partials into windows. Where keys can
be divided, each thread has a lane with some of the keys. There are two ways to collect rows on several
threads. *By rows*: each thread has a collector, which takes whole batches, with keys and partials of its own;
before windows close, the lanes take the partials of all collectors. *By key*: one collector prepares each
batch, and each lane accumulates the rows of its keys. The first rows show how to start; by key once keys are
many.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.core.time import BEGINNING, FARTHEST, FOREVER
from tidemill.core.types import to_arrow
from tidemill.expr.nodes import Column
from tidemill.kernels.arrow import validity, values
from tidemill.kernels.keys import KeyIndex
from tidemill.kernels.memory import empty
from tidemill.local.attributes import Attribute
from tidemill.local.changes import ChangedPartials, more_of
from tidemill.local.collector import Collector, Prepared
from tidemill.local.lane_threads import Done, LaneThreads
from tidemill.local.lanes import Lane, Share
from tidemill.local.late_rows import LateRows
from tidemill.local.limits import Ints, Limits
from tidemill.local.operator import Operator, Snapshot
from tidemill.local.pane_store import PaneStore
from tidemill.local.row_numbers import RowNumbers
from tidemill.local.snapshot import column, limits_of, limits_table, numbers, tables
from tidemill.local.sorted_rows import in_order
from tidemill.local.stage_runner import StageRunner
from tidemill.local.tuning import DEFAULT, Tuning
from tidemill.local.window_plan import by_number, order_of, splits, window_plan
from tidemill.local.window_slides import Progress
from tidemill.optimize.choices import with_choices
from tidemill.plan.differences import require_same_plan
from tidemill.plan.faults import far_time, null_order, null_time
from tidemill.plan.format import format_plan
from tidemill.plan.nodes import WindowAggregate
from tidemill.plan.physical import WindowChoices
from tidemill.plan.stages import Stage, stage_of
from tidemill.windows.spec import LastRows, Rows, Session

_NO_KEYS = np.empty(0, dtype=np.int64)
_NO_ROWS = np.zeros(1, dtype=np.int64)
_FROM_THE_START = {"late": 0, "keys": 0, "waiting": 0}
_SMALL = 4096
"""Waiting batches with fewer rows are joined."""
FORMAT = 2
"""The format version of snapshots; `restore` rejects any other."""


class WindowOperator(Operator):
    """One window aggregate. Its state is divided by key into lanes.

    With several lanes, `advance` returns the results that their threads have finished; the end of the
    input returns the rest. A row below the watermark is late. Late rows are kept (`late`), and they are
    aggregated in windows that are still open, except in a query with sessions. A complete window never
    changes.
    """

    def __init__(
        self, plan: WindowAggregate, lanes: int = 1, choices: WindowChoices | None = None,
        tuning: Tuning = DEFAULT, stage: Stage | None = None, watch: bool = True, keep_late: bool = True,
        pool: Executor | None = None,
    ) -> None:  # fmt: skip
        """`stage` has the filters and projections to fuse; by default, all that are directly below.

        `watch=False` skips the check for late rows, where no row can be late. `keep_late=False` does not keep
        them, where somebody else does. Lanes run on threads of the `pool`, if there is one.
        """
        self.plan, self._tuning = plan, tuning
        self._stage = stage = stage or stage_of(plan.input)
        self._how = how = window_plan(plan, stage, choices)
        self.choices, self.layout, self.parts = how.choices, how.layout, how.parts
        self._loop, self._compact = how.loop, how.compact
        self.watch = watch
        """Whether rows may be late; whoever drives the operator may know better for the next rows."""
        self.keys = KeyIndex(plan.input.schema.select(plan.group_keys))
        self._order, self._by_number = order_of(plan), by_number(plan)
        self._counts_rows = isinstance(plan.windows[0].spec, Rows)
        self._over_time = plan.attribute == plan.input.time and not self._counts_rows
        self._by_time = self._order == plan.input.time
        """Whether rows are numbered in order of time, so that the watermark fixes their numbers."""
        self._waiting: list[pa.RecordBatch] = []
        """Rows whose order is not known yet."""
        self._numbered = BEGINNING
        """Rows below this have their numbers; one that comes later is late."""
        self._partitions: RowNumbers | None = None
        if splits(plan):
            self._partitions = RowNumbers(how.base.select(plan.partition))
        by_rows = self._collects_apart() and not (self._keeps_much and self._divides())
        by_key = not by_rows and self._divides()
        self.lanes = self._new_lanes(lanes if self._divides() else 1)
        self.collectors = [Collector(self._loop, self.keys, self.lanes[0].store, self._tuning)]
        self._undecided = by_rows and lanes > 1
        """Whether the first batch will show how to use threads."""
        self._count = lanes if by_rows or by_key else 1
        self._threads, self._closed = LaneThreads(self._count, pool), False
        self._pending: Prepared | None = None
        """By key: the last batch, until the lanes add it."""
        self._untaken: deque[tuple[pa.RecordBatch, StageRunner | None]] = deque()
        """By rows: the batches that no collector has taken."""
        self._seen = [Done()] * len(self.collectors)
        """By rows: what each collector returned last, of the calls that were waited for."""
        placed = Column(plan.input.time) if self._by_time else how.attribute
        self._late = LateRows(how.base, placed, how.predicates, keep=keep_late)
        self._key_columns, self._attribute = how.key_columns, how.read
        self._promised = Limits()
        """The watermark of the input, in ticks of the windowing attribute."""
        self._given = self._held = Limits()
        """The promise about results to come: now, and before the buffered results (`_ready`)."""
        self._ready: list[pa.RecordBatch] = []
        """Results of closed windows that were not returned yet."""
        self._forgets = self._partitions is None and not any(lane.keeps_keys for lane in self.lanes)
        self._forget_above = tuning.few_keys
        self._saved_rows: dict[str, int] | None = None
        """Rows of growing tables when tracking began (`track`); None if ids of keys changed since."""

    @property
    def promise(self) -> Limits:
        return self._held if self._ready else self._given

    @property
    def store(self) -> PaneStore:
        """The partials of an operator with one lane."""
        (lane,) = self.lanes
        return lane.store

    def expect_late(self, late: bool) -> None:
        self.watch = late

    @property
    def before_start(self) -> int:
        """The number of rows in no window because they lie before the start of all windows."""
        counted = [lane.before_start for lane in self.lanes] + [c.before_start for c in self.collectors]
        return sum(counted)

    def size(self) -> tuple[int, int]:
        """Return the number of open partials and waiting rows, and the bytes that hold them."""
        if not self._closed:
            self._gather()
        sizes = [lane.store.size() for lane in self.lanes]
        sizes += [(batch.num_rows, batch.nbytes) for batch in self._waiting]
        return sum(n for n, _ in sizes), sum(size for _, size in sizes)

    def close(self) -> None:
        self._closed = True
        self._threads.close()

    # -- rows in

    def push(self, port: int, batch: pa.RecordBatch) -> tuple[()]:
        if self._undecided and batch.num_rows:
            self._decide(batch)
        apart = len(self.collectors) > 1
        if apart and not self._watches and (self._compact is None or self._compact.threadsafe):
            self._collect_apart(batch, self._compact)
            return ()
        if self._compact is not None and not self._compact.trivial:
            batch = self._compact.run(batch)
        if batch.num_rows == 0:
            return ()
        if self._order is not None:
            self._wait(batch)
        elif apart:
            batch, _ = self._without_late(batch, _NO_KEYS)
            self._collect_apart(batch)
        else:
            self._push(batch)
        return ()

    def _wait(self, batch: pa.RecordBatch) -> None:
        """Keep rows until their order is known. A row whose place was passed gets no number: it is late."""
        if isinstance(self.plan.windows[0].spec, LastRows):
            ticks = batch.column(self.plan.attribute)
            if ticks.null_count:
                raise null_time(self.plan)
            times = values(ticks)
            if times.min() < -FARTHEST or times.max() > FARTHEST:
                raise far_time(self.plan)
        if self._numbered > BEGINNING:
            if batch.column(self.plan.input.time).null_count:
                raise null_order(self.plan)
            late = self._late.keep(batch, _NO_KEYS, Limits(self._numbered))
            if late is not None:
                batch = batch.filter(pa.array(~late))
        if batch.num_rows:
            _append(self._waiting, batch)

    def _number_below(self, below: int) -> None:
        """Push the waiting rows below an instant in their order, which no row to come can change."""
        if below == FOREVER:
            ready, self._waiting = self._waiting, []
        else:
            ready, waiting = list[pa.RecordBatch](), list[pa.RecordBatch]()
            for batch in self._waiting:
                times = batch.column(self.plan.input.time)
                early, valid = values(times) < below, validity(times)
                if valid is not None:
                    early |= valid == 0  # null is before every time
                for rows, some in ((ready, early), (waiting, ~early)):
                    if some.any():
                        rows.append(batch if some.all() else batch.filter(pa.array(some)))
            self._waiting = waiting
        self._numbered = max(self._numbered, below)
        for batch in in_order(ready, self._order) if ready and self._order is not None else ():
            self._push(batch)

    def _push(self, batch: pa.RecordBatch) -> None:
        [collector] = self.collectors
        by_key = self._promised.by_key is not None and self._watches
        if len(self.lanes) == 1 and self._partitions is None and not by_key:
            batch, _ = self._without_late(batch, _NO_KEYS)
            if batch.num_rows:
                collector.add(batch)
            return
        kid = self._key_ids(collector, batch)
        batch, kid = self._without_late(batch, kid)
        if batch.num_rows == 0:
            return
        if self._partitions is not None:
            batch = self._partitions.number(batch)
            self._partitions.note(kid, self.keys.count)
        if len(self.lanes) == 1:
            collector.add(batch, kid)
            return
        self._start_pending()
        self._pending = collector.prepare(batch, kid)

    def _start_pending(self) -> None:
        """By key: let the lanes add the batch that waits for an advance; one call is cheaper than two."""
        if self._pending is not None:
            self._run([partial(self._add_and_close, lane, self._pending) for lane in self.lanes])
            self._pending = None

    def _add_and_close(
        self, lane: Lane, rows: Prepared | None, progress: Progress | None = None, prompt: bool = False
    ) -> Done:
        """Add the rows of a batch to a lane, then let it close windows."""
        if rows is not None:
            lane.add(self.collectors[0], rows)
        if progress is None:
            return Done()
        return Done(list(lane.advance(progress, prompt=prompt)), lane.promise)

    def _key_ids(self, collector: Collector, batch: pa.RecordBatch) -> Ints:
        """Return the key id of each row; the threads look up known keys, new keys get their ids here."""
        threads = len(self.lanes)
        if threads == 1 or self.keys.quick or batch.num_rows < self._tuning.few_lookups:
            return collector.key_ids(batch)
        self._start_pending()
        columns = collector.intake.key_columns(batch)
        cuts = np.linspace(0, batch.num_rows, threads + 1).astype(int).tolist()
        shares = ([c.slice(start, end - start) for c in columns] for start, end in itertools.pairwise(cuts))
        kid: Ints = np.concatenate(self._threads.each(self.keys.find, shares), out=empty(batch.num_rows))
        if len(new := np.flatnonzero(kid < 0)):
            kid[new] = self.keys.encode([c.take(pa.array(new)) for c in columns])
        return kid

    def _decide(self, batch: pa.RecordBatch) -> None:
        """Start by rows, or by key if the first rows have many keys or keys have promises of their own."""
        self._undecided = False
        many = self._promised.by_key is not None
        if self._compact is None and self._divides():
            self.collectors[0].key_ids(batch.slice(0, self._tuning.sample_rows))
            many |= 2 * self.keys.count > self._tuning.keys_by_row
        if not many:
            self.collectors = [self._side_collector() for _ in range(self._count)]
            self._seen = [Done()] * self._count

    def _collect_apart(self, batch: pa.RecordBatch, stage: StageRunner | None = None) -> None:
        """Give a batch to a thread, and divide the keys if they have become many.

        The caller's thread has the first collector. It takes a batch where each other thread has one that it
        works on and one that waits: so it does not sleep, and no thread has to be woken for each batch.
        """
        number = min(range(1, len(self.collectors)), key=self._threads.busy)
        if self._threads.busy(number) > 1:
            number = 0
        self._untaken.append((batch, stage))
        if number:
            self._threads.start({number: partial(self._collect_one, number)})
        else:
            self._seen[0] = self._collect_one(0)
        self._drain(self._tuning.backlog)
        if max(seen.keys for seen in self._seen) > self._tuning.keys_by_row:
            self._collect_together()

    def _collect_one(self, number: int) -> Done:
        """By rows: let a collector take a batch that no other one has taken, if there is one."""
        collector, taken = self.collectors[number], None
        with contextlib.suppress(IndexError):  # another thread may take the last one first
            taken = self._untaken.popleft()
        if taken is not None:
            batch, stage = taken
            rows = batch if stage is None or stage.trivial else stage.run(batch)
            if rows.num_rows:
                collector.add(rows)
        store = collector.store
        return Done(
            collector=number, crowded=store.crowded, spilled=store.spilled, keys=collector.keys.count
        )

    def _collect_rest(self) -> None:
        """By rows: help the threads with the batches that wait, then wait for those that they work on."""
        while self._untaken:
            self._seen[0] = self._collect_one(0)
        self._drain(0)

    def _gather(self) -> None:
        """Wait for all threads; by rows, the lanes then have the partials of all collectors."""
        self._start_pending()
        self._collect_rest()
        if len(self.collectors) > 1:
            handed = self._handed(apart=False)
            self._run([partial(self._absorb, lane, handed, self.keys.count) for lane in self.lanes])
            self._drain(0)
            for store, _ in handed:
                store.emptied(self._needed)

    def _handed(self, *, apart: bool) -> list[tuple[PaneStore, Ints]]:
        """By rows: take the partials of all collectors, each with the ids of its keys, for the lanes.

        If `apart`, collectors may go on while the lanes absorb partials.
        """
        self._collect_rest()
        needed, make = self._needed, self._side_store if apart else None
        handed = [c.hand_over(self.keys, needed, make) for c in self.collectors]
        self._seen = [Done()] * len(self.collectors)
        return [(store, collector.ids) for store, collector in zip(handed, self.collectors)]

    @property
    def _needed(self) -> int:
        """The panes below this are evicted by all lanes."""
        return min(lane.store.needed for lane in self.lanes)

    @staticmethod
    def _absorb(lane: Lane, handed: list[tuple[PaneStore, Ints]], keys: int) -> Done:
        for store, ids in handed:
            lane.absorb(store, ids, keys)
        return Done()

    def _collect_together(self) -> None:
        """Use one collector from now on."""
        self._gather()
        self.lanes[0].before_start += sum(c.before_start for c in self.collectors)
        self.collectors = [Collector(self._loop, self.keys, self.lanes[0].store, self._tuning)]

    def _without_late(self, batch: pa.RecordBatch, kid: Ints) -> tuple[pa.RecordBatch, Ints]:
        """Store the late rows of a batch and return the rows to aggregate.

        Complete windows are closed first, so that no late row changes them. A query with sessions does not
        aggregate late rows: one could join two sessions, of which one was already returned.
        """
        if not self._watches:
            return batch, kid
        late = self._late.keep(batch, kid, self._promised)
        if late is None:
            return batch, kid
        self._make_ready()
        if not any(isinstance(w.spec, Session) for w in self.plan.windows):
            return batch, kid
        return batch.filter(pa.array(~late)), kid[~late] if len(kid) else kid

    @property
    def _watches(self) -> bool:
        """Whether rows may be late."""
        return self.watch and not self._by_number and self._promised.highest > BEGINNING

    def late(self) -> pa.Table:
        return self._late.table()

    # -- partials of tables (`group_operator`)

    @property
    def divides_rows(self) -> bool:
        """Whether keys may be worked on apart, on any thread."""
        return self._divides() and self._collects_apart()

    @property
    def keeps_much(self) -> bool:
        """Whether aggregates keep rows or text."""
        return self._keeps_much

    @property
    def holds_text(self) -> bool:
        """Whether partials or kept rows have ids of text."""
        kinds = [kind for i in self.parts.records for _, kind in self.layout.parts[i].columns]
        kinds += [kind for i in self.parts.kept for kind in self.layout.parts[i].types]
        return any(kind.kind == "string" for kind in kinds)

    @property
    def known_keys(self) -> int:
        """The number of keys that some thread has seen, of the calls that were waited for."""
        return max(self.keys.count, *(seen.keys for seen in self._seen))

    def give_away(self) -> list[tuple[KeyIndex, PaneStore]]:
        """Return all partials, for others to take over, with their keys; take no rows afterwards."""
        self._collect_rest()
        for collector in self.collectors:
            collector.store.released()
        return [(collector.keys, collector.store) for collector in self.collectors]

    def take_over(self, keys: KeyIndex, store: PaneStore, some: Ints) -> None:
        """Take the partials of some keys of another operator; one lane must have all keys."""
        [lane] = self.lanes
        if len(some):
            ids = np.full(keys.count, -1, dtype=np.int64)
            ids[some] = self.keys.encode(keys.decode(some))
            lane.absorb(store, ids, self.keys.count)

    def partials_of(self, batch: pa.RecordBatch) -> PaneStore:
        """Return the partials of some rows, which are not of the operator: for who reads partials only."""
        if self._compact is not None:
            batch = self._compact.run(batch)
        side = self._side_collector()
        side.add(batch)
        return side.store

    def goes_on_to(self, window: int, pane: int) -> None:
        """Record that another part of the stream has rows up to a pane; filled windows continue to it."""
        for lane in self.lanes:
            lane.goes_on_to(window, pane)

    def share_keys(self, index: KeyIndex) -> None:
        """Use a key index that other operators add keys to; no key is evicted from it."""
        [collector] = self.collectors
        self.keys = collector.keys = index
        self._forgets = False
        for lane in self.lanes:
            lane.share_keys(index)

    # -- windows out

    def advance(self, port: int, below: int, *, prompt: bool = False) -> Iterable[pa.RecordBatch]:
        """Set the watermark and return the windows that close.

        Without `prompt`, windows may be returned later, once enough partials wait to be sorted.
        """
        promised = self._promised.common
        if promised == FOREVER:
            return ()
        if below != FOREVER and (self._order is None or (self._by_time and not self._many_wait)):
            known = below if self._over_time else self._known_below(below)
            if self._rests(known):
                if known > promised:
                    self._promised = Limits(known)
                if self._order is not None:  # rows below it get their numbers when a window closes
                    self._numbered = max(self._numbered, below)
                return ()
        return self._advance_to(below, prompt)

    def _advance_to(self, below: int, prompt: bool) -> Iterator[pa.RecordBatch]:
        final = below == FOREVER
        if self._order is not None:
            if not final and not (self._by_time and (prompt or self._many_wait)):
                yield from self._take_ready()
                return
            self._number_below(below)
        known = below if final else self._known_below(below)
        self._promised = self._promised.raised(Limits(known))
        yield from self._advance(final, prompt)

    def _rests(self, below: int) -> bool:
        """Return whether an advance to a watermark only raises it, as most of the many small ones do."""
        if len(self.lanes) > 1 or len(self.collectors) > 1 or self._ready or below == BEGINNING:
            return False
        if self._promised.by_key is not None or not self.lanes[0].rests(below):
            return False
        return not (self._forgets and self.keys.count > self._forget_above)

    @property
    def _many_wait(self) -> bool:
        """Whether it is worth while to number rows: sorting few at a time would take longer."""
        waiting: int = sum(batch.num_rows for batch in self._waiting)
        return waiting > self._tuning.few_partials

    @property
    def wants_advance(self) -> bool:
        if self._by_time and self._many_wait:
            return True
        if self._ready or (self._forgets and self.keys.count > self._forget_above):
            return True
        if len(self.collectors) > 1:
            return self.lanes[0].pressed(*self._waiting_apart)
        return len(self.lanes) > 1 or self.lanes[0].pressed()

    def advance_keys(
        self, port: int, keys: Mapping[str, pa.Array], below: int, *, prompt: bool = False
    ) -> Iterator[pa.RecordBatch]:
        known = self._known_below(below)
        if known == BEGINNING or self._order is not None or self._by_number:
            return
        yield from self._advance_keys(keys, known, prompt)

    @property
    def attribute(self) -> Attribute | None:
        return self._attribute

    def advance_on(
        self, port: int, below: int, keys: Mapping[str, pa.Array] | None = None, *, prompt: bool = False
    ) -> Iterator[pa.RecordBatch]:
        if self._promised.common == FOREVER or self._attribute is None:
            return
        if keys is not None:
            yield from self._advance_keys(keys, below, prompt)
            return
        self._promised = self._promised.raised(Limits(below))
        yield from self._advance(False, prompt)

    def _advance_keys(
        self, keys: Mapping[str, pa.Array], below: int, prompt: bool
    ) -> Iterator[pa.RecordBatch]:
        """Set the watermark of the windowing attribute for some keys, if they are all keys of the query."""
        columns = [self._key_columns.get(name) for name in self.plan.group_keys]
        if not columns or not all(name in keys for name in columns):
            return
        arrays = [keys[name] for name in columns if name is not None]
        for array, (name, kind) in zip(arrays, self.keys.schema):
            if array.type != to_arrow(kind):
                raise UserError("advance", expected=f"keys {name!r} of {kind!r}", got=str(array.type))
        if len(self.collectors) > 1:  # which have key ids of their own
            self._collect_together()
        self._promised = self._promised.raised_for(self.keys.encode(arrays), below)
        yield from self._advance(False, prompt)

    def _advance(self, final: bool, prompt: bool) -> Iterator[pa.RecordBatch]:
        yield from self._take_ready()
        by_rows = len(self.collectors) > 1
        if by_rows and not final:
            if not self._due(prompt):
                return
            if len(self.lanes) > 1:
                yield from self._close_apart(prompt)
                return
        if by_rows:
            self._gather()
            yield from self._take_ready()
            prompt = True
        progress = self._progress(final)
        if len(self.lanes) == 1:  # yield batch by batch: the result may not fit in memory
            yield from self.lanes[0].advance(progress, prompt=prompt)
            self._given = self.lanes[0].promise
        elif final:
            self._start_pending()
            yield from self._take_ready()
            while self._threads.waiting:
                yield from self._finished()
            # One batch of each lane at a time: the results may not fit in memory.
            results = [lane.advance(progress, prompt=True) for lane in self.lanes]
            if self._closes_here:
                yield from itertools.chain.from_iterable(results)
            else:
                yield from self._threads.interleaved(results)
        else:
            rows, self._pending = self._pending, None
            self._run([partial(self._add_and_close, lane, rows, progress, prompt) for lane in self.lanes])
            yield from self._take_ready()
            while prompt and self._threads.waiting:
                yield from self._finished()
        if final:
            self._given = Limits(FOREVER)
        elif self._forgets and self.keys.count > self._forget_above:
            self._forget_keys()

    def _close_apart(self, prompt: bool) -> Iterator[pa.RecordBatch]:
        """By rows: let the lanes take all partials and close windows; without `prompt`, do not wait."""
        handed, keys, progress = self._handed(apart=True), self.keys.count, self._progress(False)

        def close(lane: Lane) -> Done:
            self._absorb(lane, handed, keys)
            return self._add_and_close(lane, None, progress, True)

        self._run([partial(close, lane) for lane in self.lanes])
        while prompt and self._threads.waiting:
            yield from self._finished()
        yield from self._take_ready()

    @property
    def _closes_here(self) -> bool:
        """Whether windows of so few keys close that waking threads for it would take longer."""
        return len(self.collectors) > 1 and self.keys.count <= self._tuning.few_closing

    def _due(self, prompt: bool) -> bool:
        """By rows: return whether windows should close now."""
        return self.lanes[0].due(self._progress(False), *self._waiting_apart, prompt)

    @property
    def _waiting_apart(self) -> tuple[int, bool]:
        """By rows: the number of partials that wait for each lane, and whether planes are crowded."""
        spilled, crowded = sum(s.spilled for s in self._seen), any(s.crowded for s in self._seen)
        return spilled // len(self.lanes), crowded

    def _take_ready(self) -> list[pa.RecordBatch]:
        ready, self._ready = self._ready, []
        return ready

    def _make_ready(self) -> None:
        """Close all complete windows now; the next call of `advance` returns their results."""
        if self._promised.highest == BEGINNING or self._promised.common == FOREVER:
            return
        self._gather()
        before, progress = self.promise, self._progress(False)
        if len(self.lanes) == 1:
            done = self._add_and_close(self.lanes[0], None, progress, True)
            self._given = done.promise or self._given
            self._hold(done.batches, before)
        else:
            self._run([partial(self._add_and_close, lane, None, progress, True) for lane in self.lanes])
            self._drain(0)

    def _drain(self, most: int) -> None:
        """Wait until at most `most` calls of the lanes are running."""
        while self._threads.waiting > most:
            before = self.promise
            self._hold(list(self._finished()), before)

    def _hold(self, found: list[pa.RecordBatch], before: Limits) -> None:
        """Buffer results for `advance`. Until it returns them, the promise stays what it was `before`."""
        if found:
            self._held = before
            self._ready += found

    def settle(self) -> None:
        """Combine the waiting partials if they are many, without closing windows."""
        for lane in self.lanes:
            lane.settle()

    def _run(self, calls: list[Callable[[], Done]]) -> None:
        """Run a call for each lane on its thread, or here if there is little to do."""
        (self._threads.finish if self._closes_here else self._threads.start)(dict(enumerate(calls)))
        self._drain(self._tuning.backlog)

    def _finished(self) -> Iterator[pa.RecordBatch]:
        """Wait for the oldest calls and yield their results."""
        done = self._threads.oldest()
        promised = [one.promise for one in done if one.promise is not None]
        if promised:
            self._given = Limits.joined(promised, self.keys.count)
        for one in done:
            if one.collector is not None:
                self._seen[one.collector] = one
            yield from one.batches

    def _known_below(self, below: int) -> int:
        """Convert a watermark of the stream's time to one of the windowing attribute."""
        if self._order is not None and not self._by_time:
            return BEGINNING  # rows are buffered until the end, to be sorted
        if self._counts_rows:
            return FOREVER - 1  # row numbers are always complete
        return below if self._over_time else BEGINNING

    def _progress(self, final: bool) -> Progress:
        none = _NO_ROWS
        rows = none if self._partitions is None else self._partitions.rows
        partition = none if self._partitions is None else self._partitions.of_key
        return Progress(self._promised, final, self.keys.count, rows, partition)

    def so_far(self, more: Sequence[tuple[int, pa.RecordBatch]] = ()) -> Iterator[pa.RecordBatch]:
        if more or self._waiting:
            yield from self._so_far_of_a_copy(more)
            return
        self._gather()
        yield from self._ready  # which a later `advance` returns again, for good
        progress = replace(self._progress(True), promise=Limits(FOREVER))
        results = [lane.so_far(progress) for lane in self.lanes]
        if len(results) == 1 or self._closes_here:
            yield from itertools.chain.from_iterable(results)
        else:
            yield from self._threads.interleaved(results)

    def _so_far_of_a_copy(self, more: Sequence[tuple[int, pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        """The same where rows must be added for it: those to be sorted at the end, or results that open."""
        copy = WindowOperator(
            self.plan, choices=self.choices, tuning=self._tuning, stage=self._stage, watch=False
        )
        copy.restore(self.snapshot())
        for port, batch in more:
            copy.push(port, batch)
        yield from copy.advance(0, FOREVER)

    # -- eviction of keys

    def _forget_keys(self) -> None:
        """Evict the keys without state from the index, if they are at least half of it."""
        self._gather()
        count, lanes = self.keys.count, len(self.lanes)
        live = [lane.live_keys(count) for lane in self.lanes]
        live[0][:1] = True  # a null string key always has id 0
        if self._promised.by_key is not None:
            apart = self._promised.full(count) > self._promised.common
            for number, own in enumerate(live):
                own |= apart[number::lanes]
        most = max(int(own.sum()) for own in live)
        self._forget_above = max(self._tuning.few_keys, 2 * lanes * most)
        if lanes * most > count // 2:
            return
        # Ids alternate between the lanes, so a lane with fewer live keys keeps some dead ones.
        kept = [_first_of(own, most) for own in live]
        ids = np.stack([own * lanes + number for number, own in enumerate(kept)], axis=1).ravel()
        index = KeyIndex(self.keys.schema)
        index.restore(self.keys.decode(ids))
        for lane, some in zip(self.lanes, kept):
            lane.renumber(some, count, index)
        self._promised, self._given, self._held = (
            limits.renumbered(ids) for limits in (self._promised, self._given, self._held)
        )
        self.keys = index
        self._stop_tracking()  # ids are others now
        if len(self.collectors) > 1:
            self.collectors = [self._side_collector(before) for before in self.collectors]
        else:
            self.collectors[0].keys = index

    # -- state

    def snapshot(self) -> Snapshot:
        self._gather()
        self._make_ready()
        if self._forgets:
            self._forget_keys()
        elements = pa.concat_tables([lane.snapshot() for lane in self.lanes])
        return {**self._besides_partials(), **self._growing(), "elements": elements}

    def changes(self) -> Snapshot:
        self._gather()
        self._make_ready()
        if self._saved_rows is None:
            return self.snapshot()
        more = {more_of(name): rows for name, rows in self._growing(self._saved_rows).items()}
        panes = [lane.changed_panes for lane in self.lanes]
        first, last = min(a for a, _ in panes), max(b for _, b in panes)
        changed = [lane.changes(first, last) for lane in self.lanes]
        partials = ChangedPartials.joined(changed, self.keys.count)
        return {**self._besides_partials(), **more, **partials.tables("elements")}

    def track(self) -> None:
        for lane in self.lanes:
            lane.track()
        waiting = sum(batch.num_rows for batch in self._waiting)
        self._saved_rows = {"late": len(self.late()), "keys": self.keys.count, "waiting": waiting}

    def _stop_tracking(self) -> None:
        for lane in self.lanes:
            lane.untrack()
        self._saved_rows = None

    def _growing(self, since: Mapping[str, int] = _FROM_THE_START) -> Snapshot:
        """Return the tables to which rows are only added, as long as no key is evicted, from a row on."""
        found = {"late": self.late().slice(since["late"])}
        if self.plan.group_keys:
            keys = self.keys.decode(np.arange(since["keys"], self.keys.count))
            found["keys"] = pa.Table.from_arrays(keys, schema=self._key_table)
        if self._order is not None and not self._by_time:
            found["waiting"] = self._waiting_rows().slice(since["waiting"])
        return found

    def _waiting_rows(self) -> pa.Table:
        return pa.Table.from_batches(self._waiting, schema=self._late.schema.to_arrow())

    def _besides_partials(self) -> Snapshot:
        """Return the tables that are small, or take a few bytes for each key."""
        found = {
            "about": pa.table({"format": [FORMAT], "plan": [format_plan(self.plan, with_choices)]}),
            "before_start": numbers(rows=[self.before_start]),
            "ready": pa.Table.from_batches(self._ready, schema=self.plan.schema.to_arrow()),
            "promised": limits_table(self._promised),
            "held": limits_table(self._held),
        }
        if self._order is not None:
            found["numbered"] = numbers(below=[self._numbered])
            if self._by_time:  # rows below the watermark leave
                found["waiting"] = self._waiting_rows()
        if self._partitions is not None:
            found |= {f"partitions.{n}": table for n, table in self._partitions.snapshot().items()}
        for at, slides in enumerate(zip(*(lane.slides for lane in self.lanes))):
            most = self.keys.count if len(self.lanes) > 1 else None
            for name in slides[0].state:
                limits = Limits.joined([s.state[name] for s in slides], most)
                found[f"window{at}.{name}"] = limits_table(limits)
        return found

    @property
    def _key_table(self) -> pa.Schema:
        return pa.schema([(f"k{i}", to_arrow(kind)) for i, (_, kind) in enumerate(self.keys.schema)])

    def restore(self, state: Snapshot) -> None:
        (about,) = tables(state, {"about": pa.schema([("format", pa.int64()), ("plan", pa.string())])})
        if (found := about["format"].to_pylist()) != [FORMAT]:
            raise UserError("restore", expected=f"a snapshot of format {FORMAT}", got=f"{found!r:.80}")
        require_same_plan(str(about["plan"][0]), format_plan(self.plan, with_choices))
        rows = self._late.schema.to_arrow()
        ready, late = tables(state, {"ready": self.plan.schema.to_arrow(), "late": rows})
        self._ready = ready.to_batches()
        self._late.restore(late)
        if self.plan.group_keys:
            (keys,) = tables(state, {"keys": self._key_table})
            if len(keys):
                self.keys.restore([pa.concat_arrays(c.chunks) for c in keys.columns])
            if self.keys.count != max(len(keys), KeyIndex(self.keys.schema).count):
                raise UserError("restore", expected="each key once", got="one twice")
        count = self.keys.count
        self._promised, self._held = (
            limits_of(state.get(name), count, FOREVER + 1) for name in ("promised", "held")
        )
        if self._order is not None:
            below = pa.schema([("below", pa.int64())])
            waiting, numbered = tables(state, {"waiting": rows, "numbered": below})
            self._waiting = waiting.to_batches()
            self._numbered = int(column(numbered, "below")[:1].max(initial=BEGINNING))
        partitions = 0
        if self._partitions is not None:
            own = {n.split(".", 1)[1]: t for n, t in state.items() if n.startswith("partitions.")}
            self._partitions.restore(own, count)
            partitions = len(self._partitions.rows)
        windows = [
            {n: limits_of(state.get(f"window{at}.{n}"), max(count, partitions), 1 << 62) for n in slide.state}
            for at, slide in enumerate(self.lanes[0].slides)
        ]
        (elements,) = tables(state, {"elements": self.lanes[0].saved_schema})
        for lane in self.lanes:
            lane.restore(elements, windows, count)
        (before,) = tables(state, {"before_start": pa.schema([("rows", pa.int64())])})
        self.lanes[0].before_start = int(column(before, "rows")[:1].sum())
        if self._promised.by_key is not None and len(self.collectors) > 1:
            self._collect_together()  # collectors have key ids of their own
        self._given = Limits.joined([lane.promise for lane in self.lanes], count)

    # -- division of work

    def _new_lanes(self, lanes: int) -> list[Lane]:
        shares = [Share(i, lanes) for i in range(lanes)]
        return [
            Lane(
                self.plan, self.choices, self._how.results, self.layout, self.parts, self.keys, share,
                self._tuning, self._loop.gap,
            )
            for share in shares
        ]  # fmt: skip

    def _side_collector(self, before: Collector | None = None) -> Collector:
        """Return a collector without keys and partials, in place of the one that was there `before`."""
        side = Collector(self._loop, KeyIndex(self.keys.schema), self._side_store(), self._tuning)
        side.before_start = 0 if before is None else before.before_start
        return side

    def _side_store(self) -> PaneStore:
        """Return a store for partials that lanes will take."""
        shares = 3 * self._count  # a lane, and two stores for each collector
        return PaneStore(
            self.plan, self.choices.panes, self.layout, self.parts, self.lanes[0].reach, shares, self._tuning,
            self._loop.gap,
        )  # fmt: skip

    def _collects_apart(self) -> bool:
        """Return whether threads should collect rows apart: not if rows are numbered, or sorted at the end.

        Python objects need the interpreter's lock, and only one thread may call a user's Python function. A
        loop that reads nothing but times is as fast as memory on one thread.
        """
        apart = self._partitions is None and self._order is None
        plain = isinstance(self._loop.attribute, Column) and not self._loop.predicates
        if plain and not self.plan.group_keys and (self._compact is None or self._compact.trivial):
            apart &= any(part.part.args for part in self.layout.parts)
        return apart and not self.parts.in_python and self._loop.threadsafe

    @property
    def _keeps_much(self) -> bool:
        """Whether aggregates keep rows or text, which would be moved when lanes take partials."""
        columns = [c for i in self.parts.records for _, c in self.layout.parts[i].columns]
        return bool(self.parts.kept) or any(kind.kind == "string" for kind in columns)

    def _divides(self) -> bool:
        """Return whether keys can be divided among lanes that run independently.

        They cannot if windows depend on rows of other keys, and Python objects need the interpreter's lock.
        """
        alone = not any(w.spec.until_end for w in self.plan.windows) and self._partitions is None
        return bool(self.plan.group_keys) and alone and not self.parts.in_python


def _append(batches: list[pa.RecordBatch], batch: pa.RecordBatch) -> None:
    """Append a batch, joined with those before it as long as these are small: a few batches can be searched.

    A row is copied at most once for each doubling of a batch.
    """
    while batches and batches[-1].num_rows <= batch.num_rows < _SMALL:
        batch = pa.concat_batches([batches.pop(), batch])
    batches.append(batch)


def _first_of(live: npt.NDArray[np.bool_], count: int) -> Ints:
    """Return `count` keys in order: all live keys, filled up with dead ones."""
    order = np.argsort(~live, kind="stable")[:count]
    return np.sort(order)
