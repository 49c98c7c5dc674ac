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
from tidemill.wheels.loops.range_plan import COMBINED, INVERSE_LANDMARK, ONE_RING

SCHEMA = {"t": "int64", "k": "int64", "v": "int64", "x": "float64"}
KINDS = {"one ring": ONE_RING, "combined rings": COMBINED, "inverse landmark": INVERSE_LANDMARK}
MULTIPLES = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Of the cost of a slot."""
CLOSE = 1.1
"""A plan that takes at most so many times as long as the best is as good."""
TIMES = 200
"""Answers in one measurement: some microseconds."""
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
        store, slots = wheel._store, wheel._store.now
        starts, ends = _ranges(slots, ranges)
        keys = np.full(2 * TIMES, min(7, store.keys - 1))
        chosen, best, by_multiple, kinds = [], [], np.zeros(len(MULTIPLES)), dict.fromkeys(KINDS, 0)
        allowed, threshold, cost = store.choice
        for a, b in zip(starts.tolist(), ends.tolist()):
            costs = [max(1, round(m * cost)) for m in MULTIPLES]
            cuts = [_took(wheel, a, b, keys, (allowed, threshold, c)) for c in costs]
            others = [_took(wheel, a, b, keys, (1 << k, 0, cost)) for k in KINDS.values()]
            own = cuts[MULTIPLES.index(1.0)]
            chosen.append(own)
            best.append(min(own, *cuts, *(o for o in others if o > 0)))
            by_multiple += cuts
            plan = str(wheel.explain(a, b).plan)
            kinds[plan] = kinds.get(plan, 0) + 1
        excess = np.array(chosen) / np.array(best)
        return Measured(None, float(np.mean(chosen)), {
            "% within 10 % of the best": 100 * float(np.mean(excess <= CLOSE)),
            "% more than the best, p95": 100 * float(np.percentile(excess, 95) - 1),
            "best multiple": MULTIPLES[int(by_multiple.argmin())],
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


def _took(wheel: Any, start: int, end: int, keys: Ints, choice: tuple[int, int, int]) -> float:
    """Seconds for a range by a choice of plans; 0 if none of them can."""
    store = wheel._store
    a, b = np.full(2 * TIMES, start), np.full(2 * TIMES, end)
    a[1::2] = b[1::2] = start  # nothing: otherwise the plan is made once for all
    arrays, _ = store._asked
    outputs = wheel._outputs(2 * TIMES)
    given = (a, b, keys, False, np.empty(0, np.bool_), *choice, *arrays, *outputs)
    best = float("inf")
    for _ in range(12):
        begin = time.perf_counter()
        bad, _ = store._answer.run(*given)
        best = min(best, time.perf_counter() - begin)
        if bad >= 0:
            return 0.0
    return best / TIMES
