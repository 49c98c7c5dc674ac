"""The memory of a wheel: open slots ahead of the watermark, rings of closed ones behind it.

Columns hold a cell for each key of each slot, slot by slot, all rings one after the other. Nothing here
knows of columns of events or of Arrow; keys are numbers `0, 1, 2, …`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
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
from tidemill.local.expressions import allocate
from tidemill.wheels.loops.answer import CHANGED, answer_kernel
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

Ints = npt.NDArray[np.int64]
NOT_ASKED = np.empty(0, dtype=np.bool_)
FEW_ROWS = 1 << 16
"""So many rows at the most are inserted by address."""
MOST_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
"""What a wheel may take of the memory for what is not in it yet."""
MANY_CELLS = 1 << 12
"""So many cells in which there is nothing are worth closing at once."""
FIRST_ROOM = 64
"""Slots a ring that keeps everything has room for at first."""


class RingStore:
    """Slots of a layout for some keys. Slots are counted from the epoch, in the finest granularity.

    With `compress`, rings that keep many slots have the older ones in blocks of so many, compressed.
    """

    def __init__(
        self, layout: Layout, rings: Sequence[Ring], first: int, ahead: int, *, prefix: bool,
        threshold: int = 0, compress: int = 0, room: bool = True,
    ) -> None:  # fmt: skip
        self.layout, self.rings, self.slots = layout, tuple(rings), SlotLayout(layout)
        self.prefix, self.threshold, self.compress = prefix, threshold, compress
        self.blocks: CompressedBlocks | None = None
        if compress:
            columns = len(self.slots.stored) + len(self.slots.marks)
            self.blocks = CompressedBlocks.empty(len(rings), compress, columns)
        offset = self._number_rings(first)
        if not room:  # there are arrays elsewhere, which take the place of those made here
            offset = 0
        self._require_memory(offset, 1)
        self.slots_in_all = offset
        self.on_change: Callable[[RingStore], None] = lambda store: None
        """Called when there are new arrays, before anybody reads them."""
        self.on_undo: Callable[[RingStore], None] = lambda store: None
        """Called when the arrays before are there again."""
        self.on_retry: Callable[[float], None] = lambda since: time.sleep(0)
        """Called when slots were closing while an answer was made, with when that was first so."""
        self.packed = False
        self.others = np.empty(FEW_ROWS, dtype=np.uint32)
        """Where `insert` says which rows it left out."""
        self.places = np.zeros(FEW_ROWS + 1, dtype=np.int64)
        self._shadow: npt.NDArray[Any] = np.empty(0, dtype=np.int64)
        self.settled = 0
        """How often there were new arrays."""
        self._asked: Any = None
        """What answers are made from: arrays in the order of the kernel, the head as it is now."""
        self.fresh = np.array([self.slots.fresh()], dtype=self.slots.open_type)
        self.records = np.empty(FEW_ROWS, dtype=self.slots.open_type)
        """With `places`: where the insertion of few rows logs what it changes."""
        self.ahead = records(self.fresh, ahead).reshape(ahead, 1)
        self.totals = self.fresh.copy()
        self.identity = {n: self.fresh[n][0] for n, _ in self.slots.stored}
        self.columns = [self.column(n, offset) for n, _ in self.slots.stored]
        self.prefixes = [self.column(n, offset if prefix else 0) for n, _ in self.slots.stored]
        self.marks = np.zeros((len(self.slots.marks), 1), dtype=np.uint8)
        self._close = close_kernel(layout, prefix)
        self._answer = answer_kernel(layout, prefix, bool(compress))
        self._one_at = self._answer.one_at
        self.changed()

    # -- shape

    def _number_rings(self, first: int) -> int:
        """The head of a store that begins with a slot; how many slots there is room for."""
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
        """Whether a ring has its older slots compressed: not if it keeps few."""
        kept = self.rings[r].slots
        return bool(self.compress) and (kept is None or kept > self.plain_room(r))

    def plain_room(self, r: int) -> int:
        """Slots of a compressed ring that have cells: the next ring is made from them, and windows."""
        coarser = self.rings[r + 1].ticks // self.rings[r].ticks if r + 1 < len(self.rings) else 1
        return max(coarser, self.compress) + 2 * self.compress

    def _least_room(self, r: int) -> int:
        """Slots that a ring has room for at first, and for good unless it grows."""
        return self.plain_room(r) if self.compresses(r) else self.rings[r].slots or FIRST_ROOM

    def grows(self, r: int) -> bool:
        """Whether a ring takes more memory with every slot."""
        return self.rings[r].slots is None and not self.compresses(r)

    def ring(self, number: int) -> Ints:
        """The numbers of a ring, as they are."""
        return self.head[HEAD + RING * number : HEAD + RING * (number + 1)]

    @property
    def keys(self) -> int:
        return int(self.head[KEYS])

    @property
    def room(self) -> int:
        """The keys that there is room for."""
        return self.head.item(ROOM)

    @property
    def now(self) -> int:
        """The first slot that is open."""
        return self.head.item(HEAD + END)

    @property
    def capacity(self) -> int:
        """The closed slots of the finest ring there is room for."""
        return self.head.item(HEAD + CAPACITY)

    @property
    def first(self) -> int:
        """The slot that everything begins with."""
        return int(self.head[FIRST])

    @property
    def cell_bytes(self) -> int:
        """What a key takes in a slot, marks aside."""
        columns = (*self.columns, *(self.prefixes if self.prefix else ()))
        return sum(c.itemsize for c in columns)

    @property
    def choice(self) -> tuple[int, int, int]:
        """What a plan may choose from: the kinds allowed, the threshold, the cost of a slot."""
        allowed = ADDING | (1 << INVERSE_LANDMARK if self.slots.subtracts else 0)
        cost = self.slots.slot_cost(keyed=self.room > 1, compressed=bool(self.compress))
        return allowed, self.threshold, cost

    @property
    def held(self) -> list[int]:
        """How many closed slots each ring holds."""
        rings = (self.ring(r) for r in range(len(self.rings)))
        return [int(h[END] - h[LOW]) for h in rings]

    def column(self, name: str, slots: int) -> npt.NDArray[Any]:
        """A column of nothing, for so many slots."""
        kind = dict(self.slots.stored)[name]
        size = max(1, slots * int(self.head[ROOM]))
        return _filled(size, self.identity[name], numpy_type(kind))

    # -- growth

    @contextlib.contextmanager
    def _all_or_none(self) -> Iterator[None]:
        """Arrays are replaced here, never changed: where that does not come to its end, those before stay."""
        before = {**self.__dict__, "columns": list(self.columns), "prefixes": list(self.prefixes)}
        version = self.head.item(VERSION)
        try:
            yield
        except BaseException:  # also Ctrl-C
            self.__dict__.update(before)
            self.head[VERSION] = version  # readers may have been sent to arrays that are not there
            self.on_undo(self)
            raise

    def know(self, keys: int) -> None:
        """There are so many keys now."""
        if keys > self.keys:
            with self._all_or_none():
                self._know(keys)

    def forget(self, keys: int) -> None:
        """There are so many keys only: no row of others has ever come."""
        self.head[KEYS] = min(keys, self.keys)

    def _know(self, keys: int) -> None:
        self.unpack()
        room = int(self.head[ROOM])
        if keys > room:
            capacities = [int(self.ring(r)[CAPACITY]) for r in range(len(self.rings))]
            self._reshape(max(keys, 2 * room), capacities)
        if any(self.held):
            self.need_marks()  # the new keys were not there in the slots that are closed
        self.head[KEYS] = keys

    def _reshape(self, room: int, capacities: list[int]) -> None:
        """Room for more keys, or more slots; what there is moves."""
        self._require_memory(sum(capacities), room)
        before, old_room = self.head, int(self.head[ROOM])
        old = (self.columns, self.prefixes, self.marks)
        self.head = before.copy()  # who reads now reads again: see `changed`
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
        grown = room - self.ahead.shape[1]
        if grown:
            more = records(self.fresh, len(self.ahead) * grown).reshape(len(self.ahead), grown)
            self.ahead = np.concatenate((self.ahead, more), axis=1)
            self.totals = np.concatenate((self.totals, records(self.fresh, grown)))
        self.changed()

    def _require_memory(self, slots: int, keys: int) -> None:
        """Refuse room for so much that there cannot be: a retention may be a mistake, or a file's."""
        each = sum(np.dtype(numpy_type(kind)).itemsize for _, kind in self.slots.stored)
        need = slots * keys * each * (2 if self.prefix else 1)
        if need > MOST_BYTES:
            raise UserError(
                "wheel", expected=f"rings of at most {MOST_BYTES / 1e9:.3g} GB, half of the memory",
                got=f"{need / 1e9:.3g} GB for {slots} slots of {keys} keys", hint="keep fewer slots",
            )  # fmt: skip

    def rows(self, r: int, slots: Ints) -> Ints:
        """Where slots of a ring lie."""
        h = self.ring(r)
        rows: Ints = h[OFFSET] + (slots - h[BASE]) % h[CAPACITY]
        return rows

    def no_marks(self) -> npt.NDArray[np.uint8]:
        """Marks of nothing."""
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
        """From now on it is known for each cell whether there was anything; so far there was."""
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
        """Be ready to take out again a few rows that go in now; whether the kernel logs what it changes."""
        if copies(self._words.size, rows):
            if self._shadow.size != self._words.size:
                self._shadow = np.empty_like(self._words)
            np.copyto(self._shadow, self._words)
            self.places[0] = -1
            return False
        self.places[0] = 0
        return True

    def undo(self) -> OpenSlotsUndo:
        """What can take out again any number of rows that go in from now on."""
        return OpenSlotsUndo(self)

    def put_back(self) -> None:
        """Take out the rows that went in since `remember`."""
        if self.places[0] < 0:
            np.copyto(self._words, self._shadow)
        else:
            undo_log(self.ahead, self.places, self.records)

    # -- time

    def close(self, until: int) -> int:
        """Close the open slots below one; bits of what failed, if anything did."""
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
        """Have room to close the slots below one."""
        if self.packed:
            self.unpack()
        if until >= self._full_from:
            self.room_until(until)

    def roll_up(self, first: int) -> int:
        """Make the slots of the rings from a number on that are complete now; bits of what failed."""
        how, err = self._close.roll_at(self._closing, first)
        return 0 if how == DONE else int(err)

    def _close_far(self, until: int) -> tuple[int, int]:
        """Close the open slots one by one, and those beyond at once: no row lies in them."""
        how, err = self._close_each(self.now + len(self.ahead))
        if how == DONE and (err := close_empty(self, until)):
            how = FAILED
        return how, err

    def _close_each(self, until: int) -> tuple[int, int]:
        while True:
            # Of a ring that compresses, cells may take the place of those a block was made of.
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
        """Say in the head where the blocks of each ring are found."""
        assert self.blocks is not None
        for r in range(len(self.rings)):
            if self.compresses(r):
                self.ring(r)[BLOCK_ROW] = self.blocks.row(r)

    def cells(self, r: int, slots: Ints) -> tuple[list[npt.NDArray[Any]], list[npt.NDArray[Any]]]:
        """The stored columns, and the marks, of slots that are not compressed: by slot and key."""
        rows, room, keys = self.rows(r, slots), int(self.head[ROOM]), self.keys
        columns = [c[: self.slots_in_all * room].reshape(-1, room)[rows, :keys] for c in self.columns]
        if not self.head[MARKED]:
            return columns, [np.ones((len(slots), keys), dtype=np.bool_) for _ in self.marks]
        at = rows[:, None] * room + np.arange(keys)
        return columns, [(bits[at >> 3] >> (at & 7) & 1).astype(np.bool_) for bits in self.marks]

    def have_open(self, slots: int) -> None:
        """Have so many slots open, a power of two; there are no rows in them now."""
        room = self.ahead.shape[1]
        self.ahead = records(self.fresh, slots * room).reshape(slots, room)
        self.settle()

    @property
    def present(self) -> Ints:
        """The keys that ever had a row: there is room for null, whether it came or not."""
        return np.flatnonzero(self.totals["rows"][: self.keys])

    def had_rows(self, key: int) -> bool:
        """Whether a key ever had a row, in a closed slot or an open one."""
        return bool(self.totals["rows"][key] or self.ahead["rows"][:, key].any())

    def begin_at(self, slot: int) -> None:
        """Have everything begin with a slot, in a store that has seen no row."""
        self.head = self.head.copy()
        self.head[FIRST] = slot
        for r in range(len(self.rings)):
            h = self.ring(r)
            h[[BASE, LOW, END, PLAIN]] = slot // h[UNIT]
        if self.blocks is not None:  # blocks of nothing
            self.blocks = CompressedBlocks.empty(len(self.rings), self.compress, self.blocks.columns)
            self.note_directory()
        self.changed()

    def hold_until(self, until: int) -> None:
        """Count all slots below one as closed, with nothing in them."""
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
        """Have room for all slots below one."""
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
        """Another store with the same in it."""
        other = RingStore.__new__(RingStore)
        other.__dict__.update(self.__dict__)
        other.on_change = other.on_undo = lambda store: None  # nobody else reads the copy
        other._asked = None
        for name in ("head", "ahead", "totals", "marks"):
            setattr(other, name, getattr(self, name).copy())
        for name in ("others", "places", "records", "_shadow"):  # nothing is in them between two inserts
            setattr(other, name, np.empty_like(getattr(self, name)))
        other.columns = [c.copy() for c in self.columns]
        other.prefixes = [c.copy() for c in self.prefixes]
        other.blocks = None if self.blocks is None else self.blocks.copy()
        other.changed()
        return other

    # -- as it is shared

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """What answers are made from, by name."""
        named: dict[str, npt.NDArray[Any]] = {
            "head": self.head, "totals": self.totals, "marks": self.marks,
        }
        for kind, columns in (("f", self.columns), ("x", self.prefixes)):
            named |= {f"{kind}_{n}": c for (n, _), c in zip(self.slots.stored, columns)}
        return named

    def kinds(self) -> dict[str, np.dtype[Any]]:
        return {name: array.dtype for name, array in self.arrays().items()}

    def replace(self, name: str, array: npt.NDArray[Any]) -> None:
        """Have another array in place of one; `settle` when all are replaced."""
        if name in ("head", "totals", "marks"):
            setattr(self, name, array)
            return
        names = [n for n, _ in self.slots.stored]
        columns = self.columns if name.startswith("f_") else self.prefixes
        columns[names.index(name[2:])] = array

    # -- as it is kept in files

    def seal(self) -> CompressedBlocks | None:
        """The compressed slots, all that is in no file yet in one buffer; None if nothing is compressed."""
        if self.blocks is not None:
            self.blocks.seal()
            self.settle()
        return self.blocks

    def unpack(self) -> None:
        """Have arrays of its own, with room to go on."""
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
        """`(status, valid, value, …)` of the results over a range of ticks: see `AnswerKernel.one_at`."""
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
        """Answer a range for each key, or one range for all. The first that is not held, or -1; bits of
        what failed. `rows`, if given, gets whether there was any row."""
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

    # -- partials, for totals over keys and results that are not the wheel's own

    def no_partials(self, count: int) -> Any:
        """So many partials of nothing, for `fold` to add to."""
        return records(self.fresh, count)

    def fold(self, starts: Ints, ends: Ints, keys: Ints, total: bool, partials: Any) -> tuple[int, int]:
        """Add ranges to partials: each for its key, or with `total` for all keys. The first range that is
        not held, or -1; bits of what failed."""
        kernel = fold_kernel(self.layout, self.prefix, bool(self.compress))
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
        """Results of partials, which may be others than those of this store's layout; bits of what failed."""
        return int(lower_kernel(layout)(partials, *outputs))

    def any_rows(self, partials: Any) -> npt.NDArray[np.bool_]:
        """Whether there was a row in each partial."""
        found: npt.NDArray[np.bool_] = partials["rows"] > 0
        return found

    def changed(self) -> None:
        """There are new arrays. Whoever reads the old ones must read again: some are in both, and go on."""
        before = self._asked
        self.on_change(self)
        self.settle()
        if before is not None and before[0][0] is not self.head:
            before[1][VERSION] |= 1

    def settle(self) -> None:
        """Take note of arrays that are new.

        The version is odd while slots close. Who reads meanwhile reads again.
        """
        block_arrays = () if self.blocks is None else (self.blocks.directory, self.blocks.bases)
        arrays = (self.head, self.totals, self.marks, *block_arrays, *self.columns, *self.prefixes)
        self._asked = (arrays, memoryview(self.head))  # type: ignore[arg-type]  # it is a buffer
        self._choice = self.choice  # which takes longer than an answer
        self.frame = frame_of(arrays, *self._choice, self.rings[0].ticks)
        self.inserting = frame_of([self.head, self.ahead, self.others, self.places, self.records])
        self._words = self.ahead.view(np.int64)
        self._closing = frame_of(
            [self.head, self.ahead, self.fresh, self.totals, self.marks, *self.columns, *self.prefixes]
        )
        self._full_from = self._first_without_room()
        self._far = len(self.ahead) + MANY_CELLS // self.room
        self.settled += 1

    def _first_without_room(self) -> int:
        """Slots below can be closed without more room."""
        rings = (self.ring(r) for r in range(len(self.rings)) if self.grows(r))
        return min((int((h[BASE] + h[CAPACITY] + 1) * h[UNIT]) for h in rings), default=FOREVER)

    def ring_bytes(self, r: int) -> int:
        """What the closed slots of a ring take, marks and room to spare aside."""
        plain = int(self.ring(r)[END] - self.ring(r)[PLAIN]) * self.keys * self.cell_bytes
        return plain + (self.blocks.ring_bytes(r) if self.blocks is not None else 0)

    @property
    def nbytes(self) -> dict[str, int]:
        """Memory by what it is for."""
        return {
            "rings": sum(c.nbytes for c in self.columns),
            "prefixes": sum(c.nbytes for c in self.prefixes) if self.prefix else 0,
            "compressed": 0 if self.blocks is None else self.blocks.nbytes,
            "marks": self.marks.nbytes,
            "open slots": self.ahead.nbytes,
            "totals": self.totals.nbytes,
        }


def _filled(size: int, value: Any, kind: Any) -> npt.NDArray[Any]:
    """An array of one value. Memory of zeros is not touched before it is used, and many slots never are."""
    return np.full(size, value, dtype=kind) if value or value != value else np.zeros(size, dtype=kind)


def records(fresh: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    """So many records of nothing."""
    return np.repeat(fresh, count) if any(fresh.tobytes()) else np.zeros(count, dtype=fresh.dtype)


def mark(bits: npt.NDArray[np.uint8], cells: Ints) -> None:
    """Say that there was something in cells."""
    np.bitwise_or.at(bits, cells >> 3, (1 << (cells & 7)).astype(np.uint8))


def unmark(bits: npt.NDArray[np.uint8], cells: Ints) -> None:
    """Say that there was nothing."""
    np.bitwise_and.at(bits, cells >> 3, ~(1 << (cells & 7)).astype(np.uint8))
