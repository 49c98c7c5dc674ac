"""Spark batch: interval joins and as-of joins against Spark's own forms; from Parquet to no-op.

- *spark* is a window over the union of both streams, with the segment tree switched on; for as-of joins,
  Spark's ASOF JOIN by sort and merge, which takes longer with each row that a key has: five minutes for a
  million rows of a hundred keys. So it is there with a thousand keys.
- *spark, range join* compares all rows of a key with one another, so it is there at one size only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tidemill as tm
from benchmarks import resources
from benchmarks.answers import same_numbers
from benchmarks.consumed import consumed
from benchmarks.harness import HOME, Asked, Case
from benchmarks.intervals.data import Pair, rows_of
from benchmarks.questions import evaluated

RUN, RANGE_JOIN = "spark", "spark, range join"
FILES = 4

SCHEMAS = {
    "requests": {"ts": "timestamp", "k": "int64"}, "orders": {"ts": "timestamp", "k": "int64", "v": "int64"},
}  # fmt: skip
STREAMS = {name: tm.stream(name, time="ts", schema=schema) for name, schema in SCHEMAS.items()}

Frames = Mapping[str, Any]


@dataclass(frozen=True)
class Rows:
    """Two streams, and how rows are spread over keys."""

    pair: Pair
    hot: bool = False
    """Every other row has one of the keys."""


def cases(quick: bool) -> list[Case]:
    rows, many = (20_000, 40_000) if quick else (1_000_000, 10_000_000)
    few, hot = Rows(Pair(rows, 5)), Rows(Pair(rows, 1_000), hot=True)
    base, larger, more = Rows(Pair(rows)), Rows(Pair(many)), Rows(Pair(rows, 1_000))
    sums, last = functools.partial(_sums, "count and sum"), functools.partial(_last, "last order")
    return [
        sums("", base, RUN, RANGE_JOIN), sums(", 10 times the rows", larger), sums(", 1000 keys", more, RUN),
        sums(", 5 keys", few, RUN), sums(", 1000 keys, every other row of one", hot, RUN),
        last("", base), last(", 10 times the rows", larger), last(", 5 keys", few),
        last(", 1000 keys", more, RUN),
    ]  # fmt: skip


def _sums(name: str, more: str, rows: Rows, *beside: str) -> Case:
    far = rows.pair.reach
    ours = f'requests.interval_join(orders, on="k", preceding="{far}us").agg(n=tm.count(), s=tm.sum(col.v))'
    window = f"""SELECT ts, k, n, s FROM (
    SELECT ts, k, asked, count(v) OVER w AS n, sum(v) OVER w AS s
    FROM (SELECT ts, k, v, false AS asked FROM orders UNION ALL SELECT ts, k, NULL, true FROM requests)
    WINDOW w AS (
        PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL {far} MICROSECOND PRECEDING AND CURRENT ROW
    )
) WHERE asked"""
    # By itself Spark broadcasts one side and finds the rows of a key through a hash table, which takes
    # several times as long as sort and merge. A bound in the condition would be computed for each pair.
    pairs = f"""SELECT /*+ MERGE(o) */ r.ts, r.k, count(v) AS n, sum(v) AS s
FROM (SELECT ts, k, ts - INTERVAL {far} MICROSECOND AS low FROM requests) r LEFT JOIN orders o
ON r.k = o.k AND o.ts BETWEEN r.low AND r.ts GROUP BY r.ts, r.k"""
    texts = {RUN: window, RANGE_JOIN: pairs}
    return _case(name + more, rows, ours, {system: texts[system] for system in beside}, "s")


def _last(name: str, more: str, rows: Rows, *beside: str) -> Case:
    theirs = """SELECT r.ts, r.k, o.ts AS ts_right, v
FROM requests r LEFT ASOF JOIN orders o MATCH_CONDITION (r.ts >= o.ts) ON r.k = o.k"""
    return _case(name + more, rows, 'requests.last_join(orders, on="k")', dict.fromkeys(beside, theirs), "v")


def _case(name: str, rows: Rows, ours: str, theirs: Mapping[str, str], value: str) -> Case:
    systems: dict[str, Callable[[Frames], Any]] = {
        HOME: Asked(ours, lambda given: _ours(ours, given, value))
    }
    for system, text in theirs.items():
        systems[system] = Asked(text, functools.partial(_theirs, text, value))
    both = 2 * rows.pair.rows
    return Case(
        f"spark/{name}", {"rows a side": rows.pair.rows, "keys": rows.pair.keys, "files a side": FILES},
        systems, same_numbers(), lambda: _given(rows),
        derive=lambda seconds: {"million rows/s": {s: both / t / 1e6 for s, t in seconds.items()}},
    )  # fmt: skip


def _given(rows: Rows) -> Frames:
    return {name: resources.spark().read.parquet(_files(rows, name)) for name in SCHEMAS}


def _ours(query: str, given: Frames, value: str) -> dict[str, Any]:
    asked = evaluated(query, {"tm": tm, "col": tm.col, **STREAMS})
    return consumed(asked.on_spark(resources.spark()).run(**given), ("ts", "k"), value)


def _theirs(query: str, value: str, given: Frames) -> dict[str, Any]:
    spark = resources.spark()
    spark.conf.set("spark.sql.join.asofJoin.enabled", "true")
    spark.conf.set("spark.sql.join.sortMergeAsOfJoin.enabled", "true")
    for name, frame in given.items():
        frame.createOrReplaceTempView(name)
    return consumed(spark.sql(query), ("ts", "k"), value)


@functools.cache
def _files(rows: Rows, name: str) -> str:
    """A folder of files in order of time."""
    table = rows_of(rows.pair, name).select(list(SCHEMAS[name]))
    if rows.hot:
        keys = table["k"].to_numpy()
        hot = np.random.default_rng(5).random(len(keys)) < 0.5
        place = table.schema.get_field_index("k")
        table = table.set_column(place, "k", pa.array(np.where(hot, 0, keys)))
    folder = resources.scratch() / f"{name}-{len(list(resources.scratch().iterdir()))}"
    folder.mkdir()
    share = -(-table.num_rows // FILES)
    for part in range(FILES):
        pq.write_table(table.slice(part * share, share), folder / f"part-{part}.parquet")
    return str(folder)
