"""Interval joins against DuckDB, Polars and pandas, and the worked examples of paper 004."""

from __future__ import annotations

import random
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tidemill as tm
from tidemill import col

ASK = tm.stream("ask", time="t", schema={"t": "int64", "k": "string", "id": "int64"})
BUY = tm.stream("buy", time="t", schema={"t": "int64", "k": "string", "v": "int64"})
SEEDS = [1, 2, 3]


def _rows(seed: int, *, odd: bool = False) -> tuple[pa.Table, pa.Table]:
    """Base and probe rows in order of time. Probe rows of a key have different times.

    With `odd`, no base row is as near to one probe row as to another.
    """
    pick = random.Random(seed)
    ask = sorted((2 * pick.randrange(-50, 300) + 1 if odd else pick.randrange(-100, 600)) for _ in range(200))
    times = {k: pick.sample(range(-100, 500, 4), 60) for k in "abc"}
    buy = sorted((t, k, pick.randrange(-9, 9)) for k, of in times.items() for t in of)
    base = {"t": ask, "k": [pick.choice("abcd") for _ in ask], "id": list(range(len(ask)))}
    return pa.table(base), pa.table(dict(zip(("t", "k", "v"), map(list, zip(*buy)))))


def _by_id(found: Any) -> list[tuple[Any, ...]]:
    rows = [tuple(None if v != v else v for v in row.values()) for row in found.to_pylist()]
    return sorted(rows)


@pytest.mark.parametrize("seed", SEEDS)
def test_aggregates_are_those_of_a_range_join_in_duckdb(seed: int) -> None:
    ask, buy = _rows(seed)
    found = ASK.interval_join(BUY, on="k", preceding=40, following=12).agg(
        n=tm.count(), s=tm.sum("v"), low=tm.min("v")
    ).select("id", "n", "s", "low").run(ask=ask, buy=buy)  # fmt: skip
    with duckdb.connect() as database:
        database.register("ask", ask)
        database.register("buy", buy)
        rows = database.sql(
            "select id, count(v), sum(v), min(v) from ask left join buy on ask.k = buy.k"
            " and buy.t between ask.t - 40 and ask.t + 12 group by id"
        ).fetchall()
    assert _by_id(found.select(["id", "n", "s", "low"])) == sorted(rows)


@pytest.mark.parametrize("seed", SEEDS)
def test_last_rows_are_those_of_asof_joins_in_duckdb(seed: int) -> None:
    ask, buy = _rows(seed)
    directions = {("backward", False): ">=", ("backward", True): ">", ("forward", False): "<="}
    for (direction, apart), compared in directions.items():
        found = ASK.last_join(BUY, on="k", direction=direction, exclude_current_time=apart).run(
            ask=ask, buy=buy
        )
        with duckdb.connect() as database:
            database.register("ask", ask)
            database.register("buy", buy)
            rows = database.sql(
                f"select id, buy.t, v from ask asof left join buy on ask.k = buy.k and ask.t {compared} buy.t"
            ).fetchall()
        assert _by_id(found.select(["id", "t_right", "v"])) == sorted(rows), (direction, apart)


@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
@pytest.mark.parametrize("tolerance", [None, 6])
def test_last_rows_are_those_of_polars_and_pandas(direction: Any, tolerance: int | None) -> None:
    for seed in SEEDS:
        ask, buy = _rows(seed, odd=direction == "nearest")
        found = ASK.last_join(BUY, on="k", direction=direction, tolerance=tolerance).run(ask=ask, buy=buy)
        polars = pl.DataFrame(pl.from_arrow(ask)).join_asof(
            pl.DataFrame(pl.from_arrow(buy)), on="t", by="k", strategy=direction, tolerance=tolerance,
            check_sortedness=False,
        ).select("id", "v")  # fmt: skip
        assert _by_id(found.select(["id", "v"])) == _by_id(polars.to_arrow())
        pandas = pd.merge_asof(
            ask.to_pandas(), buy.to_pandas(), on="t", by="k", direction=direction, tolerance=tolerance
        )
        theirs = pa.table({n: pandas[n].tolist() for n in ("id", "v")})
        assert _by_id(found.select(["id", "v"])) == _by_id(theirs)


@pytest.mark.parametrize("closed", ["both", "left", "right", "neither"])
def test_aggregates_of_the_stream_itself_are_those_of_rolling_in_polars(closed: Any) -> None:
    _, buy = _rows(7)
    joined = BUY.interval_join(BUY, on="k", preceding=20, closed=closed)
    found = joined.agg(n=tm.count(), s=tm.sum("v")).run(buy=buy)
    theirs = "none" if closed == "neither" else closed
    rolling = pl.DataFrame(pl.from_arrow(buy)).rolling("t", period="20i", closed=theirs, group_by="k").agg(
        n=pl.len(), s=pl.col("v").sum()
    ).select("k", "t", "n", s=pl.when(pl.col("n") > 0).then("s"))  # fmt: skip
    assert _by_id(found.select(["k", "t", "n", "s"])) == _by_id(rolling.to_arrow())


# --- paper 004 --------------------------------------------------------------------------------------


def test_figure_3_interval_join() -> None:
    """Section II-C: a window of (-2 s, 0) gives <s1, r1>, <s2, r3>, <s2, r4>, <s3, r5>."""
    s = tm.stream("s", time="t", schema={"t": "timestamp", "key": "int64", "name": "string"})
    r = tm.stream("r", time="t", schema={"t": "timestamp", "key": "int64", "name": "string"})

    def at(second: float, name: str, key: int = 1) -> dict[str, Any]:
        return {"t": pd.Timestamp(int(second * 1e6), unit="us", tz="UTC"), "key": key, "name": name}

    base = [at(2, "s1"), at(5, "s2"), at(8, "s3")]
    probe = [at(1, "r1"), at(2.5, "r2"), at(3, "r3"), at(4.5, "r4"), at(6.5, "r5"), at(7, "other", key=2)]
    joined = s.interval_join(r, on="key", preceding="2s")
    pairs = joined.pairs(suffix="_r").run(s=base, r=probe)
    assert list(zip(pairs["name"].to_pylist(), pairs["name_r"].to_pylist())) == [
        ("s1", "r1"), ("s2", "r3"), ("s2", "r4"), ("s3", "r5"),
    ]  # fmt: skip
    found = joined.agg(agg=tm.collect(col.name)).run(s=base, r=probe)
    assert found["agg"].to_pylist() == [["r1"], ["r3", "r4"], ["r5"]]


def test_figure_15_incremental_aggregation() -> None:
    """Section V-C: the aggregate of s4 is that of s3, without r1 and with r4; r1 is subtracted."""
    s = tm.stream("s", time="t", schema={"t": "int64"})
    r = tm.stream("r", time="t", schema={"t": "int64", "v": "int64"})
    query = s.interval_join(r, preceding=10).agg(total=tm.sum(col.v), most=tm.max(col.v))
    probe = [{"t": t, "v": v} for t, v in ((1, 8), (4, 2), (8, 4), (12, 1))]  # r1 to r4
    found = query.run(s=[{"t": 10}, {"t": 13}], r=probe)
    agg_s3, agg_s4 = found["total"].to_pylist()
    assert (agg_s3, agg_s4) == (8 + 2 + 4, 14 - 8 + 1)
    assert found["most"].to_pylist() == [8, 4]
    shown = str(query.explain())
    assert "sum(col.v)   [moving: rows that leave are subtracted]" in shown
    assert "max(col.v)   [moving: two stacks]" in shown
