"""The state of a wheel that takes rows: slots, keys, early rows, late rows, and windows."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.codegen.kernel_errors import raise_for
from tidemill.core.errors import UserError
from tidemill.core.forks import renew_locks
from tidemill.core.time import FARTHEST
from tidemill.io.arrow_checks import require_sound
from tidemill.kernels.arrow import values
from tidemill.kernels.keys import KeyIndex
from tidemill.kernels.order import order_by
from tidemill.wheels.closing_windows import ClosingWindows
from tidemill.wheels.lineage import Lineage, Version
from tidemill.wheels.loops.range_plan import BASE, UNIT
from tidemill.wheels.memory.early_rows import EarlyRows
from tidemill.wheels.memory.inserting import CompiledInsert
from tidemill.wheels.memory.sparse_store import SparseStore
from tidemill.wheels.memory.store import FEW_ROWS, RingStore, records
from tidemill.wheels.objects.inserting import ObjectInsert
from tidemill.wheels.objects.store import ObjectStore
from tidemill.wheels.spec import WheelSpec, power_of_two
from tidemill.wheels.view import BEFORE_START, WheelView

LATE_ROWS = 100_000
"""The most late rows that are kept; all are counted."""
LONG_STEP = 1 << 20
"""If a step of the watermark adds more cells than this to the finest ring, memory is checked first."""
OPEN_CELLS = 1 << 14
"""As many slots times keys may be open although `write_ahead` is less."""
EARLY_ROWS = 1 << 19
"""About as many early rows are taken at a time when their slots close."""
INSERTING = UserError("insert", "another insert is not complete yet")
"""The state of a wheel during an insert. It stays if the rollback is interrupted, too."""


Progress = Callable[[int, int], None]
"""Called with the slots that closed so far, and with all slots that are to close."""


def _unseen(closed: int, slots: int) -> None:
    """Show no progress."""


class WheelState(WheelView):
    """The state of a wheel that takes rows. Times in its methods are slots of the finest ring."""

    store: RingStore

    def __init__(self, spec: WheelSpec, store: RingStore) -> None:
        super().__init__(spec, store)
        self.time = spec.plan.input.time
        self.inserter: Any = ObjectInsert(spec) if spec.objects else CompiledInsert(spec)
        self.early = EarlyRows(self.time, self.grain)
        self.late: list[pa.RecordBatch] = []
        self.late_kept = 0
        self.left_out = {"late": 0, "null time": 0, "time out of range": 0}
        self.inserted = 0
        self.failed: UserError | None = None
        """The error during which slots closed only in part; or `INSERTING` during an insert."""
        self.lineage = Lineage()
        self.unverified: list[Callable[[], None]] = []
        """Checksum comparisons still to do for the files that the wheel was opened from."""
        self.windows = self.no_windows()
        self.arrow = self.schema.to_arrow()
        self.start = self.beginning
        """The first tick of the wheel when it was made or opened."""
        self.before_close: Callable[[], None] | None = None
        """Called before slots close, where other processes read the wheel."""
        if not self.keyed:
            store.know(1)


    @property
    def version(self) -> Version:
        """The version of this state; see `Lineage`."""
        return self.inserted + len(self.early), self.store.now, len(self.lineage.merged)

    @property
    def id(self) -> str:
        """The id of this state, by which wheels that it is merged into recognize it."""
        return self.lineage.id(self.version)

    def is_empty(self) -> bool:
        """Whether the wheel may start at another time: it has no rows, no windows and no readers."""
        return not (self.inserted or self.windows or self.lineage.merged or self.before_close)

    def no_windows(self) -> ClosingWindows:
        return ClosingWindows(self.plan, self.store, self.domain, self.keys, self.look_at)

    def have_all_cells(self) -> None:
        """Replace the sparse store of a wheel without rows: windows read a cell for every slot."""
        keys, self.store = self.store.keys, empty_state(self.spec, self.store.first, sparse=False).store
        self.store.know(keys)  # late rows may have had some
        self.windows = self.no_windows()

    def copy(self) -> WheelState:
        """Return an independent copy, without readers in other processes."""
        self.lineage.start_branch(self.version)  # else each copy would start a branch of its own
        other = copy.copy(self)
        other.store, other.keys, other.seen = self.store.copy(), self.keys.copy(), {}
        other.early, other.inserter = self.early.copy(), self.inserter.copy()
        other.left_out, other.late = dict(self.left_out), list(self.late)
        other.lineage, other.before_close = self.lineage.copy(), None
        other.windows = self.windows.copy(other.store, other.keys, other.look_at)
        other.notes = dict(self.notes)
        other.new_locks()
        renew_locks(other)
        return other

    def become(self, other: WheelState) -> None:
        """Replace this state by another in one step, which Ctrl-C cannot interrupt halfway."""
        other.lock = self.lock  # another thread may hold it
        other.windows.look_at = self.look_at
        self.__dict__.update(other.__dict__)

    # -- errors

    def look_at(self, err: int, step: str, cause: UserError | None = None) -> None:
        """Raise the error that a kernel's error bits stand for; afterwards the wheel is read-only."""
        try:
            raise_for(err, step, cause)
        except UserError as failed:
            self.failed = failed
            raise

    @contextlib.contextmanager
    def _stopping(self, step: str) -> Iterator[None]:
        """Make the wheel read-only if the body fails, also by Ctrl-C: its work may be half done."""
        try:
            yield
        except BaseException as failed:
            self._stop(step, failed)
            raise

    def _stop(self, step: str, failed: BaseException) -> None:
        """Make the wheel read-only after an error; that of a user's function is raised as a `UserError`."""
        self.failed = failed if isinstance(failed, UserError) else UserError(
            step, f"raised {type(failed).__name__}: {failed}"
        )  # fmt: skip
        if isinstance(failed, Exception) and not isinstance(failed, UserError) and self.spec.objects:
            raise self.failed from failed

    def require_sound(self, step: str) -> None:
        """Raise if an earlier step failed and left the wheel read-only."""
        if self.failed is not None:
            raise UserError(
                step, expected="a wheel in which nothing failed", got=f"one stopped by: {self.failed}",
                hint="closed slots can still be queried; continue from the last save, without that row",
            ) from self.failed  # fmt: skip

    def require_verified(self) -> None:
        """Compare the files that the wheel was opened from with their checksums, before a save or merge."""
        for verify in self.unverified:
            verify()
        self.unverified = []

    # -- rows in

    def insert_batch(self, batch: pa.RecordBatch) -> None:
        """Insert a batch of the wheel's own schema."""
        if self.failed is not None:
            self.require_sound("insert")
        if self.inserter.by_address is None or not self._insert_few(batch):
            self.insert_all((require_sound(batch, "insert"),))

    def _insert_few(self, batch: pa.RecordBatch) -> bool:
        """Insert rows straight from Arrow buffers: a third of the time, for a hundred rows.

        Returns whether that was possible."""
        run_at, read = self.inserter.by_address
        n, found = batch.num_rows, []
        if n > FEW_ROWS or n == 0:
            return False
        for i in read:
            array = batch.column(i)
            body = array.buffers()[1]
            if array.null_count or body is None or body.address & 7 or body.size < 8 * (array.offset + n):
                return False
            found.append(body.address + 8 * array.offset)
        store = self.store
        before = _BeforeRows(self) if self.keyed else None
        remembers = False
        try:
            if self.keyed:
                with self.lock:
                    kid = self.inserter.key_ids(require_sound(batch, "insert"), self.keys)
                found.append(kid.ctypes.data)
                store.know(self.keys.count)
            logs = store.remember(n)
            remembers = True
            early, late, err = run_at(store.inserting, n, self.grain, logs, *found)
            if err:
                raise_for(err, "insert")
            if early or late:
                before = before or _BeforeRows(self)
                self._keep_others(batch, store.others, early, late)
            self.inserted += n - early - late
        except BaseException as failed:
            self.failed = INSERTING
            if remembers:
                store.put_back()
            if before is not None:
                before.roll_back(failed)
            self.failed = None
            raise
        return True

    def insert_all(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Insert all batches, or none of them."""
        self.require_sound("insert")
        before, slots = _BeforeRows(self), self.store.undo()
        try:
            self.failed = INSERTING  # nothing may write meanwhile, not even the source of these rows
            for batch in batches:
                self._insert(batch, slots)
            self.failed = None
        except BaseException as failed:
            self.failed = INSERTING
            slots.roll_back()
            before.roll_back(failed)
            self.failed = None
            raise

    def _insert(self, batch: pa.RecordBatch, undo: Any = None) -> None:
        """Insert rows, and log them so that `undo` can roll them back."""
        batch = self._with_times(batch)
        if batch.num_rows == 0:
            return
        others, early, late = self.inserter.insert(batch, self.store, self.keys, self.lock, undo)
        self.inserted += batch.num_rows - early - late
        self._keep_others(batch, others, early, late)

    def _with_times(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Drop and count the rows without a time."""
        time = batch.column(self.time)
        if time.null_count:
            self.left_out["null time"] += time.null_count
            batch = batch.filter(time.is_valid())
        return batch

    def _keep_others(self, batch: pa.RecordBatch, others: Any, early: int, late: int) -> None:
        """Keep rows that were not inserted: early positions are first in `others`, late ones last."""
        if late:
            rows = self._within_reach(batch.take(pa.array(others[len(others) - late :][::-1])))
            self.left_out["late"] += rows.num_rows
            self.keep_late(rows)
            self._note_early_start(rows)
        if early:
            self.early.add(self._within_reach(batch.take(pa.array(others[:early]))))

    def _note_early_start(self, late: pa.RecordBatch) -> None:
        """Note late rows that are before the start of the wheel: no watermark could have let them in."""
        before = int((values(late.column(self.time)) < self.start).sum())
        if before:
            which = "a row is" if before == 1 else f"{before:,} rows are"
            self.note(BEFORE_START, f"{which} before the start, {self.instant(self.start)}: rows there are "
                      "late, and left out")  # fmt: skip

    def keep_late(self, rows: pa.RecordBatch) -> None:
        """Keep late rows for `Wheel.late`, up to `LATE_ROWS` in all."""
        room = LATE_ROWS - self.late_kept
        if room > 0:
            self.late.append(rows.slice(0, room))
            self.late_kept += min(room, rows.num_rows)

    def _within_reach(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Drop and count the rows whose time is out of range."""
        ticks = values(rows.column(self.time))
        far = (ticks > FARTHEST) | (ticks < -FARTHEST)
        if far.any():
            self.left_out["time out of range"] += int(far.sum())
            rows = rows.filter(pa.array(~far))
        return rows

    # -- time

    def advance(self, until: int, progress: Progress = _unseen) -> pa.Table | None:
        """Close the slots below `until`; returns the windows that closed, if the wheel has windows.

        `progress` is called with the slots that closed and all that are to close.
        """
        if self.failed is not None:
            self.require_sound("advance_to")
        store = self.store
        if (until - store.now) * store.room > LONG_STEP:
            if self.is_empty():
                store.begin_at(min(until, self.early.first_slot))
                self.bring_in()
            self.require_memory(until)
        if self.early.first_slot < until and not self.spec.objects:
            self._open_more()
        closed: list[pa.Table] = []
        if isinstance(store, SparseStore):
            self._advance_sparse(store, until, progress)
        while (before := store.now) < until:
            closed += self._advance(before, until)
        if not self.windows:
            return None
        if not closed:
            return self.windows.none()
        return closed[0] if len(closed) == 1 else pa.concat_tables(closed)

    def _advance(self, before: int, until: int) -> list[pa.Table]:
        """Close as many slots as one step can; returns the windows that closed."""
        store, first = self.store, self.early.first_slot
        target = min(until, max(first, before + 1))
        if self.before_close is not None:
            self.before_close()
        store.make_room(target)  # if allocation fails, nothing has changed yet
        # Windows must read closed slots before these are overwritten or compressed.
        step = min(store.capacity, store.compress or store.capacity) if self.windows else target - before
        try:
            while before < target:
                upto = min(target, before + step)
                if err := store.close(upto):
                    self.look_at(err, "advance_to")
                if self.windows:
                    self.windows.take(before, upto)
                before = upto
        except BaseException as failed:
            self._stop("advance_to", failed)
            raise
        closed = self.windows.taken() if self.windows else []
        if first < target + len(store.ahead):
            self.bring_in()
        return closed

    def _open_more(self) -> None:
        """Open more slots for early rows, if they take little memory: buffering takes longer."""
        store = self.store
        most = OPEN_CELLS // store.room
        need = self.early.last_slot - store.now + 1
        if isinstance(store, SparseStore) and need > most:
            return  # they are closed without being opened
        slots = power_of_two(max(1, min(most, need)))
        if slots > len(store.ahead):
            if store.packed:
                store.unpack()
            store.have_open(slots)
            self.bring_in()

    def _advance_sparse(self, store: SparseStore, until: int, progress: Progress) -> None:
        """Close all slots below `until`: the open slots, then those of early rows, many at a time."""
        if until <= store.now:
            return
        if self.early.first_slot < store.now + len(store.ahead):  # fewer slots were open before a save
            self.bring_in()
        begun = store.now
        if self.before_close is not None:
            self.before_close()
        store.make_room(until)  # if allocation fails, nothing has changed yet
        with self._stopping("advance_to"):
            if self.early.first_slot >= until:
                err = store.close(until)
            else:  # early rows are beyond the open slots, which are therefore closed first
                err = store.close(min(until, store.now + len(store.ahead)))
                if not err and (rows := self.early.below(until * self.grain)) is not None:
                    for some, slots in self._by_slots(rows):
                        self._close_early(store, some, slots)
                        progress(store.now - begun, until - begun)
                err = err or store.close(until)
        if err:
            self.look_at(err, "advance_to")
        if self.early.first_slot < until + len(store.ahead):
            self.bring_in()

    def _by_slots(self, rows: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, Any]]:
        """Cut rows that are in the order of time between slots; yields rows, and the slot of each."""
        slots, at = values(rows.column(self.time)) // self.grain, 0
        while at < len(slots):
            upto = at + int(np.searchsorted(slots[at:], slots[min(at + EARLY_ROWS, len(slots)) - 1], "right"))
            yield rows.slice(at, upto - at), slots[at:upto]
            at = upto

    def _close_early(self, store: SparseStore, rows: pa.RecordBatch, slots: Any) -> None:
        """Insert rows, in the order of time, into records of their own, and close the slots of these."""
        if self.before_close is not None:
            self.before_close()
        kid, insert = self.inserter.prepared(rows, self.keys, self.lock)
        store.know(self.keys.count)
        order = order_by(slots, kid) if self.keyed else np.arange(len(slots))
        slots, kid = slots[order], kid[order] if self.keyed else np.zeros(len(slots), dtype=np.int64)
        new = np.ones(len(slots), dtype=np.bool_)
        new[1:] = (slots[1:] != slots[:-1]) | (kid[1:] != kid[:-1])
        position = np.empty(len(slots), dtype=np.int64)
        position[order] = np.cumsum(new) - 1
        made = records(store.fresh, power_of_two(int(new.sum()))).reshape(-1, 1)
        insert(position, made)
        self.inserted += rows.num_rows
        if err := store.close_cells(made, slots[new], kid[new]):
            self.look_at(err, "advance_to")

    def require_memory(self, until: int) -> None:
        """Raise for a watermark, mistakenly years ahead, up to which "keep" would need too much memory."""
        store = self.store
        need = 0
        for r, ring in enumerate(store.rings):
            if ring.slots is None:
                slots = max(0, until // int(store.ring(r)[UNIT]) - int(store.ring(r)[BASE]))
                # Compressed slots usually need half of this or less.
                need += slots * store.room * store.cell_bytes // (2 if store.compresses(r) else 1)
        if need > (most := self.spec.tuning.most_bytes):
            raise UserError(
                "advance_to", expected=f"rings of at most {most / 1e9:.3g} GB, half of the memory",
                got=f"{need / 1e9:.3g} GB up to {self.instant(until * self.grain)}",
                hint='with prefix=, compress= or windows, "keep" holds every slot, even empty ones: '
                "keep a number of them, or do without",
            )  # fmt: skip

    def bring_in(self) -> None:
        """Insert the early rows whose slots are open now."""
        reach = (self.store.now + len(self.store.ahead)) * self.grain
        if (rows := self.early.below(reach)) is not None:
            with self._stopping("advance_to"):
                self._insert(rows)


class _BeforeRows:
    """The counts, late rows, early rows and keys of a wheel before an insert. Slots have their own undo."""

    def __init__(self, state: WheelState) -> None:
        self._state = state
        self._inserted, self._left_out = state.inserted, dict(state.left_out)
        self._late = len(state.late), state.late_kept
        self._early = state.early.state
        self._keys = state.keys.count

    def roll_back(self, cause: BaseException) -> None:
        """Restore them after any failure."""
        state = self._state
        state.inserted, state.left_out = self._inserted, self._left_out
        del state.late[self._late[0] :]
        state.late_kept = self._late[1]
        state.early.cut_back(*self._early)
        # Ctrl-C and the like may have interrupted the insertion of keys.
        if state.keyed and (state.keys.count != self._keys or not isinstance(cause, UserError)):
            keys = KeyIndex(state.keys.schema)
            if self._keys:
                keys.restore(state.keys.decode(np.arange(self._keys)))
            state.store.forget(self._keys)
            with state.lock:  # in place: windows and others share the object
                state.keys.__dict__.update(keys.__dict__)
                state.seen.clear()


def empty_state(spec: WheelSpec, first: int, compress: int = 0, *, sparse: bool | None = None) -> WheelState:
    """An empty wheel that starts at slot `first` and compresses blocks of `compress` slots.

    By default it is sparse if a ring keeps all slots and nothing needs a cell for each of them.
    """
    layout, rings, threshold = spec.plan.layout, spec.rings, spec.one_ring_below
    if sparse is None:
        plain = not (spec.prefix or compress or spec.sessions)
        sparse = plain and any(ring.slots is None for ring in rings)
    held: RingStore
    if spec.objects:
        held = ObjectStore(layout, rings, first, spec.open_slots, threshold=threshold)
    elif sparse:
        keyed = bool(spec.plan.group_keys)
        held = SparseStore(
            layout, rings, first, spec.open_slots, keyed=keyed, threshold=threshold, tuning=spec.tuning
        )
    else:
        held = RingStore(
            layout, rings, first, spec.open_slots, prefix=spec.prefix, threshold=threshold,
            compress=compress, tuning=spec.tuning,
        )  # fmt: skip
    return WheelState(spec, held)
