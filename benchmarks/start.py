"""What somebody waits for who starts: the import, the first answer of a query, the next ones; beside others.

Every run is a new process that reads a Parquet file into memory, in the form that the system likes best, and
asks one query. With a cold cache no kernel was compiled before; with a warm one, an earlier process asked the
same.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from benchmarks import resources
from benchmarks.answers import same_numbers
from benchmarks.data import Shape, table
from benchmarks.harness import HOME, QUICK, Asked, Case, Measured
from benchmarks.registry import Benchmark, Unit
from benchmarks.windows.fresh import fresh

QUERIES: dict[str, dict[str, str]] = {
    "tumbling windows by key": {
        HOME: """events.group_by("k").window(tm.tumbling("1h")).agg(n=tm.count(), x=tm.sum(col.v))""",
        "duckdb": "SELECT k, time_bucket(INTERVAL 1 HOUR, ts) AS w, count(*) AS n, sum(v) AS x "
        "FROM events GROUP BY ALL",
        "polars": """events.lazy().group_by("k", pl.col("ts").dt.truncate("1h").alias("w"))
    .agg(n=pl.len(), x=pl.col("v").sum())""",
    },
    "hopping windows": {
        HOME: """events.window(tm.hopping("1h", every="10m")).agg(n=tm.count(), x=tm.mean(col.v))""",
        "duckdb": "SELECT time_bucket(INTERVAL 10 MINUTE, ts) - i * INTERVAL 10 MINUTE AS w, count(*) AS n, "
        "avg(v) AS x FROM events, range(6) AS slides(i) GROUP BY ALL",
        "polars": """pl.concat([
    events.lazy().select("v", w=pl.col("ts").dt.truncate("10m") - pl.duration(minutes=10 * i))
    for i in range(6)]).group_by("w").agg(n=pl.len(), x=pl.col("v").mean())""",
    },
    "a condition on text, by text": {
        HOME: """events.where(col.city.starts_with("city number 1")).group_by("city")
    .window(tm.tumbling("1h")).agg(n=tm.count(), x=tm.max(col.v))""",
        "duckdb": "SELECT city, time_bucket(INTERVAL 1 HOUR, ts) AS w, count(*) AS n, max(v) AS x "
        "FROM events WHERE starts_with(city, 'city number 1') GROUP BY ALL",
        "polars": """events.lazy().filter(pl.col("city").str.starts_with("city number 1"))
    .group_by("city", pl.col("ts").dt.truncate("1h").alias("w")).agg(n=pl.len(), x=pl.col("v").max())""",
    },
    "the last hour before each event, by key": {
        HOME: """events.group_by("k").window(tm.per_event("1h")).agg(n=tm.count(), x=tm.sum(col.v))""",
        "duckdb": "SELECT count(*) OVER hour AS n, sum(v) OVER hour AS x FROM events WINDOW hour AS "
        "(PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '3599.999999' SECOND PRECEDING AND CURRENT ROW)",
        "polars": """events.lazy().set_sorted("ts").rolling("ts", period="1h", group_by="k")
    .agg(n=pl.len(), x=pl.col("v").sum())""",
    },
}
"""A question, as each system spells it. The answers have the columns `n` and `x`."""

MEASURE = """
import json, sys, time
start = time.perf_counter()
{imports}
imported = time.perf_counter() - start
import pyarrow.compute as pc, pyarrow.parquet as pq
rows = pq.read_table(sys.argv[1])
{given}
def ask():
    return {asked}
def timed():
    start = time.perf_counter()
    answer = ask()
    return time.perf_counter() - start, answer
first, answer = timed()
second, _ = timed()
repeated, until = second, time.perf_counter() + {seconds}
while time.perf_counter() < until:
    repeated = min(repeated, timed()[0])
{arrow}
sums = {{name: pc.sum(answer[name]).as_py() for name in ("n", "x")}}
print(json.dumps({{"import": imported, "first": first, "second": second, "repeated": repeated,
    "answer": {{"rows": answer.num_rows, **sums}}}}))
"""


@dataclass(frozen=True)
class _Words:
    """How a system is asked; `{}` is the query."""

    imports: str
    given: str
    asked: str
    arrow: str = ""


SYSTEMS = {
    HOME: _Words(
        "import tidemill as tm\nfrom tidemill import col",
        'events = tm.stream("events", time="ts", schema=rows.schema)\nquery = ({})',
        "query.run(events=rows)",
    ),
    "duckdb": _Words(
        "import duckdb",
        'there = duckdb.connect()\nthere.execute("SET threads = 2")\nthere.register("given", rows)\n'
        'there.execute("CREATE TABLE events AS FROM given")',
        "there.sql({!r}).to_arrow_table()",
    ),
    "polars": _Words(
        "import polars as pl", "events = pl.from_arrow(rows)", "({}).collect()", "answer = answer.to_arrow()"
    ),
}


MANY = 100_000
"""So many rows are not few: kernels are compiled at once."""


def cases(quick: bool) -> list[Case]:
    sizes = (10_000,) if quick else (10_000, 1_000_000)
    return [
        case_of(group, question, rows, quick)
        for group in ("cold", "warm", "again")
        for rows in sizes
        for question in QUERIES
    ]


def case_of(group: str, question: str, rows: int, quick: bool = False) -> Case:
    """A question about so many rows: `cold` and `warm` compare first answers, `again` the best later ones."""
    part = "repeated" if group == "again" else "first"
    again = float(group == "again")
    # What few rows ran as plain Python is compiled in the background, which takes some seconds.
    seconds = dict.fromkeys(SYSTEMS, 0.5 * again) | ({HOME: 8.0 * again} if rows < MANY else {})
    systems = {
        name: Asked(text, _process(name, text, part, cold=group == "cold", seconds=seconds[name]))
        for name, text in QUERIES[question].items()
    }
    return Case(
        f"{group}/{question}, {rows:,} rows", {"rows": rows}, systems, same_numbers(),
        functools.partial(file_of, rows), repeats=1 if quick or rows >= MANY else 2, fresh=True,
    )  # fmt: skip


def code_of(system: str, query: str, seconds: float) -> str:
    """A script that asks a query of the file that its argument names, twice and then for some seconds."""
    words = SYSTEMS[system]
    return MEASURE.format(
        imports=words.imports, given=words.given.format(query), asked=words.asked.format(query),
        arrow=words.arrow, seconds=seconds,
    )  # fmt: skip


def _process(
    system: str, query: str, part: str, *, cold: bool, seconds: float
) -> Callable[[str], Measured]:
    """Ask in a new process, with no compiled kernels or with those of an earlier process."""
    code = code_of(system, query, seconds)

    def run(file: str) -> Measured:
        with _kernels(cold=cold):
            if not cold and system == HOME:
                _warm(code, file)
            found: Mapping[str, Any] = fresh(code, file)
        others = ("import", "second") if part == "first" else ()
        return Measured(found["answer"], found[part], {f"{name} s": found[name] for name in others})

    return run


@functools.cache
def _warm(code: str, file: str) -> None:
    fresh(code, file)


@contextmanager
def _kernels(*, cold: bool) -> Iterator[None]:
    """A cache of kernels for new processes: an empty one, or one that all of this run share."""
    folder = tempfile.mkdtemp(dir=resources.scratch()) if cold else str(resources.scratch() / "kernels")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    before = os.environ.get("TIDEMILL_CACHE")
    os.environ["TIDEMILL_CACHE"] = folder
    try:
        yield
    finally:
        if before is None:
            del os.environ["TIDEMILL_CACHE"]
        else:
            os.environ["TIDEMILL_CACHE"] = before


@functools.cache
def file_of(rows: int) -> str:
    path = resources.scratch() / f"start-{rows}.parquet"
    pq.write_table(table(Shape(rows, 100, texts=("city",))), path)
    return str(path)


MILLISECONDS = Unit("ms", 1000.0)
BENCHMARK = Benchmark(
    "start",
    cases,
    titles={
        "cold": "The first answer in a new process, no kernel cached on disk",
        "warm": "The first answer in a new process, kernels cached by an earlier one",
        "again": "The same query asked again and again in a process: the best time",
    },
    units=dict.fromkeys(("cold", "warm", "again"), MILLISECONDS),
    page="benchmarks-start.md",
    quick=dataclasses.replace(QUICK, last_start=150.0),
)
