"""Years of sparse history at second slots: all rows are inserted, and then the watermark moves to the end.

*power*: a reading a minute, with gaps of hours to days. *parking*: a row for each lot every half an hour,
each lot at a second of its own. Sizes of 1×, 2× and 4×, in days and in keys, show whether the time is linear:
the time and the bytes for each row stay the same. The peer holds the rows in a sorted array.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

import tidemill as tm
from benchmarks.answers import same_numbers
from benchmarks.harness import Case, Measured
from benchmarks.wheels.data import DAY, SECOND, START, Ints, parking, power
from tidemill import col

RANGES = 200
"""Random ranges that are compared, of each wheel."""
LOTS = 28


def cases(quick: bool) -> list[Case]:
    days = (25, 50, 100) if quick else (365, 730, 1_460)
    lots = (60, 120, 240) if quick else (365, 730, 1_460)
    fixed = lots[0]
    return [
        *(_case(f"power, {d} d", power, d, 1) for d in days),
        *(_case(f"parking, {LOTS} keys, {d} d", parking, d, LOTS) for d in lots),
        *(_case(f"parking, {k} keys, {fixed} d", parking, fixed, k) for k in (2 * LOTS, 4 * LOTS)),
    ]


def _case(name: str, data: Callable[[int, int], pa.Table], days: int, keys: int) -> Case:
    def made() -> dict[str, Any]:
        rows = data(days, keys)
        pick = np.random.default_rng(8)
        a, b = np.sort(pick.integers(0, days * DAY, (2, RANGES)), axis=0) * SECOND + START
        asked = {"a": a, "b": b, "k": pick.integers(0, keys, RANGES)}
        return {"rows": rows, "days": days, "cells": _cells(rows), **asked}

    systems = {"tidemill": _in_wheel, "sorted array": _in_array}
    rows = data(days, keys).num_rows
    params = {"rows": rows, "days": days, "keys": keys}
    return Case(f"history/{name}", params, systems, same_numbers(), made, repeats=2)


def _in_wheel(given: dict[str, Any]) -> Measured:
    rows, keyed = given["rows"], "k" in given["rows"].column_names
    schema = {"ts": "timestamp", "v": "float64", **({"k": "int64"} if keyed else {})}
    made = tm.Wheel(
        tm.sum(col.v), schema=schema, time="ts", start=START, retention="keep", keys="k" if keyed else ()
    )
    begin = time.perf_counter()
    made.insert(rows)
    made.advance_to(START + given["days"] * DAY * SECOND)
    seconds = time.perf_counter() - begin
    keys = {"key": given["k"].tolist()} if keyed else {}
    found = made.query(given["a"], given["b"], **keys)
    size = sum(made.stats()["bytes"].values())
    return _measured(np.array(found.fill_null(0.0)), seconds, given, size)


def _in_array(given: dict[str, Any]) -> Measured:
    """Rows by key and time, with running sums."""
    rows, keyed = given["rows"], "k" in given["rows"].column_names
    begin = time.perf_counter()
    ts = np.asarray(rows["ts"].cast(pa.int64()))
    v = np.asarray(rows["v"])
    k = np.asarray(rows["k"]) if keyed else np.zeros(len(ts), dtype=np.int64)
    order = np.lexsort((ts, k))
    ts, v, k = ts[order], v[order], k[order]
    sums = np.append(0.0, np.cumsum(v))
    seconds = time.perf_counter() - begin
    found = np.array([_sum(ts, k, sums, *asked) for asked in zip(given["a"], given["b"], given["k"])])
    return _measured(found, seconds, given, ts.nbytes + sums.nbytes + k.nbytes)


def _cells(rows: pa.Table) -> int:
    """The slots of all rings in which a key had rows, counted for each key."""
    seconds = np.asarray(rows["ts"].cast(pa.int64())) // SECOND
    k = np.asarray(rows["k"]) if "k" in rows.column_names else np.zeros(len(seconds), dtype=np.int64)
    return sum(len(np.unique(seconds // unit * (k.max() + 1) + k)) for unit in (1, 60, 3_600, DAY, 7 * DAY))


def _sum(ts: Ints, k: Ints, sums: Any, a: int, b: int, key: int) -> float:
    first, end = np.searchsorted(k, [key, key + 1])
    low, high = first + np.searchsorted(ts[first:end], [a, b])
    return float(sums[high] - sums[low])


def _measured(found: Any, seconds: float, given: dict[str, Any], size: int) -> Measured:
    answer = {"sum": float(found.sum()), "by place": float((found * np.arange(len(found))).sum())}
    rows, cells = given["rows"].num_rows, given["cells"]
    each = {"µs a row": seconds / rows * 1e6, "µs a slot and key": seconds / cells * 1e6}
    return Measured(answer, seconds, {**each, "bytes a row": size / rows})
