"""The store of a wheel whose partials are Python objects, such as sketches and lists.

Rings, plans and slot numbers are those of `RingStore`, so that time is handled alike. Only keys that had
rows in a slot have a cell there. Cells are never compressed, shared or subtracted.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.aggregates.layout import Layout, Result
from tidemill.core.errors import UserError
from tidemill.core.time import FARTHEST
from tidemill.wheels.loops.answer import NOT_THERE, OFF_GRID
from tidemill.wheels.loops.range_plan import (
    ADDING,
    END,
    KEYS,
    LOW,
    NOT_HELD,
    PLAN_ROOM,
    TOTAL,
    TOTALS,
    UNIT,
    plan,
)  # fmt: skip
from tidemill.wheels.memory.store import NOT_ASKED, Ints, RingStore
from tidemill.wheels.objects.cells import Cell, CellAlgebra, Measure
from tidemill.wheels.rings import Ring

Question = tuple[int, int, int]
"""The first slot of a range, the slot after its last, and a key."""
Slot = dict[int, Cell]
"""The cells of a slot, by key."""
OBJECT_SLOT = 10_000
"""The planner's cost of a slot: so much more than a segment that the plan with the fewest slots wins."""
MOST_TOTALS = 64
"""A key's total is combined after this many cells: combining copies a whole multiset each time."""


class ObjectStore(RingStore):
    """Slots of any layout whose parts combine in any order."""

    def __init__(
        self, layout: Layout, rings: Sequence[Ring], first: int, ahead: int, *, threshold: int = 0
    ) -> None:
        self.layout, self.rings, self.threshold = layout, tuple(rings), threshold
        self.prefix, self.compress, self.blocks = False, 0, None
        self._number_rings(first)
        self.ahead = np.empty((ahead, 0))  # only its length is used
        self._algebra = CellAlgebra(layout)
        self.open: dict[int, Slot] = {}
        """Open slots, by number."""
        self.closed: list[dict[int, Slot]] = [{} for _ in rings]
        """The closed slots of each ring, by number."""
        self.wholes: dict[int, tuple[Cell, ...]] = {}
        """The cells that make up the total of each key with rows in closed slots."""
        self.new_locks()

    def new_locks(self) -> None:
        """Replace the locks, as after a fork."""
        self._changing = threading.Lock()
        """Held while slots close, and by readers while they collect cells; cells never change."""

    def changed(self) -> None:
        """Do nothing: there are no arrays that readers could keep."""

    def make_room(self, until: int) -> None:
        """Do nothing: slots allocate memory when they get cells."""

    # -- shape

    @property
    def choice(self) -> tuple[int, int, int]:
        """See `RingStore.choice`."""
        return ADDING, self.threshold, OBJECT_SLOT

    cell_bytes = 0
    """Slots without rows take no memory."""

    @property
    def present(self) -> Ints:
        """The keys that ever had a row."""
        with self._changing:
            return np.array(sorted(self.wholes), dtype=np.int64)

    def had_rows(self, key: int) -> bool:
        """Whether a key ever had a row, in a closed slot or an open one."""
        with self._changing:
            return key in self.wholes or any(key in cells for cells in self.open.values())

    def know(self, keys: int) -> None:
        """Raise the number of keys to `keys`."""
        self.head[KEYS] = max(keys, self.keys)

    def ring_bytes(self, r: int) -> int:
        """The approximate bytes of a ring's cells, including those shared with finer rings."""
        with self._changing:
            slots = list(self.closed[r].values())
        return Measure(self.layout).slots(slots)

    @property
    def nbytes(self) -> dict[str, int]:
        """Approximate bytes by purpose; a cell in several rings counts once."""
        with self._changing:
            rings = [slot for ring in self.closed for slot in ring.values()]
            ahead, wholes = list(self.open.values()), dict(self.wholes)
        measure = Measure(self.layout)
        return {
            "rings": measure.slots(rings), "prefixes": 0, "compressed": 0, "marks": 0,
            "open slots": measure.slots(ahead), "totals": measure.slots([wholes]),
        }  # fmt: skip

    def _slots(self, r: int, first: int, end: int) -> list[int]:
        """The slots of a ring in `[first, end)` that have cells."""
        held = self.closed[r]
        if end - first <= len(held):
            return [s for s in range(first, end) if s in held]
        return sorted(s for s in held if first <= s < end)

    # -- rows in

    def add(self, keys: Iterable[int], slots: Iterable[int], cells: Iterable[Cell], undo: Any) -> None:
        """Add cells to open slots, and log them so that `undo` can roll them back."""
        for key, slot, cell in zip(keys, slots, cells):
            if undo is not None:
                undo.note(slot, key)
            _put(self.open.setdefault(slot, {}), key, cell, self._algebra)

    def undo(self) -> Any:
        """See `RingStore.undo`."""
        return _OpenCells(self.open)

    def forget(self, keys: int) -> None:
        """Lower the number of keys to `keys`: the others never had a row."""
        self.head[KEYS] = min(keys, self.keys)

    def close(self, until: int) -> int:
        """Close the open slots below `until`. If rolling up raises, the finer slots are closed."""
        with self._changing:
            for slot in sorted(s for s in self.open if s < until):
                self.closed[0][slot] = closed = self.open.pop(slot)
                for key, cell in closed.items():
                    self.count_in(key, cell)
            self.ring(0)[END] = until
            for r in range(1, len(self.rings)):
                self._roll_up(r, until)
            for r in range(len(self.rings)):
                self._drop(r)
        return 0

    def count_in(self, key: int, *cells: Cell) -> None:
        """Add cells to the total of a key. If a total overflows, totals are not used any more."""
        mine = (*self.wholes.get(key, ()), *cells) if self.head[TOTAL] else ()
        if len(mine) > MOST_TOTALS:
            try:
                mine = (self._algebra.combined(mine),)
            except UserError:
                self.head[TOTAL] = 0
                mine = ()
        self.wholes[key] = mine

    def _roll_up(self, r: int, until: int) -> None:
        """Make the slots of a ring that are now complete from those of the next finer ring."""
        h = self.ring(r)
        ratio, end = int(h[UNIT] // self.ring(r - 1)[UNIT]), until // int(h[UNIT])
        found: dict[int, dict[int, list[Cell]]] = {}
        for slot in self._slots(r - 1, int(h[END]) * ratio, end * ratio):
            for key, cell in self.closed[r - 1][slot].items():
                found.setdefault(slot // ratio, {}).setdefault(key, []).append(cell)
        for slot, cells in found.items():
            h[END] = slot  # if this slot fails, those before it are closed
            self.closed[r][slot] = {k: self._algebra.held(c) for k, c in cells.items()}
        h[END] = end

    def _drop(self, r: int) -> None:
        h, kept = self.ring(r), self.rings[r].slots
        if kept is None or h[END] - kept <= h[LOW]:
            return
        for slot in self._slots(r, int(h[LOW]), int(h[END]) - kept):
            del self.closed[r][slot]
        h[LOW] = h[END] - kept

    def copy(self) -> ObjectStore:
        """Return an independent copy."""
        other = ObjectStore(
            self.layout, self.rings, self.first, len(self.ahead), threshold=self.threshold
        )
        other.head[...] = self.head
        other.open = {slot: dict(cells) for slot, cells in self.open.items()}
        other.closed = [dict(ring) for ring in self.closed]  # closed slots are immutable
        other.wholes = dict(self.wholes)
        return other

    def merged(self, other: ObjectStore, key_of: Ints, keys: int) -> ObjectStore:
        """Return a store with the cells of both; see `wheels.merge_wheels`."""
        assert self.now == other.now and self.rings == other.rings
        first = min(self.first, other.first)
        both = ObjectStore(self.layout, self.rings, first, len(self.ahead), threshold=self.threshold)
        both.know(keys)
        both.head[TOTAL] = self.head[TOTAL] and other.head[TOTAL]
        both.close(self.now)
        for one, names in ((self, range(keys)), (other, key_of.tolist())):
            for ring, mine in zip((*both.closed, both.open), (*one.closed, one.open)):
                for slot, cells in mine.items():
                    target = ring.setdefault(slot, {})
                    for key, cell in cells.items():
                        _put(target, names[key], cell, self._algebra)
            for key, whole in one.wholes.items():
                both.count_in(names[key], *whole)
        return both

    # -- answers

    def _found(self, questions: Iterable[Question], head: Ints) -> list[Any]:
        """For each range and key, the kind of plan and the cells, or None if the range is not held."""
        found: list[Any] = []
        segments, planned = np.empty((PLAN_ROOM, 4), dtype=np.int64), None
        for start, end, key in questions:
            if planned != (start, end):  # often one range is asked for many keys
                planned = start, end
                kind, n, _ = plan(head, start, end, *self.choice, segments)
                slots = [slot for s in segments[:n].tolist() for slot in self._of_segment(*s)]
            own = [slot[key] for slot in slots if key in slot]
            if n and segments[0, 0] == TOTALS:
                own = list(self.wholes.get(key, ()))
            found.append(None if kind == NOT_HELD else (kind, own))
        return found

    def _of_segment(self, r: int, first: int, end: int, _: int) -> list[Slot]:
        return [] if r == TOTALS else [self.closed[r][s] for s in self._slots(r, first, end)]

    def _lowered(self, question: Question, cells: list[Cell]) -> list[Any]:
        try:
            return self._algebra.lowered(cells)
        except UserError:
            if not self.head[TOTAL]:
                raise
        head = self.head.copy()  # a total may overflow although its slots do not
        head[TOTAL] = 0
        with self._changing:
            [found] = self._found([question], head)
        return self._algebra.lowered(cells if found is None else found[1])

    def answer(self, start: int, end: int, key: int) -> tuple[Any, ...]:
        """See `RingStore.answer`; errors are raised."""
        grain = self.rings[0].ticks
        if start % grain or end % grain or not -FARTHEST <= start <= end <= FARTHEST:
            return (OFF_GRID,)
        question = start // grain, end // grain, key
        with self._changing:
            [found] = self._found([question], self.head)
        if found is None:
            return (NOT_THERE,)
        values = self._lowered(question, found[1])
        return (0, *(x for v in values for x in (v is not None, v)))

    def answers(
        self, starts: Ints, ends: Ints, keys: Ints, outputs: Sequence[npt.NDArray[Any]],
        rows: npt.NDArray[np.bool_] = NOT_ASKED,
    ) -> tuple[int, int]:  # fmt: skip
        """See `RingStore.answers`; outputs are object arrays, and errors are raised."""
        n = len(keys)
        asked = list(zip(*(np.broadcast_to(x, n).tolist() for x in (starts, ends, keys))))
        with self._changing:
            found = self._found(asked, self.head)
        for i, (question, cells) in enumerate(zip(asked, found)):
            if cells is None:
                return i, 0
            for j, value in enumerate(self._lowered(question, cells[1])):
                outputs[2 * j][i], outputs[2 * j + 1][i] = value is not None, value
            if len(rows):
                rows[i] = bool(cells[1])
        return -1, 0

    # -- partials: lists of cells, combined when they are lowered

    def no_partials(self, count: int) -> Any:
        return [[] for _ in range(count)]

    def fold(self, starts: Ints, ends: Ints, keys: Ints, total: bool, partials: Any) -> tuple[int, int]:
        """See `RingStore.fold`."""
        ranges, numbers = list(zip(starts.tolist(), ends.tolist())), keys.tolist()
        if total:
            asked = [(a, b, k) for a, b in ranges for k in numbers]
        else:
            asked = [(a, b, k) for (a, b), k in zip(ranges, numbers)]
        head = self.head.copy()
        head[TOTAL] = 0  # a total may overflow although its slots do not
        with self._changing:
            found = self._found(asked, head)
            if any(f is None for f in found):  # slots were evicted: only the totals can answer
                found = self._found(asked, self.head)
        each = len(numbers) if total else 1
        for i, cells in enumerate(found):
            if cells is None:
                return i // each, 0
            partials[i // each] += cells[1]
        return -1, 0

    def outputs(self, results: Sequence[Result], count: int) -> list[npt.NDArray[Any]]:
        return [np.empty(count, dtype=kind) for _ in results for kind in (np.bool_, np.object_)]

    def lower(self, partials: Any, layout: Layout, outputs: Sequence[npt.NDArray[Any]]) -> int:
        """See `RingStore.lower`; errors are raised."""
        for i, cells in enumerate(partials):
            for j, value in enumerate(self._algebra.lowered(cells, layout.results)):
                outputs[2 * j][i], outputs[2 * j + 1][i] = value is not None, value
        return 0

    def any_rows(self, partials: Any) -> npt.NDArray[np.bool_]:
        return np.array([bool(cells) for cells in partials], dtype=np.bool_)


class _OpenCells:
    """Undo for open slots: the cells before others are added. Cells are immutable."""

    def __init__(self, slots: dict[int, Slot]) -> None:
        self._slots = slots
        self._before: list[tuple[int, int, Cell | None]] = []

    def note(self, slot: int, key: int) -> None:
        """Log a cell before it changes."""
        self._before.append((slot, key, self._slots.get(slot, {}).get(key)))

    def roll_back(self) -> None:
        for slot, key, cell in reversed(self._before):
            if cell is not None:
                self._slots[slot][key] = cell
            elif slot in self._slots:
                self._slots[slot].pop(key, None)
        for slot in {s for s, _, _ in self._before}:
            if not self._slots.get(slot, True):
                del self._slots[slot]


def _put(slot: Slot, key: int, cell: Cell, algebra: CellAlgebra) -> None:
    slot[key] = algebra.held((slot[key], cell) if key in slot else (cell,))
