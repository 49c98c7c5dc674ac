"""Explain how a wheel would answer a range."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    SEGMENT_COST,
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


@dataclass(frozen=True)
class Cost:
    """What decides between plans: runs of slots that are read, and slots in them. See `SEGMENT_COST`."""

    runs: int
    slots: int
    slot_cost: int

    @property
    def total(self) -> int:
        return SEGMENT_COST * self.runs + self.slot_cost * self.slots

    def __str__(self) -> str:
        named = (self.runs, "run"), (self.slots, "slot")
        runs, slots = (f"{n} {what}{'s' * (n != 1)}" for n, what in named)
        return f"cost {self.total} ({runs} × {SEGMENT_COST} + {slots} × {self.slot_cost})"


@dataclass(frozen=True, repr=False)
class Explained(Explanation):
    """A plan, its aggregate operations, its cost, and the costs of the alternatives that were tried."""

    plan: str
    operations: int
    cost: Cost
    steps: tuple[Step, ...]
    alternatives: dict[str, Cost]

    @property
    def sections(self) -> dict[str, str]:
        costs = f": {self.cost}; {self.operations} operations" if self.steps else ""
        lines = [f"{self.plan}{costs}", *(f"  {s}" for s in self.steps)]
        for name, cost in self.alternatives.items():
            preferred = "; one_ring_below prefers one ring" if cost.total < self.cost.total else ""
            lines.append(f"not {name}: {cost}{preferred}")
        return {"wheel": "\n".join(lines)}


@dataclass(frozen=True, repr=False)
class ExplainedReplicas(Explained):
    """The plans of several wheels that are read as one: each answers by itself."""

    replicas: dict[str, Explained]

    @property
    def sections(self) -> dict[str, str]:
        return {f"wheel {name}": each.sections["wheel"] for name, each in self.replicas.items()}


def explain(store: RingStore, start: int, end: int, shown: Callable[[int], Any]) -> Explained:
    """Explain the plan for a range of finest slots; `shown` converts a slot to an instant."""
    allowed, threshold, slot_cost = store.choice
    kind, count, operations, segments = _planned(store, start, end, allowed, threshold, slot_cost)
    steps = tuple(_step(store, segments[j], shown) for j in range(count) if segments[j, 3] != LOOK)
    own, others = _cost(segments[:count], slot_cost), {}
    for one in (ONE_RING, COMBINED, INVERSE_LANDMARK):
        if one != kind and kind != LANDMARK and allowed >> one & 1:
            other, n, _, found = _planned(store, start, end, 1 << one, 0, slot_cost)
            cost = _cost(found[:n], slot_cost)
            # An inverse landmark that would be cheaper was not tried: see `plan`.
            if other == one and (one != INVERSE_LANDMARK or cost.total >= own.total):
                others[NAMES[one]] = cost
    return Explained(NAMES[kind], operations, own, steps, others)


def explain_replicas(
    stores: Mapping[str, RingStore], start: int, end: int, shown: Callable[[int], Any]
) -> ExplainedReplicas:
    """The plans of a range by the names of wheels. They are read as far as the one that is least far."""
    now = min(s.now for s in stores.values())
    each = {n: explain(s, min(start, now), min(end, now), shown) for n, s in stores.items()}
    steps = tuple(step for e in each.values() for step in e.steps)
    costs = [e.cost for e in each.values()]
    cost = Cost(sum(c.runs for c in costs), sum(c.slots for c in costs), costs[0].slot_cost)
    operations = sum(e.operations for e in each.values()) + len(each) - 1
    plans = ", ".join(dict.fromkeys(e.plan for e in each.values()))
    return ExplainedReplicas(plans, operations, cost, steps, {}, each)


def _cost(segments: Ints, slot_cost: int) -> Cost:
    """What the optimizer takes a plan to cost: it does not count marks that are looked for."""
    read = [s for s in segments.tolist() if s[3] != LOOK]
    slots = [1 if what == ADD_PREFIX else last - first for _, first, last, what in read]
    return Cost(len(read), sum(slots), slot_cost)


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
