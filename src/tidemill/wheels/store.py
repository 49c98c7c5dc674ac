"""The memory of a wheel: open slots ahead of the watermark, rings of closed ones behind it.

Columns hold a cell for each key of each slot, slot by slot, all rings one after the other. Nothing here
knows of columns of events or of Arrow; keys are numbers `0, 1, 2, …`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.aggregates.layout import Layout
from tidemill.codegen.addresses import frame_of
from tidemill.codegen.algebra import numpy_type
from tidemill.codegen.wheel import DONE, NEEDS_MARKS, Slots, answer_kernel, close_kernel
from tidemill.codegen.wheel_plan import (
    BASE,
    CAPACITY,
    END,
    FIRST,
    HEAD,
    KEYS,
    LOW,
    MARKED,
    NOT_HELD,
    OFFSET,
    PREFIX,
    RING,
    RINGS,
    ROOM,
    TOTAL,
    UNIT,
    USES_PREFIX,
    VERSION,
)  # fmt: skip
from tidemill.core.time import FOREVER
from tidemill.core.types import INT64
from tidemill.expr.functions import INT_MAX, INT_MIN
from tidemill.expr.nodes import Column
from tidemill.wheels.rings import Ring

Ints = npt.NDArray[np.int64]
FEW_ROWS = 1 << 16
"""So many rows at the most are inserted by address."""
FIRST_ROOM = 64
"""Slots a ring that keeps everything has room for at first."""


class RingStore:
    """Slots of a layout for some keys. Slots are counted from the epoch, in the finest granularity."""

    def __init__(
        self, layout: Layout, rings: Sequence[Ring], first: int, ahead: int, *, prefix: bool,
        threshold: int = 0,
    ) -> None:  # fmt: skip
        self.layout, self.rings, self.slots = layout, tuple(rings), Slots(layout)
        self.prefix, self.threshold = prefix, threshold
        self.head = np.zeros(HEAD + RING * len(rings), dtype=np.int64)
        self.head[[KEYS, ROOM, RINGS, FIRST, TOTAL]] = (0, 1, len(rings), first, 1)
        self.head[PREFIX] = int(prefix)
        offset = 0
        for r, ring in enumerate(self.rings):
            h = HEAD + RING * r
            unit = ring.ticks // self.rings[0].ticks
            capacity = FIRST_ROOM if ring.slots is None else ring.slots
            self.head[h + UNIT] = unit
            self.head[h + BASE] = self.head[h + LOW] = self.head[h + END] = first // unit
            self.head[h + CAPACITY], self.head[h + OFFSET] = capacity, offset
            offset += capacity
        self._slots_in_all = offset
        self.on_change: Callable[[RingStore], None] = lambda store: None
        """Called when there are new arrays, before anybody reads them."""
        self.on_retry: Callable[[], None] = lambda: time.sleep(0)
        """Called when slots were closing while an answer was made."""
        self._packed = False
        self.others = np.empty(FEW_ROWS, dtype=np.uint32)
        """Where `insert` says which rows it left out."""
        self.settled = 0
        """How often there were new arrays."""
        self._fresh = np.array([self.slots.fresh()], dtype=self.slots.open_type)
        self.ahead = np.repeat(self._fresh, ahead).reshape(ahead, 1)
        self.totals = self._fresh.copy()
        self._identity = {n: self._fresh[n][0] for n, _ in self.slots.stored}
        self.columns = [self._column(n, offset) for n, _ in self.slots.stored]
        self.prefixes = [self._column(n, offset if prefix else 0) for n, _ in self.slots.stored]
        self.marks = np.zeros((len(self.slots.marks), 1), dtype=np.uint8)
        self.one_sum = prefix and _is_one_sum(self.slots)
        self._close = close_kernel(layout, prefix)
        self._answer = answer_kernel(layout, prefix)
        self.changed()

    # -- shape

    def ring(self, number: int) -> Ints:
        """The numbers of a ring, as they are."""
        return self.head[HEAD + RING * number : HEAD + RING * (number + 1)]

    @property
    def keys(self) -> int:
        return int(self.head[KEYS])

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
    def subtracts(self) -> bool:
        """Whether plans may subtract: marks cannot be taken out of each other."""
        return self.slots.subtracts and not (self.head[MARKED] and self.slots.mark_of)

    @property
    def held(self) -> list[int]:
        """How many closed slots each ring holds."""
        rings = (self.ring(r) for r in range(len(self.rings)))
        return [int(h[END] - h[LOW]) for h in rings]

    def _column(self, name: str, slots: int) -> npt.NDArray[Any]:
        kind = dict(self.slots.stored)[name]
        size = max(1, slots * int(self.head[ROOM]))
        return np.full(size, self._identity[name], dtype=numpy_type(kind))

    # -- growth

    def know(self, keys: int) -> None:
        """There are so many keys now."""
        if keys <= self.keys:
            return
        self.unpack()
        room = int(self.head[ROOM])
        if keys > room:
            capacities = [int(self.ring(r)[CAPACITY]) for r in range(len(self.rings))]
            self._reshape(max(keys, 2 * room), capacities)
        if any(self.held):
            self._need_marks()  # the new keys were not there in the slots that are closed
        self.head[KEYS] = keys

    def _reshape(self, room: int, capacities: list[int]) -> None:
        """Room for more keys, or more slots; what there is moves."""
        before, old_room = self.head, int(self.head[ROOM])
        old = (self.columns, self.prefixes, self.marks)
        self.head = before.copy()  # who reads now goes on with what there was
        self.head[ROOM] = room
        offset = 0
        for r, capacity in enumerate(capacities):
            self.ring(r)[CAPACITY], self.ring(r)[OFFSET] = capacity, offset
            offset += capacity
        self._slots_in_all = offset
        names = [n for n, _ in self.slots.stored]
        self.columns = [self._column(n, offset) for n in names]
        self.prefixes = [self._column(n, offset if self.prefix else 0) for n in names]
        if self.head[MARKED]:
            self.marks = self._no_marks()
        for r in range(len(self.rings)):
            h = before[HEAD + RING * r : HEAD + RING * (r + 1)]
            slots = np.arange(h[LOW], h[END])
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
            more = np.repeat(self._fresh, len(self.ahead) * grown).reshape(len(self.ahead), grown)
            self.ahead = np.concatenate((self.ahead, more), axis=1)
            self.totals = np.concatenate((self.totals, np.repeat(self._fresh, grown)))
        self.changed()

    def rows(self, r: int, slots: Ints) -> Ints:
        """Where slots of a ring lie."""
        h = self.ring(r)
        rows: Ints = h[OFFSET] + (slots - h[BASE]) % h[CAPACITY]
        return rows

    def _no_marks(self) -> npt.NDArray[np.uint8]:
        cells = self._slots_in_all * int(self.head[ROOM])
        return np.zeros((len(self.slots.marks), cells // 8 + 1), dtype=np.uint8)

    def _move_marks(self, was: Any, old_room: int, source: Ints, target: Ints) -> None:
        room = int(self.head[ROOM])
        own = np.arange(min(room, old_room))
        for m in range(len(was)):
            cells = np.unpackbits(was[m], bitorder="little")
            found = cells[(source[:, None] * old_room + own).ravel()]
            at = (target[:, None] * room + own).ravel()[found != 0]
            np.bitwise_or.at(self.marks[m], at >> 3, (1 << (at & 7)).astype(np.uint8))

    def _need_marks(self) -> None:
        """From now on it is known for each cell whether there was anything; so far there was."""
        if self.head[MARKED]:
            return
        self.head = self.head.copy()
        self.head[MARKED] = 1
        self.marks = self._no_marks()
        room, own = int(self.head[ROOM]), np.arange(self.keys)
        for r in range(len(self.rings)):
            rows = self.rows(r, np.arange(self.ring(r)[LOW], self.ring(r)[END]))
            at = (rows[:, None] * room + own).ravel()
            for m in range(len(self.marks)):
                np.bitwise_or.at(self.marks[m], at >> 3, (1 << (at & 7)).astype(np.uint8))
        self.changed()

    # -- time

    def close(self, until: int) -> int:
        """Close the open slots below one; bits of what failed, if anything did."""
        if self._packed:
            self.unpack()
        if until >= self._full_from:
            self._room_until(until)
        self._asked[2][VERSION] += 1
        while True:
            how, err = self._close.run_at(self._closing, until)
            if how != NEEDS_MARKS:
                break
            self._need_marks()
        self._asked[2][VERSION] += 1
        return 0 if how == DONE else int(err)

    def hold_until(self, until: int) -> None:
        """Count all slots below one as closed, with nothing in them."""
        self._room_until(until)
        for r in range(len(self.rings)):
            h = self.ring(r)
            h[END] = until // h[UNIT]
            h[LOW] = max(h[LOW], h[END] - h[CAPACITY])
        if any(self.held):
            self.head[MARKED] = 1
            self.marks = self._no_marks()
            self.changed()

    def _room_until(self, until: int) -> None:
        if all(ring.slots is not None for ring in self.rings):
            return
        capacities, grows = [], False
        for r, ring in enumerate(self.rings):
            h = self.ring(r)
            need, capacity = until // int(h[UNIT]) - int(h[BASE]), int(h[CAPACITY])
            if ring.slots is None and need > capacity:
                capacity, grows = max(need, capacity + capacity // 16), True
            capacities.append(capacity)
        if grows:
            self._reshape(int(self.head[ROOM]), capacities)

    def copy(self) -> RingStore:
        """Another store with the same in it."""
        other = RingStore.__new__(RingStore)
        other.__dict__.update(self.__dict__)
        other.on_change = lambda store: None  # nobody else reads the copy
        for name in ("head", "ahead", "totals", "marks", "others"):
            setattr(other, name, getattr(self, name).copy())
        other.columns = [c.copy() for c in self.columns]
        other.prefixes = [c.copy() for c in self.prefixes]
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

    def packed(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, npt.NDArray[Any]]]:
        """The cells of closed slots, ring by ring without room to spare, by name; and the rest."""
        held = [np.arange(self.ring(r)[LOW], self.ring(r)[END]) for r in range(len(self.rings))]
        rows = np.concatenate([self.rows(r, slots) for r, slots in enumerate(held)])
        room, keys = int(self.head[ROOM]), self.keys
        cells = {}
        for kind, columns in (("f", self.columns), ("x", self.prefixes if self.prefix else [])):
            for (name, _), values in zip(self.slots.stored, columns):
                by_slot = values[: self._slots_in_all * room].reshape(-1, room)
                cells[f"{kind}_{name}"] = by_slot[rows, :keys].ravel()
        if self.head[MARKED]:
            at = (rows[:, None] * room + np.arange(keys)).ravel()
            for m, bits in enumerate(self.marks):
                cells[f"mark{m}"] = np.unpackbits(bits, bitorder="little")[at].astype(np.bool_)
        rest = {"head": self.head, "ahead": self.ahead[:, :keys].ravel(), "totals": self.totals[:keys]}
        return cells, rest

    @classmethod
    def unpacked(
        cls, layout: Layout, rings: Sequence[Ring], ahead: int, cells: Mapping[str, npt.NDArray[Any]],
        rest: Mapping[str, npt.NDArray[Any]], *, prefix: bool, threshold: int,
    ) -> RingStore:  # fmt: skip
        """A store over packed cells, which it only reads until something is to be changed."""
        store = cls(layout, rings, int(rest["head"][FIRST]), ahead, prefix=prefix, threshold=threshold)
        store.head[...] = rest["head"]
        keys, offset = store.keys, 0
        store.head[ROOM] = max(1, keys)
        for r in range(len(rings)):
            h = store.ring(r)
            held = int(h[END] - h[LOW])
            h[BASE], h[CAPACITY], h[OFFSET] = h[LOW], max(1, held), offset
            offset += held
        store._slots_in_all = offset
        names = [n for n, _ in store.slots.stored]
        if keys == 0:  # room for the first one, as a fresh store has
            store.columns = [store._column(n, offset) for n in names]
            store.prefixes = [store._column(n, offset if prefix else 0) for n in names]
            store.marks = store._no_marks()
        else:
            store.columns = [cells[f"f_{n}"] for n in names]
        if keys and prefix:
            store.prefixes = [cells[f"x_{n}"] for n in names]
        if keys and store.head[MARKED]:
            marks = [cells[f"mark{m}"] for m in range(len(store.slots.marks))]
            store.marks = np.array([np.packbits(m, bitorder="little") for m in marks])
        room = int(store.head[ROOM])
        store.ahead = np.repeat(store._fresh, ahead * room).reshape(ahead, room)
        store.totals = np.repeat(store._fresh, room)
        if keys:
            store.ahead[...] = rest["ahead"].reshape(ahead, keys)
            store.totals[...] = rest["totals"]
        store._packed = True
        store.changed()
        return store

    def unpack(self) -> None:
        """Have arrays of its own, with room to go on."""
        if self._packed:
            self._packed = False
            held = self.held
            self._reshape(
                int(self.head[ROOM]), [r.slots or max(FIRST_ROOM, h) for r, h in zip(self.rings, held)]
            )

    # -- answers

    def answer(self, start: int, end: int, key: int) -> tuple[Any, ...] | None:
        """`(kind, err, valid, value, …)` of the results over a range of slots; None if it is not held."""
        while True:
            asked, frame, seen, sums = self._asked
            version = seen[VERSION]
            found = None if sums is None else _difference(seen, sums, start, end, key)
            if found is None:
                found = self._answer.one_at(frame, start, end, key, asked[0], asked[1])
            if seen[VERSION] == version and not version & 1:
                return None if found[0] == NOT_HELD else found
            self.on_retry()

    def sum_of(self, start: int, end: int) -> int | None:
        """The one sum of a store without keys over a range; None where `answer` has to look closer.

        As `_difference`, in one piece and with the numbers that stay as they are from one `settle` to
        the next read before: a microsecond less, which is half of it.
        """
        seen, sums, first, base, capacity = self._summed
        version = seen[VERSION]
        now = seen[HEAD + END]
        if end > now:
            end = now
        if sums is None or start >= end or version & 1:
            return None
        # Nearly always a range begins after everything does, and there is a sum before it.
        if start > first:
            if start <= seen[HEAD + LOW]:
                return None
            value = sums[(end - 1 - base) % capacity] - sums[(start - 1 - base) % capacity]
            if not INT_MIN <= value <= INT_MAX:
                return None
        else:
            if first < seen[HEAD + LOW] or first >= end:
                return None
            value = sums[(end - 1 - base) % capacity]
        return value if seen[VERSION] == version else None

    def answers(
        self, starts: Ints, ends: Ints, keys: Ints, outputs: Sequence[npt.NDArray[Any]]
    ) -> tuple[int, int]:
        """Answer a range for each key, or one range for all. The first that is not held, or -1; bits of
        what failed."""
        shared = len(starts) != len(keys)
        while True:
            asked, _, seen, _ = self._asked
            version = seen[VERSION]
            bad, err = self._answer.run(starts, ends, keys, shared, *asked, *outputs)
            if seen[VERSION] == version and not version & 1:
                return int(bad), int(err)
            self.on_retry()

    def changed(self) -> None:
        """There are new arrays."""
        self.on_change(self)
        self.settle()

    def settle(self) -> None:
        """Take note of arrays that are new; whoever is reading the old ones goes on with them.

        The version is odd while slots close. Who reads meanwhile reads again.
        """
        arrays = (self.head, self.totals, self.marks, *self.columns, *self.prefixes)
        asked = (self.subtracts, self.threshold, *arrays)
        sums = memoryview(self.prefixes[0]) if self.one_sum else None  # type: ignore[arg-type]
        seen = memoryview(self.head)  # type: ignore[arg-type]  # they are buffers
        self._asked = (asked, frame_of(arrays), seen, sums)
        # The finest ring is the first one, so its sums begin at the beginning.
        direct = None if seen[MARKED] else sums
        self._summed = (seen, direct, seen[FIRST], seen[HEAD + BASE], seen[HEAD + CAPACITY])
        self.inserting = frame_of([self.head, self.ahead, self.others])
        self._closing = frame_of(
            [self.head, self.ahead, self._fresh, self.totals, self.marks, *self.columns, *self.prefixes]
        )
        self._full_from = self._first_without_room()
        self.settled += 1

    def _first_without_room(self) -> int:
        """Slots below can be closed without more room."""
        rings = (self.ring(r) for r, ring in enumerate(self.rings) if ring.slots is None)
        return min((int((h[BASE] + h[CAPACITY] + 1) * h[UNIT]) for h in rings), default=FOREVER)

    @property
    def nbytes(self) -> dict[str, int]:
        """Memory by what it is for."""
        return {
            "rings": sum(c.nbytes for c in self.columns),
            "prefixes": sum(c.nbytes for c in self.prefixes) if self.prefix else 0,
            "marks": self.marks.nbytes,
            "open slots": self.ahead.nbytes,
            "totals": self.totals.nbytes,
        }


def _is_one_sum(slots: Slots) -> bool:
    """Whether the only result is the only thing stored, an int."""
    results = slots.layout.results
    if len(slots.stored) != 1 or len(results) != 1:
        return False
    [(name, kind)] = slots.stored
    return results[0].lower == Column(name) and kind == results[0].type == INT64


def _difference(
    seen: memoryview, sums: memoryview, start: int, end: int, key: int
) -> tuple[Any, ...] | None:
    """The difference of two running sums of the finest ring, without a kernel, whose call alone would
    take longer. None where that is not enough."""
    first = seen[FIRST]
    start = max(start, first)
    end = min(end, seen[HEAD + END])
    if start >= end or seen[MARKED] or not 0 <= key < seen[KEYS]:
        return None
    if start - (start != first) < seen[HEAD + LOW]:
        return None
    base, capacity = seen[HEAD + BASE], seen[HEAD + CAPACITY]
    offset, room = seen[HEAD + OFFSET], seen[ROOM]
    value = sums[(offset + (end - 1 - base) % capacity) * room + key]
    if start != first:
        value -= sums[(offset + (start - 1 - base) % capacity) * room + key]
    return (USES_PREFIX, 0, True, value) if INT_MIN <= value <= INT_MAX else None
