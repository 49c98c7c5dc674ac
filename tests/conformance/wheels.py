"""Wheels beside the definition: kinds of them, what happens to both, any range of both."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

import tidemill as tm
from tests.conformance.harness import same
from tidemill import col
from tidemill.core.errors import UserError
from tidemill.reference.wheels import RowWheel
from tidemill.wheels.files.format import read_save
from tidemill.wheels.files.opening import state_of
from tidemill.wheels.loops.slots import SLOT
from tidemill.wheels.memory.sparse_store import SparseStore
from tidemill.wheels.state import empty_state
from tidemill.wheels.tuning import WheelTuning
from tidemill.wheels.wheel import Wheel

SCHEMA = {"t": "int64", "k": "int64", "s": "string", "v": "int64", "x": "float64"}
RINGS: dict[str, list[Any]] = {
    "dropped": [1, 5, 20],
    "kept": [(1, "keep"), (5, "keep"), (20, "keep")],
    "some kept": [(2, 7), (4, "keep"), (24, 6)],
    "one": [(3, "keep")],
    "one, dropped": [(3, 4)],
    "sixes": [1, 6, (36, 2)],
}
AGGREGATES: dict[str, dict[str, Any]] = {
    "sum": {"a": tm.sum(col.v)},
    "mean and more": {"a": tm.mean(col.x), "b": tm.sum(col.x), "c": tm.var(col.x)},
    "many": {
        "a": tm.count(col.x), "b": tm.min(col.x), "c": tm.max(col.t), "d": tm.all(col.v > 2),
        "e": tm.count_if(col.v > 1), "f": tm.arg_max(col.v, col.x),
    },
    "own": {
        "a": tm.aggregate(
            "own", identity=lambda: 0, lift=lambda x: x * x, combine=lambda a, b: a + b,
            lower=lambda a: a,
        )(col.v)
    },
}
KEYS = {"no keys": (), "one": ("k",), "two": ("k", "s")}
SLOW_SLOTS = {"fast_slot": 10 * SLOT}
"""A slot costs much more than it does: every plan is the best of some range, in small wheels too."""

values = st.tuples(
    st.integers(0, 3), st.sampled_from(["a", "b", None]), st.one_of(st.none(), st.integers(-5, 5)),
    st.one_of(st.none(), st.floats(-8, 8, width=16)),
)  # fmt: skip
steps = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.lists(st.tuples(st.integers(-4, 40), values), max_size=8)),
        st.tuples(st.just("advance"), st.integers(0, 30)),
    ),
    min_size=1,
    max_size=10,
)


def tuned(wheel: Wheel, **thresholds: int) -> Wheel:
    """An empty wheel as another one is, with other thresholds."""
    state, spec = wheel._state, replace(wheel._state.spec, tuning=WheelTuning(**thresholds))
    sparse = isinstance(state.store, SparseStore)
    return Wheel.of_state(empty_state(spec, state.store.first, state.store.compress, sparse=sparse))


def opened(path: Path, **thresholds: int) -> Wheel:
    """A saved wheel, with other thresholds."""
    save = read_save(path, None, verify=True)
    return Wheel.of_state(state_of(save, {}, verify=True, tuning=WheelTuning(**thresholds)))


def pair(
    rings: str, aggregates: str | dict[str, Any], keys: str, start: int,
    tuning: dict[str, int] | None = None, **options: Any,
) -> tuple[Wheel, RowWheel]:  # fmt: skip
    given_ = AGGREGATES[aggregates] if isinstance(aggregates, str) else aggregates
    wheel = Wheel(
        given_, schema=SCHEMA, time="t", start=start, keys=KEYS[keys], granularities=RINGS[rings], **options
    )
    wheel = wheel if tuning is None else tuned(wheel, **tuning)
    grain = RINGS[rings][0]
    grain = grain[0] if isinstance(grain, tuple) else grain
    return wheel, RowWheel(wheel._view.plan, grain, start // grain * grain)


def play(wheel: Wheel, reference: RowWheel, script: list[Any]) -> list[dict[str, Any]]:
    """The same to both. The windows that closed."""
    closed: list[dict[str, Any]] = []
    # Whether a column has nulls is compiled, too: for larger kinds of slots, it always has.
    nothing = [(0, (0, "a", None, None))] if len(wheel._view.plan.aggregates) > 1 else []
    for what, given_ in script:
        if what == "advance":
            reference.advance_to(reference.watermark + given_)
            found = wheel.advance_to(reference.watermark)
            # Windows that close together come in no stated order: it depends on the room of the rings.
            closed += sorted(found.to_pylist(), key=_window_and_key) if found is not None else []
            assert wheel.watermark == reference.watermark
            continue
        rows = [
            {"t": reference.watermark + t, **dict(zip(("k", "s", "v", "x"), rest))}
            for t, rest in [*given_, *nothing]
        ]
        for row in rows:
            reference.insert(row)
        wheel.insert(rows)
    assert wheel.stats()["left out"]["late"] == len(reference.late)
    assert sorted(wheel.late()["t"].to_pylist()) == sorted(r["t"] for r in reference.late)
    return closed


def _window_and_key(row: dict[str, Any]) -> Any:
    bounds = row.get("window", ""), row["window_end"], row["window_start"]
    return *bounds, *((row[k] is None, "" if row[k] is None else row[k]) for k in ("k", "s") if k in row)


def can_be_cut(wheel: Wheel, start: int, end: int) -> bool:
    """Whether slots that are held make up a range, in finest slots."""
    store = wheel._view.store
    start, end = max(start, store.first), min(end, store.now)
    reached = {start}
    for p in range(start, end):
        if p in reached:
            for r in range(len(store.rings)):
                unit, _, _, _, low, stop = (int(x) for x in store.ring(r)[:6])
                if p % unit == 0 and low <= p // unit < stop:
                    reached.add(p + unit)
    return start >= end or end in reached


def check(wheel: Wheel, reference: RowWheel, a: int, b: int) -> str:
    """Every key of a range. How it was answered."""
    grain = reference.grain
    keys = {tuple(r[k] for k in wheel._view.plan.group_keys) for r in reference.rows} or {(9,)}
    keyed = bool(wheel._view.plan.group_keys)
    names = [r.name for r in wheel._view.plan.layout.results]
    for key in keys if keyed else {()}:
        asked = {"key": key if len(key) > 1 else key[0]} if keyed else {}
        if keyed and len(key) != len(wheel._view.plan.group_keys):
            continue
        try:
            got = wheel.query(a * grain, b * grain, **asked)
        except UserError as refused:
            assert "still hold" in str(refused) and not can_be_cut(wheel, a, b)
            return "refused"
        expected = reference.query(a * grain, b * grain, key)
        shown = got if isinstance(got, dict) else {names[0]: got}
        assert all(same(shown[n], expected[n]) for n in names), (a, b, key, shown, expected)
        many = wheel.query([a * grain], [b * grain], **({"key": [asked["key"]]} if keyed else {}))
        [row] = many.to_pylist()
        row = row if isinstance(row, dict) else {names[0]: row}
        assert all(same(row[n], expected[n]) for n in names), (a, b, key, row, expected)
    return wheel.explain(a * grain, b * grain).plan


def check_ranges(wheel: Wheel, reference: RowWheel, pick: random.Random, count: int = 12) -> set[str]:
    store = wheel._view.store
    found = set()
    for _ in range(count):
        a = pick.randint(store.first - 2, store.now + 2)
        b = pick.randint(a, store.now + 4)
        if pick.random() < 0.3:  # on coarse bounds
            unit = int(store.ring(len(store.rings) - 1)[0])
            a, b = a // unit * unit, b // unit * unit
        found.add(check(wheel, reference, a, b))
    found.add(check(wheel, reference, store.first, store.now))
    return found


def separately(
    rings: str, aggregates: str | dict[str, Any], keys: str, scripts: list[list[Any]], starts: list[int],
    **options: Any,
) -> tuple[list[Wheel], RowWheel]:
    """A wheel for each script, and one reference of all their rows."""
    wheels, whole = [], None
    for script, start in zip(scripts, starts):
        wheel, reference = pair(rings, aggregates, keys, start, **options)
        play(wheel, reference, script)
        wheels.append(wheel)
        if whole is None:
            whole = reference
        else:
            whole.rows += reference.rows
            whole.watermark = max(whole.watermark, reference.watermark)
    assert whole is not None
    return wheels, whole
