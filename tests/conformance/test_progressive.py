"""A report of a progressive query is the answer over the rows that it says; the last one over all rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidemill as tm
from tests.conformance.cases import (
    ARRIVAL,
    COMBINATIONS,
    LATER,
    SOME,
    TYPICAL,
    WINDOWS,
    Row,
    ask,
    seeded,
)  # fmt: skip
from tests.conformance.cases import STREAM as TYPICAL_STREAM
from tests.conformance.harness import HASTE, arrivals, assert_same, locally, table_of
from tests.examples import later
from tidemill.core.batch import to_rows
from tidemill.local.progress_report import ProgressReport
from tidemill.local.progressive import progressive
from tidemill.stream import Stream

ON_THREADS = {
    name: replace(tuning, few_rows=0, many_open=many_open, few_divided=1)
    for (name, tuning), many_open in zip(HASTE.items(), (1 << 14, 0, 3))
}
"""On two threads however few rows there are; complete windows are closed late, at once, and in between."""


def rows_of(query: Stream, report: ProgressReport) -> list[Row]:
    return to_rows(report.table.to_batches(), query.schema)


def check(query: Stream, rows: Sequence[Row], data: Any, *, reports: int, speed: str = "patient") -> None:
    found = list(progressive(query.optimized, {"s": data}, reports, tuning=ON_THREADS[speed]))
    assert len(found) == min(reports, len(rows))
    assert [r.final for r in found] == [False] * (len(found) - 1) + [True]
    assert [r.rows["s"] for r in found] == sorted({r.rows["s"] for r in found})
    for report in found:
        read = report.rows["s"]
        assert report.fraction == read / len(rows)
        assert_same(rows_of(query, report), locally(query, rows[:read]), query.schema, f"first {read} rows")


@pytest.fixture(autouse=True)
def two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_THREADS", "2")


@pytest.mark.parametrize(
    ("window", "family"),
    [pytest.param(*case, marks=pytest.mark.soak if case in LATER else ()) for case in COMBINATIONS],
)
def test_every_window_and_aggregate(window: str, family: str) -> None:
    query, pick = ask(WINDOWS[window], family, "k"), random.Random(f"{window} {family}")
    rows = pick.choice(list(arrivals(TYPICAL, "t", pick).values()))
    check(query, rows, table_of(query, rows), reports=2, speed=pick.choice(list(HASTE)))


@pytest.mark.parametrize("seed", [1, *later(*range(2, 30))])
@pytest.mark.parametrize("window", [*SOME, "landmark", "hopping, filled"])
def test_any_order_and_any_haste(window: str, seed: int) -> None:
    rows, pick = seeded(150, seed=seed, span=120, keys=6), random.Random(seed)
    query = ask(WINDOWS[window], "one of each", "k")
    for arrived in arrivals(rows, "t", pick).values():
        check(query, arrived, table_of(query, arrived), reports=4, speed=pick.choice(list(HASTE)))


@pytest.mark.parametrize("window", ARRIVAL)
def test_windows_that_count_arrivals(window: str) -> None:
    query = ask(ARRIVAL[window], "one of each", "k")
    check(query, TYPICAL, table_of(query, TYPICAL), reports=5)


STREAM = tm.stream("s", time="t", schema={"t": "int64", "k": "int64"})
HOPS = STREAM.group_by("k").window(tm.hopping(6, every=2)).agg(n=tm.count())
NESTED = HOPS.group_by("k").window(tm.session(5, on="window_end")).agg(most=tm.max("n"), windows=tm.count())
ROWS = [{"t": t, "k": t * t % 7} for t in range(60)]


@pytest.mark.parametrize("speed", HASTE)
@pytest.mark.parametrize(
    "query", [STREAM.where(lambda e: e.k > 2), HOPS.where(lambda e: e.n > 1), NESTED, STREAM.union(STREAM)],
    ids=["no window", "after a window", "windows over windows", "union"],
)  # fmt: skip
def test_every_shape_of_plan(query: Stream, speed: str) -> None:
    table = pa.Table.from_pylist(ROWS)
    check(query, ROWS, table, reports=7, speed=speed)


def test_inputs_of_which_each_has_read_its_first_rows() -> None:
    other = tm.stream("o", time="t", schema={"t": "int64", "k": "int64"})
    query = STREAM.union(other).group_by("k").window(tm.tumbling(7)).agg(n=tm.count())
    given = {"s": ROWS, "o": [{"t": t + 9, "k": 3} for t in range(30)]}
    found = list(query.progressive(reports=9, **given))
    assert len(found) == 9 and found[-1].rows == {"s": 60, "o": 30}
    for report in found:
        first = {name: rows[: report.rows[name]] for name, rows in given.items()}
        assert report.fraction == sum(report.rows.values()) / 90
        assert_same(report.table.to_pylist(), query.run(**first).to_pylist(), query.schema)


def test_files_with_statistics(tmp_path: Path) -> None:
    rows = [{"t": t, "k": t * t % 7} for t in range(500)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "s.parquet", row_group_size=90)
    for speed in HASTE:
        check(HOPS, rows, str(tmp_path / "s.parquet"), reports=8, speed=speed)


# --- Spark ----------------------------------------------------------------------------------------


def check_on_spark(spark: Any, query: Stream, rows: list[Row], *, reports: int = 3) -> None:
    df = spark.createDataFrame(table_of(query, rows)).repartition(4, "n").persist()
    found = list(query.on_spark(spark).progressive(reports=reports, s=df))
    numbers = df.selectExpr("n", "spark_partition_id() AS part").collect()
    df.unpersist()
    assert [r.partitions for r in found] == {3: [1, 2, 4], 20: [1, 2, 3, 4]}[reports]
    for report in found:
        assert report.fraction == report.partitions / 4 and report.final == (report.partitions == 4)
        read = {row.n for row in numbers if row.part < report.partitions}
        some = [row for row in rows if row["n"] in read]
        assert_same(rows_of(query, report), locally(query, some), query.schema, str(report))


ON_SPARK = (
    ("hopping, filled", "sums"),
    *later(
        ("tumbling", "counting"),
        ("hopping, many panes", "one of each"), ("landmark", "holistic"), ("hopping, sampling", "extremes"),
        ("hopping", "sketches"),
    ),
)  # fmt: skip
"""Each way to make partials, and each way that windows of a grid lie; `test_shapes_of_plans_on_spark` counts,
too."""


@pytest.mark.parametrize(("window", "family"), ON_SPARK)
def test_every_window_of_a_grid_on_spark(spark: Any, window: str, family: str) -> None:
    check_on_spark(spark, ask(WINDOWS[window], family, "k"), TYPICAL)


def test_shapes_of_plans_on_spark(spark: Any) -> None:
    grid = TYPICAL_STREAM.group_by("k").window(tm.hopping(6, every=2)).agg(n=tm.count())
    nested = grid.window(tm.session(5, on="window_end")).agg(most=tm.max("n"), windows=tm.count())
    for query in (TYPICAL_STREAM.where(lambda e: e.v > 2), grid.where(lambda e: e.n > 1), nested):
        check_on_spark(spark, query, TYPICAL, reports=20)


def test_files_are_split_for_reports_on_spark(spark: Any, tmp_path: Path) -> None:
    rows = [{"t": t, "k": t * t % 7} for t in range(5000)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "s.parquet", row_group_size=500)
    spark.conf.set("spark.sql.files.openCostInBytes", "1")
    try:
        found = list(HOPS.on_spark(spark).progressive(reports=6, s=spark.read.parquet(str(tmp_path))))
    finally:
        spark.conf.unset("spark.sql.files.openCostInBytes")
    assert len(found) == 6
    assert spark.conf.get("spark.sql.files.minPartitionNum", None) is None
    assert_same(found[-1].table.to_pylist(), HOPS.run(s=rows).to_pylist(), HOPS.schema)
    sizes = [r.table["n"].to_numpy().sum() for r in found]
    assert sizes == sorted(sizes) and 0 < sizes[0] < sizes[-1] / 2


@pytest.mark.parametrize("window", ["session", "per_event", "rows"])
def test_windows_that_follow_rows_have_no_partials_on_spark(spark: Any, window: str) -> None:
    query = ask(WINDOWS[window], "counting", "k")
    df = spark.createDataFrame(table_of(query, TYPICAL))
    with pytest.raises(tm.UnsupportedError, match="follows the rows, so there are no partials"):
        query.on_spark(spark).progressive(s=df)


def test_rows_beside_windows_are_refused_on_spark(spark: Any) -> None:
    others = tm.stream("o", time="window_start", schema={"window_start": "int64", "k": "int64"})
    query = HOPS.select("window_start", "k").union(others)
    df = spark.createDataFrame(pa.Table.from_pylist(ROWS))
    with pytest.raises(tm.UnsupportedError, match="a union of rows and of windows progressively"):
        query.on_spark(spark).progressive(s=df, o=df.withColumnRenamed("t", "window_start"))


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize("reports", [0, -1, 2.0, True, None])
def test_reports_are_counted(reports: Any) -> None:
    with pytest.raises(tm.UserError, match="expected reports= at least 1"):
        HOPS.progressive(reports, s=ROWS)


def test_an_input_without_rows_has_one_report() -> None:
    [only] = HOPS.progressive(s=pa.table({"t": pa.array([], pa.int64()), "k": pa.array([], pa.int64())}))
    assert only.final and only.fraction == 1.0 and only.table.num_rows == 0 and only.rows == {"s": 0}


def test_who_stops_early_gets_the_threads_back() -> None:
    table = pa.Table.from_pylist(ROWS)
    reports = progressive(HOPS.optimized, {"s": table}, tuning=ON_THREADS["patient"])
    assert next(reports).rows == {"s": 1}
    reports.close()
    assert_same(HOPS.run(s=table).to_pylist(), HOPS.run(s=ROWS).to_pylist(), HOPS.schema)


def test_inputs_of_unknown_length_report_at_each_doubling() -> None:
    rows = ({"t": t, "k": 3} for t in range(10_000))
    found = list(STREAM.where(lambda e: e.k > 2).progressive(s=rows))
    assert [r.fraction for r in found] == [None, None, 1.0]
    assert [r.rows["s"] for r in found] == [len(r.table) for r in found] == [4096, 8192, 10_000]
    assert repr(found[0]).startswith("ProgressReport(part of the data, 4,096 rows: ")
