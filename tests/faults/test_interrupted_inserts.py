"""Inserts that fail or are interrupted at any moment: all rows are in the wheel, or none."""

from __future__ import annotations

import contextlib
import functools
import itertools
import linecache
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidemill as tm
from tests.faults.counts import SOAK, report, seed_of
from tidemill import col
from tidemill.core.errors import UserError

SCHEMA = {"t": "int64", "k": "string", "v": "int64"}
MADE: dict[str, dict[str, Any]] = {
    "numbers": {"made": {"s": tm.sum(col.v), "m": tm.max(col.v)}, "keys": ()},
    "keys": {"made": {"s": tm.sum(col.v), "m": tm.max(col.v)}, "keys": "k"},
    "values": {"made": {"s": tm.sum(col.v), "q": tm.median(col.v)}, "keys": "k"},
}
BIG = 1 << 62
COMPILED = ("keys", "values")
"""What `make test` interrupts, and gives many rows. Wheels without keys are compiled apart, in a soak."""


def new_wheel(kind: str, **more: Any) -> Any:
    made = MADE[kind]
    return tm.Wheel(
        made["made"], schema=SCHEMA, time="t", start=0, keys=made["keys"], granularities=[10, 50],
        retention="keep", write_ahead=8, **more,
    )  # fmt: skip


def rows(n: int, first: int = 0, bad: int | None = None) -> pa.Table:
    """Rows that are in open slots, too far ahead, late, or without a time; the last two overflow if told."""
    pick = np.random.default_rng(first)
    t = pick.integers(0, 120, n)
    v = pick.integers(0, 100, n)
    if bad is not None:
        t[-2:], v[-2:] = 25, bad
    names = np.array([f"key {i}" for i in range(40)])
    missing = pick.random(n) < 0.05
    missing[-2:] = False
    k = np.where(np.arange(n) < n - 2, names[pick.integers(0, 40, n)], "key 0")
    return pa.table({"t": pa.array(t, mask=missing), "k": k, "v": v})


def state(wheel: Any) -> Any:
    """All that can be seen of a wheel, now and when time has gone on."""
    seen = {n: s for n, s in wheel.stats().items() if n not in ("bytes", "rings")}
    other = tm.Wheel.of_state(wheel._state.copy())
    other.advance_to(200)
    keyed = bool(wheel._view.plan.group_keys)
    found = other.query(0, 200)
    answers = sorted(map(str, found.to_pylist())) if keyed else found
    return seen, answers, wheel.late().to_pylist(), wheel._view.store.keys, wheel._state.failed


def begun(kind: str, **more: Any) -> Any:
    wheel = new_wheel(kind, **more)
    wheel.insert(rows(50))
    wheel.advance_to(20)
    return wheel


def sources(bad: int, tmp_path: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The same rows, of which the last ones overflow, in every form."""
    import pyarrow.csv as csv
    import pyarrow.parquet as pq

    table = rows(300, 1, bad)
    yield "table", lambda: table
    yield "batch", lambda: table.combine_chunks().to_batches()[0]
    yield "batches", lambda: iter(table.to_batches(max_chunksize=70))
    yield "dicts", lambda: table.to_pylist()
    yield "generator", lambda: (row for row in table.to_pylist())
    yield "reader", lambda: table.to_reader(max_chunksize=70)
    yield "pandas", lambda: table.to_pandas().astype({"t": "Int64"})
    csv.write_csv(table, str(tmp_path / "x.csv"))
    yield "csv", lambda: tmp_path / "x.csv"
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=70)
    yield "parquet", lambda: tmp_path / "x.parquet"


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=() if k in COMPILED else pytest.mark.interpreted) for k in MADE]
)
def test_an_overflow_at_the_end_leaves_the_wheel_as_it_was(kind: str, tmp_path: Path) -> None:
    wheel = begun(kind)
    before = state(wheel)
    for name, source in sources(BIG, tmp_path):
        with pytest.raises(UserError, match="overflow"):
            wheel.insert(source())
        assert state(wheel) == before, name
    for _, source in sources(1, tmp_path):
        wheel.insert(source())
    assert wheel.stats()["rows"] > before[0]["rows"]


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=() if k in COMPILED else pytest.mark.soak) for k in MADE]
)
def test_what_a_source_raises_leaves_the_wheel_as_it_was(kind: str, tmp_path: Path) -> None:
    wheel = begun(kind)
    before = state(wheel)

    def fails(failure: BaseException) -> Iterator[Any]:
        yield from rows(300, 2).to_batches(max_chunksize=70)
        raise failure

    for failure in (KeyboardInterrupt(), ValueError("the user's"), SystemExit(), MemoryError()):
        with pytest.raises(type(failure)):
            wheel.insert(fails(failure))
        assert state(wheel) == before
    with pytest.raises(UserError):
        wheel.insert([*rows(9).to_pylist(), {"t": 1, "k": "a", "v": "no number"}])
    text = "t,k,v\n" + "30,a,1\n" * 400_000 + "30,a,no number\n"
    (tmp_path / "x.csv").write_text(text)  # more than a block: rows of the first were in before
    with pytest.raises(UserError, match=r"x\.csv"):
        wheel.insert(tmp_path / "x.csv")
    assert state(wheel) == before


def test_a_source_that_writes_into_the_wheel_is_refused() -> None:
    wheel = begun("keys")
    before = state(wheel)

    def writes(what: Callable[[], Any]) -> Iterator[Any]:
        yield from rows(100, 3).to_batches()
        what()

    for what in (lambda: wheel.insert(30, {"v": 1}, "key 1"), lambda: wheel.advance_to(60)):
        with pytest.raises(UserError, match="not complete yet"):
            wheel.insert(writes(what))
        assert state(wheel) == before


def test_a_refused_row_in_many_cells_is_taken_out_by_the_log() -> None:
    """Where open slots are many beside the rows, what changes is logged, also over several chunks."""
    wheel = tm.Wheel(
        MADE["keys"]["made"], schema=SCHEMA, time="t", start=0, keys="k", granularities=[10, 50],
        retention="keep", write_ahead=64,
    )  # fmt: skip
    wheel.insert(pa.table({"t": [1] * 400, "k": [f"key {i}" for i in range(400)], "v": [1] * 400}))
    before = state(wheel)
    few = rows(300, 4, BIG)
    for source in (few, iter(few.to_batches(max_chunksize=30)), iter([*rows(90_000, 5).to_batches(), few])):
        with pytest.raises(UserError, match="overflow"):
            wheel.insert(source)
        assert state(wheel) == before


# --- at any moment ------------------------------------------------------------------------------------


@contextlib.contextmanager
def interrupted_at(line: int) -> Iterator[list[int]]:
    """Raise `KeyboardInterrupt` before so many lines of the package have run; how many did.

    Not at a `with`: its line comes again when the block ends, and what a tracer raises there keeps locks
    from being released. Python looks for signals only before and after that. Not in a `__del__` either:
    Python has nobody to give the exception to, and only prints it.
    """
    count = itertools.count()
    ran = [0]

    def trace(frame: Any, event: str, arg: Any) -> Any:
        if "/tidemill/" not in frame.f_code.co_filename or (event == "call" and _is_in_del(frame)):
            return None
        if event == "line" and not _is_with(frame.f_code.co_filename, frame.f_lineno):
            ran[0] = next(count)
            if ran[0] == line:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        yield ran
    finally:
        sys.settrace(None)


def _is_in_del(frame: Any) -> bool:
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None


@functools.cache
def _is_with(file: str, line: int) -> bool:
    return linecache.getline(file, line).lstrip().startswith("with ")


def inserts_are_interrupted(count: int, kinds: Iterable[str]) -> None:
    pick = random.Random(seed_of("interrupted inserts"))
    cases, wrong = 0, []
    ways: dict[str, Callable[[pa.Table], Any]] = {
        "table": lambda t: t,
        "batch": lambda t: t.combine_chunks().to_batches()[0],
        "batches": lambda t: iter(t.to_batches(max_chunksize=100)),
    }
    for kind in kinds:
        for way, given in ways.items():
            wheel = begun(kind)
            table = rows(300, 7)
            with interrupted_at(-1) as lines:
                tm.Wheel.of_state(wheel._state.copy()).insert(given(table))
            for _ in range(max(1, count // 9)):
                wheel = begun(kind)
                before = state(wheel)
                line = pick.randrange(lines[0] + 1)
                with contextlib.suppress(KeyboardInterrupt), interrupted_at(line):
                    wheel.insert(given(table))
                cases += 1
                if state(wheel) != before:
                    whole = begun(kind)
                    whole.insert(given(table))
                    if state(wheel) != state(whole):
                        wrong.append(f"{kind}, {way}, line {line} of {lines[0]}")
                        continue
                wheel.insert(table)  # it goes on
    report("interrupted inserts", cases, len(wrong))
    assert wrong == []


def test_ctrl_c_at_any_line_leaves_all_rows_or_none() -> None:
    inserts_are_interrupted(45, COMPILED)


@pytest.mark.soak
def test_ctrl_c_at_thousands_of_lines() -> None:
    inserts_are_interrupted(int(5_000 * SOAK), MADE)
