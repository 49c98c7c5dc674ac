"""Ranges of the past: single calls, and many at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

from benchmarks.answers import same_numbers
from benchmarks.harness import Case, Measured
from benchmarks.wheels.data import DAY, SECOND, START, Ints, fares, wheel

GRAINS = {"seconds": 1, "minutes": 60, "hours": 3_600}
FEW = 300
"""Queries of systems that take a thousand times as long; all answer these, and answers are compared."""


def cases(quick: bool) -> list[Case]:
    queries = 2_000 if quick else 50_000
    days = (1,) if quick else (1, 7)
    found = []
    for d in days:
        found.append(_case(f"Q1 (all), {d} d", d, None, queries))
        for name, grain in GRAINS.items():
            found.append(_case(f"Q2 {name}, {d} d", d, grain, queries))
    return found


def ranges(days: int, grain: int | None, count: int) -> tuple[Ints, Ints]:
    """Starts and durations are uniform, on a grid of so many seconds; or all of the time."""
    total = days * DAY
    if grain is None:
        return np.full(count, START), np.full(count, START + total * SECOND)
    rng, slots = np.random.default_rng(5), total // grain
    a = rng.integers(0, slots, count)
    b = a + 1 + (rng.random(count) * (slots - a)).astype(np.int64)
    return START + a * grain * SECOND, START + np.minimum(b, slots) * grain * SECOND


def _case(name: str, days: int, grain: int | None, queries: int) -> Case:
    starts, ends = ranges(days, grain, queries)
    systems: dict[str, Callable[[Any], Any]] = {
        "tidemill": lambda d: _single(d["wheel"].query, starts, ends, queries),
        "with prefix": lambda d: _single(d["prefix"].query, starts, ends, queries),
        "at once": lambda d: _at_once(d["wheel"], starts, ends),
        "at once, with prefix": lambda d: _at_once(d["prefix"], starts, ends),
        "duckdb": lambda d: _single(d["duckdb"], starts, ends, FEW),
        "polars": lambda d: _single(d["polars"], starts, ends, FEW),
    }
    return Case(
        f"ad hoc/{name}", {"days": days, "queries": queries, "of peers": FEW}, systems, same_numbers(),
        lambda: _data(days), repeats=2,
    )  # fmt: skip


def _data(days: int) -> dict[str, Any]:
    events = fares(days)
    found: dict[str, Any] = {}
    for name, options in (("wheel", {}), ("prefix", {"prefix": True})):
        filled = wheel(retention="keep", **options)
        filled.insert(events)
        filled.advance_to(START + days * DAY * SECOND)
        found[name] = filled
    frame = pl.from_arrow(events)
    assert isinstance(frame, pl.DataFrame)
    between = pl.col("ts").to_physical()

    def by_polars(a: int, b: int) -> Any:
        return frame.lazy().filter((between >= a) & (between < b)).select(pl.col("v").sum()).collect().item()

    connection = duckdb.connect()
    connection.execute("SET threads = 2")
    connection.register("given", events)
    connection.execute("CREATE TABLE rides AS SELECT epoch_us(ts) AS ts, v FROM given")
    query = "SELECT sum(v) FROM rides WHERE ts >= ? AND ts < ?"

    def by_duckdb(a: int, b: int) -> int:
        row = connection.execute(query, [a, b]).fetchone()
        assert row is not None
        return int(row[0])

    found["duckdb"] = by_duckdb
    found["polars"] = by_polars
    return found


def _single(ask: Callable[[int, int], Any], starts: Ints, ends: Ints, count: int) -> Measured:
    clock = time.perf_counter_ns
    took, answers = np.empty(count), []
    for i, (a, b) in enumerate(zip(starts[:count].tolist(), ends[:count].tolist())):
        begin = clock()
        answer = ask(a, b)
        took[i] = clock() - begin
        if i < FEW:
            answers.append(answer)
    p50, p95, p99 = np.percentile(took, [50, 95, 99]) / 1e3
    return Measured(_summed(answers), p95 / 1e6, {"p50 µs": p50, "p99 µs": p99})


def _at_once(filled: Any, starts: Ints, ends: Ints) -> Measured:
    begin = time.perf_counter()
    answers = filled.query(starts, ends)
    each = (time.perf_counter() - begin) / len(starts)
    first: pa.Array = answers[:FEW]
    return Measured(_summed(first.to_pylist()), each)


def _summed(answers: list[Any]) -> dict[str, int]:
    """Sums that tell answers apart."""
    return {
        "sum": sum(answers),
        "by place": sum(i * x for i, x in enumerate(answers)),
        "answers": len(answers),
    }
