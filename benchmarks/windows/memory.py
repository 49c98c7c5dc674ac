"""Time and memory in fresh processes: Parquet files through each system into others, and what keys take."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks import resources
from benchmarks.answers import Mismatch, same_rows
from benchmarks.data import HOUR, START, Shape, table
from benchmarks.harness import Answers, Asked, Case, Measured
from benchmarks.windows import questions
from benchmarks.windows.fresh import fresh
from benchmarks.windows.questions import Question

ROW_GROUP = 500_000
"""Rows of an hour, and of a row group."""

# Arguments: the file to read, the file to write, the query, the types of the columns, Polars' engine.
_SYSTEMS = {
    "tidemill": """
import json, sys, time
start = time.perf_counter()
import tidemill as tm
from tidemill import col
events = tm.stream("events", time="ts", schema=json.loads(sys.argv[4]))
eval(sys.argv[3]).to_parquet(sys.argv[2], events=sys.argv[1])
print(json.dumps({"seconds": time.perf_counter() - start, "mb": peak_mb()}))
""",
    "duckdb": """
import json, sys, time
start = time.perf_counter()
import duckdb
c = duckdb.connect()
c.execute("SET threads = 2; SET TimeZone = 'UTC'; SET preserve_insertion_order = false")
c.execute(f"CREATE VIEW events AS SELECT * FROM '{sys.argv[1]}'")
c.execute(f"COPY ({sys.argv[3]}) TO '{sys.argv[2]}' (FORMAT parquet)")
print(json.dumps({"seconds": time.perf_counter() - start, "mb": peak_mb()}))
""",
    "polars": """
import json, sys, time
start = time.perf_counter()
import polars as pl
events = pl.scan_parquet(sys.argv[1])
eval(sys.argv[3]).sink_parquet(sys.argv[2], engine=sys.argv[5])
print(json.dumps({"seconds": time.perf_counter() - start, "mb": peak_mb()}))
""",
}

# Arguments: how many keys, their type.
_KEYS = """
import ctypes, gc, json, sys, time
import numpy as np, pyarrow as pa
import tidemill as tm
from tidemill import col
from tidemill.core.time import FOREVER
from tidemill.local.graph import Graph

keys, kind = int(sys.argv[1]), sys.argv[2]
events = tm.stream("events", time="t", schema={"t": "int64", "k": kind, "v": "float64"})
plan = events.group_by("k").window(tm.tumbling(1 << 40)).agg(total=tm.sum(col.v), n=tm.count()).optimized

def push(graph, count):
    for first in range(0, count, 50_000):
        t = np.arange(first, min(first + 50_000, count))
        k = t * 7919 % keys
        k = pa.array([f"key-{i:08d}" for i in k.tolist()]) if kind == "string" else pa.array(k)
        list(graph.push("events", pa.record_batch({"t": t, "k": k, "v": np.ones(len(t))})))

def settled():
    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    return resident_mb()

push(Graph(plan), 1_000)
before = settled()
graph = Graph(plan)
start = time.perf_counter()
push(graph, keys)
seconds = time.perf_counter() - start
held = settled() - before
rows = sum(b.num_rows for b in graph.advance("events", FOREVER))
print(json.dumps({"seconds": seconds, "held": held, "rows": rows}))
"""


def cases(quick: bool) -> list[Case]:
    size, half, keys, events = (50, 20, 100_000, 2_000) if quick else (1_000, 500, 1_000_000, 200_000)
    return [
        _files(
            f"{size} MB of Parquet, hopping sum and max",
            lambda: _hours(size, 1_000), {"megabytes": size, "keys": 1_000, "range": "1h", "every": "10m"},
            questions.windows(("sum", "max user"), "1h", "10m"),
        ),
        _files(
            f"{half} MB of Parquet by {keys:,} keys, tumbling sum and max", lambda: _hours(half, keys),
            {"megabytes": half, "keys": keys, "range": "1d"},
            questions.windows(("sum", "max user"), "1d", "1d"),
        ),
        overlapping(events),
        added(keys, "int64", repeats=1 if quick else 3),
        added(keys, "string", repeats=1 if quick else 3),
    ]  # fmt: skip


def overlapping(rows: int, range: str = "1d") -> Case:
    """A window each second; at a day, each row is in 86 400 of them."""
    shape = Shape(rows, 4, 48)
    return _files(
        f"hopping {range} every second, 4 keys", lambda: _one_file(shape),
        {"rows": rows, "keys": 4, "range": range, "every": "1s"},
        questions.windows(("sum", "count"), range, "1s", shape=shape),
    )  # fmt: skip


def added(keys: int, kind: str, repeats: int) -> Case:
    """Resident memory of an operator graph that has open windows of so many keys."""

    def run(_: Any) -> Measured:
        found = fresh(_KEYS, keys, kind)
        return Measured(found["rows"], found["seconds"], {"added_mb": found["held"]})

    def check(answers: Answers) -> None:
        if answers["tidemill"] != keys:
            raise Mismatch(f"{answers['tidemill']:,} results for {keys:,} keys")

    return Case(
        f"keys/{keys:,} keys, {kind}", {"keys": keys, "window": "one"}, {"tidemill": run}, check,
        repeats=repeats, fresh=True,
    )  # fmt: skip


def _files(name: str, file: Callable[[], Path], params: dict[str, Any], question: Question) -> Case:
    texts = {"tidemill": question.tidemill, "duckdb": question.duckdb, "polars": question.polars}
    return Case(
        f"memory/{name}", params, {s: _system(s, text, question.engine) for s, text in texts.items()},
        same_rows(*question.by), file, repeats=2, fresh=True,
    )  # fmt: skip


def _system(name: str, query: str, engine: str) -> Asked:
    schema = json.dumps(Shape(1).schema)

    def run(path: Path) -> Measured:
        out = resources.scratch() / f"out-{name}.parquet"
        found = fresh(_SYSTEMS[name], path, out, query, schema, engine)
        answer: Any = pq.read_table(out)
        out.unlink()
        return Measured(answer, found["seconds"], {"peak_rss_mb": found["mb"]})

    return Asked(query, run)


@functools.cache
def _hours(megabytes: int, keys: int) -> Path:
    """A file of at least that size, in time order, a row group an hour."""
    path = resources.scratch() / f"events-{megabytes}-mb-{keys}.parquet"
    shape = Shape(ROW_GROUP, keys, 1)
    with pq.ParquetWriter(path, table(shape).schema) as writer:
        hours = 0
        while path.stat().st_size < megabytes * 1_000_000:
            hour = table(shape, seed=hours, first=START + hours * HOUR)
            writer.write_table(hour, row_group_size=ROW_GROUP)
            hours += 1
    return path


@functools.cache
def _one_file(shape: Shape) -> Path:
    path = resources.scratch() / f"events-{shape.rows}-{shape.keys}.parquet"
    pq.write_table(table(shape), path, row_group_size=ROW_GROUP)
    return path
