"""Twenty reports over a growing part of the data, against the plain run: all of them, and the first one.

Paper 000, section 7.4: many result sets took about 15 % longer than one, and the first came 10 times sooner.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any

import pyarrow.parquet as pq

import tidemill as tm
from benchmarks import resources
from benchmarks.answers import same_rows
from benchmarks.data import Shape, table
from benchmarks.harness import HOME, Answers, Case, Measured
from benchmarks.registry import Benchmark
from tidemill import col

REPORTS = 20
FIRST, PLAIN = "first report", "run"
GROUPS = 20
"""Row groups of a file."""



def cases(quick: bool) -> list[Case]:
    rows = 400_000 if quick else 10_000_000
    return [case for keys in (100, 10_000) for case in of_shape(Shape(rows, keys))]


def of_shape(shape: Shape) -> list[Case]:
    """All cases with such events."""
    hops = tm.hopping("1h", every="10m")
    windows = [tm.tumbling("1h"), hops, tm.landmark("1d", start="2026-01-01")]
    if shape.keys <= 1000:
        windows.append(tm.hopping("1h", every="1m"))
    local = [case for w in windows for case in (in_memory(shape, w), from_parquet(shape, w))]
    return [*local, on_spark(shape, tm.tumbling("1h")), on_spark(shape, hops)]


def in_memory(shape: Shape, window: tm.Window) -> Case:
    """Of a table, in this process."""
    return _case("memory", shape, window, lambda: _table(shape), _here)


def from_parquet(shape: Shape, window: tm.Window) -> Case:
    """Of a file with statistics, in this process."""
    return _case("parquet", shape, window, lambda: _file(shape), _here)


def on_spark(shape: Shape, window: tm.Window) -> Case:
    """Of the same file, on Spark."""
    return _case("spark", shape, window, lambda: resources.spark().read.parquet(_file(shape)), _there)


def _case(
    group: str, shape: Shape, window: tm.Window, data: Callable[[], Any],
    ways: Callable[[tm.Stream], tuple[Callable[[Any], Any], Callable[[Any], Iterator[Any]]]],
) -> Case:  # fmt: skip
    query = shape.stream.group_by("k").window(window).agg(n=tm.count(), x=tm.sum(col.v))
    run, reports = ways(query)
    return Case(
        f"{group}/{window}, {shape.keys} keys",
        {"rows": shape.rows, "hours": shape.hours, "reports": REPORTS},
        {HOME: lambda data: _last(reports(data)), PLAIN: run, FIRST: lambda data: _first(reports(data))},
        _same(same_rows("k", "window_start", "window_end")),
        data,
        derive=_compared,
    )


def _here(query: tm.Stream) -> tuple[Callable[[Any], Any], Callable[[Any], Iterator[Any]]]:
    return lambda data: query.run(events=data), lambda data: query.progressive(REPORTS, events=data)


def _there(query: tm.Stream) -> tuple[Callable[[Any], Any], Callable[[Any], Iterator[Any]]]:
    asked = functools.partial(query.on_spark, resources.spark())
    return (
        lambda df: asked().run(events=df).toArrow(), lambda df: asked().progressive(REPORTS, events=df),
    )  # fmt: skip


def _last(reports: Iterator[Any]) -> Any:
    *_, last = reports
    return last.table


def _first(reports: Any) -> Measured:
    """The time to the first report; what runs in advance is ended after it."""
    start = time.perf_counter()
    with closing(reports):
        report = next(reports)
        return Measured(report.table, time.perf_counter() - start)


def _same(check: Callable[[Answers], None]) -> Callable[[Answers], None]:
    return lambda answers: check({name: answers[name] for name in (HOME, PLAIN)})


def _compared(seconds: Mapping[str, float]) -> dict[str, Any]:
    return {
        "total over run": {HOME: seconds[HOME] / seconds[PLAIN]},
        "first sooner by": {HOME: seconds[PLAIN] / seconds[FIRST]},
    }


@functools.lru_cache(maxsize=1)
def _table(shape: Shape) -> Any:
    return table(shape)


@functools.cache
def _file(shape: Shape) -> str:
    path = resources.scratch() / f"events-{shape.rows}-{shape.keys}.parquet"
    pq.write_table(_table(shape), path, row_group_size=-(-shape.rows // GROUPS))
    return str(path)


BENCHMARK = Benchmark(
    "progressive",
    cases,
    titles={
        "memory": "A table in memory, on two threads",
        "parquet": "A Parquet file, on two threads",
        "spark": "A Parquet file on Spark, on two cores",
    },
    page="benchmarks-progressive.md",
    peers=(),
)
