"""Explain how a wheel would answer a range."""

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
    LOOK,
    NOT_HELD,
    NOTHING,
    ONE_RING,
    PLAN_ROOM,
    RING,
    SUBTRACT,
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


@dataclass(frozen=True)
class Step:
    """A plan step: slots of one ring, and the operation on them."""

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
    """A plan, its cost in aggregate operations, and the costs of the alternatives."""

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
    """Explain the plan for a range of finest slots; `shown` converts a slot to an instant."""
    allowed, threshold, slot_cost = store.choice
    kind, count, operations, segments = _planned(store, start, end, allowed, threshold, slot_cost)
    steps = tuple(_step(store, segments[j], shown) for j in range(count) if segments[j, 3] != LOOK)
    others = {}
    for one in (LANDMARK, ONE_RING, COMBINED, INVERSE_LANDMARK):
        if one != kind and allowed >> one & 1:
            other, _, cost, _ = _planned(store, start, end, 1 << one, 0, slot_cost)
            if other == one:
                others[NAMES[one]] = cost
    return Explained(NAMES[kind], operations, steps, others)


def _planned(store: RingStore, start: int, end: int, *choice: int) -> tuple[int, int, int, Ints]:
    segments = np.empty((PLAN_ROOM, 4), dtype=np.int64)
    kind, count, operations = plan(store.head, start, end, *choice, segments)
    return int(kind), int(count), int(operations), segments


def _step(store: RingStore, segment: Ints, shown: Callable[[int], Any]) -> Step:
    ring, first, last, what = map(int, segment)
    how = {SUBTRACT: "subtract", ADD_PREFIX: "difference of running sums of"}.get(what, "add")
    if ring == TOTALS:
        return Step("totals", None, None, 0, how)
    unit = int(store.head[HEAD + RING * ring + UNIT])
    return Step(
        store.rings[ring].shown, shown(first * unit), shown(last * unit), last - first, how
    )
