"""What users wrote and got a wrong answer for, without a word: refused now, or it means what they meant."""

from __future__ import annotations

import warnings
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidemill as tm
from tests.conformance.harness import assert_same, by_reference, locally, on_spark
from tests.examples import later
from tidemill import col

SCHEMA = {"t": "int64", "k": "string", "v": "int64", "flag": "bool"}
STREAM = tm.stream("s", time="t", schema=SCHEMA)
ROWS = [
    {"t": t, "k": "ab"[t % 2], "v": None if t % 5 == 0 else t, "flag": t % 3 == 0} for t in range(-7, 24)
]
CLOCK = {"ts": "timestamp", "v": "int64"}
NOON = datetime(2026, 7, 1, 12)


def clock(**options: Any) -> tm.Stream:
    return tm.stream("c", time="ts", schema=CLOCK, **options)


def ticks(table: pa.Table) -> list[int | None]:
    return table["ts"].cast(pa.int64()).to_pylist()


# --- ints where instants are declared -------------------------------------------------------------


def test_epoch_seconds_in_dicts_are_refused() -> None:
    with pytest.raises(tm.UserError, match=r"row 2: expected column 'ts' of timestamp.*unit='s'"):
        clock().run(c=[{"ts": NOON, "v": 1}, {"ts": 1_767_225_600, "v": 1}])
    with pytest.raises(tm.UserError, match=r"row 1: .*1767225600"):
        clock().run(c=[{"ts": np.int64(1_767_225_600), "v": 1}])


@pytest.mark.parametrize(
    ("unit", "given", "expected"),
    [
        ("s", 1_767_225_600, 1_767_225_600_000_000),
        ("ms", 1_767_225_600_123, 1_767_225_600_123_000),
        ("us", -1, -1),
        ("ns", -1, -1),
        ("ns", 1_999, 1),
    ],
)
def test_epoch_ints_with_a_unit_are_instants_from_every_source(
    tmp_path: Path, unit: str, given: int, expected: int
) -> None:
    query = clock(unit=unit)
    table = pa.table({"ts": [given, None], "v": [1, 2]})
    (tmp_path / "a.csv").write_text(f"ts,v\n{given},1\n,2\n")
    (tmp_path / "a.jsonl").write_text(f'{{"ts": {given}, "v": 1}}\n{{"ts": null, "v": 2}}\n')
    pq.write_table(table, tmp_path / "a.parquet")
    sources = {
        "dicts": table.to_pylist(), "arrow": table, "pandas": table.to_pandas(types_mapper=_nullable),
        **{end: tmp_path / f"a.{end}" for end in ("csv", "jsonl", "parquet")},
    }  # fmt: skip
    assert {name: ticks(query.run(c=data)) for name, data in sources.items()} == {
        name: [expected, None] for name in sources
    }


def _nullable(kind: pa.DataType) -> Any:
    import pandas

    return pandas.Int64Dtype() if pa.types.is_integer(kind) else None


def test_epoch_ints_without_a_unit_are_refused_from_every_source(spark: Any, tmp_path: Path) -> None:
    table = pa.table({"ts": [1_767_225_600], "v": [1]})
    pq.write_table(table, tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("ts,v\n1767225600,1\n")
    for data in (table, table.to_pandas(), table.to_pylist(), tmp_path / "a.parquet", tmp_path / "a.csv"):
        with pytest.raises(tm.UserError, match="unit"):
            clock().run(c=data)
    with pytest.raises(tm.UserError, match="unit"):
        clock().on_spark(spark).run(c=spark.createDataFrame(table.to_pandas()))


def test_epoch_seconds_and_naive_times_go_into_a_wheel_by_their_unit_and_zone() -> None:
    options = {"schema": CLOCK, "time": "ts", "start": "2026-07-01", "granularities": ["1h", "1d"]}
    wheel = tm.Wheel(tm.sum("v"), retention="keep", **options)
    rows = [{"ts": UTC_NOON // 1_000_000, "v": 1}]
    with pytest.raises(tm.UserError, match=r"insert, row 1: .*unit='s'"):
        wheel.insert(rows)
    wheel.insert(rows, unit="s")
    wheel.insert([{"ts": NOON, "v": 10}], tz=BERLIN)
    wheel.advance_to("2026-07-02")
    hours = [(f"2026-07-01T{h:02}", f"2026-07-01T{h + 1:02}") for h in (10, 11, 12)]
    assert [wheel.query(*hour) for hour in hours] == [10, None, 1]


def test_epoch_ints_that_leave_int64_in_microseconds_are_refused() -> None:
    with pytest.raises(tm.UserError, match="check the unit"):
        clock(unit="s").run(c=pa.table({"ts": [1 << 60], "v": [1]}))


def test_ints_where_durations_are_declared_are_refused() -> None:
    waits = tm.stream("w", time="t", schema={"t": "int64", "wait": "duration"})
    with pytest.raises(tm.UserError, match="give timedeltas"):
        waits.run(w=[{"t": 1, "wait": 90}])
    assert waits.run(w=[{"t": 1, "wait": timedelta(seconds=90)}])["wait"][0].as_py() == timedelta(seconds=90)


@pytest.mark.parametrize("unit", ["sec", "m", 1, {"v": "s"}, {"x": "s"}])
def test_units_that_are_none(unit: Any) -> None:
    with pytest.raises(tm.UserError, match=r"stream 'c'.*(unit=|column)"):
        clock(unit=unit)


@pytest.mark.parametrize("value", [Decimal(1_700_000_000), Fraction(17), np.array(17), 1.5, "17"], ids=repr)
def test_numbers_in_other_clothes_are_no_instants(value: Any) -> None:
    waits = tm.stream("w", time="t", schema={"t": "int64", "wait": "duration"})
    refusing = [clock()] if isinstance(value, float) else [clock(), clock(unit="s")]  # floats have units, too
    for query in refusing:
        with pytest.raises(tm.UserError, match="row 1"):
            query.run(c=[{"ts": value, "v": 1}])
    with pytest.raises(tm.UserError, match="row 1"):
        waits.run(w=[{"t": 1, "wait": value}])


def test_objects_of_pandas_are_read_as_dicts_are() -> None:
    def frame(*values: Any) -> pd.DataFrame:
        return pd.DataFrame({"ts": pd.Series(values, dtype=object), "v": range(len(values))})

    midnight = UTC_NOON - 12 * HOUR
    assert ticks(clock().run(c=frame(date(2026, 7, 1), NOON, None))) == [midnight, UTC_NOON, None]
    aware = NOON.replace(tzinfo=timezone.utc)
    assert ticks(clock(tz=BERLIN).run(c=frame(NOON, aware))) == [UTC_NOON - 2 * HOUR, UTC_NOON]
    for wrong in (1_700_000_000, 1.5, Decimal(5)):
        with pytest.raises(tm.UserError, match="row 2"):
            clock().run(c=frame(NOON, wrong))


@pytest.mark.parametrize(
    ("kind", "value"),
    [(pa.int64(), 1.5), (pa.timestamp("us", "UTC"), 2), (pa.duration("us"), 2), (pa.float64(), True)],
    ids=str,
)
def test_items_of_lists_are_as_strict_as_values(kind: pa.DataType, value: Any) -> None:
    stream = tm.stream("s", time="t", schema=pa.schema([("t", pa.int64()), ("l", pa.list_(kind))]))
    with pytest.raises(tm.UserError, match="row 2"):
        stream.run(s=[{"t": 1, "l": None}, {"t": 1, "l": [value]}])
    assert stream.run(s=[{"t": 1, "l": []}, {"t": 2, "l": None}])["l"].to_pylist() == [[], None]


def test_naive_times_in_lists_have_no_zone_to_be_given(spark: Any) -> None:
    times = pa.list_(pa.timestamp("us", "UTC"))
    stream = tm.stream("s", time="t", schema=pa.schema([("t", pa.int64()), ("l", times)]), tz=BERLIN)
    naive = pa.table({"t": [1], "l": pa.array([[NOON]], pa.list_(pa.timestamp("us")))})
    with pytest.raises(tm.UserError, match="inside 'l'"):
        stream.run(s=naive)
    with pytest.raises(tm.UserError, match="inside 'l'"):
        stream.on_spark(spark).run(
            s=spark.sql("SELECT bigint(1) AS t, array(timestamp_ntz'2026-07-01 12:00:00') AS l")
        )


def test_one_row_of_a_wheel_has_no_unit_and_no_zone() -> None:
    rings = ["1h", "1d"]
    wheel = tm.Wheel(tm.sum("v"), schema=CLOCK, time="ts", start="2026-07-01", granularities=rings)
    with pytest.raises(tm.UserError, match="a list of one dict"):
        wheel.insert(1_700_000_000, 5, unit="s")


# --- strings as arguments of aggregates -----------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (tm.count("v"), tm.count(col.v)),
        (tm.max("k"), tm.max(col.k)),
        (tm.distinct_count("k"), tm.distinct_count(col.k)),
        (tm.sum("v"), tm.sum(col.v)),
        (tm.var("v"), tm.var(col.v)),
        (tm.quantile("v", 0.25), tm.quantile(col.v, 0.25)),
        (tm.last("k"), tm.last(col.k)),
        (tm.arg_max("k", "v"), tm.arg_max(col.k, col.v)),
        (tm.sum_by("v", "k"), tm.sum_by(col.v, col.k)),
        (tm.top_keys("k", 2), tm.top_keys(col.k, 2)),
        (tm.distinct_sketch("k"), tm.distinct_sketch(col.k)),
        (tm.count_if("flag"), tm.count_if(col.flag)),
        (tm.any("flag"), tm.any(col.flag)),
        (tm.ewma("v", half_life=3), tm.ewma(col.v, half_life=3)),
    ],
    ids=str,
)
def test_a_string_names_the_column_that_an_aggregate_is_over(given: Any, meant: Any) -> None:
    assert str(given) == str(meant)
    assert given.args == meant.args and [p.args for p in given.parts] == [p.args for p in meant.parts]


def test_a_string_that_names_no_column_is_refused_and_a_constant_is_spelled_out() -> None:
    with pytest.raises(tm.UserError, match=r"expected a column of .*got 'price'"):
        STREAM.window(tm.tumbling(10)).agg(n=tm.count("price"))
    constant = STREAM.window(tm.tumbling(100, origin=-50)).agg(word=tm.max(tm.lit("v")))
    assert constant.run(s=ROWS)["word"].to_pylist() == ["v"]


@pytest.mark.parametrize("aggregate", [tm.sum, tm.mean, tm.var, tm.median])
def test_an_argument_that_the_user_casts_to_a_number_is_one(aggregate: Any) -> None:
    query = STREAM.window(tm.tumbling(10)).agg(v=aggregate(col.flag.cast("float64")))
    assert query.schema["v"].kind == "float64"


def test_a_string_names_a_column_of_an_aggregate_of_ones_own() -> None:
    total = tm.aggregate(
        "total", identity=lambda: 0, lift=lambda x: x, combine=lambda a, b: a + b, lower=lambda a: a
    )
    assert str(total("v")) == "total(col.v)"


# --- conditions that are the same for every row ---------------------------------------------------

PLAIN = {
    "parentheses forgotten": lambda: col.t.hour == 13,  # type: ignore[comparison-overlap]
    "is not None": lambda: col.v is not None,
    "a lambda with is not None": lambda: lambda e: e.v is not None,
    "a lambda with parentheses forgotten": lambda: lambda e: e.t.hour == 13,
    "True": lambda: True,
    "None": lambda: None,
    "1": lambda: 1,
    "a bool of NumPy": lambda: np.True_,
    "the name of a column": lambda: "flag",
    "half of it is plain": lambda: (col.v > 1) & (col.t.hour == 13),  # type: ignore[comparison-overlap]
    "the other half is plain": lambda: True | (col.v > 1),
    "not of a plain one": lambda: ~(col.t.hour == 13),  # type: ignore[operator]
    "== None": lambda: col.v == None,  # noqa: E711
    "!= None": lambda: col.v != None,  # noqa: E711
}
PLACES = {
    "where": lambda given: STREAM.where(given()),
    "when": lambda given: tm.when(given()),
    "when, again": lambda given: tm.when(col.flag).then(1).when(given()),
    "count_if": lambda given: tm.count_if(given()),
    "any": lambda given: tm.any(given()),
    "all": lambda given: tm.all(given()),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("case", PLAIN)
@pytest.mark.filterwarnings("ignore:Bitwise inversion:DeprecationWarning")
def test_a_condition_that_is_a_plain_python_value_is_refused(case: str, place: str) -> None:
    if case == "the name of a column" and place in ("count_if", "any", "all"):
        return  # a string names the column there, as in every aggregate
    with pytest.raises(tm.UserError) as caught:
        PLACES[place](PLAIN[case])
    said = str(caught.value)
    assert "hour() == 13" in said or "is_null()" in said or "col.flag" in said


def test_a_constant_condition_can_be_spelled_out() -> None:
    assert STREAM.where(tm.lit(True)).run(s=ROWS).num_rows == len(ROWS)
    assert STREAM.where(lambda e: tm.lit(False)).run(s=ROWS).num_rows == 0


def test_a_method_without_its_parentheses_is_named() -> None:
    with pytest.raises(tm.UserError, match=r"parentheses: col\.t\.hour\(\)"):
        STREAM.select(h=col.t.hour)
    with pytest.raises(tm.UserError, match=r"parentheses: col\.v\.is_null\(\)"):
        STREAM.where(col.v.is_null)


def test_computed_columns_that_are_a_plain_bool_are_refused() -> None:
    for wrong in (lambda: STREAM.with_columns(noon=col.t.hour == 12), lambda: STREAM.select(x=col.v is None),  # type: ignore[comparison-overlap]
                  lambda: STREAM.group_by(x=lambda e: e.v is None)):  # fmt: skip
        with pytest.raises(tm.UserError, match="the same for every row"):
            wrong()
    with pytest.raises(tm.UserError, match=r"\['red'\]"):
        col.k.is_in("red")
    for compare in (lambda: col.v.between(None, 5), lambda: col.v < None, lambda: col.v >= None):
        with pytest.raises(tm.UserError, match="is_null"):
            compare()


def test_a_condition_that_is_null_keeps_nothing(spark: Any) -> None:
    query = STREAM.where(tm.lit(None))
    for rows in (by_reference(query, ROWS), locally(query, ROWS), on_spark(spark, query, ROWS)):
        assert rows == []


def test_columns_named_as_patterns_of_polars_or_as_self() -> None:
    schema = {"t": "int64", "*": "int64", "^v$": "int64", "self": "int64"}
    rows = [{"t": 1, "*": 2, "^v$": 3, "self": 4}]
    stream = tm.stream("s", time="t", schema=schema)
    assert stream.run(s=polars.DataFrame(rows)).to_pylist() == rows
    assert stream.run(s=polars.DataFrame(rows).lazy()).to_pylist() == rows
    asked = stream.group_by("self").window(tm.tumbling(10)).agg(n=tm.count())
    assert asked.run(s=rows)["self"].to_pylist() == [4]
    assert stream.window(tm.tumbling(10)).agg(self=tm.sum("*")).run(s=rows)["self"].to_pylist() == [2]


def test_an_aggregate_of_a_plain_bool_is_refused() -> None:
    with pytest.raises(tm.UserError, match="is_not_null"):
        tm.count(col.v is not None)  # type: ignore[arg-type]


# --- origin aligns, start bounds ------------------------------------------------------------------

BOUNDS = {
    "origin in mid-data": [tm.tumbling(10, origin=5)],
    "origin after all data": [tm.hopping(12, every=4, origin=1003)],
    "start on the grid": [tm.tumbling(10, start=10)],
    "start in a window": [tm.hopping(12, every=4, start=6)],
    "origin and start": [tm.hopping(7, every=3, origin=2, start=-1)],
    "start between samples": [tm.hopping(3, every=10, start=12, fill_empty=True)],
    "several starts": [tm.tumbling(8, start=6), tm.hopping(12, every=4, start=2), tm.landmark(5, start=3)],
    "one with a start": [tm.tumbling(6), tm.tumbling(4, start=7)],
    "a start after all data": [tm.tumbling(10, start=100)],
    "landmark": [tm.landmark(8, start=3)],
}


def bounded(case: str) -> tm.Stream:
    named = {f"w{i}": w for i, w in enumerate(BOUNDS[case])}
    return STREAM.group_by("k").window(**named).agg(n=tm.count(), v=tm.sum("v"))


@pytest.mark.parametrize("case", BOUNDS)
def test_origin_aligns_and_start_bounds(case: str) -> None:
    query = bounded(case)
    assert_same(locally(query, ROWS), by_reference(query, ROWS), query.schema)


@pytest.mark.parametrize("case", ["several starts", *later("start in a window", "start on the grid")])
def test_origin_aligns_and_start_bounds_on_spark(spark: Any, case: str) -> None:
    query = bounded(case)
    assert_same(on_spark(spark, query, ROWS), by_reference(query, ROWS), query.schema)


def test_an_origin_in_mid_data_drops_no_row() -> None:
    query = STREAM.window(tm.tumbling(10, origin=5)).agg(n=tm.count())
    assert sum(query.run(s=ROWS)["n"].to_pylist()) == len(ROWS)


def test_a_window_is_cut_off_at_the_start() -> None:
    query = STREAM.window(tm.tumbling(10, start=6)).agg(n=tm.count())
    first = min(query.run(s=ROWS).to_pylist(), key=lambda row: row["window_start"])
    assert (first["window_start"], first["window_end"], first["n"]) == (6, 10, 4)


def test_rows_before_the_start_are_counted_and_readable_on_every_engine(spark: Any) -> None:
    query = STREAM.where(col.v > -5).window(tm.hopping(8, every=4, start=6), tm.tumbling(8, start=9)).agg(
        n=tm.count()
    )
    left = query.left_out()
    expected = [r for r in ROWS if r["v"] is not None and r["v"] > -5 and r["t"] < 6]
    assert len(expected) > 5
    for rows in (by_reference(left, ROWS), locally(left, ROWS), on_spark(spark, left, ROWS)):
        assert_same(rows, expected, left.schema)
    found = query.run(s=ROWS).schema.metadata
    assert found == {b"tidemill.before_start": str(len(expected)).encode()}
    assert left.on_spark(spark).run(s=spark.createDataFrame(ROWS, _spark_schema())).count() == len(expected)


def _spark_schema() -> str:
    return "t bigint, k string, v bigint, flag boolean"


def test_queries_without_a_start_leave_nothing_out() -> None:
    for window in (tm.tumbling(5, origin=3), tm.session(3), tm.rows(3, every=1)):
        assert STREAM.window(window).agg(n=tm.count()).left_out().run(s=ROWS).num_rows == 0
    with pytest.raises(tm.UserError, match="a query with windows"):
        STREAM.left_out()


# --- rows follow the keys -------------------------------------------------------------------------


def test_rows_after_group_by_are_counted_by_key(spark: Any) -> None:
    by_key = STREAM.group_by("k").window(tm.rows(4, every=4, order_by="t")).agg(n=tm.count(), v=tm.max("t"))
    for rows in (by_reference(by_key, ROWS), locally(by_key, ROWS), on_spark(spark, by_key, ROWS)):
        full = [r for r in rows if r["window_end"] <= 12]
        assert len(full) == 6 and {r["n"] for r in full} == {4}
    assert_same(locally(by_key, ROWS), by_reference(by_key, ROWS), by_key.schema)


def test_rows_of_the_whole_stream_are_asked_for_with_an_empty_partition() -> None:
    whole = STREAM.group_by("k").window(tm.rows(4, every=4, partition_by=[])).agg(n=tm.count())
    rows = locally(whole, ROWS)
    assert {r["n"] for r in rows if r["window_end"] <= 28} == {2}
    assert_same(rows, by_reference(whole, ROWS), whole.schema)


# --- naive times ----------------------------------------------------------------------------------

BERLIN = "Europe/Berlin"
UTC_NOON = int(NOON.replace(tzinfo=timezone.utc).timestamp()) * 1_000_000
HOUR = 3_600_000_000


def naive_sources(tmp_path: Path, *times: datetime) -> dict[str, Any]:
    table = pa.table({"ts": pa.array(times, pa.timestamp("us")), "v": list(range(len(times)))})
    (tmp_path / "a.csv").write_text("ts,v\n" + "".join(f"{t.isoformat()},{i}\n" for i, t in enumerate(times)))
    (tmp_path / "a.jsonl").write_text(
        "".join(f'{{"ts": "{t.isoformat()}", "v": {i}}}\n' for i, t in enumerate(times))
    )
    pq.write_table(table, tmp_path / "a.parquet")
    return {
        "arrow": table, "nanoseconds": table.set_column(0, "ts", table["ts"].cast(pa.timestamp("ns"))),
        "pandas": table.to_pandas(), "dicts": table.to_pylist(),
        **{end: tmp_path / f"a.{end}" for end in ("csv", "jsonl", "parquet")},
    }  # fmt: skip


@pytest.mark.parametrize(("tz", "shift"), [(None, 0), ("UTC", 0), (BERLIN, -2), ("America/New_York", 4)])
def test_naive_times_are_utc_or_of_the_zone_of_the_stream(
    spark: Any, tmp_path: Path, tz: str | None, shift: int
) -> None:
    query, expected = clock(tz=tz), [UTC_NOON + shift * HOUR]
    found = {n: ticks(query.run(c=data)) for n, data in naive_sources(tmp_path, NOON).items()}
    assert found == dict.fromkeys(found, expected)
    naive = spark.sql("SELECT timestamp_ntz'2026-07-01 12:00:00' AS ts, bigint(1) AS v")
    [row] = query.on_spark(spark).run(c=naive).selectExpr("unix_micros(ts)").collect()
    assert [row[0]] == expected  # whatever the zone of the session


def test_times_that_say_their_zone_keep_it(tmp_path: Path) -> None:
    aware = NOON.replace(tzinfo=timezone(timedelta(hours=5)))
    rows = [{"ts": aware, "v": 1}, {"ts": NOON, "v": 2}, {"ts": date(2026, 7, 1), "v": 3}]
    expected = [UTC_NOON - 5 * HOUR, UTC_NOON - 2 * HOUR, UTC_NOON - 14 * HOUR]
    assert ticks(clock(tz=BERLIN).run(c=rows)) == expected
    lines = ["ts,v", "2026-07-01T12:00:00+05:00,1", "2026-07-01T12:00:00,2", "2026-07-01,3"]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    assert ticks(clock(tz=BERLIN).run(c=tmp_path / "a.csv")) == expected


@pytest.mark.parametrize("unit", ["D", "h", "s", "ms", "us", "ns"])
def test_times_of_numpy_are_of_the_zone_of_the_stream(unit: str) -> None:
    day = np.datetime64("2026-07-01T00", unit)
    rows = [{"ts": day, "v": 1}, {"ts": np.datetime64("NaT"), "v": 2}]
    assert ticks(clock(tz=BERLIN).run(c=rows)) == [UTC_NOON - 14 * HOUR, None]
    assert ticks(clock().run(c=rows)) == [UTC_NOON - 12 * HOUR, None]


def test_a_time_that_a_zone_has_twice_is_the_earlier_and_one_that_it_skips_is_refused(
    spark: Any, tmp_path: Path
) -> None:
    twice, skipped = datetime(2026, 10, 25, 2, 30), datetime(2026, 3, 29, 2, 30)
    query = clock(tz=BERLIN)
    expected = [int(twice.replace(tzinfo=timezone.utc).timestamp()) * 1_000_000 - 2 * HOUR]
    for data in naive_sources(tmp_path, twice).values():
        assert ticks(query.run(c=data)) == expected
    for data in naive_sources(tmp_path, skipped).values():
        with pytest.raises(tm.UserError, match=BERLIN):
            query.run(c=data)
    frame = "SELECT timestamp_ntz'{}' AS ts, bigint(1) AS v"
    micros = query.on_spark(spark).run(c=spark.sql(frame.format(twice))).selectExpr("unix_micros(ts)")
    assert [r[0] for r in micros.collect()] == expected
    with pytest.raises(Exception, match=BERLIN):
        query.on_spark(spark).run(c=spark.sql(frame.format(skipped))).collect()


def test_text_that_spark_read_in_the_zone_of_the_session_is_told_of(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts,v\n2026-07-01T12:00:00,1\n")
    read = spark.read.schema("ts timestamp, v bigint").option("header", True)
    with pytest.warns(UserWarning, match=r"run c: Spark read ts from csv.*America/New_York.*tz="):
        clock().on_spark(spark).run(c=read.csv(str(tmp_path)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clock(tz="America/New_York").on_spark(spark).run(c=read.csv(str(tmp_path)))
        [row] = (
            clock().on_spark(spark).run(c=read.option("timeZone", "UTC").csv(str(tmp_path)))
            .selectExpr("unix_micros(ts)").collect()
        )  # fmt: skip
    assert row[0] == UTC_NOON


def test_zones_that_are_none() -> None:
    with pytest.raises(tm.UserError, match="tz= to name a time zone"):
        clock(tz="Mars/Olympus")
