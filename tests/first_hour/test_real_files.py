"""Files as offices, agencies and instruments export them, and what their reader is told."""

from __future__ import annotations

import gzip
import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import tidemill as tm
from tidemill import col


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(("texts", "format", "second"), [
    (("1974Q1", "1974Q2"), "%YQ%q", datetime(1974, 4, 1)),
    (("1970 Q3", "1970 Q4"), "%Y Q%q", datetime(1970, 10, 1)),
    (("1991 Jul", "1991 Aug"), "%Y %b", datetime(1991, 8, 1)),
    (("Jan-1-1995", "Feb-1-1995"), "%b-%d-%Y", datetime(1995, 2, 1)),
    (("20260101T100000Z", "20260101T110000+0100"), "%Y%m%dT%H%M%S%z", datetime(2026, 1, 1, 10)),
])  # fmt: skip
def test_had_quarters_months_and_iso_without_dashes(
    tmp_path: Path, texts: tuple[str, str], format: str, second: datetime
) -> None:
    path = written(tmp_path, "a.csv", "t,v\n" + "".join(f"{text},1\n" for text in texts))
    found = tm.read(path, time="t")
    assert repr(format) in repr(found)
    assert found.run()["t"].to_pylist()[1] == second.replace(tzinfo=timezone.utc)


def test_wrote_quarters_and_read_them_in_expressions() -> None:
    rows = tm.read([{"t": 1, "q": "Q3 2025"}, {"t": 2, "q": "Q5 2025"}], time="t")
    read = rows.select(at=col.q.strptime("Q%q %Y", strict=False))
    assert read.select(q=col.at.strftime("%Y-%q")).run()["q"].to_pylist() == ["2025-3", None]
    with pytest.raises(tm.UserError, match="%q beside a month or a day"):
        tm.read([{"t": "2025-1-3", "v": 1}], time="t", format="%Y-%q-%d")


PREAMBLE = "Title: trips; all\n\n# km by day\nday,km\n2026-01-01,3\n2026-01-02,4\n"


def test_had_lines_before_the_header(tmp_path: Path, spark: Any) -> None:
    path = written(tmp_path, "a.csv", PREAMBLE)
    with pytest.raises(tm.UserError, match=r"skip=3 if \['day', 'km'\] is the header"):
        tm.read(path, time="day")
    trips = tm.read(path, time="day", skip=3)
    assert trips.run()["km"].to_pylist() == [3, 4]
    assert trips.on_spark(spark).to_pandas()["km"].tolist() == [3, 4]
    bad = written(tmp_path, "b.csv", PREAMBLE.replace(",4", ",x"))
    declared = tm.stream("b", time="day", schema={"day": "timestamp", "km": "int64"}, skip=3)
    with pytest.raises(tm.UserError, match="got 'x' in row 6"):
        declared.run(bad)
    bare = tm.read(path, time="d", skip=4, columns=["d", "v"])
    assert bare.run()["v"].to_pylist() == [3, 4]
    with pytest.raises(tm.UserError, match="skip= a number of lines before the header, got -1"):
        tm.read(path, time="day", skip=-1)


def test_had_the_line_that_excel_writes_about_the_delimiter(tmp_path: Path) -> None:
    for text in ("sep=;\nt;v\n2026-01-01;1\n", "sep=;\nt;v;w\n2026-01-01;1;2\n"):
        path = written(tmp_path, "a.csv", text)
        with pytest.raises(tm.UserError, match="line 2 has it: skip=1 leaves out"):
            tm.read(path, time="t")
        assert tm.read(path, time="t", skip=1).run()["v"].to_pylist() == [1]


@pytest.mark.parametrize(("name", "content", "said"), [
    ("a.csv", "t,v\n1,2\n".encode("utf-16"), "encoding='utf-16' reads it"),
    ("a.csv", "t,v\n1,2,\n3,4,\n", r"rows end with ',': columns=\['t', 'v', 'rest'\] and skip=1"),
    ("a.csv", "t,v,\n1,2\n3,4\n", r"the header ends with ',', .* columns=\['t', 'v'\] and skip=1"),
    ("a.csv", "t,v\n1,2\n3,4,5\n", "fields that contain ',' go in quotes, and delimiter= says"),
    ("a.csv", "t,v\n1,2\nSource\n", "complete the row, or cut it off if it is no data"),
    ("a.csv.gz", "t,v\n1,2\n", "is it packed"),
    ("a.csv.gz", gzip.compress(b"t,v\n" + b"1,2\n" * 1000)[:-20], "the file is not whole"),
    ("a.xlsx", "PK", r"tm.read\(pandas.read_excel\(path\), time=...\)"),
])  # fmt: skip
def test_had_a_file_that_cannot_be_read_and_was_told_how(
    tmp_path: Path, name: str, content: str | bytes, said: str
) -> None:
    with pytest.raises(tm.UserError, match=rf"{name}.*{said}"):
        tm.read(written(tmp_path, name, content), time="t")


def test_did_as_the_error_said_about_rows_that_end_with_a_comma(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "t,v\n1,2,\n3,4,\n")
    assert tm.read(path, time="t", columns=["t", "v", "rest"], skip=1).run()["v"].to_pylist() == [2, 4]
    path = written(tmp_path, "b.csv", "t,v,\n1,2\n3,4\n")
    assert tm.read(path, time="t", columns=["t", "v"], skip=1).run()["v"].to_pylist() == [2, 4]


def test_named_one_column_of_a_file_whose_text_has_commas(tmp_path: Path) -> None:
    path = written(tmp_path, "a.txt", "Sat, 22 Apr 2017 15:11:58 -0500\nFri, 21 Apr 2017 14:20:57 -0500\n")
    assert tm.read(path, time="when", columns=["when"]).run()["when"][0].as_py().hour == 20


@pytest.mark.parametrize(("texts", "said"), [
    ("2026-01-01\nTotal", r"such as '2026-01-01', got 'Total' in row 3 — nulls=\['Total'\] makes it null"),
    ("2026-01-01\n01/13/2026", r"got '01/13/2026' in row 3 — format=\['iso', '%m/%d/%Y'\] reads both"),
    ("13.1.2026\n2026-01-13", r"got '2026-01-13' in row 3 — format=\['%d.%m.%Y', 'iso'\] reads both"),
    ("2026-01-01 10:00 EST", r"got .* in row 2 — format='%Y-%m-%d %H:%M EST' and tz= the zone that is meant"),
    ("10:00:01", "it has no date"),
    ("45123.5", r"Excel counts: .*unit='D', origin='1899-12-30'"),
    ("1851.25", "years with a fraction"),
    ("1767348300.5", "unit='s' reads them"),
])  # fmt: skip
def test_had_times_that_no_one_format_reads(tmp_path: Path, texts: str, said: str) -> None:
    with pytest.raises(tm.UserError, match=said):
        tm.read(written(tmp_path, "a.csv", f"t\n{texts}\n"), time="t")


def test_had_null_among_times_in_a_format_that_was_found(tmp_path: Path) -> None:
    for spelled in ("NA", "NaT", ""):
        path = written(tmp_path, "a.csv", f"t,v\n31.12.2025,1\n{spelled},2\n")
        assert tm.read(path, time="t").run()["t"].null_count == 1


def test_had_years(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "year,v\n1565,1\n1570,2\n")
    years = tm.read(path, time="year", format="%Y").window(tm.calendar("year")).agg(v=tm.sum("v"))
    assert years.sort("window_start").to_pandas()["v"].tolist() == [1, 2]
    assert "format='%Y' makes it clock time" in repr(
        tm.read(written(tmp_path, "b.csv", "year\n1952\n"), time="year")
    )
    with pytest.raises(tm.UserError, match="format='%Y' reads years"):
        tm.read([{"year": "1565"}], time="year")


def test_gave_the_wrong_unit(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "t,v\n1767348300123456789,1\n")
    with pytest.raises(tm.UserError, match="in row 2 — unit='ns' reads it"):
        tm.read(path, time="t", unit="s").run()


def test_had_thousands_with_commas(tmp_path: Path) -> None:
    """The option `decimal=","` would make 1.234 of it."""
    path = written(tmp_path, "a.csv", 't,v\n1,"1,234"\n2,"12"\n')
    log = tm.stream("a", time="t", schema={"t": "int64", "v": "float64"})
    with pytest.raises(tm.UserError, match="got '1,234' in row 2 — read as text, with ',' between"):
        log.run(path)
    found = tm.read(path, time="t")
    with pytest.raises(tm.UserError, match=r"which is string — numbers in text: .cast\('float64'\), after"):
        found.window(tm.tumbling(5)).agg(v=tm.sum("v"))
    assert found.select(v=col["v"].replace(",", "").cast("float64")).run()["v"].to_pylist() == [1234, 12]
    path = written(tmp_path, "b.csv", "t;v\n1;1.234,5\n")
    with pytest.raises(tm.UserError, match=r"replace\('.', ''\).replace\(',', '.'\).cast"):
        log.run(path)
    found = tm.read(path, time="t")
    number = col["v"].replace(".", "").replace(",", ".").cast("float64")
    assert found.select(v=number).run()["v"].to_pylist() == [1234.5]


def test_wrote_a_column_in_another_case_or_without_its_unit(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "DATE (UTC),Rate\n2026-01-01,1\n")
    with pytest.raises(tm.UserError, match=r"did you mean 'DATE \(UTC\)'"):
        tm.read(path, time="date")
    with pytest.raises(tm.UserError, match="did you mean 'Rate'"):
        tm.read(path, time="DATE (UTC)").where(col.RATE > 1)


FRAME = pd.DataFrame({"v": [1, 2]}, index=pd.date_range("2026-01-01", periods=2, tz="Europe/Berlin"))


def test_brought_a_frame_whose_index_has_no_name() -> None:
    with pytest.raises(tm.UserError, match=r"the index has no name, .*frame.rename_axis\('ts'\)"):
        tm.read(FRAME, time="ts")
    assert tm.read(FRAME.rename_axis("ts"), time="ts").run().num_rows == 2


def test_brought_a_series_periods_and_names_that_are_no_text() -> None:
    with pytest.raises(tm.UserError, match=r"rename_axis\('t'\).reset_index\(name='v'\)"):
        tm.read(FRAME["v"], time="t")
    months = pd.DataFrame({"t": pd.period_range("2026-01", periods=2, freq="M"), "v": [1, 2]})
    with pytest.raises(tm.UserError, match=r"which no stream has — .*dt.to_timestamp\(\)"):
        tm.read(months, time="t")
    assert tm.read(pd.DataFrame([[1, 2]]), time="0").run().to_pylist() == [{"0": 1, "1": 2}]
    with pytest.raises(tm.UserError, match=r"each column once, got \['v'\] more than once"):
        tm.read(pd.DataFrame([[1, 2, 3]], columns=["t", "v", "v"]), time="t")


@pytest.mark.parametrize(("given", "said"), [
    ("https://example.org/a.csv", r"pandas.read_csv\('https://example.org/a.csv'\)"),
    (["a.csv", "b.csv"], "a glob such as"),
    ([(1, 2)], "pandas.DataFrame"),
])  # fmt: skip
def test_gave_what_is_no_file_and_no_frame(given: Any, said: str) -> None:
    with pytest.raises(tm.UserError, match=said):
        tm.read(given, time="t")


def test_gave_an_open_file_and_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "a.csv", "t\n1\n")
    with path.open() as opened, pytest.raises(tm.UserError, match="give the path of the file"):
        tm.read(opened, time="t")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tm.read("~/a.csv", time="t").run().num_rows == 1


def test_followed_a_file_with_lines_before_the_header(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", PREAMBLE)
    log = tm.stream("log", time="day", schema={"day": "timestamp", "km": "int64"}, skip=3)
    live = log.window(tm.tumbling("1d")).agg(km=tm.sum("km")).live()
    with pytest.raises(tm.UserError, match="lines of CSV from the header on, got skip=3"):
        list(live.read(log=tm.follow(path)))


def test_had_thousands_with_points(tmp_path: Path) -> None:
    """1.234 with `decimal=","` is more than a thousand; the option `decimal="."` would make 1.234 of it."""
    path = written(tmp_path, "a.csv", "t;v\n1;1.234\n2;500\n")
    log = tm.stream("a", time="t", schema={"t": "int64", "v": "float64"}, decimal=",")
    with pytest.raises(tm.UserError, match=r"with '.' between thousands.*; decimal='.' if"):
        log.run(path)
    found = tm.read(path, time="t", decimal=",")
    assert found.run()["v"].to_pylist() == ["1.234", "500"]


def test_gave_a_unit_that_makes_no_sense(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "t,v\n1767348300123,1\n")
    assert "unit 's', though unit='ms' would be of our days" in repr(tm.read(path, time="t", unit="s"))
    assert "though" not in repr(tm.read(path, time="t", unit="ms"))
    texts = pd.DataFrame({"t": ["1767348300"]})
    with pytest.raises(tm.UserError, match="format='%s' reads text that counts seconds"):
        tm.read(texts, time="t", unit="s")
    assert tm.read(texts, time="t", format="%s").run()["t"][0].as_py().year == 2026


def test_had_ints_that_pandas_made_floats() -> None:
    rows = pd.DataFrame({"t": [1.0, 2.0]})
    with pytest.raises(tm.UserError, match=r"schema={'t': 'int64'} makes logical time of them"):
        tm.read(rows, time="t")
    assert tm.read(rows, time="t", schema={"t": "int64"}).run()["t"].to_pylist() == [1, 2]


def test_had_columns_that_spaces_separate(tmp_path: Path) -> None:
    path = written(tmp_path, "a.txt", "t v\n1 2\n")
    with pytest.raises(tm.UserError, match=r"delimiter=' ' where one space .*sep=r'\\s\+'"):
        tm.read(path, time="t")
    assert tm.read(path, time="t", delimiter=" ").run()["v"].to_pylist() == [2]


def test_had_one_object_of_json_with_the_rows_inside(tmp_path: Path) -> None:
    path = written(tmp_path, "a.json", '{"data": [{"t": 1, "v": 2}], "n": 1}')
    with pytest.raises(tm.UserError, match=r"tm.read\(json.load\(open\(path\)\)\['data'\], time=...\)"):
        tm.read(path, time="t")
    assert tm.read(json.loads(path.read_text())["data"], time="t").run()["v"].to_pylist() == [2]
    path = written(tmp_path, "b.json", '{"t": {"0": 1, "1": 2}, "v": {"0": 3, "1": 4}}')
    with pytest.raises(tm.UserError, match=r"tm.read\(pandas.read_json\(path\), time=...\)"):
        tm.read(path, time="t")
    assert tm.read(pd.read_json(path), time="t").run()["v"].to_pylist() == [3, 4]


def test_had_a_column_in_later_files_of_a_glob_only(tmp_path: Path) -> None:
    first = written(tmp_path, "1.csv", "t,a\n2026-01-01,1\n")
    second = written(tmp_path, "2.csv", "t,a,b\n2026-01-02,2,5\n")
    with pytest.raises(tm.UserError, match=r"2\.csv: expected the columns of .*1\.csv, got 'b' besides"):
        tm.read(tmp_path / "*.csv", time="t")
    chosen = tm.read(tmp_path / "*.csv", time="t", schema=tm.read(first, time="t").schema)
    assert chosen.run()["a"].to_pylist() == [1, 2]
    without = tm.read(first, time="t").select("a", b=tm.lit(None).cast("int64"))
    both = without.union(tm.read(second, time="t", name="second"))
    assert both.sort("t").run()["b"].to_pylist() == [None, 5]


def test_had_signs_of_currency_and_percent_beside_numbers(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", 't,price,share\n2026-01-01,"$1,250.50",15%\n')
    rows = tm.read(path, time="t")
    day = rows.window(tm.tumbling("1d"))
    with pytest.raises(tm.UserError, match=r"\.replace\('\$', ''\) and \.replace\('%', ''\)"):
        day.agg(x=tm.sum("price"))
    with pytest.raises(tm.UserError, match=r"\.replace\('%', ''\)\.cast\('float64'\) / 100 reads it"):
        day.agg(x=tm.sum(col.share.cast("float64"))).run()
    with pytest.raises(tm.UserError, match=r"col\['price'\]\.replace\('\$', ''\)\.replace\(',', ''\)"):
        tm.read(path, time="t", schema={"price": "float64"}).run()
    price = col.price.replace("$", "").replace(",", "").cast("float64")
    share = col.share.replace("%", "").cast("float64") / 100
    assert rows.select(x=price * share).run()["x"].to_pylist() == [187.575]
