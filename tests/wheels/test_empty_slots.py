"""A watermark that goes far ahead: slots in which there is nothing are closed many at a time."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidemill as tm
from tests.conformance.wheels import tuned
from tidemill import col
from tidemill.wheels.loops.range_plan import END, LOW, PLAIN
from tidemill.wheels.memory import store as memory
from tidemill.wheels.memory.sparse_store import SparseStore

RINGS: dict[str, list[Any]] = {
    "kept": [(1, "keep"), (6, "keep"), (30, "keep")],
    "dropped": [1, 6, (30, 4)],
    "some": [(1, 100), (6, "keep"), (30, 7)],
    "one": [(1, 9)],
}


def filled(rings: str, keys: bool, many_cells: int | None = None, **options: Any) -> Any:
    """A few rows, nulls among them, then nothing for a long time, then rows again."""
    wheel = tm.Wheel(
        tm.sum(col.v), schema={"t": "int64", "k": "int64", "v": "int64"}, time="t", start=3,
        keys="k" if keys else (), granularities=RINGS[rings], write_ahead=8, **options,
    )  # fmt: skip
    if many_cells is not None:
        wheel = tuned(wheel, many_cells=many_cells)
    pick, now = np.random.default_rng(1), 3
    for pause in (0, 40, 7, 1_001, 4_333, 5):
        ts = now + np.sort(pick.integers(0, 25, 30))
        v = pa.array(pick.integers(-9, 9, 30), mask=pick.random(30) < 0.3)
        wheel.insert(pa.table({"t": ts, "k": pick.integers(0, 5, 30), "v": v}))
        now = int(ts[-1]) + 1 + pause
        wheel.advance_to(now)
    return wheel


def asked(wheel: Any, keys: bool) -> list[Any]:
    """Many ranges, refused ones too."""
    pick, found = random.Random(3), []
    now = wheel.watermark
    for _ in range(120):
        a = pick.randrange(0, now + 4)
        b = a + pick.choice([1, 6, 30, 200, 10_000])
        if pick.random() < 0.5:
            a, b = a // 30 * 30, b // 30 * 30
        try:
            found.append(wheel.query(a, b, **({"key": pick.randrange(6)} if keys else {})))
        except tm.UserError:
            found.append("refused")
    return [*found, wheel.landmark(key=1) if keys else wheel.landmark(), numbers(wheel)]


def numbers(wheel: Any) -> Any:
    """How far each ring is, and what it holds."""
    store = wheel._view.store
    return [store.ring(r)[[LOW, END, PLAIN]].tolist() for r in range(len(store.rings))], wheel.stats()["rows"]


DENSE = [
    (rings, options)
    for rings in RINGS
    for options in ({}, {"prefix": True}, {"compress": 4})
    if options or rings not in ("kept", "some")  # those are sparse, and pass over empty slots by themselves
]


KEYLESS = [("dropped", {})]
"""What is compiled without keys in every run: each kind of wheel is compiled apart there, for the soak."""


@pytest.mark.parametrize(
    ("rings", "options", "keys"),
    [
        pytest.param(*kind, keys, marks=() if keys or kind in KEYLESS else pytest.mark.soak)
        for kind in DENSE
        for keys in (False, True)
    ],
    ids=str,
)
@pytest.mark.compiled  # thousands of slots
def test_the_same_as_one_by_one(
    rings: str, keys: bool, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = asked(filled(rings, keys, 1 << 60, **options), keys)
    calls: list[int] = []
    together = memory.close_empty
    monkeypatch.setattr(memory, "close_empty", lambda *given: calls.append(1) or together(*given))
    assert asked(filled(rings, keys, 1, **options), keys) == expected
    assert len(calls) >= 2


@pytest.mark.parametrize("keys", [False, True])
@pytest.mark.parametrize("rings", ["kept", "some"])
def test_sparse_stores_answer_as_dense_ones(rings: str, keys: bool, tmp_path: Any) -> None:
    sparse, dense = filled(rings, keys), filled(rings, keys, prefix=True)
    assert isinstance(sparse._view.store, SparseStore) and not isinstance(dense._view.store, SparseStore)
    assert asked(sparse, keys) == asked(dense, keys)
    sparse.save(tmp_path)
    assert asked(tm.open_wheel(tmp_path), keys) == asked(dense, keys)


def test_a_save_after_a_long_pause(tmp_path: Any) -> None:
    wheel = filled("some", True, compress=4)
    wheel.save(tmp_path)
    assert asked(tm.open_wheel(tmp_path), True) == asked(wheel, True)


def test_years_take_no_step_for_each_slot() -> None:
    """Steps of the kernel that closes slots, counted: as many as before, whatever the pause is."""
    wheel: Any = tm.Wheel(
        tm.sum(col.v), schema={"t": "timestamp", "v": "int64"}, time="t", start="2000-01-01", compress=True,
        granularities=[("1s", 100_000), ("1m", "keep"), ("1h", "keep"), ("1d", "keep")],
    )  # fmt: skip
    wheel.insert("2000-01-01", 5)
    wheel.advance_to("2000-01-02")
    store, steps = wheel._view.store, []
    close = store._close.run_at
    store._close = type("Counted", (), {
        "run_at": staticmethod(lambda *given: steps.append(1) or close(*given)),
        "roll_at": staticmethod(store._close.roll_at),
    })  # fmt: skip
    wheel.advance_to("2026-01-01")
    assert len(steps) <= 2
    assert wheel.landmark() == 5 and wheel.query("2000-01-01", "2020-01-01") == 5
    assert wheel.query("2000-01-02", "2026-01-01") is None
    wheel.insert("2026-01-01T00:00:10", 7)
    wheel.advance_to("2026-01-01T00:01:00")
    assert wheel.query("2025-12-31", "2026-01-02") == 7
