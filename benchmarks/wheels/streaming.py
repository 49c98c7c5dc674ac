"""Sliding windows over a stream as it comes, against the window engine and a tree of partials."""

from __future__ import annotations

import itertools
import time
from bisect import bisect_left
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

import tidemill as tm
from benchmarks.answers import same_numbers
from benchmarks.harness import Case, Measured
from benchmarks.wheels.data import SCHEMA, SECOND, START, sensor, trips, wheel
from tidemill import col

EVERY = 100
"""Rows between two watermarks."""


def cases(quick: bool) -> list[Case]:
    rows = 20_000 if quick else 1_000_000
    slides = (1,) if quick else (1, 10, 60)
    found = []
    for name, data in (("sensor", sensor), ("trips", trips)):
        for ratio, slide in itertools.product((3, 300), slides):
            few = rows // 10 if name == "trips" else rows
            found.append(_case(name, data, few, ratio * slide, slide))
    return found


def _case(name: str, data: Callable[[int], pa.Table], rows: int, range: int, slide: int) -> Case:
    systems = {
        "tidemill": lambda events: _in_wheel(events, range, slide, 512),
        "write-ahead 64": lambda events: _in_wheel(events, range, slide, 64),
        "window engine, all at once": lambda events: _by_engine(events, range, slide),
        "tree": lambda events: _in_tree(events, range, slide),
    }
    return Case(
        f"streaming/{name}, {range} s / {slide} s", {"rows": rows, "range": range, "slide": slide},
        systems, same_numbers(), lambda: data(rows), repeats=2,
    )  # fmt: skip


def _watermarks(ts: np.ndarray[Any, Any]) -> list[int]:
    """After every hundred rows: no row to come is below it."""
    ends = list(range(EVERY, len(ts) + 1, EVERY))
    later = np.minimum.accumulate(ts[::-1])[::-1]
    return [int(later[e]) if e < len(ts) else int(ts.max()) + 1 for e in ends]


def _in_wheel(events: pa.Table, range_: int, slide: int, ahead: int) -> Measured:
    ts = np.asarray(events["ts"].cast(pa.int64()))
    marks = _watermarks(ts)
    batches = events.to_batches(max_chunksize=EVERY)
    filled = wheel(int(ts.min()), write_ahead=ahead)
    filled.window(f"{range_}s", f"{slide}s")
    closed = []
    begin = time.perf_counter()
    for batch, mark in zip(batches, marks):
        filled.insert(batch)
        closed.append(filled.advance_to(mark))
    seconds = time.perf_counter() - begin
    return _measured(pa.concat_tables(closed), ts, seconds, marks[-1])


def _by_engine(events: pa.Table, range_: int, slide: int) -> Measured:
    stream = tm.stream("events", time="ts", schema=SCHEMA)
    query = stream.window(tm.hopping(f"{range_}s", every=f"{slide}s")).agg(value=tm.sum(col.v))
    ts = np.asarray(events["ts"].cast(pa.int64()))
    begin = time.perf_counter()
    found = query.run(events=events)
    return _measured(found, ts, time.perf_counter() - begin, _watermarks(ts)[-1])


def _in_tree(events: pa.Table, range_: int, slide: int) -> Measured:
    """A sum for each second, kept sorted; a window is the sum over its stretch of them.

    The plain form of a finger tree in Python: what is late goes where it belongs by bisection.
    """
    ts = np.asarray(events["ts"].cast(pa.int64()))
    marks = _watermarks(ts)
    seconds_, values = (ts // SECOND).tolist(), np.asarray(events["v"]).tolist()
    keys: list[int] = []
    sums: list[int] = []
    ends: list[int] = []
    totals: list[int] = []
    end = (int(ts.min()) // SECOND) // slide * slide + slide
    begin = time.perf_counter()
    for number, mark in enumerate(marks):
        for i in range(number * EVERY, (number + 1) * EVERY):
            s = seconds_[i]
            at = bisect_left(keys, s)
            if at < len(keys) and keys[at] == s:
                sums[at] += values[i]
            else:
                keys.insert(at, s)
                sums.insert(at, values[i])
        now = mark // SECOND
        while end <= now:
            low, high = bisect_left(keys, end - range_), bisect_left(keys, end)
            if low < high:
                ends.append(end)
                totals.append(sum(sums[low:high]))
            end += slide
        old = bisect_left(keys, end - range_)
        del keys[:old], sums[:old]
    took = time.perf_counter() - begin
    table = pa.table({"window_end": pa.array(np.array(ends) * SECOND), "value": totals})
    return _measured(table, ts, took, marks[-1])


def _measured(found: pa.Table, ts: np.ndarray[Any, Any], seconds: float, mark: int) -> Measured:
    ends = np.asarray(found["window_end"].cast(pa.int64()))
    values = np.asarray(found["value"])
    kept = ends <= mark // SECOND * SECOND
    answer = {
        "windows": int(kept.sum()), "sum": int(values[kept].sum()),
        "by end": int((values[kept] * ((ends[kept] - START) // SECOND % 1009)).sum()),
    }  # fmt: skip
    return Measured(answer, seconds, {"million rows/s": len(ts) / seconds / 1e6})
