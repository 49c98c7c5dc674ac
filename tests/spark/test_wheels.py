"""Wheels that Spark builds hold what a wheel in process holds of the same rows."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidemill as tm
from tests.conformance.harness import assert_same, same
from tests.conformance.wheels import AGGREGATES, SCHEMA
from tests.examples import TIMES
from tidemill import col
from tidemill.core.errors import UnsupportedError, UserError
from tidemill.core.schema import schema as read_schema
from tidemill.spark.wheels import build as wheels
from tidemill.wheels.wheel_store import WheelStore

RINGS = [(1, "keep"), (5, "keep"), (20, "keep")]
Row = dict[str, Any]


def events(seed: int, count: int = 400, low: int = -37, high: int = 163) -> list[Row]:
    pick = random.Random(seed)
    return [
        {
            "t": None if pick.random() < 0.02 else pick.randint(low, high), "k": pick.randint(0, 3),
            "s": pick.choice(["a", "b", None]), "v": pick.choice([None, 1, 2, -7]),
            "x": pick.choice([None, 0.5, -4.0, 1e9]),
        }
        for _ in range(count)
    ]  # fmt: skip


def frame(spark: Any, rows: list[Row]) -> Any:
    schema = "t long, k long, s string, v long, x double"
    return spark.createDataFrame([tuple(r.values()) for r in rows], schema).repartition(3)


def in_process(rows: list[Row], held: str, keys: tuple[str, ...], start: int, until: int) -> tm.Wheel:
    wheel = tm.Wheel(
        AGGREGATES[held], schema=SCHEMA, time="t", keys=keys, start=start, granularities=RINGS
    )
    wheel.insert([r for r in rows if r["t"] is not None and start <= r["t"] < until])
    wheel.advance_to(until)
    return wheel


def assert_equal(store: Any, wheel: tm.Wheel, rows: list[Row], keys: tuple[str, ...], seed: int = 0) -> None:
    """Any range of any key."""
    pick = random.Random(seed)
    assert store.watermark == wheel.watermark
    low = wheel._view.store.first
    known = sorted({tuple(r[k] for k in keys) for r in rows}, key=repr)
    for _ in range(25):
        a = pick.randint(low - 3, wheel.watermark)
        b = pick.randint(a, wheel.watermark + 3)
        key = pick.choice(known)
        asked = {"key": key if len(keys) > 1 else key[0]} if keys else {}
        got, expected = store.query(a, b, **asked), wheel.query(a, b, **asked)
        if isinstance(got, dict):
            assert all(same(got[n], expected[n]) for n in expected), (a, b, key, got, expected)
        else:
            assert same(got, expected), (a, b, key)
    everything = [x.query(low, wheel.watermark) for x in (store, wheel)]
    if keys:
        schema = read_schema(everything[1].schema, step="test")
        assert_same(everything[0].to_pylist(), everything[1].to_pylist(), schema)


KEYED = [("sum", ()), ("mean and more", ("k", "s")), ("own", ("k",))]


@pytest.mark.parametrize(
    ("held", "keys"),
    [pytest.param(*k, id=k[0], marks=() if k[0] == "sum" else pytest.mark.soak) for k in KEYED],
)
def test_built_and_appended(spark: Any, tmp_path: Path, held: str, keys: tuple[str, ...]) -> None:
    rows = events(7)
    given = AGGREGATES["own"] if held == "own" else {}
    df = frame(spark, rows)
    built = tm.spark.build_wheel(
        df, tmp_path / "w", AGGREGATES[held], time="t", keys=keys, start=-20, until=60,
        granularities=RINGS, buckets=3,
    )  # fmt: skip
    inside = [r for r in rows if r["t"] is not None and -20 <= r["t"] < 60]
    times = [r["t"] for r in rows]
    assert built.rows == len(inside) and built.watermark == 60
    assert built.left_out == {
        "late": sum(t is not None and t < -20 for t in times), "null time": times.count(None),
        "time out of range": 0, "ahead": sum(t is not None and t >= 60 for t in times),
    }  # fmt: skip
    assert built.rows_left_out.count() == sum(built.left_out.values())
    store = tm.open_wheel(tmp_path / "w", aggregates=given)
    assert isinstance(store, WheelStore)
    assert_equal(store, in_process(rows, held, keys, -20, 60), rows, keys)

    appended = tm.spark.append(df, tmp_path / "w", aggregates=given)
    last = max(t for t in times if t is not None)
    assert appended.watermark == last + 1 and appended.rows == built.left_out["ahead"]
    whole = in_process(rows, held, keys, -20, last + 1)
    store = tm.open_wheel(tmp_path / "w", aggregates=given)
    assert_equal(store, whole, rows, keys)
    for seed in (1, 2):  # making one changes nothing
        assert_equal(store.wheel(), whole, rows, keys, seed=seed)
    assert store.wheel().stats()["rows"] == built.rows + appended.rows
    again = tm.spark.append(df, tmp_path / "w", aggregates=given)  # all of it is late now
    assert again.rows == 0 and again.buckets == 0
    assert_equal(tm.open_wheel(tmp_path / "w", aggregates=given), whole, rows, keys)


@pytest.fixture(scope="module")
def built(spark: Any, tmp_path_factory: Any) -> tuple[Path, list[Row]]:
    rows = events(8, count=1000, low=0)
    path = tmp_path_factory.mktemp("wheel") / "w"
    tm.spark.build_wheel(
        frame(spark, rows), path, AGGREGATES["sum"], time="t", keys="s", start=0, granularities=RINGS,
        buckets=3, compress=8,
    )  # fmt: skip
    return path, rows


def files(path: Path) -> set[str]:
    return {str(f.relative_to(path)) for f in path.rglob("*") if f.is_file() and f.suffix != ".lock"}


@pytest.mark.soak
def test_an_append_writes_only_buckets_with_new_rows(
    spark: Any, built: tuple[Path, list[Row]], tmp_path: Path
) -> None:
    path, rows = tmp_path / "w", [*built[1]]
    shutil.copytree(built[0], path)
    shutil.copytree(path, tmp_path / "copy")
    replicas = tm.Replicas([tm.open_wheel(path)])
    assert not replicas.merge(tm.open_wheel(path)) and not replicas.merge(tm.open_wheel(path).wheel())
    before = files(path)
    before_buckets = len(list(path.glob("bucket-*")))
    new = [{"t": t, "k": 0, "s": "a", "v": t, "x": None} for t in range(164, 300)]
    assert tm.spark.append(frame(spark, new), path).buckets == 1
    written = {f.split("/")[0] for f in files(path) - before}
    assert len([f for f in written if f.startswith("bucket")]) == 1
    kept = [f for f in before if "cold" in f]
    assert len(kept) == before_buckets and set(kept) <= files(path), "what was compressed stays"
    whole = in_process(rows + new, "sum", ("s",), 0, 300)
    assert_equal(tm.open_wheel(path), whole, rows + new, ("s",))
    assert replicas.merge(tm.open_wheel(path)) and not replicas.merge(tm.open_wheel(path, save=1))
    assert_equal(replicas, whole, rows + new, ("s",))
    tm.spark.append(frame(spark, new), tmp_path / "copy")
    with pytest.raises(UserError, match="two continuations of one save"):
        replicas.merge(tm.open_wheel(tmp_path / "copy"))
    old = in_process(rows, "sum", ("s",), 0, 164)
    assert_equal(tm.open_wheel(path, save=1), old, rows, ("s",))


def test_a_failed_append_changes_nothing(
    spark: Any, built: tuple[Path, list[Row]], tmp_path: Path
) -> None:
    path = tmp_path / "w"
    shutil.copytree(built[0], path)
    new = [{"t": t, "k": 0, "s": s, "v": (1 << 62), "x": None} for t in (170, 170, 170) for s in "ab"]
    good = [{"t": 166, "k": 0, "s": s, "v": 4, "x": None} for s in "ab"]
    tm.spark.append(frame(spark, good), path)
    for _ in range(3 if TIMES > 1 else 1):
        with pytest.raises(Exception, match="verflow"):
            tm.spark.append(frame(spark, new), path)
    old = in_process(built[1], "sum", ("s",), 0, 164)
    assert_equal(tm.open_wheel(path, save=1), old, built[1], ("s",))
    assert tm.open_wheel(path).query(165, 167, key="b") == 4
    good = [{"t": 170, "k": 0, "s": "b", "v": 5, "x": None}]
    tm.spark.append(frame(spark, good), path)
    assert tm.open_wheel(path).query(165, 171, key="b") == 9


def test_an_append_does_not_write_new_checksums_over_damage(
    spark: Any, built: tuple[Path, list[Row]], tmp_path: Path
) -> None:
    path = tmp_path / "w"
    shutil.copytree(built[0], path)
    for file in path.glob("bucket-*/cells-*"):
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    before = sorted(map(str, path.rglob("*")))
    new = [{"t": 170, "k": 0, "s": s, "v": 5, "x": None} for s in "ab"]
    with pytest.raises(UserError, match=r"bucket-\d+/cells-.*checksum differs"):
        tm.spark.append(frame(spark, new), path)
    assert sorted(map(str, path.rglob("*"))) == before
    with pytest.raises(UserError, match="checksum differs"):
        tm.open_wheel(path)


def test_of_appends_at_once_one_counts(
    spark: Any, built: tuple[Path, list[Row]], tmp_path: Path, monkeypatch: Any
) -> None:
    path = tmp_path / "w"
    shutil.copytree(built[0], path)
    rows = frame(spark, [{"t": 170, "k": 0, "s": "b", "v": 5, "x": None}])
    alone, once = wheels._written, iter([True])

    def meanwhile(*given: Any) -> Any:
        written = alone(*given)
        if next(once, False):  # others do it all while this one is not done
            assert tm.spark.append(rows, path).version == 2
        return written

    monkeypatch.setattr(wheels, "_written", meanwhile)
    with pytest.raises(UserError, match="by another writer"):
        tm.spark.append(rows, path)
    tm.spark.append(rows, path)  # now nobody else does
    assert tm.open_wheel(path, save=2).query(164, 171, key="b") == 5
    old = in_process(built[1], "sum", ("s",), 0, 164)
    assert tm.open_wheel(path).query(0, 164, key="b") == old.query(0, 164, key="b")


@pytest.mark.soak
def test_ranges_of_a_wheel_that_was_built_again(spark: Any, tmp_path: Path) -> None:
    ranges = spark.createDataFrame([("a", 0, 9)], "s string, start long, end long")
    for v in (3, 4):
        shutil.rmtree(tmp_path / "w", ignore_errors=True)
        tm.spark.build_wheel(
            frame(spark, [{"t": 1, "k": 0, "s": "a", "v": v, "x": None}]), tmp_path / "w",
            AGGREGATES["sum"], time="t", keys="s", granularities=RINGS, buckets=1, compress=8,
        )  # fmt: skip
        assert tm.spark.wheel_query(tmp_path / "w", ranges).collect()[0]["a"] == v


def test_ranges_of_a_frame(spark: Any, built: tuple[Path, list[Row]]) -> None:
    path, rows = built
    wheel = in_process(rows, "sum", ("s",), 0, 164)
    pick = random.Random(3)
    asked = []
    for _ in range(15):
        a = pick.randint(-3, 160)
        asked.append((pick.choice(["a", "b", None, "never"]), a, pick.randint(a, 170)))
    ranges = spark.createDataFrame([*asked, ("a", None, 4)], "s string, low long, high long")
    found = tm.spark.wheel_query(path, ranges.repartition(2), start="low", end="high").collect()
    assert len(found) == len(asked) + 1
    for row in found:
        expected = None if row["low"] is None else wheel.query(row["low"], row["high"], key=row["s"])
        assert row["a"] == expected, row
    with pytest.raises(Exception, match="end before its start"):
        turned = spark.createDataFrame([("a", 9, 4)], "s string, start long, end long")
        tm.spark.wheel_query(path, turned).collect()
    with pytest.raises(UserError, match="column 's' of type string"):
        tm.spark.wheel_query(path, spark.createDataFrame([(1, 9, 4)], "s long, start long, end long"))


def test_a_store_is_merged_into_a_wheel(built: tuple[Path, list[Row]]) -> None:
    path, rows = built
    store = tm.open_wheel(path)
    schema = {n: SCHEMA[n] for n in ("t", "s", "v")}
    wheel = tm.Wheel(
        AGGREGATES["sum"], schema=schema, time="t", keys="s", start=0, granularities=RINGS
    )
    wheel.insert(store.watermark, {"v": 5}, "a")
    assert wheel.merge(store.wheel())
    wheel.advance_to(store.watermark + 1)
    before = sum(r["v"] or 0 for r in rows if r["s"] == "a" and r["t"] is not None)
    assert wheel.landmark("a") == before + 5
    assert wheel.stats()["left out"] == store.stats()["left out"]


WINDOWS = {"hopping": tm.hopping(20, every=5), "landmark": tm.landmark(50)}


@pytest.mark.parametrize("window", WINDOWS)
def test_windows_of_a_query(spark: Any, built: tuple[Path, list[Row]], window: str) -> None:
    path, rows = built
    store = tm.open_wheel(path)
    stream = tm.stream("events", time="t", schema={"t": "int64", "s": "string", "v": "int64"})
    query = stream.group_by("s").window(WINDOWS[window]).agg(total=tm.sum(col.v)).where(col.total != 1)
    known = [{n: r[n] for n in ("t", "s", "v")} for r in rows if r["t"] is not None]
    expected = query.run(events=known).to_pylist()
    assert expected
    assert_same(query.run(events=store).to_pylist(), expected, query.schema)
    on_spark = query.on_spark(spark)
    found = [r.asDict() for r in on_spark.run(events=store).collect()]
    assert_same(found, expected, query.schema)
    text = on_spark.explain(events=store)
    assert "from slots of the wheel" in text
    assert ("each bucket by a task" if window == "hopping" else "by the driver") in text
    with pytest.raises(UserError, match=r"one input named 'events', got \['other'\]"):
        on_spark.explain(other=store)


def test_times_of_the_clock_and_floats_as_keys(spark: Any, tmp_path: Path) -> None:
    seconds = [0, 61, 61, 3600, 7300]
    keys = [0.0, -0.0, float("nan"), float("nan"), None]
    table = pa.table(
        {"ts": pa.array([s * 1_000_000 for s in seconds], pa.timestamp("us", "UTC")), "f": keys}
    )
    tm.spark.build_wheel(
        spark.createDataFrame(table), tmp_path / "w", tm.count(), time="ts", keys="f", buckets=4,
        granularities=["1m", "1h"],
    )  # fmt: skip
    store = tm.open_wheel(tmp_path / "w")
    assert store.watermark.isoformat() == "1970-01-01T02:02:00+00:00"
    found = {repr(r["f"]): r["value"] for r in store.query(0, store.watermark).to_pylist()}
    assert found == {"0.0": 2, "nan": 2, "None": 1}
    ranges = spark.sql(
        "SELECT double('-0.0') f, timestamp'1970-01-01 00:00:00Z' start, timestamp'1970-01-01 01:00:00Z' end"
    )
    [row] = tm.spark.wheel_query(tmp_path / "w", ranges).collect()
    assert row["value"] == 2


def test_no_rows_at_all(spark: Any, tmp_path: Path) -> None:
    empty = frame(spark, events(1)).filter("false")
    tm.spark.build_wheel(
        empty, tmp_path / "w", AGGREGATES["sum"], time="t", keys="s", start=0, until=50, granularities=RINGS
    )
    store = tm.open_wheel(tmp_path / "w")
    assert store.query(0, 50).num_rows == 0 and store.query(0, 50, key="a") is None
    assert store.watermark == 50
    tm.spark.append(frame(spark, [{"t": 55, "k": 0, "s": "a", "v": 3, "x": None}]), tmp_path / "w")
    assert tm.open_wheel(tmp_path / "w").landmark(key="a") == 3


def test_what_cannot_be_built_is_refused(spark: Any, built: tuple[Path, list[Row]], tmp_path: Path) -> None:
    df = frame(spark, events(1))
    with pytest.raises(UserError, match="without a wheel"):
        tm.spark.build_wheel(df, built[0], AGGREGATES["sum"], time="t")
    with pytest.raises(UserError, match="'nope'"):
        tm.spark.build_wheel(df, tmp_path / "w", tm.sum(col.nope), time="t")
    with pytest.raises(UserError, match="buckets"):
        tm.spark.build_wheel(df, tmp_path / "w", AGGREGATES["sum"], time="t", keys="s", buckets=0)
    with pytest.raises(UnsupportedError, match=r"quantile.*tm\.Wheel"):
        tm.spark.build_wheel(df, tmp_path / "w", tm.median(col.v), time="t", granularities=[1, 5])
    with pytest.raises(UserError, match="column 's'"):
        tm.spark.append(df.drop("s"), built[0])
    assert not (tmp_path / "w").exists()
    plain = in_process([], "sum", (), 0, 10)
    plain.save(tmp_path / "plain")
    with pytest.raises(UserError, match="build_wheel"):
        tm.spark.append(df, tmp_path / "plain")


def test_a_bucket_that_is_not_as_it_was_written_is_named(
    built: tuple[Path, list[Row]], tmp_path: Path
) -> None:
    path = tmp_path / "w"
    shutil.copytree(built[0], path)
    manifest = json.loads((path / "manifest.json").read_text())
    bucket = sorted(manifest["buckets"]["saves"])[0]
    [file] = (path / f"bucket-{int(bucket):05}").glob("cells-*")
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(UserError, match=file.name):
        tm.open_wheel(path)
