"""How a wheel would answer, for people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidemill.core.explanation import Explanation
from tidemill.wheels.loops.range_plan import (
    ADD_PREFIX,
    COMBINED,
    HEAD,
    INVERSE_LANDMARK,
    LANDMARK,
    NOT_HELD,
    NOTHING,
    ONE_RING,
    PLAN_ROOM,
    PREFIX,
    RING,
    SUBTRACT,
    TOTAL,
    TOTALS,
    UNIT,
    USES_PREFIX,
    plan,
)  # fmt: skip
from tidemill.wheels.memory.store import Ints, RingStore

NAMES = {
    NOTHING: "nothing to read", USES_PREFIX: "prefix", LANDMARK: "landmark", ONE_RING: "one ring",
    COMBINED: "combined rings", INVERSE_LANDMARK: "inverse landmark", NOT_HELD: "not held",
}  # fmt: skip
ANY = 1 << 62


@dataclass(frozen=True)
class Step:
    """Slots of one ring, and what is done with them."""

    ring: str
    start: Any
    end: Any
    slots: int
    how: str

    def __str__(self) -> str:
        if self.ring == "totals":
            return f"{self.how} the total since the beginning"
        return f"{self.how} {self.slots} × {self.ring}  [{self.start}, {self.end})"


@dataclass(frozen=True, repr=False)
class Explained(Explanation):
    """A plan, what it costs in aggregate operations, and what the others would."""

    plan: str
    operations: int
    steps: tuple[Step, ...]
    alternatives: dict[str, int]

    @property
    def sections(self) -> dict[str, str]:
        lines = [f"{self.plan}: {self.operations} operations", *(f"  {s}" for s in self.steps)]
        for name, operations in self.alternatives.items():
            lines.append(f"not {name}: {operations} operations")
        return {"wheel": "\n".join(lines)}


def explain(store: RingStore, start: int, end: int, shown: Callable[[int], Any]) -> Explained:
    """The plan of a range of finest slots; `shown` makes a slot an instant."""
    segments = np.empty((PLAN_ROOM, 4), dtype=np.int64)
    kind, count, operations = plan(
        store.head, start, end, store.subtracts, store.threshold, segments
    )
    steps = tuple(_step(store, segments[j], shown) for j in range(count))
    others = {}
    for name, head, subtracts, threshold in _variants(store):
        room = np.empty((PLAN_ROOM, 4), dtype=np.int64)
        other, _, cost = plan(head, start, end, subtracts, threshold, room)
        if NAMES[other] == name and other != kind:
            others[name] = int(cost)
    return Explained(NAMES[kind], int(operations), steps, others)


def _variants(store: RingStore) -> list[tuple[str, Ints, bool, int]]:
    """Stores as they would be if only some plans were there."""
    plain = store.head.copy()
    plain[[PREFIX, TOTAL]] = 0
    with_totals = plain.copy()
    with_totals[TOTAL] = store.head[TOTAL]
    return [
        ("landmark", with_totals, False, 0), ("one ring", plain, False, ANY),
        ("combined rings", plain, False, 0), ("inverse landmark", with_totals, store.subtracts, 0),
    ]  # fmt: skip


def _step(store: RingStore, segment: Ints, shown: Callable[[int], Any]) -> Step:
    ring, first, last, what = map(int, segment)
    how = {SUBTRACT: "subtract", ADD_PREFIX: "difference of running sums of"}.get(what, "add")
    if ring == TOTALS:
        return Step("totals", None, None, 0, how)
    unit = int(store.head[HEAD + RING * ring + UNIT])
    return Step(
        store.rings[ring].shown, shown(first * unit), shown(last * unit), last - first, how
    )
