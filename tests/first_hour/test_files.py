"""What users did in their first hour with files and frames; each test has the name of what one did."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidemill as tm

UTC = timezone.utc


def frame() -> pd.DataFrame:
    times = pd.date_range("2026-01-01", periods=4, freq="30min")
    return pd.DataFrame({"ts": times, "station": ["a", "b", "a", "b"], "bikes": [1, 2, 3, 4]})


def hourly(stream: tm.Stream) -> tm.Stream:
    return stream.window(tm.tumbling("1h")).agg(bikes=tm.sum("bikes"))


def totals(query: tm.Stream, **inputs: Any) -> list[int]:
    return query.run(**inputs).sort_by("window_start")["bikes"].to_pylist()


def test_asked_a_csv_file_without_writing_its_schema(tmp_path: Path) -> None:
    frame().to_csv(tmp_path / "bikes.csv", index=False)
    bikes = tm.read(tmp_path / "bikes.csv", time="ts")
    assert totals(hourly(bikes)) == [3, 7]
    assert repr(bikes) == (
        f"stream bikes: CSV file {tmp_path}/bikes.csv\n"
        "  ts       timestamp  (time)\n"
        "  station  string\n"
        "  bikes    int64"
    )
    assert "<td>station</td><td>string</td>" in bikes._repr_html_()


@pytest.mark.parametrize("bring", [
    frame, lambda: frame().set_index("ts"), lambda: pl.from_pandas(frame()),
    lambda: pl.from_pandas(frame()).lazy(),
    lambda: pa.Table.from_pandas(frame()), lambda: pa.Table.from_pandas(frame()).to_reader(),
    lambda: frame().to_dict("records"), lambda: iter(frame().to_dict("records")),
    lambda: pa.Table.from_pandas(frame()).to_batches(),
], ids=["pandas", "index", "polars", "lazy", "arrow", "reader", "dicts", "generator", "batches"])  # fmt: skip
def test_brought_the_frame_that_was_at_hand(bring: Any) -> None:
    query = hourly(tm.read(bring(), time="ts"))
    assert totals(query) == totals(query) == [3, 7]  # also of what can be read only once


def test_gave_the_folder_of_parquet_files(tmp_path: Path) -> None:
    for day, rows in enumerate((frame()[:2], frame()[2:])):
        rows.to_parquet(tmp_path / f"day{day}.parquet")
    assert totals(hourly(tm.read(tmp_path, time="ts"))) == [3, 7]
    assert totals(hourly(tm.read(f"{tmp_path}/day1.*", time="ts", name="last"))) == [7]


def test_did_not_say_which_column_is_the_time() -> None:
    with pytest.raises(tm.UserError, match=r"read: expected time= one of the columns \['ts', 'bikes'\]"):
        tm.read(frame())


def test_used_a_frame_a_schema_or_a_path_as_the_schema_of_a_stream(tmp_path: Path) -> None:
    frame().to_parquet(tmp_path / "bikes.parquet")
    many = pl.from_pandas(frame())
    plain = frame().astype({"station": "string"})
    for given in (frame(), plain.dtypes, many, many.lazy(), many.schema, tmp_path / "bikes.parquet",
                  pa.Table.from_pandas(frame())):  # fmt: skip
        found = tm.stream("bikes", time="ts", schema=given).schema
        assert repr(found) == "Schema(ts: timestamp, station: string, bikes: int64)"
    with pytest.raises(tm.UserError, match=r"object for \['station'\].* give the frame itself as schema="):
        tm.stream("bikes", time="ts", schema=frame().astype({"station": object}).dtypes)


def test_read_two_files_and_joined_them(tmp_path: Path) -> None:
    frame().to_csv(tmp_path / "bikes.csv", index=False)
    (tmp_path / "names.csv").write_text("ts,station,name\n2025-12-31,a,Harbour\n")
    bikes, names = (tm.read(tmp_path / f"{n}.csv", time="ts") for n in ("bikes", "names"))
    joined = bikes.join(names.until_next("station"), on="station")
    assert joined.run()["name"].to_pylist() == ["Harbour", "Harbour"]
    other = [{"ts": datetime(2025, 1, 1, tzinfo=UTC), "station": "b", "name": "Mill"}]
    assert joined.run(names=other)["name"].to_pylist() == ["Mill", "Mill"]
    with pytest.raises(tm.UserError, match="give one of the streams another name"):
        bikes.join(tm.read(tmp_path / "names.csv", time="ts", name="bikes"), on="station").run()


def test_read_a_file_with_a_column_that_no_stream_can_have(tmp_path: Path) -> None:
    table = pa.table({"t": [1, 2], "at": pa.array([1, 2], pa.time32("s"))})
    pq.write_table(table, tmp_path / "log.parquet")
    log = tm.read(tmp_path / "log.parquet", time="t")
    assert log.unread == {"at": "time32[ms]"} and "left out" in repr(log)
    frame().iloc[[0, 3, 1]].to_parquet(tmp_path / "half.parquet")  # with its index, which has no name
    assert set(tm.read(tmp_path / "half.parquet", time="ts").unread) == {"__index_level_0__"}
    assert log.run().to_pylist() == [{"t": 1}, {"t": 2}]


def test_answered_the_same_query_on_spark_without_loading_the_file_there(spark: Any, tmp_path: Path) -> None:
    rows = frame().astype({"ts": "datetime64[ns]"})
    rows.to_parquet(tmp_path / "bikes.parquet", row_group_size=2)  # in nanoseconds, which Spark refuses
    rows.to_csv(tmp_path / "bikes.csv", index=False)
    for given in (tmp_path / "bikes.parquet", tmp_path / "bikes.csv", rows, spark.createDataFrame(rows)):
        bikes = tm.read(given, time="ts", tz="Europe/Berlin")
        here = hourly(bikes).run().sort_by("window_start")
        there = hourly(bikes).on_spark(spark).run().toArrow().sort_by("window_start")
        assert there.to_pylist() == here.to_pylist() and here["bikes"].to_pylist() == [3, 7]
        assert str(here["window_start"][0].as_py()) in (
            "2025-12-31 23:00:00+00:00", "2026-01-01 05:00:00+00:00"  # Spark's own frame has instants
        )  # fmt: skip


def test_took_the_answer_of_spark_where_the_local_one_goes(spark: Any, tmp_path: Path) -> None:
    rows = frame()[["ts", "station"]].assign(note=["", 'a "b", c', None, "d"])
    notes = tm.read(rows, time="ts").lasting("1h").with_columns(day=tm.col.ts.truncate("1d"))
    here, there = notes.sort("ts"), notes.on_spark(spark)
    pd.testing.assert_frame_equal(there.to_pandas().sort_values("ts", ignore_index=True), here.to_pandas())
    assert there.to_polars().sort("ts").equals(here.to_polars())
    assert there.to_ipc(tmp_path / "answer.arrow") == 4
    assert there.to_parquet(tmp_path / "answer") == there.to_csv(tmp_path / "texts") == 4
    here.to_csv(tmp_path / "text.csv")
    wanted = here.run()
    for path in ("answer.arrow", "answer", "texts", "text.csv"):
        found = tm.read(tmp_path / path, time="ts", end="valid_to").sort("ts")
        assert found.run().select(wanted.schema.names).equals(wanted), path
    with pytest.raises(tm.UserError, match=r"expected a path where nothing is.*overwrite=True"):
        there.to_parquet(tmp_path / "answer")
    assert there.to_parquet(tmp_path / "answer", overwrite=True) == 4


def test_gave_spark_a_path_or_a_frame_that_is_not_its_own(spark: Any, tmp_path: Path) -> None:
    frame().to_parquet(tmp_path / "bikes.parquet")
    declared = tm.stream("bikes", time="ts", schema=frame())
    wanted = hourly(declared).sort("window_start").run(frame()).to_pylist()
    for rows in (tmp_path / "bikes.parquet", pl.from_pandas(frame())):
        assert hourly(declared).sort("window_start").on_spark(spark).run(rows).toArrow().to_pylist() == wanted
    bikes = hourly(tm.read(tmp_path / "bikes.parquet", time="ts")).on_spark(spark)
    late = bikes.late(tm.Disorder(slack="0s", consistent=True), arrival="bikes")
    assert late.columns[:3] == ["ts", "station", "bikes"] and late.count() == 0
    with pytest.raises(tm.UserError, match="expected a Spark DataFrame, got int"):
        hourly(declared).on_spark(spark).run(5)


def test_gave_dicts_that_do_not_all_have_the_same_names() -> None:
    rides = tm.read([{"t": 1, "v": 5}, {"t": 2, "city": "Oslo"}], time="t")
    assert rides.run().to_pylist() == [{"t": 1, "v": 5, "city": None}, {"t": 2, "v": None, "city": "Oslo"}]
    with pytest.raises(tm.UserError, match="read: expected values of one type in column 'v'"):
        tm.read([{"t": 1, "v": 5}, {"t": 2, "v": "five"}], time="t")


def test_looked_at_the_first_rows() -> None:
    batch = pa.record_batch({"t": [1, 2], "v": [5, 6]})
    rides = tm.read([batch, batch], time="t")
    assert repr(rides).startswith("stream rows: list of 2 batches\n")
    assert rides.head(3)["t"].to_pylist() == [1, 2, 1] and rides.head(0).num_rows == 0
    with pytest.raises(tm.UserError, match="head: expected a number of rows, got -1"):
        rides.head(-1)
