"""Questions about requests and orders in the words of Tidemill, DuckDB and Polars.

Peers have no interval join that aggregates. They get the fastest of the forms that were tried:

- DuckDB, sums: sums from the first order of a key on, and two ASOF joins, whose difference is the answer.
  A window over the union of both streams (`RANGE`, a segment tree) took three times as long.
  *duckdb, plain* is the range join, and pairs that are grouped. Without slots of time, as many pairs of a
  key would meet as there are: each slot is as long as the interval, and a request meets two of them.
- DuckDB, other aggregates: the range join. *duckdb, plain* is the window over the union of both streams.
- Polars, sums: as DuckDB's. Other aggregates: `rolling_…_by` over the union of both.
"""

from __future__ import annotations

from benchmarks.intervals.data import Pair
from benchmarks.questions import Question

BY = ("ts",)


def sums(pair: Pair) -> Question:
    """Count and sum."""
    far = pair.reach
    return Question(
        f'requests.interval_join(orders, on="k", preceding="{far}us").agg(n=tm.count(), s=tm.sum(col.v))'
        '.select("ts", "k", "n", "s")',
        f"""WITH sums AS (
    SELECT ts, k, count(*) OVER w AS n, sum(v) OVER w AS s
    FROM orders WINDOW w AS (PARTITION BY k ORDER BY ts)
), asked AS (SELECT ts, k, ts - INTERVAL {far} MICROSECOND AS low FROM requests)
SELECT asked.ts, asked.k, coalesce(a.n, 0) - coalesce(b.n, 0) AS n,
       CASE WHEN coalesce(a.n, 0) > coalesce(b.n, 0) THEN a.s - coalesce(b.s, 0) END AS s
FROM asked ASOF LEFT JOIN sums AS a ON a.k = asked.k AND a.ts <= asked.ts
ASOF LEFT JOIN sums AS b ON b.k = asked.k AND b.ts < asked.low""",
        f"""{_sorted(pair)}sums = orders.select(
    "ts", "k", n=pl.int_range(1, pl.len() + 1).over("k"), s=pl.col("v").cum_sum().over("k")
)
low = pl.col("ts") - pl.duration(microseconds={far} + 1)
upto = requests.select("ts", "k", low=low).join_asof(sums, on="ts", by="k", check_sortedness=False)
both = upto.join_asof(sums, left_on="low", right_on="ts", by="k", suffix="_b", check_sortedness=False)
n = pl.col("n").fill_null(0) - pl.col("n_b").fill_null(0)
s = pl.when(n > 0).then(pl.col("s") - pl.col("s_b").fill_null(0))
both.select("ts", "k", n=n, s=s)""",
        BY, "in-memory", plain=_pairs(pair, "count(v) AS n, sum(v) AS s", f"INTERVAL {far} MICROSECOND"),
    )  # fmt: skip


def extremes(pair: Pair) -> Question:
    """The least and the greatest value, which cannot be subtracted."""
    far, before = pair.reach, f"INTERVAL {pair.reach} MICROSECOND"
    return Question(
        f'requests.interval_join(orders, on="k", preceding="{far}us").agg(lo=tm.min(col.v), hi=tm.max(col.v))'
        '.select("ts", "k", "lo", "hi")',
        _pairs(pair, "min(v) AS lo, max(v) AS hi", before),
        f"""both = pl.concat([
    orders.with_columns(asked=False), requests.select("ts", "k", v=pl.lit(None, pl.Int64), asked=True)
]).sort("ts")
lo = pl.col("v").rolling_min_by("ts", "{far}us", closed="both").over("k")
hi = pl.col("v").rolling_max_by("ts", "{far}us", closed="both").over("k")
both.with_columns(lo=lo, hi=hi).filter("asked").select("ts", "k", "lo", "hi")""",
        BY, "in-memory",
        plain=f"""SELECT ts, k, lo, hi FROM (
    SELECT ts, k, asked, min(v) OVER w AS lo, max(v) OVER w AS hi
    FROM (SELECT ts, k, v, false AS asked FROM orders UNION ALL SELECT ts, k, NULL, true FROM requests)
    WINDOW w AS (PARTITION BY k ORDER BY ts RANGE BETWEEN {before} PRECEDING AND CURRENT ROW)
) WHERE asked""",
    )  # fmt: skip


def of_each_row(pair: Pair) -> Question:
    """Count and sum, where each request says how far it looks back."""
    return Question(
        'requests.interval_join(orders, on="k", preceding=col.back).agg(n=tm.count(), s=tm.sum(col.v))'
        '.select("ts", "k", "n", "s")',
        sums(pair).duckdb.replace(f"INTERVAL {pair.reach} MICROSECOND", "back"),
        f"""{_sorted(pair)}sums = orders.select(
    "ts", "k", n=pl.int_range(1, pl.len() + 1).over("k"), s=pl.col("v").cum_sum().over("k")
)
low = pl.col("ts") - pl.col("back") - pl.duration(microseconds=1)
upto = requests.select("ts", "k", low=low).join_asof(sums, on="ts", by="k", check_sortedness=False)
both = upto.sort("low").join_asof(
    sums, left_on="low", right_on="ts", by="k", suffix="_b", check_sortedness=False
)
n = pl.col("n").fill_null(0) - pl.col("n_b").fill_null(0)
s = pl.when(n > 0).then(pl.col("s") - pl.col("s_b").fill_null(0))
both.select("ts", "k", n=n, s=s)""",
        BY, "in-memory", plain=_pairs(pair, "count(v) AS n, sum(v) AS s", "back"),
    )  # fmt: skip


def as_of(pair: Pair) -> Question:
    """The last order before each request or with it."""
    return Question(
        'requests.select("k").last_join(orders, on="k")',
        """SELECT requests.ts, requests.k, orders.ts AS ts_right, v
FROM requests ASOF LEFT JOIN orders ON orders.k = requests.k AND orders.ts <= requests.ts""",
        f"""{_sorted(pair)}requests.select("ts", "k").join_asof(
    orders, on="ts", by="k", coalesce=False, check_sortedness=False
).select("ts", "k", "ts_right", "v")""",
        BY,
    )  # fmt: skip


MERGED = """orders = orders.rename(columns={"ts": "ts_right"})
pd.merge_asof(requests[["ts", "k"]], orders, left_on="ts", right_on="ts_right", by="k")"""
"""As `as_of`, of pandas data frames; rows must be in order of time."""


def _sorted(pair: Pair) -> str:
    """Polars joins rows in order of time."""
    return 'requests, orders = requests.sort("ts"), orders.sort("ts")\n' if pair.shuffled else ""


def _pairs(pair: Pair, aggregates: str, back: str) -> str:
    """DuckDB's range join; slots of time are as long as the longest interval."""
    return f"""WITH asked AS (
    SELECT ts, k, ts - {back} AS low, epoch_us(ts) // {pair.reach} - i AS slot
    FROM requests CROSS JOIN range(2) AS r(i)
), slots AS (SELECT ts, k, v, epoch_us(ts) // {pair.reach} AS slot FROM orders)
SELECT asked.ts, asked.k, {aggregates} FROM asked LEFT JOIN slots
ON slots.k = asked.k AND slots.slot = asked.slot AND slots.ts BETWEEN asked.low AND asked.ts
GROUP BY ALL"""
