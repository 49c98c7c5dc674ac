"""Temporal queries that DuckDB and Polars can ask, too."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa

import tidemill as tm
from tidemill import col
from tidemill.stream import Stream

PICK = random.Random(18)
S = tm.stream("s", time="t", end="u", schema={"t": "int64", "u": "int64", "k": "int64", "v": "int64"})
P = tm.stream("p", time="t", schema={"t": "int64", "k": "int64", "w": "int64"})


def _intervals(size: int) -> pa.Table:
    starts = [PICK.randint(0, 300) for _ in range(size)]
    return pa.table(
        {
            "t": starts,
            "u": pa.array([PICK.choice([None, t + 1, t + PICK.randint(1, 40)]) for t in starts], pa.int64()),
            "k": pa.array([PICK.choice([1, 2, 3, None]) for _ in starts], pa.int64()),
            "v": [PICK.randint(0, 9) for _ in starts],
        }
    )


def _points(size: int) -> pa.Table:
    return pa.table(
        {
            "t": PICK.sample(range(1000), size),  # different times: SQL has no rule for ties
            "k": pa.array([PICK.choice([1, 2, 3]) for _ in range(size)], pa.int64()),
            "w": [PICK.randint(0, 9) for _ in range(size)],
        }
    )


INTERVALS, POINTS = _intervals(150), _points(200)
OPEN = 1 << 40


def rows(table: pa.Table) -> Counter[Any]:
    names = sorted(table.column_names)
    return Counter(tuple(row[n] for n in names) for row in table.to_pylist())


def check(query: Stream, sql: str, **inputs: pa.Table) -> None:
    """The same rows as those of a SQL query. There are some."""
    with duckdb.connect() as db:
        for name, table in inputs.items():
            db.register(name, table)
        theirs = db.sql(sql).to_arrow_table()
    ours = query.run(**inputs)
    assert set(ours.column_names) == set(theirs.column_names)
    assert rows(ours) == rows(theirs) and len(ours) > 5


def test_a_join_is_an_overlap() -> None:
    check(
        S.join(P.lasting(20), on="k", where=lambda l, r: l.v < r.w),
        f"""
        select s.k, v, w, greatest(s.t, p.t) as valid_from,
          nullif(least(coalesce(u, {OPEN}), p.t + 20), {OPEN}) as valid_to
        from s join p on s.k = p.k and v < w and s.t < p.t + 20 and p.t < coalesce(u, {OPEN})
        """,
        s=INTERVALS,
        p=POINTS,
    )


def test_until_next_is_an_asof_join() -> None:
    asked = tm.stream("q", time="t", schema={"t": "int64", "k": "int64", "id": "int64"})
    questions = pa.table(
        {
            "t": [PICK.randint(0, 1000) for _ in range(100)],
            "k": pa.array([PICK.choice([1, 2, 3, 4]) for _ in range(100)], pa.int64()),
            "id": range(100),
        }
    )
    query = asked.join(P.until_next("k"), on="k", how="left").select("id", "w")
    ours = query.run(q=questions, p=POINTS).select(["id", "w"])
    with duckdb.connect() as db:
        db.register("q", questions)
        db.register("p", POINTS)
        theirs = db.sql("select id, w from q asof left join p on q.k = p.k and q.t >= p.t").to_arrow_table()
    assert rows(ours) == rows(theirs) and len(ours) == 100
    left, right = (pl.DataFrame(table.to_pydict()).sort("t") for table in (questions, POINTS))
    joined = left.join_asof(right, on="t", by="k", check_sortedness=False)
    assert rows(ours) == rows(joined.select("id", "w").to_arrow())


def test_until_next_is_lead() -> None:
    check(
        P.until_next("k"),
        "select t, k, w, lead(t) over (partition by k order by t) as valid_to from p",
        p=POINTS,
    )


def test_lag_and_lead() -> None:
    check(
        P.lag("k", before="w", back=2).lead("k", after="t"),
        """
        select *, lag(w, 2) over same as before, lead(t) over same as after
        from p window same as (partition by k order by t)
        """,
        p=POINTS,
    )
    ours = P.lag("k", before="w").run(p=POINTS)
    frame: Any = pl.from_arrow(POINTS)
    theirs = frame.sort("t").with_columns(before=pl.col("w").shift(1).over("k"))
    assert rows(ours) == rows(theirs.to_arrow())


def test_snapshots() -> None:
    """SQL: between any two bounds, the rows that hold; neighbours of the same value are put together."""
    check(
        S.group_by("k").agg(n=tm.count(), most=tm.max(col.v), total=tm.sum(col.v)),
        f"""
        with bounds as (select k, t as b from s union select k, coalesce(u, {OPEN}) from s),
        parts as (select k, b, lead(b) over (partition by k order by b) as e from bounds),
        held as (
          select p.k, p.b, p.e, count(*) as n, max(v) as most, sum(v) as total
          from parts p join s on p.k is not distinct from s.k and s.t <= p.b and p.e <= coalesce(u, {OPEN})
          group by all
        ),
        marked as (
          select *, case when lag(e) over w = b and lag((n, most, total)) over w = (n, most, total)
            then 0 else 1 end as new
          from held window w as (partition by k order by b)
        ),
        runs as (select *, sum(new) over (partition by k order by b) as run from marked)
        select k, min(b) as valid_from, nullif(max(e), {OPEN}) as valid_to, n, most, total::bigint as total
        from runs group by k, run, n, most, total
        """,
        s=INTERVALS,
    )


def test_gaps_and_islands() -> None:
    check(
        P.until_session_end(5, "k").distinct("k"),
        """
        -- A row that comes just as a session ends starts another one; what holds goes on.
        select k, min(t) as valid_from, max(t) + 5 as valid_to from (
          select k, t, sum(case when t - before <= 5 then 0 else 1 end)
            over (partition by k order by t) as run
          from (select k, t, lag(t) over (partition by k order by t) as before from p)
        ) group by k, run
        """,
        p=POINTS,
    )


def test_where_not_exists() -> None:
    """Points that nothing of the other stream holds at."""
    check(
        P.where_not_exists(S, on="k"),
        f"""
        select * from p where not exists (
          select * from s where s.k = p.k and s.t <= p.t and p.t < coalesce(u, {OPEN}))
        """,
        s=INTERVALS.filter(pa.compute.is_valid(INTERVALS["u"])),
        p=POINTS,
    )


def test_top_of_points_at_each_instant() -> None:
    same_time = POINTS.set_column(0, "t", pa.array([t // 10 for t in POINTS["t"].to_pylist()]))
    check(
        P.top(2, by="w").select("k", "w"),
        """
        select t, k, w, t + 1 as valid_to from p
        qualify row_number() over (partition by t order by w desc, k desc) <= 2
        """,
        p=same_time,
    )


def test_windows_of_snapshots() -> None:
    """The windowed count of a key, and of all keys together, as shares."""
    by_key = P.group_by("k").window(tm.tumbling(50)).agg(n=tm.count())
    total = P.window(tm.tumbling(50)).agg(all=tm.count())
    query = by_key.join(total).select("k", share=col.n / col["all"])
    ours = query.run(p=POINTS)
    frame: Any = pl.from_arrow(POINTS)
    counts = frame.group_by("k", pl.col("t") // 50).agg(n=pl.len())
    shares = counts.with_columns(share=pl.col("n") / pl.col("n").sum().over("t"))
    assert Counter((r["k"], round(r["share"], 9)) for r in ours.to_pylist()) == Counter(
        (k, round(share, 9)) for k, share in shares.select("k", "share").rows()
    )
