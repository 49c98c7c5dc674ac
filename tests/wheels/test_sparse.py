"""Wheels that keep all slots: cells only where keys had rows, whatever happens to them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidemill as tm
from tests.conformance.wheels import check_ranges, opened, pair, play, tuned
from tidemill import col
from tidemill.core.checksums import CHECKSUM, checksum
from tidemill.core.errors import UserError
from tidemill.wheels.loops.adjacent_sums import sum_floats, sum_ints
from tidemill.wheels.loops.sparse_cells import seek
from tidemill.wheels.memory.sparse_store import SparseStore

SCHEMA = {"t": "int64", "k": "int64", "v": "int64"}


def wheel(**options: Any) -> Any:
    given: dict[str, Any] = {"granularities": [1, 60, 3600], "retention": "keep", "keys": "k"}
    return tm.Wheel(tm.sum(col.v), schema=SCHEMA, time="t", start=0, **(given | options))


def rows(t: Any, k: Any, v: Any) -> pa.Table:
    return pa.table({n: pa.array(x, pa.int64()) for n, x in (("t", t), ("k", k), ("v", v))})


def cells(made: Any) -> int:
    """The bytes of closed slots."""
    assert isinstance(made._view.store, SparseStore)
    return int(made._view.store.nbytes["rings"])


@pytest.mark.parametrize("keys", ["no keys", "one", "two"])
@pytest.mark.parametrize("rings", ["kept", "some kept", "one"])
def test_long_gaps_and_far_rows(rings: str, keys: str, tmp_path: Path) -> None:
    """Rows in slots of their own, far beyond the open slots; a save in between."""
    pick = random.Random(f"{rings} {keys}")
    made, reference = pair(rings, "sum", keys, pick.randint(-50, 50), write_ahead=pick.choice([1, 4, 64]))

    def script() -> list[Any]:
        found: list[Any] = []
        for _ in range(6):
            far = pick.choice([10, 400, 3000])
            of = [None, 0, 5]
            values = [(pick.randint(0, 3), pick.choice("ab"), pick.choice(of), 0.5) for _ in range(12)]
            some = [(pick.randint(-4, far), each) for each in values[: pick.randint(0, 12)]]
            found += [("insert", some), ("advance", pick.choice([0, 1, 5, 300, 5000]))]
        return found

    play(made, reference, script())
    check_ranges(made, reference, pick, 30)
    made.save(tmp_path)
    again = tm.open_wheel(tmp_path)
    assert isinstance(again, tm.Wheel)
    play(again, reference, script())
    check_ranges(again, reference, pick, 30)


@pytest.mark.compiled
def test_memory_and_cells_follow_rows() -> None:
    """A thousand years take as many bytes as a day, and a key takes none for the slots of others."""
    short, long = wheel(), wheel()
    for made, years in ((short, 1), (long, 1_000)):
        made.insert(rows([0, years * 31_536_000], [1, 1], [5, 7]))
        made.advance_to(years * 31_536_000 + 60)
        assert made.query(0, years * 31_536_000 + 60, key=1) == 12
    assert short.stats()["bytes"] == long.stats()["bytes"]
    many = wheel()
    t = np.arange(20_000)
    many.insert(rows(t, t % 500, t))
    many.advance_to(20_000)
    assert cells(many) < 150 * 20_000  # 500 keys in 20 000 slots would take 80 MB
    assert many.query(0, 20_000, key=7) == int(t[7::500].sum())


@pytest.mark.compiled
def test_closing_takes_steps_for_rows_only() -> None:
    """Calls of the kernels that close slots, counted: as many for thousands of years as for a few."""
    counts = []
    for gap in (1_000_000, 1_000_000_000):
        made, calls = wheel(), []
        store = made._view.store
        close = store._close
        store._close = type("Counted", (), {
            "run_at": staticmethod(lambda *given, c=close, n=calls: n.append(1) or c.run_at(*given)),
            "cells_at": staticmethod(lambda *given, c=close, n=calls: n.append(1) or c.cells_at(*given)),
        })  # fmt: skip
        made.insert(rows(np.arange(200) * gap, np.arange(200) % 7, np.ones(200)))
        made.advance_to(200 * gap)
        assert made.landmark(total=True) == 200
        counts.append(len(calls))
    assert counts[0] == counts[1]


def test_merged_wheels_are_sparse_and_have_the_rows_of_both() -> None:
    """Also with a wheel from a file of format 2, which has a cell for every slot."""
    pick = np.random.default_rng(1)
    parts = [rows(*(pick.integers(a, b, 60) for a, b in ((0, 90_000), (0, 4), (-9, 9)))) for _ in "ab"]
    whole, one, two = wheel(), wheel(), wheel()
    for part, made in zip(parts, (one, two)):
        for each in (made, whole):
            each.insert(part)
        made.advance_to(50_000)
    whole.advance_to(50_000)
    assert one.merge(two)
    for made in (one, whole):
        made.advance_to(90_100)
    assert isinstance(one._view.store, SparseStore)
    ranges = np.sort(pick.integers(0, 90_100, (2, 300)), axis=0)
    keys = pick.integers(0, 4, 300).tolist()
    assert one.query(*ranges, key=keys) == whole.query(*ranges, key=keys)


def test_a_file_of_format_2_opens_and_merges(tmp_path: Path) -> None:
    """Before sparse stores there was a cell for every slot and key, and no field for either."""
    import json

    from tidemill.wheels.state import empty_state

    made = wheel(granularities=[1, 60], keys=())
    state = empty_state(made._state.spec, 0, sparse=False)
    old = tm.Wheel.of_state(state)
    old.insert(rows([3, 70, 200], [0, 0, 0], [1, 2, 3]))
    old.advance_to(300)
    old.save(tmp_path)
    file = tmp_path / "manifest-000001.json"
    facts = {n: v for n, v in json.loads(file.read_text()).items() if n not in ("sparse", "notes", CHECKSUM)}
    facts["format"] = 2
    file.write_text(json.dumps({**facts, CHECKSUM: checksum(facts)}))
    again = tm.open_wheel(tmp_path)
    assert isinstance(again, tm.Wheel) and not isinstance(again._view.store, SparseStore)
    assert again.query(0, 100) == 3
    made.insert(rows([70, 250], [0, 0], [10, 20]))
    made.advance_to(300)
    assert made.merge(again)
    assert isinstance(made._view.store, SparseStore)
    assert [made.query(0, 100), made.query(60, 120), made.landmark()] == [13, 12, 36]
    made.insert(rows([301], [0], [5]))
    made.advance_to(360)
    assert made.query(240, 360) == 25


def test_cells_of_dropped_slots_are_reused() -> None:
    """A ring that drops slots beside one that keeps them: memory stays bounded by what is held."""
    made = wheel(granularities=[(1, 60), (60, "keep")], keys=())
    sizes = []
    for hour in range(1, 4):
        t = np.arange((hour - 1) * 3600, hour * 3600)
        made.insert(rows(t, t * 0, t))
        made.advance_to(hour * 3600)
        sizes.append(len(made._view.store.columns[0]))
    assert sizes[-1] < 3 * 3600 / 4
    assert made.query(0, 3 * 3600) == sum(range(3 * 3600))
    with pytest.raises(UserError, match="still hold"):
        made.query(1, 61)


def test_an_overflow_leaves_finer_slots_readable() -> None:
    made = wheel(granularities=[1, 60], keys=())
    made.insert(rows([1, 2, 200], [0, 0, 0], [1 << 62, 1 << 62, 1]))
    with pytest.raises(UserError, match="advance_to"):
        made.advance_to(300)
    assert made.watermark == 60 and made.query(1, 2) == 1 << 62
    with pytest.raises(UserError, match="nothing failed"):
        made.insert(rows([400], [0], [1]))


def test_windows_have_a_cell_for_every_slot() -> None:
    made = wheel(keys=())
    made.window(10)
    assert not isinstance(made._view.store, SparseStore)
    made.insert(rows([3, 700], [0, 0], [1, 2]))
    assert made.advance_to(720)["value"].to_pylist() == [1, 2]


def test_sums_of_adjacent_cells_are_exact() -> None:
    pick = np.random.default_rng(0)
    for n in (0, 1, 7, 200):
        for values in (
            pick.integers(-(1 << 63), (1 << 63) - 1, n), np.full(n, -(1 << 63)), np.full(n, (1 << 63) - 1)
        ):  # fmt: skip
            low, high = sum_ints(values, 0, n)
            assert low + (high << 64) == sum(values.tolist())
            assert np.isclose(sum_floats(values.astype(np.float64), 0, n), values.astype(np.float64).sum())
    assert np.isnan(sum_floats(np.array([1.0, np.nan, 2.0]), 0, 3))
    assert sum_floats(np.array([1.0, np.inf, 2.0]), 0, 3) == np.inf


@pytest.mark.compiled
def test_many_keys_have_fewer_open_slots() -> None:
    """An insert that is rolled back, while new keys make the number of open slots change."""
    made = wheel(granularities=[(1, 10)], retention=None)
    made.insert(rows([0, 5], [-1, -2], [1, 2]))
    n = 300_000
    good, bad = rows(np.arange(n) % 3, np.arange(n), np.ones(n)), rows([1, 1], [7, 7], [1 << 62, 1 << 62])
    with pytest.raises(UserError, match="int64"):
        made.insert(pa.concat_tables([good, bad]))
    assert made.stats()["keys"] == 2 and made.stats()["rows"] == 2
    made.insert(good)
    assert made.stats()["bytes"]["open slots"] <= 128 << 20
    made.advance_to(6)
    assert made.landmark(total=True) == n + 3
    assert [made.query(0, 6, key=k) for k in (-1, -2, 0, n - 1)] == [1, 2, 1, 1]


def test_a_null_is_null_whatever_is_computed_beside_it() -> None:
    per_row = tm.aggregate(
        "per_row", identity=lambda: (0, 0), lift=lambda x: (x, 1),
        combine=lambda a, b: (a[0] + b[0], a[1] + b[1]), lower=lambda s: s[1] / s[0] + 1.0,
    )  # fmt: skip
    made = tm.Wheel(per_row(col.v), schema=SCHEMA, time="t", start=0, granularities=[1], retention="keep")
    made.insert(rows([3, 6], [0, 0], [5, 0]))
    made.advance_to(9)
    assert [made.query(0, 5), made.query(5, 9), made.query(7, 9)] == [1.2, None, None]


def test_rows_that_were_early_before_a_save_are_in_their_slots_after_it(
    tmp_path: Path,
) -> None:
    """With many keys fewer slots are open; there may be more of them where the wheel is opened again."""
    made: Any = tuned(wheel(write_ahead=64), open_bytes=1_000)
    made.insert(rows(np.zeros(90), np.arange(90), np.ones(90)))
    made.insert(rows([40, 41, 40, 50], [0, 0, 1, 1], [10, 20, 30, 40]))
    assert made.stats()["rows ahead"] == 4
    made.save(tmp_path)
    again: Any = tm.open_wheel(tmp_path)
    again.insert(rows([45, 39], [0, 1], [100, 200]))
    again.advance_to(46)
    again.advance_to(60)
    assert [again.query(40, 42, key=0), again.query(0, 60, key=0)] == [30, 131]
    assert [again.query(39, 40, key=1), again.query(40, 60, key=1)] == [200, 70]


@pytest.mark.parametrize("options", [{}, {"compress": 4}])
def test_an_opened_wheel_has_as_few_open_slots_as_before(
    options: dict[str, Any], tmp_path: Path
) -> None:
    made: Any = tuned(wheel(write_ahead=64, **options), open_bytes=10_000)
    made.insert(rows(np.zeros(90), np.arange(90), np.ones(90)))
    made.advance_to(1)
    before = made.stats()["bytes"]["open slots"]
    made.save(tmp_path)
    again = opened(tmp_path, open_bytes=10_000)
    assert again.stats()["bytes"]["open slots"] <= before


def test_compressed_wheels_with_many_open_slots_merge(tmp_path: Path) -> None:
    one, two = (wheel(write_ahead=64, compress=4) for _ in range(2))
    for made, v in ((one, 1), (two, 2)):
        made.insert(rows([0, 60], [0, 1], [v, v]))
        made.insert(rows(np.zeros(90), np.arange(90), np.ones(90)))
    one.save(tmp_path)
    one = opened(tmp_path, open_bytes=1_000)
    assert len(one._state.store.ahead) == 64  # as it was saved
    assert one.merge(two)
    one.advance_to(61)
    assert [one.query(0, 1, key=0), one.query(60, 61, key=1), one.landmark(total=True)] == [5, 3, 186]


def test_a_window_after_late_rows_keeps_them_and_the_notes() -> None:
    made = wheel()
    with pytest.warns(UserWarning, match="before the start"):
        made.insert(rows([-5], [7], [1]))
    name = made.id
    made.window(10)
    assert made.late()["t"].to_pylist() == [-5]
    assert made.stats()["left out"]["late"] == 1 and made.stats()["notes"] and made.id == name
    made.insert(rows([3, 4], [8, 7], [1, 2]))
    assert sorted(made.advance_to(10)["value"].to_pylist()) == [1, 2]


def test_a_shared_wheel_takes_no_window_that_its_readers_would_not_see(tmp_path: Path) -> None:
    made = wheel(keys=())
    made.share(tmp_path)
    reader: Any = tm.open_wheel(tmp_path)
    with pytest.raises(UserError, match="before share"):
        made.window(10)
    made.insert(rows([3], [0], [5]))
    made.advance_to(10)
    assert reader.query(0, 10) == 5


def test_a_damaged_group_is_not_looked_for_outside_of_its_array() -> None:
    groups = np.array([[-(1 << 63), 1, 0], [7, 1, 1], [90, 1, 2]])
    assert all(0 <= seek(groups, 0, 3, slot) < 3 for slot in (0, 7, 89, 1 << 40))


def test_a_shared_wheel_reserves_what_its_rows_may_take(tmp_path: Path) -> None:
    made, n = wheel(), 3_000
    made.share(tmp_path)
    for t in range(4):
        made.insert(rows(np.full(n, t), np.arange(n), np.ones(n)))
        made.advance_to(t + 1)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 5_000 * n
    assert made.landmark(total=True) == 4 * n
