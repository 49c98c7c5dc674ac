"""Tables: paper 000, sections 7.3 and 7.5."""

from __future__ import annotations

import dataclasses

from benchmarks.harness import QUICK, Case
from benchmarks.questions import PEERS
from benchmarks.registry import Benchmark
from benchmarks.relational import process, serialized


def _cases(quick: bool) -> list[Case]:
    return [case for module in (serialized, process) for case in module.cases(quick)]


BENCHMARK = Benchmark(
    "relational",
    _cases,
    titles={
        "gen data": "GenData, in process, against DuckDB and Polars on two threads",
        "queries": "Search logs and TPC-H, in process, against DuckDB and Polars on two threads",
        "strings": "Operations on strings, in process, against DuckDB and Polars on two threads",
        "serialized": "Streams of Arrow IPC against Avro, in memory",
    },
    page="benchmarks-relational.md",
    peers=(*PEERS, "fastavro"),
    quick=dataclasses.replace(QUICK, last_start=120.0),
)
