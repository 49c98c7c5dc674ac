"""Paper 003, experiment 1 (section 8.2, Figure 8): windows by id in one pass, against buffering.

Buffering is "the existing technique that materializes each window extent and computes the aggregate
over it". Here that is a loop over extents, or NumPy's view of all full extents in one call.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

import tidemill as tm
from benchmarks.answers import same_rows
from benchmarks.data import START
from benchmarks.harness import Case
from tidemill import col

RANGE = 4_000


def cases(quick: bool) -> list[Case]:
    rows = 50_000 if quick else 500_000
    slides = (1, 100, 4_000) if quick else (1, 2, 5, 10, 40, 100, 400, 1_000, 2_000, 4_000)
    return [_case(rows, slide) for slide in slides]


def _case(rows: int, slide: int) -> Case:
    readings = tm.stream("readings", time="ts", schema={"ts": "timestamp", "speed": "float64"})
    query = readings.window(tm.rows(RANGE, every=slide)).agg(fastest=tm.max(col.speed))
    return Case(
        f"paper 003/max over {RANGE} rows, slide {slide}",
        {"rows": rows, "range": RANGE, "slide": slide},
        {
            "tidemill": lambda table: query.run(readings=table),
            "buffering": lambda table: _buffered(_speed(table), slide),
            "buffering, all at once": lambda table: _viewed(_speed(table), slide),
        },
        same_rows("window_end"),
        lambda: _readings(rows),
    )


def _readings(rows: int) -> pa.Table:
    rng = np.random.default_rng(3)
    ts = START + np.cumsum(rng.integers(1, 2_000_000, rows))
    speed = rng.normal(60.0, 12.0, rows)
    return pa.table({"ts": pa.array(ts, pa.timestamp("us", "UTC")), "speed": speed})


def _speed(table: pa.Table) -> Any:
    return table["speed"].chunk(0).to_numpy()


def _ends(rows: int, slide: int) -> Any:
    """Window `w` ends before row `(w + 1) * slide`; the last ones end after the last row."""
    last = (rows - 1 + RANGE) // slide
    return np.arange(1, last + 1, dtype=np.int64) * slide


def _table(ends: Any, fastest: Any) -> pa.Table:
    start = np.maximum(ends - RANGE, 0)
    return pa.table({"window_start": start, "window_end": ends, "fastest": fastest})


def _buffered(speed: Any, slide: int) -> pa.Table:
    ends = _ends(len(speed), slide)
    fastest = np.empty(len(ends))
    for w, end in enumerate(ends.tolist()):
        extent = speed[max(end - RANGE, 0) : end].copy()
        fastest[w] = extent.max()
    return _table(ends, fastest)


def _viewed(speed: Any, slide: int) -> pa.Table:
    ends = _ends(len(speed), slide)
    # Rows that are less than any, so that extents cut by the edges are full ones too.
    edge = np.full(RANGE, -np.inf)
    padded = np.concatenate([edge, speed, edge])
    extents = np.lib.stride_tricks.sliding_window_view(padded, RANGE)[slide::slide][: len(ends)]
    return _table(ends, extents.max(axis=1))
