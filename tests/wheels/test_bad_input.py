"""Bad input of wheels: what docs/wheels.md says under Rules, and messages that say what to do."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import tidemill as tm
from tests.conformance.wheels import tuned
from tidemill import col
from tidemill.core.checksums import CHECKSUM, checksum
from tidemill.core.errors import UnsupportedError, UserError
from tidemill.core.time import FARTHEST

SCHEMA = {"ts": "timestamp", "k": "string", "v": "int64", "f": "float64"}
START = 1_696_118_400_000_000
A, B = "2023-10-01", "2023-10-01T00:01"
US = pa.timestamp("us", "UTC")


def keyed(**options: Any) -> Any:
    given: dict[str, Any] = {"schema": SCHEMA, "time": "ts", "keys": "k", "start": A, "retention": "keep"}
    aggregates = {"total": tm.sum(col.v), "most": tm.max(col.f)}
    return tm.Wheel(aggregates, **(given | options))


def logical(**options: Any) -> Any:
    """Slots of 10, which are dropped after one of 100, which are kept."""
    given: dict[str, Any] = {
        "schema": {"t": "int64", "v": "int64"}, "time": "t", "start": -1000,
        "granularities": [(10, "drop"), (100, "keep")],
    }  # fmt: skip
    return tm.Wheel(tm.sum(col.v), **(given | options))


def table(**columns: Any) -> pa.Table:
    """Two rows of one second; None leaves a column out."""
    given = {"ts": pa.array([START, START + 1], US), "k": ["a", "b"], "v": [1, 2], "f": [1.0, 2.0]}
    return pa.table({n: c for n, c in (given | columns).items() if c is not None})


def filled(*tables: pa.Table) -> Any:
    wheel = keyed()
    for rows in tables or (table(),):
        wheel.insert(rows)
    wheel.advance_to(B)
    return wheel


def dropped() -> Any:
    wheel = logical()
    for t in (-5, 5, 15, 95):
        wheel.insert(t, 1)
    wheel.advance_to(2000)
    return wheel


@pytest.fixture(scope="module")
def clock() -> Any:
    return filled()


@pytest.fixture(scope="module")
def ints() -> Any:
    return dropped()


def refused(act: Callable[[], Any], *parts: str) -> None:
    with pytest.raises((UserError, UnsupportedError)) as caught:
        act()
    assert all(part in str(caught.value) for part in parts), str(caught.value)


# -- rows


@pytest.mark.parametrize(
    ("columns", "total", "most"),
    [
        ({}, [1, 2], [1.0, 2.0]),
        ({"more": [1, 2]}, [1, 2], [1.0, 2.0]),
        ({"v": pa.array([1, 2], pa.int32())}, [1, 2], [1.0, 2.0]),
        ({"v": pa.array([None, 2], pa.int64())}, [None, 2], [1.0, 2.0]),
        ({"v": pa.nulls(2)}, [None, None], [1.0, 2.0]),
        ({"f": pa.array([1, 2], pa.float32())}, [1, 2], [1.0, 2.0]),
        ({"ts": pa.array([START // 1000] * 2, pa.timestamp("ms"))}, [1, 2], [1.0, 2.0]),
        ({"ts": pa.array([START * 1000] * 2, pa.timestamp("ns"))}, [1, 2], [1.0, 2.0]),
        ({"ts": pa.array([START] * 2, pa.timestamp("us", "Europe/Berlin"))}, [1, 2], [1.0, 2.0]),
        ({"k": pa.array(["a", "b"]).dictionary_encode()}, [1, 2], [1.0, 2.0]),
    ],
    ids=["as it is", "more", "int32", "null", "only nulls", "float32", "ms", "ns", "zone", "dictionary"],
)  # fmt: skip
def test_rows_that_fit(columns: dict[str, Any], total: list[Any], most: list[Any]) -> None:
    found = filled(table(**columns)).landmark()
    assert found["total"].to_pylist() == total and found["most"].to_pylist() == most


@pytest.mark.parametrize(
    ("columns", "parts"),
    [
        ({"v": None}, ["'v' of int64", "['ts', 'k', 'f']"]),
        ({"v": [1.5, 2.0]}, ["'v' of type int64", "double"]),
        ({"v": ["1", "2"]}, ["'v' of type int64", "string"]),
        ({"v": pa.array([1 << 63, 2], pa.uint64())}, ["'v' to fit int64"]),
        ({"ts": [START, START]}, ["'ts', or the unit of its numbers", "int64"]),
        ({"ts": [A, A]}, ["'ts', or the format of its text", "string"]),
        ({"ts": pa.array([1 << 60] * 2, pa.timestamp("s"))}, ["'ts' to fit timestamp"]),
    ],
    ids=["missing", "float", "text", "too large", "int for time", "text for time", "far seconds"],
)
def test_rows_that_do_not_fit_are_refused_together(columns: dict[str, Any], parts: list[str]) -> None:
    wheel = keyed()
    refused(lambda: wheel.insert(table(**columns)), "insert:", *parts)
    assert wheel.stats()["rows"] == 0


def test_nan_is_a_value_and_null_is_none() -> None:
    wheel = filled(table(f=[float("nan"), 2.0], k=["a", "a"]))
    assert np.isnan(wheel.query(A, B, "a")["most"])
    assert filled(table(f=pa.array([None, 2.0]), k=["a", "a"])).query(A, B, "a")["most"] == 2.0


@pytest.mark.parametrize(
    "nothing", [table().slice(0, 0), table().to_batches()[0].slice(0, 0), []], ids=["table", "batch", "list"]
)
def test_no_rows_change_nothing(nothing: Any) -> None:
    wheel = keyed()
    wheel.insert(nothing)
    assert wheel.stats()["rows"] == 0 and wheel.stats()["keys"] == 0


@pytest.mark.parametrize("far", [FARTHEST + 1, (1 << 63) - 1, -FARTHEST - 1, -(1 << 63)])
def test_times_out_of_range_are_left_out_and_counted(far: int) -> None:
    wheel = filled(table(ts=pa.array([far, START], US)))
    assert wheel.stats()["left out"] == {"late": 0, "null time": 0, "time out of range": 1}
    assert wheel.landmark().to_pylist() == [{"k": "b", "total": 2, "most": 2.0}]
    wheel.insert(far * 4, {"v": 1}, "a")
    assert wheel.stats()["left out"]["time out of range"] == 2


def test_null_times_are_left_out_and_counted() -> None:
    wheel = filled(table(ts=pa.array([None, START], US)))
    assert wheel.stats()["left out"]["null time"] == 1 and wheel.stats()["rows"] == 1


def test_rows_before_1970_are_rows_like_others() -> None:
    wheel = dropped()
    assert wheel.query(-100, 0) == 1 and wheel.stats()["left out"]["late"] == 0
    wheel.insert(-5, 1)
    assert wheel.stats()["left out"]["late"] == 1 and wheel.late()["t"].to_pylist() == [-5]


ROW = {"v": 1, "f": 1.0}
ROWS: dict[str, tuple[Any, list[str]]] = {
    "text for a number": ((A, {"v": "x"}, "a"), ["'v' of int64", "'x' (str)"]),
    "a part of an int": ((A, {"v": 1.5}, "a"), ["'v' of int64", "1.5"]),
    "an int too large": ((A, {"v": 1 << 64}, "a"), ["'v' of int64", "18446744073709551616"]),
    "an unknown column": ((A, {"v": 1, "fare": 1}, "a"), ["['v', 'f']", "'fare'"]),
    "the time again": ((A, {"v": 1, "ts": A}, "a"), ["['v', 'f']"]),
    "no values": ((A, None, "a"), ["a dict of values for ['v', 'f']", "None"]),
    "no key": ((A, ROW), ["a key for ['k']", "none"]),
    "two keys": ((A, ROW, ("a", "b")), ["a key for ['k']"]),
    "a key of another type": ((A, ROW, 7), ["'k' of string", "7 (int)"]),
    "a bool for a time": ((True, ROW, "a"), ["an instant", "True"]),
    "no time": ((pd.NaT, ROW, "a"), ["an instant", "NaT"]),
    "a float for a time": ((1.5,), ["a pyarrow Table", "float"]),
    "a dict of columns": (({"ts": [A]},), ["pyarrow.table(...)"]),
    "nothing": ((None,), ["NoneType"]),
    "text for an instant in dicts": (([{"ts": "soon", "k": "a", **ROW}],), ["row 1", "'soon'"]),
    "a column missing in dicts": (([{"ts": datetime(2023, 10, 1)}],), ["row 1", "'k' of string"]),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_that_are_none(name: str) -> None:
    arguments, parts = ROWS[name]
    wheel = keyed()
    refused(lambda: wheel.insert(*arguments), "insert", *parts)
    assert wheel.stats()["rows"] == 0


def test_a_key_where_there_are_none() -> None:
    refused(lambda: logical().insert(5, 1, "a"), "no key: the wheel has no keys", "'a'")


@pytest.mark.parametrize(
    "time",
    [A, START, np.int64(START), datetime(2023, 10, 1),
     datetime(2023, 10, 1, 2, tzinfo=timezone(timedelta(hours=2))),
     pd.Timestamp(A), pd.Timestamp(A, tz="UTC"), np.datetime64(A)],
    ids=["text", "int", "int64", "naive", "aware", "pandas", "pandas with a zone", "numpy"],
)  # fmt: skip
def test_instants_of_any_kind(time: Any, clock: Any) -> None:
    wheel = keyed()
    wheel.insert(time, ROW, "a")
    wheel.advance_to(B)
    assert wheel.query(time, B, "a")["total"] == 1
    assert clock.query([time], [B], "a")["total"].to_pylist() == [1]


# -- bounds


BOUNDS: dict[str, tuple[Any, Any, list[str]]] = {
    "an end before the start": (B, A, ["an end at or after the start"]),
    "off the grid": (f"{A}T00:00:00.5", B, ["grid of 1s", "00:00:00.5", "round them"]),
    "a bool": (True, B, ["an instant", "True"]),
    "a float": (1.5, B, ["an instant", "1.5 (float)"]),
    "a float for an end": (A, 1.5, ["1.5 (float)"]),
    "none": (None, B, ["an instant", "NoneType"]),
    "a date": (date(2023, 10, 1), B, ["an instant", "datetime.date"]),
    "NaT": (pd.NaT, B, ["an instant", "NaT"]),
    "nanoseconds": (pd.Timestamp(START * 1000 + 1), B, ["whole microseconds"]),
    "no instant": ("soon", B, ["an ISO instant", "'soon'"]),
    "beyond int64": (-(10**30), 10**30, ["2**61"]),
    "too far": (0, 10**6 << 43, ["2**61"]),
    "an array for an end": (A, [B], ["a datetime, ISO text or int"]),
    "many, one end": ([A, A], B, ["as many ends as starts", B]),
    "many, fewer ends": ([A, A], [B], ["as many ends as starts", "2 starts, 1 ends"]),
    "many, an end before": ([B], [A], ["an end before its start"]),
    "many, off the grid": ([A, f"{A}T00:00:00.5"], [B, B], ["grid of 1s", "at place 1"]),
    "many, null": ([A, None], [B, B], ["None"]),
    "many, null in Arrow": (pa.array([START, None], US), [B, B], ["None"]),
    "many, null in pandas": (pd.DatetimeIndex([A, None]), [B, B], ["NaT at place 1"]),
    "many floats": (np.array([1.5]), [B], ["1.5"]),
    "many, no instant": ([A, "soon"], [B, B], ["'soon'"]),
    "many, nanoseconds": (np.array([START * 1000 + 1], "M8[ns]"), [B], ["whole microseconds"]),
    "many, beyond int64": (np.array([1 << 63], np.uint64), [B], ["2**61", "at place 0"]),
    "many in a square": (np.zeros((2, 2), np.int64), [B, B], ["one dimension"]),
    "a generator": ((x for x in [A]), [B], ["an instant, or a list", "generator"]),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds(name: str, clock: Any) -> None:
    start, end, parts = BOUNDS[name]
    refused(lambda: clock.query(start, end, "a"), "query:", *parts)


@pytest.mark.parametrize(
    "bounds",
    [(pa.array([START // 1000], pa.timestamp("ms")), pa.array([B])),
     (pd.Series([pd.Timestamp(A, tz="UTC")]), [B]),
     (np.array([A], "M8[D]"), np.array([B], "M8[s]")), ([START], [START + 60_000_000])],
    ids=["arrow", "pandas", "numpy", "ints"],
)  # fmt: skip
def test_many_bounds_in_any_unit(bounds: Any, clock: Any) -> None:
    assert clock.query(*bounds, "a")["total"].to_pylist() == [1]


@pytest.mark.parametrize(
    "bounds", [(A, B), (np.array([0], "M8[us]"), [10]), (pa.array([0], US), [10])],
    ids=["text", "numpy", "arrow"],
)
def test_clock_and_logical_time_never_mix(bounds: Any, ints: Any) -> None:
    refused(lambda: ints.query(*bounds), "of logical time")


def test_what_was_dropped_is_refused(ints: Any) -> None:
    refused(lambda: ints.query(10, 90), "rings still hold: 10 since 1900, 100 since", "coarser grid")
    refused(lambda: ints.query([0, 10], [100, 90]), "[10, 90)")
    assert ints.query(0, 100) == 3 and ints.landmark() == 4


def test_ranges_outside_of_what_was_seen_are_empty(clock: Any) -> None:
    assert clock.query("1960-01-01", "1970-01-01", "a") == {"total": None, "most": None}
    assert clock.query("2100-01-01", "2200-01-01", "a") == {"total": None, "most": None}
    assert clock.query(A, A, "a") == {"total": None, "most": None}


def test_keys_of_queries(clock: Any, ints: Any) -> None:
    nothing = {"total": None, "most": None}
    assert clock.query(A, B, "never seen") == nothing and clock.query(A, B, None) == nothing
    refused(lambda: clock.query(A, B, 7), "k: string", "7")
    refused(lambda: clock.query(A, B, ["a", 7]), "k: string")
    refused(lambda: clock.query(A, B, ("a", "b")), "a key for ['k']", "2 values")
    refused(lambda: clock.query([A], [B]), "a key, or a list with a key for each range")
    refused(lambda: clock.query([A], [B], ["a", "b"]), "a key for each of 1 ranges", "2 keys")
    refused(lambda: ints.query(0, 100, "a"), "query: expected no key: the wheel has no keys")


def test_keys_are_counted_when_they_come() -> None:
    wheel = keyed()
    wheel.insert(table())
    assert wheel.stats()["keys"] == 2 and tm.Replicas([wheel]).stats()["keys"] == 2
    wheel.advance_to(B)
    assert wheel.stats()["keys"] == 2
    wheel.insert("2023-10-01T00:02", {"v": 1}, None)
    assert wheel.stats()["keys"] == 3 and tm.Replicas([wheel]).stats()["keys"] == 3
    texts = keyed(schema=SCHEMA, keys=["k"])
    objects = tm.Wheel(tm.collect(col.v), schema=SCHEMA, time="ts", keys="k", start=A)
    for one in (texts, objects):
        one.insert(table(k=["a", "a"]))
        assert one.stats()["keys"] == 1


def test_what_a_wheel_cannot_be_made_of_or_asked_for() -> None:
    refused(lambda: logical(time="q"), "Wheel time=: expected a column of ['t', 'v'], got 'q'")
    refused(lambda: logical(schema={"t": "string", "v": "int64"}), "Wheel time=: ", "got string")
    refused(lambda: tm.Wheel({}, schema=SCHEMA, time="ts", start=A), "wheel: expected at least one aggregate")
    refused(lambda: filled().query(A, B, "a", aggregates={}), "query: expected at least one aggregate")
    refused(lambda: filled().query(A, B, "a", aggregates=tm.mean(col.v)), "holds count(col.v), too")
    refused(lambda: filled().query(A, B, "a", aggregates=tm.var(col.f)), "holds var(col.f, ddof=1), too")
    with pytest.raises(UnsupportedError, match=r"windows with quantile\(col.v, q=0.5\)"):
        tm.Wheel(tm.median(col.v), schema=SCHEMA, time="ts", start=A, windows=[tm.tumbling("1m")])


def test_wheels_that_differ_say_in_what() -> None:
    refused(lambda: tm.Replicas([logical(), logical(prefix=True)]), "with prefix False, got prefix True")
    refused(lambda: logical().merge(logical(write_ahead=8)), "with write_ahead 64, got write_ahead 8")
    refused(
        lambda: logical().merge(logical(granularities=[(10, "keep"), (100, "keep")])),
        "rings 10 (keeps 10), 100 (keeps all), got rings 10 (keeps all), 100 (keeps all)",
    )
    gaps = tm.session(20)
    refused(lambda: logical(windows=gaps).merge(logical()), "the same windows, session(20), got none")
    refused(lambda: tm.Replicas([logical(windows=gaps), logical()]), "with sessions yes, got sessions no")


def test_a_wheel_in_a_union_below_windows() -> None:
    columns = {"t": "int64", "v": "int64"}
    a, b = (tm.stream(n, time="t", schema=columns) for n in "ab")
    below = a.union(b).window(tm.tumbling(10)).agg(n=tm.sum(col.v))
    refused(lambda: below.run(a=logical(), b=[]), "a union below the windows", "the union above them")
    each = [s.window(tm.tumbling(10)).agg(n=tm.sum(col.v)) for s in (a, b)]
    assert each[0].union(each[1]).run(a=logical(), b=[{"t": 1, "v": 2}]).num_rows == 1
    refused(lambda: each[0].left_out().run(a=logical()), "a wheel holds no rows")


def test_lengths_and_series(clock: Any) -> None:
    for length in ("soon", "-5s", 5, "0s", "1500ms"):
        refused(lambda length=length: clock.latest(length, "a"), "latest:")
    refused(lambda: clock.group_by(A, B, "0s", "a"), "group_by:", "a multiple of 1s")
    refused(lambda: clock.group_by("1000-01-01", "9000-01-01", "1s", "a"), "at most 50,000,000 rows")


# -- time


def test_the_watermark_never_moves_back() -> None:
    wheel = filled()
    before = wheel.watermark
    wheel.advance_to("2020-01-01")
    assert wheel.watermark == before


@pytest.mark.parametrize("time", [True, 1.5, None, pd.NaT, date(2023, 10, 2), "soon", 1 << 62], ids=str)
def test_watermarks_that_are_none(time: Any, clock: Any) -> None:
    refused(lambda: clock.advance_to(time), "advance_to:")


def test_a_step_that_would_take_all_memory_is_refused() -> None:
    wheel = tuned(keyed(compress=True), most_bytes=100_000_000_000)
    wheel.insert(table())
    wheel.advance_to(B)
    before = wheel.watermark
    refused(lambda: wheel.advance_to("3000-01-01"), "at most 100 GB", "up to 3000-01-01", "keep a number")
    assert wheel.watermark == before and wheel.landmark().num_rows == 2
    wheel.advance_to("2023-10-02")
    assert wheel.watermark == datetime(2023, 10, 2, tzinfo=timezone.utc)


def test_a_watermark_after_the_year_9999_is_shown_in_ticks() -> None:
    wheel = keyed(granularities=["1000d"], retention="drop")
    wheel.advance_to(1 << 60)
    assert isinstance(wheel.watermark, int) and "watermark 11" in repr(wheel)


# -- making one


CREATED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "no open slots": ({"write_ahead": 0}, ["write_ahead from 1", "0"]),
    "a bool of open slots": ({"write_ahead": True}, ["write_ahead from 1", "True"]),
    "a part of a slot": ({"write_ahead": 1.5}, ["write_ahead from 1", "1.5"]),
    "too many open slots": ({"write_ahead": 1 << 40}, ["write_ahead from 1"]),
    "prefix of a maximum": ({"prefix": True}, ["prefix=True only where aggregates subtract"]),
    "prefix that is text": ({"prefix": "yes"}, ["prefix=True or False", "'yes'"]),
    "a negative threshold": ({"one_ring_below": -1}, ["one_ring_below from 0"]),
    "an unknown key": ({"keys": "zone"}, ["'zone'"]),
    "a key twice": ({"keys": ["k", "k"]}, ["each key once"]),
    "keys that are none": ({"keys": 7}, ["keys: the name of a column", "7"]),
    "no such time": ({"time": "when"}, ["'when'"]),
    "a time of text": ({"time": "k"}, ["'k' of type timestamp"]),
    "no time": ({"time": None}, ["None"]),
    "no schema": ({"schema": 7}, ["a dict of names to types"]),
    "no start": ({"start": None}, ["wheel start", "None"]),
    "a start that is a float": ({"start": 1.5}, ["wheel start", "1.5"]),
    "a start too far away": ({"start": 1 << 62}, ["wheel start", "2**61"]),
    "granularities that do not divide": ({"granularities": ["10s", "25s"]}, ["a multiple", "25s after 10s"]),
    "coarse before fine": ({"granularities": ["1m", "1s"]}, ["a multiple", "finest first"]),
    "no granularity": ({"granularities": []}, ["1 to 24 granularities"]),
    "one granularity as text": ({"granularities": "1s"}, ["a list of granularities", "'1s'"]),
    "granularities of both times": ({"granularities": ["1s", 60]}, ["all in clock time, or all in logical"]),
    "logical granularities": ({"granularities": [1, 60]}, ["never mix"]),
    "a granularity of nothing": ({"granularities": ["0s"]}, ["above zero"]),
    "too much about a ring": ({"granularities": [("1s", "keep", 3)]}, ["pairs of a granularity"]),
    "an unknown retention": ({"retention": "forever"}, ['"drop", "keep" or a number', "'forever'"]),
    "a retention of nothing": ({"retention": 0}, ['"drop", "keep" or a number', "0"]),
    "too short a retention": ({"retention": 3}, ["at least 60 slots of 1s", "3"]),
    "a window off the grid": ({"windows": [tm.tumbling("1500ms")]}, ["on the grid of 1s"]),
}


@pytest.mark.parametrize("name", CREATED)
def test_creating(name: str) -> None:
    options, parts = CREATED[name]
    refused(lambda: keyed(**options), *parts)


@pytest.mark.parametrize("aggregates", [None, col.v, [tm.sum(col.v)], {}], ids=str)
def test_aggregates_that_are_none(aggregates: Any) -> None:
    refused(lambda: tm.Wheel(aggregates, schema=SCHEMA, time="ts", start=A), "aggregate")


def test_merging_with_something_else() -> None:
    refused(lambda: logical().merge(None), "wheel merge", "None")
    refused(lambda: logical().merge(keyed()), "wheel merge", "must be equal")


# -- directories


def test_a_directory_with_other_files_is_not_shared(tmp_path: Path) -> None:
    logical().save(tmp_path)
    refused(lambda: logical().share(tmp_path), "an empty directory", "nothing was touched")
    assert tm.open_wheel(tmp_path).landmark() is None


def test_nothing_is_saved_where_a_wheel_is_shared(tmp_path: Path) -> None:
    wheel = logical()
    wheel.share(tmp_path)
    refused(lambda: wheel.save(tmp_path), "a directory that is not shared")


def test_a_directory_without_a_wheel(tmp_path: Path) -> None:
    refused(lambda: tm.open_wheel(tmp_path), "a wheel in", "no manifest")


@pytest.mark.parametrize("below", ["", "wheel"])
def test_a_file_is_no_directory(below: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    path = tmp_path / "file" / below
    refused(lambda: logical().save(path), "save wheel:", f"a directory at {path}", "name a directory")
    refused(lambda: logical().share(path), "share wheel:", f"a directory at {path}", "name a directory")
    refused(lambda: tm.open_wheel(path), "open wheel:", f"a wheel in {path}", "no manifest")
    assert (tmp_path / "file").read_text() == "mine"


def saved_twice(path: Path) -> tuple[Path, dict[str, Any]]:
    """The manifest of the newer of two saves, and what it says."""
    wheel = keyed()
    wheel.save(path)
    wheel.save(path)
    file = path / "manifest-000002.json"
    return file, json.loads(file.read_text())


def test_a_manifest_that_lacks_something_is_named(tmp_path: Path) -> None:
    file, manifest = saved_twice(tmp_path)

    def write(facts: dict[str, Any]) -> None:
        """With a right checksum, if any: otherwise nothing else is said of it."""
        sealed = {CHECKSUM: checksum(facts)} if CHECKSUM in facts else {}
        file.write_text(json.dumps({**facts, **sealed}))

    for lost in manifest:
        write({n: v for n, v in manifest.items() if n != lost})
        refused(lambda: tm.open_wheel(tmp_path), file.name, repr(lost), "save=1) is the save before")
    for table, facts in manifest["files"].items():
        others = {n: f for n, f in manifest["files"].items() if n != table}
        write({**manifest, "files": others})
        refused(lambda: tm.open_wheel(tmp_path), file.name, repr(table))
        for lost in facts:
            rest = {n: f for n, f in facts.items() if n != lost}
            write({**manifest, "files": {**others, table: rest}})
            refused(lambda: tm.open_wheel(tmp_path), file.name, repr(lost))
    assert tm.open_wheel(tmp_path, save=1).landmark().num_rows == 0


@pytest.mark.parametrize("torn", ["", "{", "[]", "7", '{"files": 7, "format": 1}'])
def test_a_manifest_that_is_none_is_named(torn: str, tmp_path: Path) -> None:
    file, _ = saved_twice(tmp_path)
    file.write_text(torn)
    refused(lambda: tm.open_wheel(tmp_path), file.name, "not a manifest", "save=1) is the save before")


def test_a_shared_wheel_that_lacks_something_is_named(tmp_path: Path) -> None:
    logical().share(tmp_path)
    [file] = tmp_path.glob("*-wheel.json")
    described = json.loads(file.read_text())
    del described["rings"]
    file.write_text(json.dumps(described))
    refused(lambda: tm.open_wheel(tmp_path), "wheel.json", "'rings'")


SECOND_WRITER = """
import sys
sys.path.insert(0, {root!r})
from tests import interpreter
from tests.wheels.test_bad_input import logical
interpreter.in_child()
wheel = logical()
{act}
"""


def in_another_process(act: str) -> subprocess.Popen[str]:
    root = str(Path(__file__).parents[2])
    code = SECOND_WRITER.format(root=root, act=act)
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)


def test_a_second_process_cannot_write_what_is_shared(tmp_path: Path) -> None:
    wheel = logical()
    wheel.share(tmp_path)
    with in_another_process(f"wheel.share({str(tmp_path)!r})") as other:
        errors = other.communicate()[1]
    assert other.returncode == 1 and "UserError" in errors and "no other writer" in errors
    wheel.insert(5, 1)
    wheel.advance_to(100)
    assert tm.open_wheel(tmp_path).query(0, 100) == 1


def test_saves_of_two_processes_do_not_mix(tmp_path: Path) -> None:
    wheel = dropped()
    act = f"wheel.insert(5, 77); wheel.advance_to(10)\nfor _ in range(15): wheel.save({str(tmp_path)!r})"
    with in_another_process(act) as other:
        while other.poll() is None:
            wheel.save(tmp_path)
        assert other.stderr is not None and other.stderr.read() == ""
    newest = tm.open_wheel(tmp_path)
    assert newest.landmark() in (4, 77)
