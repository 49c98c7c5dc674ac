"""Wheels: rows in, windows, ranges out, and what they take (paper 001, section 4)."""

from __future__ import annotations

from benchmarks.harness import Case
from benchmarks.registry import Benchmark, Unit
from benchmarks.wheels import adhoc, costs, history, insert, readers, space, spark, streaming


def _cases(quick: bool) -> list[Case]:
    modules = (insert, streaming, history, adhoc, costs, readers, space, spark)
    return [case for module in modules for case in module.cases(quick)]


BENCHMARK = Benchmark(
    "wheels",
    _cases,
    titles={
        "insert": "Rows into open slots, on one thread",
        "streaming": "Sums over windows of a stream as it comes, a watermark every 100 rows",
        "history": "Sparse history at second slots: rows in, and the watermark to the end; 1×, 2× and 4×",
        "ad hoc": "The 95th percentile of single queries, and the time a query of many at once",
        "costs": "The plan that is chosen for a range, against the best of all plans for it",
        "readers": "A reader in another process, at full rate, while rows go in; every answer is checked",
        "space": "Bytes for each second of one event",
        "spark": "A wheel from history on Spark, and ranges from it",
    },
    units={
        "ad hoc": Unit("µs", 1e6),
        "costs": Unit("µs", 1e6),
        "readers": Unit("µs a query", 1e6),
        "space": Unit("bytes"),
    },
    page="benchmarks-wheels.md",
)
