"""Whether the plan that is chosen for a range is the one that takes the least time.

Each range is answered by every kind of plan that can, and combined rings also as they would be cut if a slot
cost more or less beside a segment. What is chosen is compared with the best of them. The costs in
`wheels/loops` come from here: the multiple of the cost of a slot whose plans take the least time together
should be 1.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa

import tidemill as tm
from benchmarks.answers import unchecked
from benchmarks.harness import Case, Measured
from benchmarks.wheels.data import DAY, Ints
from tidemill import col
from tidemill.wheels.loops.range_plan import (
    COMBINED,
    INVERSE_LANDMARK,
    NOT_HELD,
    ONE_RING,
    PLAN_ROOM,
    plan,
)
from tidemill.wheels.memory.store import NOT_ASKED

SCHEMA = {"t": "int64", "k": "int64", "v": "int64", "x": "float64"}
KINDS = {"one ring": ONE_RING, "combined rings": COMBINED, "inverse landmark": INVERSE_LANDMARK}
MULTIPLES = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Of the cost of a slot."""
CLOSE = 1.1
"""A plan that takes at most so many times as long as the best is as good."""
TIMES = 200
"""Answers in one measurement: some microseconds."""
ROUNDS = 20
SHAPES: dict[str, tuple[Any, dict[str, Any]]] = {
    "sum of ints": (tm.sum(col.v), {}),
    "sum of floats": (tm.sum(col.x), {}),
    "min of ints": (tm.min(col.v), {}),
    "mean of floats": (tm.mean(col.x), {}),
    "sum, count, max": ({"a": tm.sum(col.v), "b": tm.count(), "c": tm.max(col.x)}, {}),
    "sum of ints, empty slots": (tm.sum(col.v), {"every": 3}),
    "sum of ints, 100 keys": (tm.sum(col.v), {"keys": 100}),
    "sum of ints, compressed": (tm.sum(col.v), {"compress": True}),
}


def cases(quick: bool) -> list[Case]:
    shapes = list(SHAPES)[:2] if quick else list(SHAPES)
    return [_case(name, 20 if quick else 100, 1 if quick else 7) for name in shapes]


def _case(name: str, ranges: int, days: int) -> Case:
    def run(wheel: Any) -> Measured:
        store = wheel._view.store
        allowed, threshold, cost = store.choice
        choices = [(allowed, threshold, max(1, round(m * cost))) for m in MULTIPLES]
        choices += [(1 << kind, 0, cost) for kind in KINDS.values() if allowed >> kind & 1]
        chosen, excess, by_choice = [], [], np.zeros(len(MULTIPLES))
        kinds = dict.fromkeys(KINDS, 0)
        for a, b in zip(*(x.tolist() for x in _ranges(store.now, ranges))):
            plans = [_plan(store, a, b, choice) for choice in choices]
            took = _took(wheel, a, b, {p: c for p, c in zip(plans, choices) if p is not None})
            own = took[plans[MULTIPLES.index(1.0)]]
            chosen.append(own)
            excess.append(own / min(took.values()))
            by_choice += [took[p] for p in plans[: len(MULTIPLES)]]
            name = wheel.explain(a, b).plan
            kinds[name] = kinds.get(name, 0) + 1
        return Measured(None, float(np.mean(chosen)), {
            "% within 10 % of the best": 100 * float(np.mean(np.array(excess) <= CLOSE)),
            "% more than the best, p95": 100 * float(np.percentile(excess, 95) - 1),
            "best multiple": MULTIPLES[int(by_choice.argmin())],
            **{name: kinds[name] for name in KINDS},
        })  # fmt: skip

    params = {"ranges": ranges, "slots": days * DAY}
    return Case(f"costs/{name}", params, {"tidemill": run}, unchecked, lambda: _wheel(name, days), repeats=1)


def _ranges(slots: int, count: int) -> tuple[Ints, Ints]:
    """From a slot to all of them; a third of them on minutes and a third on hours."""
    pick = np.random.default_rng(6)
    length = np.exp(pick.uniform(0, np.log(slots), count)).astype(np.int64)
    starts = pick.integers(0, slots - length + 1)
    grid = pick.choice([1, 60, 3_600], count)
    starts = starts // grid * grid
    return starts, np.minimum(starts + np.maximum(length // grid, 1) * grid, slots)


def _wheel(name: str, days: int) -> tm.Wheel:
    aggregates, options = SHAPES[name]
    options = dict(options)
    keys, every = options.pop("keys", 1), options.pop("every", 1)
    pick, slots = np.random.default_rng(7), days * DAY // (10 if keys > 1 else 1)
    wheel = tm.Wheel(
        aggregates, schema=SCHEMA, time="t", start=0, keys="k" if keys > 1 else (), **options,
        granularities=[(1, "keep"), (60, "keep"), (3_600, "keep"), (DAY, "keep")],
    )  # fmt: skip
    t = np.repeat(np.arange(0, slots, every), keys)
    k = np.tile(np.arange(keys), len(t) // keys)
    wheel.insert(pa.table({"t": t, "k": k, "v": pick.integers(0, 9_000, len(t)), "x": pick.random(len(t))}))
    wheel.advance_to(slots)
    return wheel


def _plan(store: Any, start: int, end: int, choice: tuple[int, int, int]) -> bytes | None:
    """A plan, to tell it from others; None if a range has none."""
    segments = np.empty((PLAN_ROOM, 4), dtype=np.int64)
    kind, n, _ = plan(store.head, start, end, *choice, segments)
    return None if kind == NOT_HELD else segments[:n].tobytes()


def _took(
    wheel: Any, start: int, end: int, plans: dict[bytes, tuple[int, int, int]]
) -> dict[bytes, float]:
    """Seconds for a range by each plan, measured in turn; choices that lead to them are given."""
    store = wheel._view.store
    a, b = np.full(2 * TIMES, start), np.full(2 * TIMES, end)
    a[1::2] = b[1::2] = start  # nothing: otherwise the plan is made once for all
    keys = np.full(2 * TIMES, min(7, store.keys - 1))
    arrays, _ = store._asked
    outputs = store.outputs(wheel._view.results, 2 * TIMES)
    best = dict.fromkeys(plans, float("inf"))
    for _ in range(ROUNDS):
        for found, choice in plans.items():
            begin = time.perf_counter()
            store._answer.run(a, b, keys, False, NOT_ASKED, *choice, *arrays, *outputs)
            best[found] = min(best[found], (time.perf_counter() - begin) / TIMES)
    return best
