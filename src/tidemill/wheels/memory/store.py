"""The memory of a wheel: open slots ahead of the watermark, rings of closed slots behind it.

Columns hold a cell for each key of each slot, slot by slot, all rings one after the other. Nothing here
depends on input columns or Arrow; keys are numbers `0, 1, 2, …`.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.aggregates.layout import Layout, Result
from tidemill.codegen.algebra import numpy_type
from tidemill.core.errors import UserError
from tidemill.core.time import FOREVER
from tidemill.jit.addresses import frame_of
from tidemill.kernels.arrow import allocate
from tidemill.wheels.loops.answer import CHANGED, Storage, answer_kernel
from tidemill.wheels.loops.close import DONE, FAILED, NEEDS_MARKS, close_kernel
from tidemill.wheels.loops.fold import fold_kernel, lower_kernel
from tidemill.wheels.loops.range_plan import (
    ADDING,
    BASE,
    BLOCK,
    BLOCK_ROW,
    CAPACITY,
    END,
    FIRST,
    HEAD,
    INVERSE_LANDMARK,
    KEYS,
    LOW,
    MARKED,
    NEVER,
    OFFSET,
    PLAIN,
    PREFIX,
    RING,
    RINGS,
    ROOM,
    TOTAL,
    UNIT,
    VERSION,
)  # fmt: skip
from tidemill.wheels.loops.slots import SlotLayout
from tidemill.wheels.memory.compressed import CompressedBlocks, compress_full
from tidemill.wheels.memory.empty_slots import close_empty
from tidemill.wheels.memory.undo import OpenSlotsUndo, copies, undo_log
from tidemill.wheels.rings import Ring
from tidemill.wheels.tuning import DEFAULT, WheelTuning

Ints = npt.NDArray[np.int64]
NOT_ASKED = np.empty(0, dtype=np.bool_)
FEW_ROWS = 1 << 16
"""The most rows that are inserted by address."""
MANY_KEYS = 1 << 16
"""From this many keys on, room for keys grows by a quarter instead of twofold."""
FIRST_ROOM = 64
"""The initial capacity of a ring that keeps all slots."""


class RingStore:
    """The slots of a wheel, for a layout and some keys. Slots of the finest ring are numbered from the epoch.

    With `compress`, rings that keep many slots compress the older ones in blocks of that many slots.
    """

    OWN: tuple[str, ...] = ("head", "ahead", "touched", "totals", "marks")
    """The arrays that a copy of a store copies, besides its columns."""

    def __init__(
        self, layout: Layout, rings: Sequence[Ring], first: int, ahead: int, *, prefix: bool,
        threshold: int = 0, compress: int = 0, room: bool = True, storage: Storage = Storage.DENSE,
        tuning: WheelTuning = DEFAULT,
    ) -> None:  # fmt: skip
        self.layout, self.rings, self.slots = layout, tuple(rings), SlotLayout(layout)
        self.prefix, self.threshold, self.compress = prefix, threshold, compress
        self.tuning = tuning
        self.blocks: CompressedBlocks | None = None
        if compress:
            columns = len(self.slots.stored) + len(self.slots.marks)
            self.blocks = CompressedBlocks.empty(len(rings), compress, columns)
        offset = self._number_rings(first)
        if not room:  # the caller replaces the arrays made here
            offset = 0
        self._require_memory(offset, 1)
        self.slots_in_all = offset
        self.on_change: Callable[[RingStore], None] = lambda store: None
        """Called when arrays were replaced, before anyone reads the new ones."""
        self.on_undo: Callable[[RingStore], None] = lambda store: None
        """Called when the previous arrays were restored."""
        self.on_retry: Callable[[float], None] = lambda since: time.sleep(0)
        """Called before an answer is retried because slots were closing, with the time of the first retry."""
        self.shared = False
        """Whether other processes read the arrays."""
        self.packed = False
        self.others = np.empty(FEW_ROWS, dtype=np.uint32)
        """The positions of rows that an insert left out."""
        self.places = np.zeros(FEW_ROWS + 1, dtype=np.int64)
        self._shadow: npt.NDArray[Any] = np.empty(0, dtype=np.int64)
        self.settled = 0
        """How often arrays were replaced."""
        self._asked: Any = None
        """The arrays that answers read, in the order of the kernel, and a view of the head."""
        self.fresh = np.array([self.slots.fresh()], dtype=self.slots.open_type)
        self.records = np.empty(FEW_ROWS, dtype=self.slots.open_type)
        """With `places`, the undo log for the insertion of few rows."""
        self.ahead = records(self.fresh, ahead).reshape(ahead, 1)
        self.totals = self.fresh.copy()
        self.identity = {n: self.fresh[n][0] for n, _ in self.slots.stored}
        self.columns = [self.column(n, offset) for n, _ in self.slots.stored]
        self.prefixes = [self.column(n, offset if prefix else 0) for n, _ in self.slots.stored]
        self.marks = np.zeros((len(self.slots.marks), 1), dtype=np.uint8)
        self.touched = no_bits(ahead, 1)
        """With keys, a bit for each key with rows in an open slot."""
        self.storage = Storage.PREFIX if prefix else Storage.COMPRESSED if compress else storage
        self._close: Any = self._closing_kernel()
        self._answer = answer_kernel(layout, self.storage)
        self._one_at = self._answer.one_at
        self.changed()

    def _closing_kernel(self) -> Any:
        return close_kernel(self.layout, self.prefix)

    # -- shape

    def _number_rings(self, first: int) -> int:
        """Make the head of a store that starts at slot `first`; returns the number of allocated slots."""
        self.head = np.zeros(HEAD + RING * len(self.rings), dtype=np.int64)
        self.head[[KEYS, ROOM, RINGS, FIRST, TOTAL]] = (0, 1, len(self.rings), first, 1)
        self.head[PREFIX], self.head[BLOCK] = int(self.prefix), self.compress
        offset = 0
        for r, ring in enumerate(self.rings):
            h = self.ring(r)
            capacity = self._least_room(r)
            h[UNIT] = ring.ticks // self.rings[0].ticks
            h[[BASE, LOW, END, PLAIN]] = first // h[UNIT]
            h[CAPACITY], h[OFFSET] = capacity, offset
            h[BLOCK_ROW] = 0 if self.compresses(r) else NEVER
            offset += capacity
        return offset

    def compresses(self, r: int) -> bool:
        """Whether a ring compresses its older slots: not if it keeps few."""
        kept = self.rings[r].slots
        return bool(self.compress) and (kept is None or kept > self.plain_room(r))

    def plain_room(self, r: int) -> int:
        """The most uncompressed slots of a compressed ring: rolling up and windows read them."""
        coarser = self.rings[r + 1].ticks // self.rings[r].ticks if r + 1 < len(self.rings) else 1
        return max(coarser, self.compress) + 2 * self.compress

    def _least_room(self, r: int) -> int:
        """The initial capacity of a ring, which is final unless the ring grows."""
        return self.plain_room(r) if self.compresses(r) else self.rings[r].slots or FIRST_ROOM

    def grows(self, r: int) -> bool:
        """Whether a ring takes more memory with every slot."""
        return self.rings[r].slots is None and not self.compresses(r)

    def ring(self, number: int) -> Ints:
        """The numbers of a ring, as a view of the head."""
        return self.head[HEAD + RING * number : HEAD + RING * (number + 1)]

    @property
    def keys(self) -> int:
        return int(self.head[KEYS])

    @property
    def room(self) -> int:
        """The number of keys that are allocated."""
        return self.head.item(ROOM)

    @property
    def now(self) -> int:
        """The first open slot."""
        return self.head.item(HEAD + END)

    @property
    def capacity(self) -> int:
        """The number of allocated closed slots of the finest ring."""
        return self.head.item(HEAD + CAPACITY)

    @property
    def first(self) -> int:
        """The first slot of the wheel."""
        return int(self.head[FIRST])

    @property
    def cell_bytes(self) -> int:
        """The bytes of a key in a slot, without marks."""
        columns = (*self.columns, *(self.prefixes if self.prefix else ()))
        return sum(c.itemsize for c in columns)

    @property
    def choice(self) -> tuple[int, int, int]:
        """The planner's options: the kinds allowed, the threshold, the cost of a slot."""
        allowed = ADDING | (1 << INVERSE_LANDMARK if self.slots.subtracts else 0)
        keyed, compressed, fast = self.room > 1, bool(self.compress), self.tuning.fast_slot
        cost = self.slots.slot_cost(keyed=keyed, compressed=compressed, fast=fast)
        return allowed, self.threshold, cost

    @property
    def held(self) -> list[int]:
        """The number of closed slots in each ring."""
        rings = (self.ring(r) for r in range(len(self.rings)))
        return [int(h[END] - h[LOW]) for h in rings]

    def column(self, name: str, slots: int) -> npt.NDArray[Any]:
        """An empty column for a number of slots."""
        kind = dict(self.slots.stored)[name]
        size = max(1, slots * int(self.head[ROOM]))
        return _filled(size, self.identity[name], numpy_type(kind))

    # -- growth

    @contextlib.contextmanager
    def _all_or_none(self) -> Iterator[None]:
        """Restore the previous arrays if the body fails; the body may replace arrays, but not change them."""
        before = {**self.__dict__, "columns": list(self.columns), "prefixes": list(self.prefixes)}
        version = self.head.item(VERSION)
        try:
            yield
        except BaseException:  # also Ctrl-C
            self.__dict__.update(before)
            self.head[VERSION] = version  # it may be odd already, which would make readers wait forever
            self.on_undo(self)
            raise

    def know(self, keys: int) -> None:
        """Raise the number of keys to `keys`."""
        if keys > self.keys:
            with self._all_or_none():
                self._know(keys)

    def forget(self, keys: int) -> None:
        """Lower the number of keys to `keys`: the others never had a row."""
        self.head[KEYS] = min(keys, self.keys)

    def _know(self, keys: int) -> None:
        self.unpack()
        room = int(self.head[ROOM])
        if keys > room:
            capacities = [int(self.ring(r)[CAPACITY]) for r in range(len(self.rings))]
            self._reshape(max(keys, room + (room if room < MANY_KEYS else room // 4)), capacities)
        if any(self.held):
            self.need_marks()  # the new keys have no rows in closed slots
        self.head[KEYS] = keys

    def _reshape(self, room: int, capacities: list[int]) -> None:
        """Allocate arrays for more keys or more slots, and copy the contents."""
        self._require_memory(sum(capacities), room)
        before, old_room = self.head, int(self.head[ROOM])
        old = (self.columns, self.prefixes, self.marks)
        self.head = before.copy()  # concurrent reads are repeated: see `changed`
        self.head[ROOM] = room
        offset = 0
        for r, capacity in enumerate(capacities):
            self.ring(r)[CAPACITY], self.ring(r)[OFFSET] = capacity, offset
            offset += capacity
        self.slots_in_all = offset
        names = [n for n, _ in self.slots.stored]
        self.columns = [self.column(n, offset) for n in names]
        self.prefixes = [self.column(n, offset if self.prefix else 0) for n in names]
        if self.head[MARKED]:
            self.marks = self.no_marks()
        for r in range(len(self.rings)):
            h = before[HEAD + RING * r : HEAD + RING * (r + 1)]
            slots = np.arange(h[PLAIN], h[END])
            source = h[OFFSET] + (slots - h[BASE]) % h[CAPACITY]
            target = self.rows(r, slots)
            moved = zip(self.columns, old[0]), zip(self.prefixes, old[1] if self.prefix else ())
            for new, was in itertools.chain(*moved):
                by_slot = was[: len(was) // old_room * old_room].reshape(-1, old_room)
                new.reshape(-1, room)[target, :old_room] = by_slot[source]
            if self.head[MARKED]:
                self._move_marks(old[2], old_room, source, target)
        self._have_keys(room)
        self.changed()

    def _have_keys(self, room: int) -> None:
        """Allocate open slots and totals for more keys. For many keys, fewer slots are open."""
        if (grown := room - self.ahead.shape[1]) > 0:
            self._have_open(self.fewer_open(len(self.ahead), self._extent, room), room)
            self.totals = np.concatenate((self.totals, records(self.fresh, grown)))

    def fewer_open(self, slots: int, extent: int, keys: int) -> int:
        """How many of `slots` slots to open for some keys; the first `extent` of them must be open."""
        most = max(1, self.tuning.open_bytes // (keys * self.fresh.itemsize))
        while slots > most and slots // 2 >= extent:
            slots //= 2
        return slots

    def _require_memory(self, slots: int, keys: int) -> None:
        """Raise if rings need too much memory: a retention may be a mistake, or come from a bad file."""
        each = sum(np.dtype(numpy_type(kind)).itemsize for _, kind in self.slots.stored)
        need = slots * keys * each * (2 if self.prefix else 1)
        if need > (most := self.tuning.most_bytes):
            raise UserError(
                "wheel", expected=f"rings of at most {most / 1e9:.3g} GB, half of the memory",
                got=f"{need / 1e9:.3g} GB for {slots} slots of {keys} keys", hint="keep fewer slots",
            )  # fmt: skip

    def rows(self, r: int, slots: Ints) -> Ints:
        """The rows of slots of a ring."""
        h = self.ring(r)
        rows: Ints = h[OFFSET] + (slots - h[BASE]) % h[CAPACITY]
        return rows

    def no_marks(self) -> npt.NDArray[np.uint8]:
        """Empty marks for all cells."""
        cells = self.slots_in_all * int(self.head[ROOM])
        return np.zeros((len(self.slots.marks), cells // 8 + 1), dtype=np.uint8)

    def _move_marks(self, was: Any, old_room: int, source: Ints, target: Ints) -> None:
        room = int(self.head[ROOM])
        own = np.arange(min(room, old_room))
        for m in range(len(was)):
            cells = np.unpackbits(was[m], bitorder="little")
            found = cells[(source[:, None] * old_room + own).ravel()]
            mark(self.marks[m], (target[:, None] * room + own).ravel()[found != 0])

    def need_marks(self) -> None:
        """Start to store marks; every cell so far gets all of them."""
        if not self.head[MARKED]:
            with self._all_or_none():
                self._mark_all()

    def _mark_all(self) -> None:
        self.head = self.head.copy()
        self.head[MARKED] = 1
        self.marks = self.no_marks()
        room, own = int(self.head[ROOM]), np.arange(self.keys)
        for r in range(len(self.rings)):
            rows = self.rows(r, np.arange(self.ring(r)[PLAIN], self.ring(r)[END]))
            at = (rows[:, None] * room + own).ravel()
            for bits in self.marks:
                mark(bits, at)
        self.changed()

    # -- rows in

    def remember(self, rows: int) -> bool:
        """Prepare to undo the insertion of a few rows; returns whether the kernel must log its changes."""
        if copies(self._words.size, rows):
            if self._shadow.size != self._words.size:
                self._shadow = np.empty_like(self._words)
            np.copyto(self._shadow, self._words)
            self.places[0] = -1
            return False
        self.places[0] = 0
        return True

    def undo(self) -> OpenSlotsUndo:
        """An undo for any number of rows that are inserted from now on."""
        return OpenSlotsUndo(self)

    def put_back(self) -> None:
        """Undo the insertion since `remember`."""
        if self.places[0] < 0:
            np.copyto(self._words, self._shadow)
        else:
            undo_log(self.ahead, self.places, self.records)

    # -- time

    def close(self, until: int) -> int:
        """Close the open slots below `until`; returns error bits, 0 if nothing failed."""
        self.make_room(until)
        seen = self._asked[1]
        seen[VERSION] += 1
        try:
            far = until - seen[HEAD + END] > self._far
            how, err = self._close_far(until) if far else self._close_each(until)
        finally:
            self._asked[1][VERSION] += 1
        return 0 if how == DONE else int(err)

    def make_room(self, until: int) -> None:
        """Allocate memory to close the slots below `until`."""
        if self.packed:
            self.unpack()
        if until >= self._full_from:
            self.room_until(until)

    def roll_up(self, first: int) -> int:
        """Make the slots that are now complete in the rings from number `first` on; returns error bits."""
        how, err = self._close.roll_at(self._closing, first)
        return 0 if how == DONE else int(err)

    def _close_far(self, until: int) -> tuple[int, int]:
        """Close the open slots one by one, and those beyond in bulk: they have no rows."""
        how, err = self._close_each(self.now + len(self.ahead))
        if how == DONE and (err := close_empty(self, until)):
            how = FAILED
        return how, err

    def _close_each(self, until: int) -> tuple[int, int]:
        while True:
            # In a ring that compresses, new cells must not overwrite cells before they are in a block.
            step = min(until, self.now + self.compress) if self.compress else until
            how, err = self._close.run_at(self._closing, step)
            if how == NEEDS_MARKS:
                self.need_marks()
                continue
            if self.compress:
                compress_full(self)
            if how != DONE or step == until:
                return how, err

    def note_directory(self) -> None:
        """Write into the head where the directory has the blocks of each ring."""
        assert self.blocks is not None
        for r in range(len(self.rings)):
            if self.compresses(r):
                self.ring(r)[BLOCK_ROW] = self.blocks.row(r)

    def cells(self, r: int, slots: Ints) -> tuple[list[npt.NDArray[Any]], list[npt.NDArray[Any]]]:
        """The stored columns and the marks of uncompressed slots, by slot and key."""
        rows, room, keys = self.rows(r, slots), int(self.head[ROOM]), self.keys
        columns = [c[: self.slots_in_all * room].reshape(-1, room)[rows, :keys] for c in self.columns]
        if not self.head[MARKED]:
            return columns, [np.ones((len(slots), keys), dtype=np.bool_) for _ in self.marks]
        at = rows[:, None] * room + np.arange(keys)
        return columns, [(bits[at >> 3] >> (at & 7) & 1).astype(np.bool_) for bits in self.marks]

    def have_open(self, slots: int) -> None:
        """Set the number of open slots, a power of two; all slots with rows must be among them."""
        self._have_open(slots, self.ahead.shape[1])
        self.settle()

    def _have_open(self, slots: int, room: int) -> None:
        before, touched, occupied = self.ahead, self.touched, self.occupied
        # Slots without rows are not copied: the system allocates zeros when they are first written.
        self.ahead = records(self.fresh, slots * room).reshape(slots, room)
        self.touched = no_bits(slots, room)
        at, was = occupied & (slots - 1), occupied & (len(before) - 1)
        self.ahead[at, : before.shape[1]] = before[was]
        self.touched[at, : touched.shape[1]] = touched[was]

    @property
    def occupied(self) -> Ints:
        """The open slots with rows."""
        at = np.flatnonzero(self.ahead["rows"].any(axis=1))
        return np.sort(self.now + ((at - self.now) & (len(self.ahead) - 1)))

    @property
    def _extent(self) -> int:
        """The number of slots from the watermark to the last one with rows."""
        found = self.occupied
        return int(found[-1]) - self.now + 1 if len(found) else 0

    def moved(self, at: Ints, slots: int) -> Ints:
        """The rows of `ahead` to which rows were moved that were at `at` when it had `slots` rows."""
        return (self.now + ((at - self.now) & (slots - 1))) & (len(self.ahead) - 1)

    @property
    def present(self) -> Ints:
        """The keys that ever had a row: null has a number even if it never occurred."""
        return np.flatnonzero(self.totals["rows"][: self.keys])

    def had_rows(self, key: int) -> bool:
        """Whether a key ever had a row, in a closed slot or an open one."""
        return bool(self.totals["rows"][key] or self.ahead["rows"][:, key].any())

    def begin_at(self, slot: int) -> None:
        """Set the first slot of a store without rows."""
        self.head = self.head.copy()
        self.head[FIRST] = slot
        for r in range(len(self.rings)):
            h = self.ring(r)
            h[[BASE, LOW, END, PLAIN]] = slot // h[UNIT]
        if self.blocks is not None:
            self.blocks = CompressedBlocks.empty(len(self.rings), self.compress, self.blocks.columns)
            self.note_directory()
        self.changed()

    def hold_until(self, until: int) -> None:
        """Close all slots below `until` as empty."""
        self.room_until(until)
        assert not self.compress
        for r in range(len(self.rings)):
            h = self.ring(r)
            h[END] = until // h[UNIT]
            h[LOW] = h[PLAIN] = max(h[LOW], h[END] - h[CAPACITY])
        if any(self.held):
            self.head[MARKED] = 1
            self.marks = self.no_marks()
            self.changed()

    def room_until(self, until: int) -> None:
        """Allocate memory for all slots below `until`."""
        if not any(map(self.grows, range(len(self.rings)))):
            return
        capacities, grows = [], False
        for r in range(len(self.rings)):
            h = self.ring(r)
            need, capacity = until // int(h[UNIT]) - int(h[BASE]), int(h[CAPACITY])
            if self.grows(r) and need > capacity:
                capacity, grows = max(need, capacity + capacity // 16), True
            capacities.append(capacity)
        if grows:
            with self._all_or_none():
                self._reshape(int(self.head[ROOM]), capacities)

    def copy(self) -> RingStore:
        """Return an independent copy."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.on_change = other.on_undo = lambda store: None  # the copy is not shared
        other.shared = False
        other._asked = None
        for name in self.OWN:
            setattr(other, name, getattr(self, name).copy())
        for name in ("others", "places", "records", "_shadow"):  # empty between inserts
            setattr(other, name, np.empty_like(getattr(self, name)))
        other.columns = [c.copy() for c in self.columns]
        other.prefixes = [c.copy() for c in self.prefixes]
        other.blocks = None if self.blocks is None else self.blocks.copy()
        other.changed()
        return other

    # -- sharing

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays that answers read, by name."""
        named: dict[str, npt.NDArray[Any]] = {
            "head": self.head, "totals": self.totals, "marks": self.marks,
        }
        for kind, columns in (("f", self.columns), ("x", self.prefixes)):
            named |= {f"{kind}_{n}": c for (n, _), c in zip(self.slots.stored, columns)}
        return named

    def kinds(self) -> dict[str, np.dtype[Any]]:
        return {name: array.dtype for name, array in self.arrays().items()}

    def replace(self, name: str, array: npt.NDArray[Any]) -> None:
        """Replace an array by another; call `settle` after the last one."""
        if name in ("head", "totals", "marks"):
            setattr(self, name, array)
            return
        names = [n for n, _ in self.slots.stored]
        columns = self.columns if name.startswith("f_") else self.prefixes
        columns[names.index(name[2:])] = array

    # -- files

    def seal(self) -> CompressedBlocks | None:
        """The compressed slots, with one buffer for those that are in no file; None without compression."""
        if self.blocks is not None:
            self.blocks.seal()
            self.settle()
        return self.blocks

    def unpack(self) -> None:
        """Copy packed arrays into new ones with spare capacity."""
        if self.packed:
            with self._all_or_none():
                self.packed = False
                rooms = [
                    max(FIRST_ROOM, held) if self.grows(r) else self._least_room(r)
                    for r, held in enumerate(self.held)
                ]
                self._reshape(int(self.head[ROOM]), rooms)

    # -- answers

    def answer(self, start: int, end: int, key: int) -> tuple[Any, ...]:
        """Answer a range of ticks as `(status, valid, value, …)`: see `AnswerKernel.one_at`."""
        found = self._one_at(self.frame, start, end, key)
        if found[0] != CHANGED:
            return found
        since = time.monotonic()
        while found[0] == CHANGED:
            self.on_retry(since)
            found = self._one_at(self.frame, start, end, key)
        return found

    def answers(
        self, starts: Ints, ends: Ints, keys: Ints, outputs: Sequence[npt.NDArray[Any]],
        rows: npt.NDArray[np.bool_] = NOT_ASKED,
    ) -> tuple[int, int]:  # fmt: skip
        """Answer a range for each key, or one range for all. Returns the first that is not held, or -1, and
        error bits. `rows`, if given, receives whether there was any row."""
        shared = len(starts) != len(keys)
        since = 0.0
        while True:
            arrays, seen = self._asked
            version = seen[VERSION]
            bad, err = self._answer.run(starts, ends, keys, shared, rows, *self._choice, *arrays, *outputs)
            if seen[VERSION] == version and not version & 1:
                return int(bad), int(err)
            since = since or time.monotonic()
            self.on_retry(since)

    # -- partials, for totals over keys and for results other than the wheel's own

    def no_partials(self, count: int) -> Any:
        """Empty partials, to which `fold` adds."""
        return records(self.fresh, count)

    def fold(self, starts: Ints, ends: Ints, keys: Ints, total: bool, partials: Any) -> tuple[int, int]:
        """Add ranges to partials: each for its key, or with `total` for all keys. Returns the first range
        that is not held, or -1, and error bits."""
        kernel = fold_kernel(self.layout, self.storage)
        since, before = 0.0, partials.copy()
        while True:
            arrays, seen = self._asked
            version = seen[VERSION]
            bad, err = kernel(starts, ends, keys, total, *self._choice, *arrays, partials)
            if seen[VERSION] == version and not version & 1:
                return int(bad), int(err)
            partials[...] = before
            since = since or time.monotonic()
            self.on_retry(since)

    def outputs(self, results: Sequence[Result], count: int) -> list[npt.NDArray[Any]]:
        """Arrays for the validity and the values of each result."""
        return [x for r in results for x in (np.empty(count, np.bool_), allocate(r.type, count))]

    def lower(self, partials: Any, layout: Layout, outputs: Sequence[npt.NDArray[Any]]) -> int:
        """Compute results of partials, which may differ from this store's results; returns error bits."""
        return int(lower_kernel(layout)(partials, *outputs))

    def any_rows(self, partials: Any) -> npt.NDArray[np.bool_]:
        """Whether there was a row in each partial."""
        found: npt.NDArray[np.bool_] = partials["rows"] > 0
        return found

    def changed(self) -> None:
        """Publish new arrays. Reads of the old ones are repeated, because both share some arrays."""
        before = self._asked
        self.on_change(self)
        self.settle()
        if before is not None and before[0][0] is not self.head:
            before[1][VERSION] |= 1

    def settle(self) -> None:
        """Recompute everything that depends on the arrays, after some were replaced.

        The version in the head is odd while slots close; reads meanwhile are repeated.
        """
        block_arrays = () if self.blocks is None else (self.blocks.directory, self.blocks.bases)
        arrays = (self.head, self.totals, self.marks, *block_arrays, *self.columns, *self.prefixes)
        self._asked = (arrays, memoryview(self.head))  # type: ignore[arg-type]  # it is a buffer
        self._choice = self.choice  # computing it takes longer than an answer
        self.frame = frame_of(arrays, *self._choice, self.rings[0].ticks)
        self.inserting = frame_of(
            [self.head, self.ahead, self.touched, self.others, self.places, self.records]
        )
        self._words = self.ahead.view(np.int64)
        self._closing = frame_of(
            [self.head, self.ahead, self.fresh, self.totals, self.marks, *self.columns, *self.prefixes]
        )
        self._full_from = self._first_without_room()
        self._far = len(self.ahead) + self.tuning.many_cells // self.room
        self.settled += 1

    def _first_without_room(self) -> int:
        """The slot below which slots can be closed without more memory."""
        rings = (self.ring(r) for r in range(len(self.rings)) if self.grows(r))
        return min((int((h[BASE] + h[CAPACITY] + 1) * h[UNIT]) for h in rings), default=FOREVER)

    def ring_bytes(self, r: int) -> int:
        """The bytes of a ring's closed slots, without marks and spare capacity."""
        plain = int(self.ring(r)[END] - self.ring(r)[PLAIN]) * self.keys * self.cell_bytes
        return plain + (self.blocks.ring_bytes(r) if self.blocks is not None else 0)

    @property
    def nbytes(self) -> dict[str, int]:
        """Bytes by purpose."""
        return {
            "rings": sum(c.nbytes for c in self.columns),
            "prefixes": sum(c.nbytes for c in self.prefixes) if self.prefix else 0,
            "compressed": 0 if self.blocks is None else self.blocks.nbytes,
            "marks": self.marks.nbytes,
            "open slots": self.ahead.nbytes,
            "totals": self.totals.nbytes,
        }


def _filled(size: int, value: Any, kind: Any) -> npt.NDArray[Any]:
    """An array of one value. Zeros are allocated lazily by the system, and many slots are never used."""
    return np.full(size, value, dtype=kind) if value or value != value else np.zeros(size, dtype=kind)


def records(fresh: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    """An array of empty records."""
    return np.repeat(fresh, count) if any(fresh.tobytes()) else np.zeros(count, dtype=fresh.dtype)


def no_bits(rows: int, keys: int) -> Ints:
    """Rows of 64-bit words with a bit for each key, all clear."""
    return np.zeros((rows, (keys + 63) // 64), dtype=np.int64)


def mark(bits: npt.NDArray[np.uint8], cells: Ints) -> None:
    """Set the marks of cells."""
    np.bitwise_or.at(bits, cells >> 3, (1 << (cells & 7)).astype(np.uint8))


def unmark(bits: npt.NDArray[np.uint8], cells: Ints) -> None:
    """Clear the marks of cells."""
    np.bitwise_and.at(bits, cells >> 3, ~(1 << (cells & 7)).astype(np.uint8))
