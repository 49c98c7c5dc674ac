"""What users did in their first hour with directories of keys and with object stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq
import pytest

import tidemill as tm
from tidemill.io.stored_files import find_files

ROWS = pd.DataFrame(
    {"ts": pd.date_range("2026-01-31 12:00", periods=4, freq="8h"), "v": [1, 2, 3, 4]}
)


def hive(folder: Path, name: str = "rides.parquet") -> Path:
    """Rows below `city=…/day=…`, with nothing in the files that says so; one city is not known."""
    for city, rows in (
        ("New%20York", ROWS[:2]),
        ("Oslo", ROWS[2:3]),
        ("__HIVE_DEFAULT_PARTITION__", ROWS[3:]),
    ):
        place = folder / "rides" / f"city={city}" / f"day={rows['ts'].iloc[0].date()}"
        place.mkdir(parents=True)
        if name.endswith("parquet"):
            rows.to_parquet(place / name, row_group_size=1)
        elif name.endswith("jsonl"):
            (place / name).write_text(
                "".join(f'{{"ts": "{t}", "v": {v}}}\n' for t, v in rows.to_numpy())
            )
        else:
            rows.to_csv(place / name, index=False)
    (folder / "rides" / "_SUCCESS").touch()
    return folder / "rides"


@pytest.mark.parametrize("name", ["rides.parquet", "rides.csv.gz", "rides.jsonl"])
def test_had_columns_in_the_names_of_directories(tmp_path: Path, name: str) -> None:
    rides = tm.read(hive(tmp_path, name), time="ts", name="rides")
    assert [(n, repr(kind)) for n, kind in rides.schema] == [
        ("ts", "timestamp"), ("v", "int64"), ("city", "string"), ("day", "timestamp")
    ]  # fmt: skip
    by_city = rides.group_by("city").window(tm.calendar("year")).agg(v=tm.sum("v")).sort("city")
    assert dict(zip(*(by_city.run()[c].to_pylist() for c in ("city", "v")))) == {
        None: 4,
        "New York": 3,
        "Oslo": 3,
    }
    assert str(rides.run()["day"][0]) == "2026-01-31 00:00:00+00:00"
    later = tm.read(f"{tmp_path}/rides/*/day=2026-02-01/*", time="ts", name="later").run()
    assert sorted(later["v"].to_pylist()) == [3, 4] and set(later.column_names) >= {"city", "day"}
    declared = tm.stream(
        "r", time="ts", schema={"ts": "timestamp", "city": "string", "day": "string"}
    )
    assert declared.run(r=tmp_path / "rides")["day"].to_pylist()[-1] == "2026-02-01"
    wrong = tm.stream("r", time="ts", schema={"ts": "timestamp", "city": "int64"})
    with pytest.raises(tm.UserError, match="column 'city' of int64, got 'New York'"):
        wrong.run(r=tmp_path / "rides")


def test_what_a_file_has_counts_before_the_name_of_its_directory(tmp_path: Path) -> None:
    for number, name in enumerate(("x.parquet", "x.csv", "x.arrow", "x.jsonl")):
        place = tmp_path / str(number) / "v=9"
        place.mkdir(parents=True)
        if name.endswith("jsonl"):
            (place / name).write_text(
                ROWS.astype({"ts": str}).to_json(orient="records", lines=True)
            )
        else:
            {
                "parquet": ROWS.to_parquet,
                "arrow": ROWS.to_feather,
                "csv": lambda path: ROWS.to_csv(path, index=False),
            }[name.split(".")[1]](place / name)
        assert tm.read(tmp_path / str(number), time="ts", name="x").run()["v"].to_pylist() == [
            1,
            2,
            3,
            4,
        ]


def stores(folder: Path) -> list[tuple[str, Any]]:
    """The same files: on disk by a URI, in a file system below it, and in one of Arrow's for tests."""
    mock = fs._MockFileSystem()
    for file in folder.rglob("*.*"):
        mock.create_dir(str(file.parent.relative_to(folder.parent)), recursive=True)
        with mock.open_output_stream(str(file.relative_to(folder.parent)), compression=None) as out:
            out.write(file.read_bytes())
    below = fs.SubTreeFileSystem(str(folder.parent), fs.LocalFileSystem())
    return [(f"file://{folder}", None), (folder.name, below), (folder.name, mock)]


@pytest.mark.parametrize("name", ["rides.parquet", "rides.csv.gz", "rides.jsonl"])
def test_gave_the_address_of_an_object_store(tmp_path: Path, name: str) -> None:
    folder = hive(tmp_path, name)
    for path, system in stores(folder):
        rides = tm.read(path, time="ts", name="rides", filesystem=system)
        assert sorted(rides.run()["v"].to_pylist()) == [1, 2, 3, 4]
        for pattern, found in (
            ("/**/day=2026-01-31/*", [1, 2]),
            ("/city=[NO]*/*/r*", [1, 2, 3]),
            ("/city=Oslo", [3]),
            ("/city=[!NO]*", [4]),
            ("/*", [1, 2, 3, 4]),  # not `_SUCCESS`, nor what is below `_*`
            ("/city=__HIVE*/**/r*", [4]),
        ):
            some = tm.read(path + pattern, time="ts", name="rides", filesystem=system)
            assert sorted(some.run()["v"].to_pylist()) == found
        with pytest.raises(tm.UserError, match=r"nothing at '.*rides/\*\.none'"):
            tm.read(f"{path}/*.none", time="ts", filesystem=system)
    assert [f.name for f in find_files(f"file://{folder}/**/{name}", None, "t")] == [name] * 3


def test_hidden_files_are_read_where_a_glob_names_them(tmp_path: Path) -> None:
    ROWS.to_parquet(tmp_path / "_old.parquet")
    below = fs.SubTreeFileSystem(str(tmp_path.parent), fs.LocalFileSystem())
    for path, system in ((tmp_path, None), (tmp_path.name, below)):
        old = tm.read(f"{path}/_o*.parquet", time="ts", name="old", filesystem=system)
        assert len(old.run()) == 4
        with pytest.raises(tm.UserError, match="nothing at"):
            tm.read(f"{path}/*", time="ts", filesystem=system)


def test_an_unknown_store_is_an_error_that_names_it() -> None:
    with pytest.raises(tm.UserError, match=r"read, path nowhere://x/y\.parquet: cannot be read"):
        tm.read("nowhere://x/y.parquet", time="ts")


def test_ran_on_spark_over_directories_and_stores(tmp_path: Path, spark: Any) -> None:
    folder = hive(tmp_path)
    below = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    for path, system in ((folder, None), ("rides", below)):
        rides = tm.read(path, time="ts", name="rides", filesystem=system)
        assert (
            rides.sort("v").on_spark(spark).run().toArrow().to_pylist()
            == rides.sort("v").run().to_pylist()
        )


def test_promises_of_files_hold_across_directories(tmp_path: Path) -> None:
    for number, times in enumerate(([5, 9], [1, 2], [7, 30])):
        (tmp_path / f"k={number}").mkdir()
        pq.write_table(pa.table({"t": times}), tmp_path / f"k={number}" / "x.parquet")
    log = tm.read(tmp_path, time="t", name="log")
    found = (
        log.window(tm.tumbling(10)).agg(n=tm.count(), k=tm.collect("k")).sort("window_start").run()
    )
    assert found["n"].to_pylist() == [5, 1] and sorted(found["k"][0].as_py()) == [0, 0, 1, 1, 2]
