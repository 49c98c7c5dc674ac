"""The store of a wheel that keeps all slots of a ring: memory and time follow the rows, not the clock.

Rings, plans and open slots are those of `RingStore`. A closed slot has cells only for the keys that had rows
in it: see `loops.sparse_cells`. Running sums, compression and the wheel's own windows need a cell for every
slot; wheels with these have a `RingStore`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.aggregates.layout import Layout
from tidemill.codegen.algebra import numpy_type
from tidemill.core.time import FOREVER
from tidemill.jit.addresses import frame_of
from tidemill.wheels.loops.answer import Storage
from tidemill.wheels.loops.close import DONE
from tidemill.wheels.loops.range_plan import (
    ADDING,
    CAPACITY,
    END,
    INVERSE_LANDMARK,
    LOW,
    MARKED,
    PLAIN,
    ROOM,
    UNIT,
    VERSION,
)  # fmt: skip
from tidemill.wheels.loops.sparse_cells import (
    BITS,
    CELL,
    CELLS_LEFT,
    CELLS_USED,
    CLASSES,
    GROUP,
    GROUP_COUNT,
    GROUP_ROOM,
    GROUPS_AT,
    GROUPS_USED,
    SPAN,
    START,
    WIDTH,
)  # fmt: skip
from tidemill.wheels.loops.sparse_close import NEEDS_ROOM, NOBODY, sparse_close_kernel
from tidemill.wheels.memory.store import Ints, RingStore, no_bits
from tidemill.wheels.rings import Ring
from tidemill.wheels.tuning import DEFAULT, WheelTuning

FIRST_GROUPS, FIRST_CELLS = 16, 256
"""The initial capacity of a store."""
SHARED_CELLS = 1 << 12
"""The least number of cells by which a store grows that other processes read."""


class SparseStore(RingStore):
    """The slots of a wheel, with cells only where keys had rows."""

    OWN = (*RingStore.OWN, "spans", "groups", "free", "due", "pending")

    def __init__(
        self, layout: Layout, rings: Sequence[Ring], first: int, ahead: int, *, keyed: bool,
        threshold: int = 0, tuning: WheelTuning = DEFAULT,
    ) -> None:  # fmt: skip
        self.keyed = keyed
        self.spans = np.zeros((len(rings), SPAN), dtype=np.int64)
        self.groups = np.zeros((FIRST_GROUPS, GROUP), dtype=np.int64)
        self.free = np.full(CLASSES, -1, dtype=np.int64)
        self.due = no_bits(len(rings), 1)
        self.pending = np.full(len(rings), NOBODY, dtype=np.int64)
        self._crowded = FIRST_CELLS
        """If more cells are in use, those that no ring holds any more are dropped."""
        super().__init__(
            layout, rings, first, ahead, prefix=False, threshold=threshold, room=False,
            storage=Storage.SPARSE, tuning=tuning,
        )  # fmt: skip
        self.prefixes: list[npt.NDArray[Any]] = []
        self.head[MARKED] = 1
        self._allocate(FIRST_CELLS)
        self.changed()

    def _closing_kernel(self) -> Any:
        return sparse_close_kernel(self.layout, self.keyed)

    def _allocate(self, cells: int) -> None:
        """Allocate cells and marks, and copy those in use."""
        used = min(int(self.head[CELLS_USED]), cells)
        for j, (_, kind) in enumerate(self.slots.stored):
            column = np.empty(cells, dtype=numpy_type(kind))
            column[:used] = self.columns[j][:used]
            self.columns[j] = column
        marks = np.zeros((len(self.slots.marks), cells // 8 + 1), dtype=np.uint8)
        held = used // 8 + 1
        marks[:, :held] = self.marks[:, :held]
        self.marks = marks

    # -- shape

    def _least_room(self, r: int) -> int:
        """The number of slots that a ring keeps; 0 if it keeps all."""
        return self.rings[r].slots or 0

    def grows(self, r: int) -> bool:
        """No ring takes memory for a slot without rows."""
        return False

    cell_bytes = 0
    """Slots without rows take no memory."""

    @property
    def choice(self) -> tuple[int, int, int]:
        """See `RingStore.choice`; the cells of a key are adjacent."""
        allowed = ADDING | (1 << INVERSE_LANDMARK if self.slots.subtracts else 0)
        cost = self.slots.slot_cost(keyed=False, compressed=False, fast=self.tuning.fast_slot)
        return allowed, self.threshold, cost

    def _reshape(self, room: int, capacities: list[int]) -> None:
        """Allocate arrays for more keys, and copy the contents."""
        old = int(self.head[ROOM])
        self.head = self.head.copy()  # concurrent reads are repeated: see `changed`
        self.head[ROOM] = room
        spans = np.zeros((len(self.rings), room, SPAN), dtype=np.int64)
        spans[:, :old] = self.spans.reshape(len(self.rings), old, SPAN)
        self.spans = spans.reshape(-1, SPAN)
        self._have_keys(room)
        due = no_bits(len(self.rings), room)
        due[:, : self.due.shape[1]] = self.due
        self.due = due
        self.changed()

    def need_marks(self) -> None:
        """Do nothing: marks are always stored."""

    def hold_until(self, until: int) -> None:
        """Close all slots below `until` as empty."""
        for r in range(len(self.rings)):
            h = self.ring(r)
            h[END] = until // h[UNIT]
            if h[CAPACITY]:
                h[LOW] = h[PLAIN] = max(h[LOW], h[END] - h[CAPACITY])

    def touch(self) -> None:
        """Set the bits of the keys with rows in open slots, as they are in the records."""
        if self.keyed:
            there = self.ahead["rows"] != 0
            padded = np.zeros((len(there), 64 * self.touched.shape[1]), dtype=np.bool_)
            padded[:, : there.shape[1]] = there
            self.touched = np.packbits(padded, axis=1, bitorder="little").view(np.int64)
        self.settle()

    # -- time

    def make_room(self, until: int) -> None:
        """Prepare to close slots. Cells are allocated as they are needed; where other processes read them,
        the disk may be full, and they are allocated here, before anything changes."""
        if self.packed:
            self.unpack()
        if self.shared:
            self._reserve(until)

    def _reserve(self, until: int) -> None:
        """Allocate all cells and groups that closing the open slots below `until` may take."""
        open_ = self.occupied
        rows = self.ahead["rows"][open_[open_ < until] & (len(self.ahead) - 1), : self.keys]
        new = np.count_nonzero(rows, axis=0)
        while True:
            cells, groups = self._most_for(new)
            there = self._cells - self.head[CELLS_USED], len(self.groups) - self.head[GROUPS_USED]
            if cells <= there[0] and groups <= there[1]:
                return
            self._more(0, cells, groups)  # which may drop cells, and with them the room of keys

    def _most_for(self, new: Ints) -> tuple[int, int]:
        """The most cells and groups that keys can take for so many new cells each: see `cell_for`."""
        at = np.flatnonzero(new)
        spans = self.spans.reshape(len(self.rings), self.room, SPAN)[:, at]
        held = spans[..., GROUP_COUNT]
        newest = self.groups[np.maximum(0, spans[..., GROUPS_AT] + held - 1), BITS].view(np.uint64)
        # What a key gets at first, then at most twice as many cells as the time before, up to a whole group.
        first = 2 * np.bitwise_count(newest).astype(np.int64) * (held > 0) if self.room > 1 else WIDTH
        cells = np.minimum(3 * new[at] + first, new[at] + WIDTH) * (spans[..., CELLS_LEFT] < new[at])
        count = held + new[at]
        groups = 4 * count * (count > spans[..., GROUP_ROOM])
        return int(cells.sum()), int(groups.sum())

    def close(self, until: int) -> int:
        """Close the open slots below `until`; returns error bits, 0 if nothing failed."""
        self.make_room(until)
        return self._until_done(lambda: self._close.run_at(self._closing, until))

    def close_cells(self, records: npt.NDArray[Any], slot_of: Ints, key_of: Ints) -> int:
        """Close slots with records, by slot and key; returns error bits. The last slot stays open."""
        first = 0

        def run() -> tuple[int, int]:
            nonlocal first
            how, err = self._close.cells_at(frame_of([slot_of, key_of, records, *self._own]), first)
            if how == NEEDS_ROOM:
                first = err
            return how, err

        self.make_room(int(slot_of[-1]))
        return self._until_done(run, len(slot_of))

    def _until_done(self, run: Any, expected: int = 0) -> int:
        """Close slots, in which there are about `expected` cells."""
        self._asked[1][VERSION] += 1
        try:
            while (found := run())[0] == NEEDS_ROOM:
                self._more(expected)
        finally:
            self._asked[1][VERSION] += 1
        how, err = found
        return 0 if how == DONE else int(err)

    def _more(self, expected: int, free_cells: int = 0, free_groups: int = 0) -> None:
        """Allocate more groups or cells, or drop those that no ring holds any more.

        About `expected` cells will follow; at least so many cells and groups are free afterwards.
        """
        with self._all_or_none():
            self.head = self.head.copy()  # concurrent reads are repeated: see `changed`
            if self.head[CELLS_USED] > self._crowded and any(ring.slots is not None for ring in self.rings):
                self._compact()
            groups, cells = int(self.head[GROUPS_USED]), int(self.head[CELLS_USED])
            need = groups + max(free_groups, 2 * int(self.spans[:, GROUP_ROOM].max()) + 1)
            full = cells + max(WIDTH, free_cells) > self._cells
            # The system allocates memory when it is first written; in a file it is allocated at once.
            part = 4 if self.shared else 1
            if self.shared:  # readers must map new files each time
                expected = max(expected, SHARED_CELLS)
            if need > len(self.groups) or not full:
                more = np.empty((max(need, groups + max(groups // part, expected)), GROUP), dtype=np.int64)
                more[:groups] = self.groups[:groups]
                self.groups = more
            if full:
                self._allocate(cells + max(WIDTH, free_cells, cells // part, expected))
            self.changed()

    @property
    def _cells(self) -> int:
        """The number of allocated cells."""
        return len(self.columns[0]) if self.columns else 8 * self.marks.shape[1]

    # -- contents

    def group_rows(self) -> tuple[Ints, Ints]:
        """The rows of groups with slots that are held, by ring and key; and the row of `spans` of each."""
        rows, of = _adjacent(self.spans)
        low = np.array([self.ring(r)[LOW] for r in range(len(self.rings))])
        kept = self.groups[rows, START] + WIDTH > low[of // self.room]
        return rows[kept], of[kept]

    def listed(self) -> tuple[Ints, Ints, Ints]:
        """All cells, by ring, key and time: the row of `spans`, the slot and the cell of each."""
        rows, of = self.group_rows()
        bits = np.ascontiguousarray(self.groups[rows, BITS]).view(np.uint8).reshape(-1, 8)
        which, offset = np.nonzero(np.unpackbits(bits, axis=1, bitorder="little"))
        counts = np.bincount(which, minlength=len(rows))
        cells = self.groups[rows, CELL][which] + np.arange(len(which)) - (np.cumsum(counts) - counts)[which]
        return of[which], self.groups[rows, START][which] + offset, cells

    def _compact(self) -> None:
        """Move the cells of slots that are held to new arrays, unless most cells are."""
        used = int(self.head[CELLS_USED])
        self._crowded = 2 * (used - sum(map(self._gone, range(len(self.rings)))))
        if used <= self._crowded:
            return
        rows, of = self.group_rows()
        _, _, cells = self.listed()
        columns = [c[cells] for c in self.columns]
        marks = packed_marks(self.marks_of(cells))
        self.take_over(self.groups[rows, START], self.groups[rows, BITS], of, columns, marks)

    def _gone(self, r: int) -> int:
        """The number of cells of a ring in groups of slots that it does not hold any more."""
        if self.rings[r].slots is None:
            return 0
        rows, _ = _adjacent(self.spans[r * self.room : (r + 1) * self.room])
        old = rows[self.groups[rows, START] + WIDTH <= self.ring(r)[LOW]]
        return int(np.bitwise_count(self.groups[old, BITS].view(np.uint64)).sum())

    def marks_of(self, cells: Ints) -> npt.NDArray[np.bool_]:
        """The marks of cells, in a row for each mark."""
        there = self.marks[:, cells >> 3] >> (cells & 7).astype(np.uint8) & 1
        return there.astype(np.bool_)

    def take_over(
        self, start: Ints, bits: Ints, of: Ints, columns: Sequence[npt.NDArray[Any]],
        marks: npt.NDArray[np.uint8],
    ) -> None:  # fmt: skip
        """Replace all closed cells, given as groups by ring, key and time, and the cells in that order.

        `of` has the row of `spans` of each group. The watermark of all rings must be set.
        """
        counts = np.bincount(of, minlength=len(self.spans))
        sizes = np.bitwise_count(bits.view(np.uint64)).astype(np.int64)
        self.groups = np.stack((start, bits, np.cumsum(sizes) - sizes), axis=1)
        self.spans = np.zeros_like(self.spans)
        self.spans[:, GROUPS_AT] = np.cumsum(counts) - counts
        self.spans[:, GROUP_COUNT] = self.spans[:, GROUP_ROOM] = counts
        self.free = np.full(CLASSES, -1, dtype=np.int64)
        self.columns, self.marks = list(columns), marks
        self.head[GROUPS_USED], self.head[CELLS_USED] = len(start), int(sizes.sum())

    def find_due(self) -> None:
        """Find the keys with cells in coarser slots that are not complete yet, after `take_over`."""
        self.due, self.pending = no_bits(len(self.rings), self.room), np.full(len(self.rings), NOBODY)
        of, slot, _ = self.listed()
        ring, key = of // self.room, of % self.room
        for r in range(1, len(self.rings)):
            h, finer = self.ring(r), self.ring(r - 1)
            open_ = (ring == r - 1) & (slot >= h[END] * (h[UNIT] // finer[UNIT]))
            if open_.any():
                due = np.unique(key[open_])
                np.bitwise_or.at(self.due[r], due >> 6, np.int64(1) << (due & 63))
                self.pending[r] = h[END]

    # -- sharing and files

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays that answers read, by name."""
        columns = {f"f_{n}": c for (n, _), c in zip(self.slots.stored, self.columns)}
        return {
            "head": self.head, "totals": self.totals, "marks": self.marks, "spans": self.spans,
            "groups": self.groups, **columns,
        }  # fmt: skip

    def replace(self, name: str, array: npt.NDArray[Any]) -> None:
        """See `RingStore.replace`."""
        if name in ("spans", "groups"):
            setattr(self, name, array)
        else:
            super().replace(name, array)

    def unpack(self) -> None:
        """Copy the arrays of a file, with spare capacity."""
        if self.packed:
            with self._all_or_none():
                self.packed = False
                self.head = self.head.copy()
                self.groups = self.groups.copy()
                self._allocate(max(FIRST_CELLS, int(self.head[CELLS_USED])))
                self.changed()

    # -- answers

    def settle(self) -> None:
        """See `RingStore.settle`."""
        arrays = (self.head, self.totals, self.marks, self.spans, self.groups, *self.columns)
        self._asked = (arrays, memoryview(self.head))  # type: ignore[arg-type]  # it is a buffer
        self._choice = self.choice
        self.frame = frame_of(arrays, *self._choice, self.rings[0].ticks)
        self.inserting = frame_of(
            [self.head, self.ahead, self.touched, self.others, self.places, self.records]
        )
        self._words = self.ahead.view(np.int64)
        self._own = [
            self.head, self.totals, self.marks, self.due, self.pending, self.spans, self.groups, self.free,
            *self.columns,
        ]  # fmt: skip
        self._closing = frame_of([self.ahead, self.fresh, self.touched, *self._own])
        self._full_from = FOREVER
        self.settled += 1

    def ring_bytes(self, r: int) -> int:
        """The bytes of a ring's cells and groups, without marks and spare capacity."""
        spans = self.spans[r * self.room : r * self.room + self.keys]
        at, count = spans[:, GROUPS_AT], spans[:, GROUP_COUNT]
        # A reader in another process may find anything here, while slots close or if files are damaged.
        inside = (at >= 0) & (count > 0) & (count <= len(self.groups)) & (at <= len(self.groups) - count)
        if count[inside].sum() > len(self.groups):
            return 0
        rows, _ = _adjacent(spans[inside])
        bits = self.groups[rows, BITS].view(np.uint64)
        each = sum(c.itemsize for c in self.columns)
        return int(np.bitwise_count(bits).sum()) * each + int(bits.nbytes) * GROUP

    @property
    def nbytes(self) -> dict[str, int]:
        """Bytes by purpose, without spare capacity."""
        cells, groups = int(self.head[CELLS_USED]), int(self.head[GROUPS_USED])
        own = cells * sum(c.itemsize for c in self.columns) + 8 * GROUP * groups
        return {
            "rings": own + self.spans.nbytes, "prefixes": 0, "compressed": 0,
            "marks": len(self.marks) * (cells // 8 + 1),
            "open slots": self.ahead.nbytes + self.touched.nbytes, "totals": self.totals.nbytes,
        }  # fmt: skip


def _adjacent(spans: Ints) -> tuple[Ints, Ints]:
    """The rows of all groups of `spans`, and the row of `spans` of each."""
    counts = spans[:, GROUP_COUNT]
    of = np.repeat(np.arange(len(counts)), counts)
    begin = spans[:, GROUPS_AT] - (np.cumsum(counts) - counts)
    return begin[of] + np.arange(len(of)), of


def packed_marks(marks: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
    """Marks as bits, with a byte to spare."""
    bits = np.zeros((len(marks), marks.shape[1] // 8 + 1), dtype=np.uint8)
    packed = np.packbits(marks, axis=1, bitorder="little")
    bits[:, : packed.shape[1]] = packed
    return bits


def grouped(of: Ints, slot: Ints) -> tuple[Ints, Ints, Ints]:
    """The groups of cells that are sorted by row of `spans` and slot: start, bits, and the row of `spans`."""
    block = slot >> 6
    new = np.ones(len(slot), dtype=np.bool_)
    new[1:] = (of[1:] != of[:-1]) | (block[1:] != block[:-1])
    begin = np.flatnonzero(new)
    start = slot[begin]
    each = np.int64(1) << (slot - start[np.cumsum(new) - 1])
    bits = np.bitwise_or.reduceat(each, begin) if len(begin) else each
    return start, bits, of[begin]
