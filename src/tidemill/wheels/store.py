"""The memory of a wheel: open slots ahead of the watermark, rings of closed ones behind it.

Columns hold a cell for each key of each slot, slot by slot, all rings one after the other. Nothing here
knows of columns of events or of Arrow; keys are numbers `0, 1, 2, …`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.aggregates.layout import Layout
from tidemill.codegen.algebra import numpy_type
from tidemill.codegen.wheel import (
    BASE,
    CAPACITY,
    DONE,
    END,
    FIRST,
    HEAD,
    KEYS,
    LOW,
    MARKED,
    NEEDS_MARKS,
    OFFSET,
    PREFIX,
    RING,
    RINGS,
    ROOM,
    TOTAL,
    UNIT,
    VERSION,
    Slots,
    answer_kernel,
    close_kernel,
)  # fmt: skip
from tidemill.kernels.wheel import MOST_SEGMENTS, NOT_HELD, plan, plans
from tidemill.wheels.rings import Ring

Ints = npt.NDArray[np.int64]
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
        self._fresh = np.array([self.slots.fresh()], dtype=self.slots.open_type)
        self.ahead = np.repeat(self._fresh, ahead).reshape(ahead, 1)
        self.totals = self._fresh.copy()
        self._identity = {n: self._fresh[n][0] for n, _ in self.slots.stored}
        self.columns = [self._column(n, offset) for n, _ in self.slots.stored]
        self.prefixes = [self._column(n, offset if prefix else 0) for n, _ in self.slots.stored]
        self.marks = np.zeros((len(self.slots.marks), 1), dtype=np.uint8)
        parts = self.slots.stored_codes()
        self.exact = all(getattr(p.form, "subtracts", False) for p in parts)
        """Whether what was combined can be taken out again, to the last bit."""
        self._close = close_kernel(layout, prefix)
        self._answer = answer_kernel(layout, prefix)

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
        return int(self.head[HEAD + END])

    @property
    def first(self) -> int:
        """The slot that everything begins with."""
        return int(self.head[FIRST])

    @property
    def slot_room(self) -> int:
        """Slots there is room for, in all rings."""
        return self._slots_in_all

    @property
    def subtracts(self) -> bool:
        """Whether plans may subtract: marks cannot be taken out of each other."""
        return self.exact and not (self.head[MARKED] and self.slots.mark_of)

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
        before = self.keys
        if keys <= before:
            return
        room = int(self.head[ROOM])
        if keys > room:
            self._reshape(max(keys, 2 * room), [int(self.ring(r)[CAPACITY]) for r in range(len(self.rings))])
        if any(self.held):
            self._need_marks()  # the new keys were not there in the slots that are closed
        self.head[KEYS] = keys

    def _reshape(self, room: int, capacities: list[int]) -> None:
        """Room for more keys, or more slots; what there is moves."""
        before, old_room = self.head.copy(), int(self.head[ROOM])
        old = (self.columns, self.prefixes, self.marks)
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
            target = self._rows(r, slots)
            for new, was in zip((*self.columns, *self.prefixes), (*old[0], *old[1])):
                if len(was) > 1 or len(new) > 1:
                    new.reshape(-1, room)[target, :old_room] = was.reshape(-1, old_room)[source]
            if self.head[MARKED]:
                self._move_marks(old[2], old_room, source, target)
        grown = room - self.ahead.shape[1]
        if grown:
            more = np.repeat(self._fresh, len(self.ahead) * grown).reshape(len(self.ahead), grown)
            self.ahead = np.concatenate((self.ahead, more), axis=1)
            self.totals = np.concatenate((self.totals, np.repeat(self._fresh, grown)))

    def _rows(self, r: int, slots: Ints) -> Ints:
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
        self.head[MARKED] = 1
        self.marks = self._no_marks()
        room, own = int(self.head[ROOM]), np.arange(self.keys)
        for r in range(len(self.rings)):
            rows = self._rows(r, np.arange(self.ring(r)[LOW], self.ring(r)[END]))
            at = (rows[:, None] * room + own).ravel()
            for m in range(len(self.marks)):
                np.bitwise_or.at(self.marks[m], at >> 3, (1 << (at & 7)).astype(np.uint8))

    # -- time

    def close(self, until: int) -> int:
        """Close the open slots below one; bits of what failed, if anything did."""
        self._room_until(until)
        self.head[VERSION] += 1
        while True:
            how, err = self._close.run(
                self.head, until, self.ahead, self._fresh, self.totals, self.marks, *self.columns,
                *self.prefixes,
            )  # fmt: skip
            if how != NEEDS_MARKS:
                break
            self._need_marks()
        self.head[VERSION] += 1
        return 0 if how == DONE else int(err)

    def _room_until(self, until: int) -> None:
        capacities, grows = [], False
        for r, ring in enumerate(self.rings):
            h = self.ring(r)
            need, capacity = until // int(h[UNIT]) - int(h[BASE]), int(h[CAPACITY])
            if ring.slots is None and need > capacity:
                capacity, grows = max(need, capacity + capacity // 2), True
            capacities.append(capacity)
        if grows:
            self._reshape(int(self.head[ROOM]), capacities)

    # -- answers

    def plan(self, start: int, end: int) -> tuple[int, int, int, Ints]:
        """The best plan for a range of finest slots: kind, segments, operations, and the segments."""
        segments = np.empty((2 * MOST_SEGMENTS, 4), dtype=np.int64)
        kind, count, operations = plan(
            self.head, start, end, self.subtracts, self.threshold, segments
        )
        return kind, count, operations, segments

    def answer(self, start: int, end: int, key: int) -> tuple[Any, ...] | None:
        """`(err, valid, value, …)` of the results over a range; None where it is not held."""
        kind, count, _, segments = self.plan(start, end)
        if kind == NOT_HELD:
            return None
        return self._answer.one(
            segments, count, key, self.head, self.totals, self.marks, *self.columns, *self.prefixes
        )

    def answers(
        self, starts: Ints, ends: Ints, keys: Ints, outputs: Sequence[npt.NDArray[Any]]
    ) -> tuple[int, int]:
        """Answer many ranges, each of its key. The range that is not held, or -1; bits of what failed."""
        n = len(keys)
        some = min(len(starts), 1 << 12)
        segments = np.empty(((some + 2) * MOST_SEGMENTS, 4), dtype=np.int64)
        begins = np.empty(some + 1, dtype=np.int64)
        if len(starts) == 1 and n != 1:
            return self._for_keys(starts, ends, keys, segments, outputs)
        err = 0
        for at in range(0, n, some):
            part = slice(at, min(at + some, n))
            count = part.stop - at
            bad = plans(
                self.head, starts[part], ends[part], self.subtracts, self.threshold, segments,
                begins,
            )  # fmt: skip
            if bad >= 0:
                return at + int(bad), 0
            err |= self._run(count, segments, begins[: count + 1], keys[part], [o[part] for o in outputs])
        return -1, err

    def _for_keys(
        self, starts: Ints, ends: Ints, keys: Ints, segments: Ints, outputs: Sequence[npt.NDArray[Any]]
    ) -> tuple[int, int]:
        """One range for all keys: one plan."""
        kind, count, _ = plan(
            self.head, starts[0], ends[0], self.subtracts, self.threshold, segments
        )
        if kind == NOT_HELD:
            return 0, 0
        shared = np.array([count], dtype=np.int64)
        return -1, self._run(len(keys), segments, shared, keys, outputs)

    def _run(
        self, n: int, segments: Ints, begins: Ints, keys: Ints, outputs: Sequence[npt.NDArray[Any]]
    ) -> int:
        err = self._answer.run(
            n, segments, begins, keys, self.head, self.totals, self.marks, *self.columns,
            *self.prefixes, *outputs,
        )  # fmt: skip
        return int(err)

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
