"""The short ways through a wheel: rows read where they are, windows into one room, sums without a plan."""

from __future__ import annotations

import itertools
import random
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidemill as tm
from tidemill import col
from tidemill.core.errors import UserError

SCHEMA = {"t": "int64", "v": "int64"}


def new_wheel(value: Any = None, **options: Any) -> Any:
    given = {"granularities": [(1, "keep"), (10, "keep")], "start": 0, **options}
    return tm.Wheel(tm.sum(col.v) if value is None else value, schema=SCHEMA, time="t", **given)


def batch(ts: list[int], vs: list[int | None]) -> pa.RecordBatch:
    return pa.record_batch({"t": pa.array(ts, pa.int64()), "v": pa.array(vs, pa.int64())})


def inserted(rows: list[pa.RecordBatch], **options: Any) -> Any:
    wheel = new_wheel(**options)
    for some in rows:
        wheel.insert(some)
    return wheel


def test_slices_of_batches_are_read_from_where_they_begin() -> None:
    whole = batch(list(range(20)), [10**i % 997 for i in range(20)])
    wheel = inserted([whole.slice(0, 7), whole.slice(7, 0), whole.slice(7)])
    wheel.advance_to(20)
    assert [wheel.query(i, i + 1) for i in range(20)] == [10**i % 997 for i in range(20)]


def test_bytes_that_are_not_aligned() -> None:
    body = np.zeros(8 * 4 + 1, dtype=np.uint8)
    body[1:] = np.arange(4, dtype=np.int64).view(np.uint8)
    odd = pa.Array.from_buffers(pa.int64(), 4, [None, pa.py_buffer(body[1:])])
    wheel = inserted([pa.record_batch({"t": odd, "v": odd})])
    wheel.advance_to(4)
    assert wheel.query(0, 4) == 6


def test_nulls_late_and_early_rows_among_batches_without() -> None:
    wheel = inserted([batch([0, 1], [1, 2]), batch([1, 2], [None, 4])], write_ahead=4)
    wheel.advance_to(2)
    wheel.insert(batch([1, 2, 30, 0, 31], [5, 6, 7, 8, 9]))
    assert wheel.late().to_pylist() == [{"t": 1, "v": 5}, {"t": 0, "v": 8}]
    assert wheel.stats()["rows ahead"] == 2
    wheel.advance_to(40)
    assert [wheel.query(*r) for r in ((0, 3), (30, 31), (31, 32))] == [13, 7, 9]
    assert wheel.stats()["rows"] == 7


def test_a_row_that_overflows_is_an_error_and_is_not_counted() -> None:
    wheel = inserted([batch([0], [2**62])])
    with pytest.raises(UserError, match="overflow"):
        wheel.insert(batch([0], [2**62]))
    assert wheel.stats()["rows"] == 1
    wheel.insert(batch([0], [1]))
    wheel.advance_to(1)
    assert wheel.query(0, 1) == 2**62 + 1


def test_few_rows_with_keys_all_go_in_or_none() -> None:
    schema = {"t": "int64", "k": "string", "v": "int64"}
    wheel = tm.Wheel(
        tm.sum(col.v), schema=schema, time="t", keys="k", start=0, granularities=[(1, "keep"), (10, "keep")],
        write_ahead=4,
    )  # fmt: skip

    def rows(*given: tuple[int, str, int]) -> pa.RecordBatch:
        columns = dict(zip(schema, map(list, zip(*given))))
        return pa.record_batch(columns, schema=pa.schema({"t": "int64", "k": "string", "v": "int64"}))

    wheel.insert(rows((0, "a", 1), (1, "b", 2), (30, "a", 3)))
    with pytest.raises(UserError, match="overflow"):
        wheel.insert(rows((0, "c", 4), (1, "b", 2**63 - 1)))
    wheel.insert(rows((0, "d", 5), (-1, "e", 6)))
    wheel.advance_to(40)
    found = {k: wheel.query(0, 40, k) for k in "abcde"}
    assert found == {"a": 4, "b": 2, "c": None, "d": 5, "e": None}
    assert {k: wheel.query(0, 40, k) for k in "abcde"} == found  # by numbers that are known now
    assert wheel.stats()["rows"] == 4 and wheel.late().to_pylist() == [{"t": -1, "k": "e", "v": 6}]


@pytest.mark.parametrize("value", [-(2**70), 2**63, 2**70, -(2**61) - 1])
def test_bounds_that_are_no_machine_ints_are_refused(value: int) -> None:
    wheel = inserted([batch([0], [1])])
    wheel.advance_to(1)
    with pytest.raises(UserError):
        wheel.query(min(0, value), max(0, value))


@pytest.mark.compiled
def test_a_function_that_raises_is_named() -> None:
    def tenth(x: int) -> int:
        return 10 // x

    wheel = new_wheel(tm.sum(tm.udf(tenth, returns="int64")(col.v)))
    wheel.insert(batch([0], [5]))
    with pytest.raises(UserError, match="tenth"):
        wheel.insert(batch([0], [0]))


@pytest.mark.compiled  # the sample of windows that slide
def test_windows_stay_as_they_were_given() -> None:
    wheel = new_wheel(granularities=[1, 10])
    wheel.window(2, 1)
    found, n = [], 3_000
    for t in range(n):
        wheel.insert(batch([t], [t]))
        found.append(wheel.advance_to(t + 1))
    assert pa.concat_tables(found)["value"].to_pylist() == [max(0, 2 * t - 1) for t in range(n)]
    assert pa.concat_tables(found)["window_start"].to_pylist() == [t - 1 for t in range(n)]
    assert wheel.advance_to(n).num_rows == 0


def test_windows_whose_value_is_null() -> None:
    wheel = new_wheel()
    wheel.window(1)
    wheel.insert(batch([0, 1, 2], [5, None, 7]))
    assert wheel.advance_to(3)["value"].to_pylist() == [5, None, 7]


@pytest.mark.parametrize("start", [0, -(1 << 56), 1 << 56])
@pytest.mark.parametrize("prefix", [False, True])
def test_many_ranges_anywhere(start: int, prefix: bool) -> None:
    start = start // 7 * 7
    wheel = new_wheel(start=start, granularities=[(7, "keep"), (70, "keep")], prefix=prefix)
    ts = start + np.arange(700)
    wheel.insert(pa.table({"t": ts, "v": np.arange(700)}))
    wheel.advance_to(start + 700)
    pick = np.random.default_rng(3)
    a, b = np.sort(pick.integers(-3, 104, (2, 300)), axis=0) * 7 + start
    expected = [int(sum(v for v in range(700) if x <= start + v < y)) for x, y in zip(a, b)]
    held = [x < start + 700 and y > max(x, start) for x, y in zip(a, b)]
    expected_or_none = [e if h else None for e, h in zip(expected, held)]
    assert wheel.query(a, b).to_pylist() == expected_or_none
    assert [wheel.query(int(x), int(y)) for x, y in zip(a, b)] == expected_or_none
    for off in (1, 6):
        with pytest.raises(UserError, match="grid"):
            wheel.query(a + off, b + off)
        with pytest.raises(UserError, match="grid"):
            wheel.query(int(a[0]) + off, int(b[0]) + 7 + off)
    with pytest.raises(UserError):
        wheel.query(int(start + 14), int(start + 7))


@pytest.mark.parametrize("rings", [[(1, "keep"), (10, "keep")], [(1, 64), (8, "keep")]])
@pytest.mark.compiled
def test_sums_while_slots_close(rings: list[Any]) -> None:
    wheel, wrong, stop = new_wheel(granularities=rings, prefix=True), [], threading.Event()
    answers = itertools.count()
    wheel.insert(batch([0], [0]))
    wheel.advance_to(1)
    wheel.query(0, 1)  # compiles

    def ask() -> None:
        pick = random.Random(3)
        while not stop.is_set():
            now = wheel.watermark
            b = now - pick.randrange(20)
            a = max(0, b - pick.randrange(1, 20))
            try:
                found = wheel.query(a, b)
            except UserError:  # dropped since the watermark was read
                continue
            next(answers)
            if a < b and found != sum(range(a, b)):
                wrong.append((a, b))

    readers = [threading.Thread(target=ask) for _ in range(2)]
    for reader in readers:
        reader.start()
    for t in range(1, 4_000, 4):
        wheel.insert(batch(list(range(t, t + 4)), list(range(t, t + 4))))
        wheel.advance_to(t + 4)
    stop.set()
    for reader in readers:
        reader.join()
    assert not wrong and next(answers) > 100


def test_sums_after_slots_were_dropped() -> None:
    wheel = new_wheel(granularities=[1, 10, (100, "keep")], prefix=True)
    wheel.insert(pa.table({"t": np.arange(1000), "v": np.arange(1000)}))
    wheel.advance_to(1000)
    assert wheel.query(991, 999) == sum(range(991, 999))
    assert wheel.query(0, 300) == sum(range(300))
    with pytest.raises(UserError, match="still hold"):
        wheel.query(3, 7)
