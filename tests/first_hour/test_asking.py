"""What hands write for aggregates and inputs, and what they get: an answer, or the next step."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidemill as tm
from tidemill import col

STREAM = tm.stream("s", time="t", schema={"t": "timestamp", "k": "int64", "v": "int64"})
ROWS = [{"t": datetime(2026, 1, 1, hour), "k": hour % 2, "v": hour} for hour in range(6)]
DAYS = STREAM.window(tm.tumbling("1d"))


def refused(ask: Any, *parts: str) -> None:
    with pytest.raises(tm.UserError) as error:
        ask()
    for part in parts:
        assert re.search(re.escape(part), str(error.value)), str(error.value)


def test_asked_for_a_count_without_a_name() -> None:
    found = DAYS.agg(tm.count(), tm.sum(col.v), [tm.arg_max("v", "k")], high=tm.max("v")).run(ROWS)
    assert found.column_names == ["window_start", "window_end", "count", "sum_v", "arg_max_v_k", "high"]
    assert found["count"].to_pylist() == [6]


def test_asked_for_two_things_of_one_name() -> None:
    low, high = tm.quantile("v", 0.1), tm.quantile("v", 0.9)
    refused(lambda: DAYS.agg(low, high), "'quantile_v' twice", "agg(other=quantile(col.v, q=0.9))")
    refused(lambda: DAYS.agg(tm.count(), count=tm.sum("v")), "'count' twice")


def test_asked_for_something_computed_without_a_name() -> None:
    refused(lambda: DAYS.agg(tm.mean(col.v > 2)), "agg(name=mean((col.v > 2)))")
    refused(lambda: DAYS.agg(tm.sum("v") / tm.count()), "agg(name=(sum(col.v) / count()))")


def test_divided_a_sum_by_a_count() -> None:
    [row] = DAYS.agg(per_row=tm.sum(col.v) / tm.count()).run(ROWS).to_pylist()
    assert row["per_row"] == 2.5


def test_divided_a_sum_by_a_column() -> None:
    refused(lambda: DAYS.agg(x=tm.sum(col.v) / col.v), "agg x", "columns of single rows", "tm.last(...)")


def test_asked_for_an_aggregate_of_an_aggregate() -> None:
    refused(lambda: DAYS.agg(x=tm.max(tm.count())), "the aggregate count()", "a step after it")


def test_filtered_by_an_aggregate() -> None:
    refused(lambda: STREAM.where(tm.count() > 3), "the aggregate count()", ".agg(...)")


def test_compared_an_aggregate_with_a_number() -> None:
    assert DAYS.agg(many=tm.count() > 3).run(ROWS)["many"].to_pylist() == [True]
    refused(lambda: DAYS.agg(six=tm.count() == 6), "False (bool)", ".with_columns(...)")


def test_wrote_and_between_aggregates() -> None:
    refused(lambda: tm.any(col.v > 3) and tm.any(col.v < 2), "write & | ~")
    assert DAYS.agg(x=tm.any(col.v > 3) & tm.any(col.v < 2)).run(ROWS)["x"].to_pylist() == [True]


@pytest.mark.parametrize("given", ["count", {"v": "sum"}, 3, None, col.v])
def test_gave_something_else_than_an_aggregate(given: Any) -> None:
    refused(lambda: DAYS.agg(given), "agg", "expected")
    refused(lambda: DAYS.agg(x=given), "agg x: expected an aggregate")


def test_asked_for_the_rate_of_a_condition() -> None:
    assert DAYS.agg(rate=tm.mean(col.v > 2)).run(ROWS)["rate"].to_pylist() == [0.5]


def test_compared_a_time_with_a_date() -> None:
    assert STREAM.where(col.t >= date(2026, 1, 2)).run(ROWS).num_rows == 0
    assert STREAM.where(col.t.between(date(2026, 1, 1), date(2026, 1, 2))).run(ROWS).num_rows == 6


def test_ran_a_query_on_a_path(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), path)
    query = DAYS.agg(tm.count())
    expected = query.run(s=ROWS)
    assert query.run(path) == query.run(str(path)) == expected
    assert pa.Table.from_batches(list(query.batches(path))) == expected
    assert query.to_pandas(path)["count"].tolist() == query.to_polars(path)["count"].to_list() == [6]
    for write in (query.to_parquet, query.to_csv, query.to_ipc):
        assert write(tmp_path / "out", path) == 1


def test_ran_a_query_on_a_frame_of_spark(spark: Any) -> None:
    frame = spark.createDataFrame(pa.Table.from_pylist(ROWS))
    query = DAYS.agg(tm.count()).on_spark(spark)
    assert [row["count"] for row in query.run(frame).collect()] == [6]
    assert query.explain(frame).sections["Spark's plan"]


def test_pushed_rows_without_a_name() -> None:
    live = DAYS.agg(tm.count()).live()
    pushed = [live.push(ROWS), live.push(ROWS[0]), live.flush()]
    assert pa.concat_tables(pushed)["count"].to_pylist() == [7]
    two = STREAM.union(tm.stream("web", time="t", schema=STREAM.schema)).live()
    refused(lambda: two.push(ROWS), "for ['s', 'web']", "push(s=..., web=...)")


def test_ran_a_query_of_two_streams_on_one_path() -> None:
    two = STREAM.union(tm.stream("web", time="t", schema=STREAM.schema))
    refused(lambda: two.run(ROWS), "for ['s', 'web']", "run(s=..., web=...)")
    refused(lambda: STREAM.run(ROWS, s=ROWS), "run(s=...)")


def test_asked_for_the_median_of_durations() -> None:
    waits = tm.stream("s", time="t", schema={"t": "timestamp", "wait": "duration"}).window(tm.tumbling("1d"))
    refused(lambda: waits.agg(tm.median("wait")), "duration in", ".cast('int64') for its microseconds")
    query = waits.agg(half=tm.median(col.wait.cast("int64")), mean=tm.mean("wait"))
    rows = [{"t": datetime(2026, 1, 1), "wait": timedelta(seconds=s)} for s in (1, 2, 6)]
    [row] = query.run(rows).to_pylist()
    assert (row["half"], row["mean"]) == (2e6, timedelta(seconds=3))


def test_asked_with_a_lambda() -> None:
    found = DAYS.agg(high=lambda e: tm.max(e.v), mean=lambda e: tm.sum(e.v) / tm.count()).run(ROWS)
    assert found.select(["high", "mean"]).to_pylist() == [{"high": 5, "mean": 2.5}]


def test_forgot_the_parentheses_of_an_aggregate() -> None:
    refused(lambda: DAYS.agg(n=tm.count), "agg n", "write the parentheses: count()")
    refused(lambda: DAYS.agg(tm.count), "write the parentheses: count()")


@pytest.mark.parametrize(
    ("ask", "hint"),
    [
        (lambda: STREAM.window("1h"), "write tm.tumbling('1h')"),
        (lambda: STREAM.where("v > 5"), "conditions are expressions of Python: .where(col.v > 5)"),
        (lambda: STREAM.where(v=5), "write .where((col.v == 5))"),
        (lambda: STREAM.where(col.v > 5 & col.k > 1), "(col.a > 1) & (col.b < 5)"),
        (lambda: STREAM.with_columns(col.v * 2), "write .with_columns(name=(col.v * 2))"),
        (lambda: STREAM.sort("v", ascending=False), "descending=[True, False]"),
        (lambda: STREAM.limit(3).sort(by="v"), "descending=[True, False]"),
        (lambda: STREAM.select(x=len(col.v)), "write .len() for text"),
        (lambda: DAYS.agg(x=sum(col.v)), "write tm.sum(...)"),
        (lambda: STREAM.where("a" in col.v), "write .contains('a')"),
    ],
)
def test_wrote_it_as_elsewhere(ask: Any, hint: str) -> None:
    refused(ask, hint)


def test_rounded_with_the_function_of_python() -> None:
    assert str(round(col.v / 3, 1)) == str((col.v / 3).round(1))
