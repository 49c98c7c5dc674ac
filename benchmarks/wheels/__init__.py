"""Wheels: rows in, windows, ranges out, and what they take (paper 001, section 4)."""

from __future__ import annotations

from benchmarks.harness import Case
from benchmarks.registry import Benchmark
from benchmarks.wheels import adhoc, insert, space, streaming


def _cases(quick: bool) -> list[Case]:
    return [*insert.cases(quick), *streaming.cases(quick), *adhoc.cases(quick), *space.cases(quick)]


BENCHMARK = Benchmark(
    "wheels",
    _cases,
    titles={
        "insert": "Rows into open slots, on one thread",
        "streaming": "Sums over windows of a stream as it comes, a watermark every 100 rows",
        "ad hoc": "The 95th percentile of single queries, and the time a query of many at once",
        "space": "Bytes for each second of one event",
    },
)
