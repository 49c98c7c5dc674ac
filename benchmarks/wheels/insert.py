"""How many rows a second go into open slots."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.answers import unchecked
from benchmarks.harness import Case, Measured
from benchmarks.wheels.data import SECOND, START, table, wheel


def cases(quick: bool) -> list[Case]:
    rows = 2_000_000 if quick else 20_000_000
    return [
        _case("in order", rows, np.sort),
        _case("in any order", rows, lambda ts: ts),
    ]


def _case(name: str, rows: int, order: Any) -> Case:
    def data() -> pa.Table:
        rng = np.random.default_rng(4)
        ts = START + rng.integers(0, 60 * SECOND, rows)
        return table(order(ts), rng.integers(0, 1_000, rows))

    def run(events: pa.Table) -> Any:
        filled = wheel()
        start = time.perf_counter()
        filled.insert(events)
        seconds = time.perf_counter() - start
        filled.advance_to(START + 60 * SECOND)
        assert filled.landmark() == int(np.asarray(events["v"]).sum())
        return Measured(None, seconds, {"million rows/s": rows / seconds / 1e6})

    params = {"rows": rows, "span": "60 s", "slots": 64}
    systems = {"tidemill": run}
    return Case(f"insert/{name}", params, systems, unchecked, data, repeats=5)
