"""What users did in their first hour with text files as they come; each test has the name of what one did."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tidemill as tm

UTC = timezone.utc
JAN_2 = datetime(2026, 1, 2, 10, 5, tzinfo=UTC)


def written(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


def times(stream: tm.Stream, **inputs: Any) -> list[datetime | None]:
    return stream.run(**inputs).column(0).to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(("text", "said", "found"), [
    ("2026-01-02 10:05", {}, None),
    ("13/2/2026 10:05", {}, "%d/%m/%Y %H:%M"),
    ("2/1/2026 10:05", {"format": "%d/%m/%Y %H:%M"}, None),
    ("2. Jan 2026 10.05", {"format": ["%Y-%m-%d", "%d. %b %Y %H.%M"]}, None),
    ("1/2/26 10:05 am", {"format": "%m/%d/%y %I:%M %p"}, None),
    ("1767348300", {"unit": "s"}, None), ("1767348300.0", {"unit": "s"}, None),
    ("1767348300000", {"unit": "ms"}, None),
    ("2026-01-02 11:05", {"tz": "Europe/Berlin"}, None),
    ("02/Jan/2026:11:05:00 +0100", {}, "%d/%b/%Y:%H:%M:%S %z"),
])  # fmt: skip
def test_had_times_written_as_they_were(
    tmp_path: Path, text: str, said: dict[str, Any], found: str | None
) -> None:
    path = written(tmp_path, "log.csv", f'at,v\n"{text}",1\n')
    log = tm.read(path, time="at", **said)
    assert repr(found or "") in repr(log) if found else times(log) == [JAN_2]
    how = said if {"format", "unit"} & {*said} else {**said, "format": found or "iso"}
    declared = tm.stream("log", time="at", schema={"at": "timestamp", "v": "int64"}, **how)
    value: Any = float(text) if "unit" in said else text
    for rows in (path, [{"at": value, "v": 1}], pd.DataFrame({"at": [value], "v": [1]}),
                 pl.DataFrame({"at": [value], "v": [1]}), pa.table({"at": [value], "v": [1]})):  # fmt: skip
        assert times(declared, log=rows) == times(log)


def test_had_null_spelled_in_every_way(tmp_path: Path) -> None:
    path = written(
        tmp_path, "air.csv", 't,o3,no2,city\n1,NA,?,NA\n2, 4.5 ,NULL,Oslo\n3,,-,"NA"\n4,"N/A",7,\n'
    )
    air = tm.read(path, time="t")
    assert "float64  (null: N/A NA)" in repr(air) and "int64  (null: - ? NULL)" in repr(air)
    assert air.run().to_pydict() == {
        "t": [1, 2, 3, 4], "o3": [None, 4.5, None, None], "no2": [None, None, None, 7],
        "city": ["NA", "Oslo", "NA", None],
    }  # fmt: skip
    everywhere = tm.read(path, time="t", nulls=["NA", "N/A", "NULL", "?", "-"])
    assert everywhere.run()["city"].to_pylist() == [None, "Oslo", None, None]
    other = tm.read(
        path, time="t", nulls={"o3": ["NA", "N/A"], "city": "Oslo"}, schema={"no2": "string"}
    )
    assert other.run()["no2"].to_pylist() == ["?", "NULL", "-", "7"]
    assert other.run()["city"].to_pylist() == ["NA", None, "NA", None]


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_had_another_delimiter(tmp_path: Path, mark: str) -> None:
    text = f't{mark}v{mark}note\n1{mark}2{mark}"a, b; c"\n2{mark}3{mark}d\n'
    for name in ("x.csv", "x.txt"):
        assert tm.read(written(tmp_path, name, text), time="t").run()["v"].to_pylist() == [2, 3]
    said = tm.stream("x", time="t", schema={"t": "int64", "v": "int64"}, delimiter=mark)
    assert said.run(x=tmp_path / "x.csv")["v"].to_pylist() == [2, 3]


def test_had_tabs_decimal_commas_and_packed_files(tmp_path: Path) -> None:
    data = b"t\tv\n1\t2,5\n2\t1e3\n"
    packed = {
        "a.tsv": data, "a.tsv.gz": gzip.compress(data), "a.csv.xz": lzma.compress(data),
        "a.csv.bz2": bz2.compress(data), "a.csv.zst": pa.compress(data, "zstd", asbytes=True),
    }  # fmt: skip
    for name, content in packed.items():
        (tmp_path / name).write_bytes(content)
        assert tm.read(tmp_path / name, time="t", decimal=",").run()["v"].to_pylist() == [
            2.5,
            1000.0,
        ]


def test_had_json_as_one_array(tmp_path: Path) -> None:
    rows = [
        {"at": "2026-01-02T10:05:00Z", "tags": ["a"], "v": 1.5},
        {"at": "2026-01-03", "tags": [], "v": None},
    ]
    array = tm.read(written(tmp_path, "a.json", "\n " + json.dumps(rows, indent=1)), time="at")
    lines = tm.read(written(tmp_path, "b.json", "\n".join(map(json.dumps, rows))), time="at")
    assert array.run().equals(lines.run()) and array.run()["tags"].to_pylist() == [["a"], []]
    epochs = tm.read(
        written(tmp_path, "c.json", '[{"at": 1767348300.25}, {"at": 1767348301}]'),
        time="at",
        unit="s",
    )
    assert [t and t.microsecond for t in times(epochs)] == [250_000, 0]


@pytest.mark.parametrize(("text", "said"), [
    ("t,v\n2026-01-01,1\n2026-01-02,x\n", r"'v' of int64, got 'x' in row 3 — nulls=\['x'\] makes it null"),
    ("t,v\n2026-01-01,1\n2026-01-02,1.5\n", r"got '1.5' in row 3 — declare the column as float64"),
    ("t,v\n2026-01-01,1\n2026-01-02,NA\n", r"got 'NA' in row 3 — nulls=\['NA'\] makes it null"),
    ("t,v\n2026-01-01,1\n31.1.2026,1\n", r"got '31.1.2026' in row 3 — format='%d.%m.%Y' reads it"),
    ("t,v\n2026-01-01,1\n1767348300,1\n", r"got '1767348300' in row 3 — unit='s' reads numbers"),
    ("t,v\n2026-01-01,1\n2026-01-01,1,5\n", r"Expected 2 columns, got 3"),
    ('t;v\n2026-01-01;"1,5"\n', r"got '1,5' in row 2 — decimal=',' reads it"),
])  # fmt: skip
def test_read_what_to_do_next_in_the_error(tmp_path: Path, text: str, said: str) -> None:
    kind = "float64" if "1,5" in said else "int64"
    log = tm.stream("log", time="t", schema={"t": "timestamp", "v": kind})
    with pytest.raises(tm.UserError, match=rf"(?s)run log, file .*log.csv: .*{said}"):
        log.run(log=written(tmp_path, "log.csv", text))


def test_read_what_to_do_next_about_json(tmp_path: Path) -> None:
    log = tm.stream("log", time="t", schema={"t": "timestamp", "v": "int64"})
    good = '{"t": "2026-01-01", "v": 1}\n'
    for bad, said in (
        (
            '{"t": "2026-01-01", "v": "x"}',
            r"'v' of int64, got 'x' in row 2 — schema={'v': 'string'} reads it",
        ),
        ('{"t": 1767348300, "v": 1}', r"'t' of text, got 1767348300 in row 2 — unit='s'"),
        ('{"t": "31.1.2026", "v": 1}', r"got '31.1.2026' in row 2 — format='%d.%m.%Y' reads it"),
        ('{"t": ', "an object of JSON on each line, got"),
    ):
        with pytest.raises(tm.UserError, match=rf"(?s)file .*log.jsonl: .*{said}"):
            log.run(log=written(tmp_path, "log.jsonl", good + bad + "\n"))


def test_met_the_first_na_after_many_rows(tmp_path: Path) -> None:
    path = written(tmp_path, "long.csv", "t,v\n" + "5,1\n" * 1_200_000 + "6,NA\n7,2\n")
    log = tm.read(path, time="t")
    found = log.window(tm.tumbling(100)).agg(rows=tm.count(), v=tm.sum("v")).run().to_pylist()
    assert [(row["rows"], row["v"]) for row in found] == [(1_200_002, 1_200_002)]


def test_had_days_before_months_and_was_asked_which(tmp_path: Path) -> None:
    path = written(tmp_path, "rides.csv", "at,v\n1/2/2026,1\n")
    with pytest.raises(tm.UserError, match="format='%m/%d/%Y' or format='%d/%m/%Y': say which"):
        tm.read(path, time="at")
    with pytest.raises(tm.UserError, match=r"column 'at' to be ISO, .*got 'soon'.*format="):
        tm.read(written(tmp_path, "x.csv", "at,v\nsoon,1\n"), time="at")
    with pytest.raises(tm.UserError, match="the unit of the numbers in the time column 'at'"):
        tm.read(written(tmp_path, "y.csv", "at,v\n1767348300.5,1\n"), time="at")
    assert "unit='s' makes it clock time" in repr(
        tm.read(written(tmp_path, "z.csv", "at\n1767348300\n"), time="at")
    )


def test_got_the_same_times_from_text_and_numbers_on_spark(spark: Any, tmp_path: Path) -> None:
    schema = {"at": "timestamp", "end": "timestamp", "day": "timestamp"}
    log = tm.stream("log", time="at", end="end", schema=schema, tz="Europe/Berlin", unit={"end": "s"},
                    format={"at": ["%d.%m.%Y %H:%M", "iso"], "day": "%Y%m%d"})  # fmt: skip
    rows = [
        ("2.1.2026 10:05", 1893456000.25, 20260102),
        ("2026-01-02T10:05:00", 1893456000.0, None),
    ]
    frame = spark.createDataFrame(rows, "at string, end double, day int")
    local = pd.DataFrame(rows, columns=["at", "end", "day"]).astype({"day": "Int64"})
    assert log.on_spark(spark).run(log=frame).toArrow().sort_by("end").to_pylist() == (
        log.run(log=local).sort_by("end").to_pylist()
    )
    path = written(tmp_path, "air.csv", "at;v\n13/2/2026;1,5\n14/2/2026;NA\n")
    air = tm.read(path, time="at", decimal=",")
    assert air.on_spark(spark).run().toArrow().to_pylist() == air.run().to_pylist()
    with pytest.raises(tm.UserError, match="declare the stream with format='iso'"):
        tm.stream("log", time="at", schema={"at": "timestamp"}).on_spark(spark).run(
            log=frame.select("at")
        )


def test_had_text_that_is_not_utf_8(tmp_path: Path) -> None:
    for encoding in ("latin-1", "utf-16"):
        (tmp_path / "x.csv").write_bytes("t;Größe\n1;Zürich\n".encode(encoding))
        towns = tm.read(tmp_path / "x.csv", time="t", encoding=encoding)
        assert towns.run().to_pylist() == [{"t": 1, "Größe": "Zürich"}]
    (tmp_path / "x.csv").write_bytes("t,v\n1,Zürich\n".encode("latin-1"))
    declared = tm.stream("x", time="t", schema={"t": "int64", "v": "string"})
    for read in (
        lambda: tm.read(tmp_path / "x.csv", time="t"),
        lambda: declared.run(tmp_path / "x.csv"),
    ):
        with pytest.raises(
            tm.UserError, match=r"file .*x\.csv: cannot be read: .*encoding='latin-1'"
        ):
            read()
    with pytest.raises(
        tm.UserError, match="encoding= such as 'latin-1' or 'utf-16', got 'klingon'"
    ):
        tm.read(tmp_path / "x.csv", time="t", encoding="klingon")


def test_had_a_file_with_nothing_in_it(tmp_path: Path) -> None:
    with pytest.raises(
        tm.UserError, match=r"expected columns, got none in CSV file .* is it empty\?"
    ):
        tm.read(written(tmp_path, "empty.csv", "\n"), time="t")
    header = written(tmp_path, "header.csv", "t,v\n")
    with pytest.raises(tm.UserError, match=r"schema={'t': 'timestamp'} declares them"):
        tm.read(header, time="t")
    assert tm.read(header, time="t", schema={"t": "timestamp"}).run().num_rows == 0
    with pytest.raises(
        tm.UserError, match=r"'30.2.2026' .*it looks like '%d.%m.%Y', but there is no such time"
    ):
        tm.read(written(tmp_path, "x.csv", "t,v\n30.2.2026,1\n"), time="t")


def test_had_a_frame_with_objects_in_it() -> None:
    rows = pd.DataFrame({"t": [1, 2], "odd": [[1, "a"], None], "z": [1 + 2j, 0j], "v": ["x", None]})
    found = tm.read(rows, time="t")
    assert found.unread == {"odd": "object", "z": "complex128"}
    assert found.run().to_pylist() == [{"t": 1, "v": "x"}, {"t": 2, "v": None}]
