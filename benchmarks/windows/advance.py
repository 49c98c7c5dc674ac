"""What an advance of the watermark costs: few events at a time over many keys, in one operator graph."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.answers import same_rows
from benchmarks.data import Shape, table
from benchmarks.harness import Case, Measured
from benchmarks.windows import questions
from tidemill.core.time import FOREVER
from tidemill.local.graph import Graph

EACH = 100
"""Events between two advances."""


def cases(quick: bool) -> list[Case]:
    return advancing(40_000 if quick else 1_000_000)


def advancing(rows: int, rate: int = 1_000) -> list[Case]:
    """The cases over so many events, `rate` a second: a thousand close windows in every hundredth advance."""
    hours = rows / rate / 3600
    return [
        _case("hopping 1 min / 10 s, 10 000 keys", Shape(rows, 10_000, hours), "1m", "10s"),
        _case("hopping 1 min / 10 s, Zipf 1.3 keys", Shape(rows, 10_007, hours, zipf=1.3), "1m", "10s"),
        _case("tumbling 10 s, 10 000 keys", Shape(rows, 10_000, hours), "10s", "10s"),
        _case("tumbling 10 s, no key", Shape(rows, 100, hours), "10s", "10s", key=None),
    ]


@dataclass(frozen=True)
class _Given:
    arrow: pa.Table
    batches: list[pa.RecordBatch]
    """Of a hundred rows each."""
    below: list[int]
    """The watermark after each batch: the time of the next row."""


def _case(name: str, shape: Shape, range: str, every: str, key: str | None = "k") -> Case:
    question = questions.windows(("sum", "count"), range, every, key=key)
    query = question.query(shape.streams)
    return Case(
        f"advance/{name}",
        {"rows": shape.rows, "keys": shape.keys, "events an advance": EACH},
        {"tidemill": lambda given: _pushed(Graph(query.optimized), given),
         "all at once": lambda given: query.run(events=given.arrow)},
        same_rows(*question.by),
        lambda: _given(shape),
    )  # fmt: skip


def _given(shape: Shape) -> _Given:
    rows = table(shape).combine_chunks()
    ts = rows["ts"].cast("int64").to_numpy()
    starts = range(0, len(rows), EACH)
    below = [int(ts[i + EACH]) if i + EACH < len(rows) else int(ts[-1]) + 1 for i in starts]
    return _Given(rows, rows.to_batches(max_chunksize=EACH), below)


def _pushed(graph: Graph, given: _Given) -> Measured:
    clock = time.perf_counter_ns
    found: list[Any] = []
    pushes, quiet, closing = [], [], []
    begin = clock()
    for batch, below in zip(given.batches, given.below):
        start = clock()
        found += graph.push("events", batch)
        middle = clock()
        closed = list(graph.advance("events", below, prompt=True))
        end = clock()
        pushes.append(middle - start)
        (closing if closed else quiet).append(end - middle)
        found += closed
    seconds = (clock() - begin) / 1e9
    found += graph.advance("events", FOREVER)
    measured = {"million events/s": len(given.arrow) / seconds / 1e6}
    for name, took in (("push", pushes), ("closes none", quiet), ("closes", closing)):
        if took:
            p50, p99 = np.percentile(took, [50, 99]) / 1e3
            measured |= {f"{name} p50 µs": float(p50), f"{name} p99 µs": float(p99)}
    return Measured(pa.Table.from_batches(found), seconds, measured)
