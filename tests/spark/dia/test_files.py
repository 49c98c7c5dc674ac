"""Files: in order, all or none, and the same DIA again."""

from __future__ import annotations

import gzip
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tidemill.core.errors import UnsupportedError, UserError
from tidemill.spark.dia import generate, read_binary, read_lines


def test_lines_come_by_name_and_then_as_they_stand(spark: Any, tmp_path: Path) -> None:
    where = tmp_path / "in [1] {x}"
    where.mkdir()
    (where / "b.txt").write_text("b1\nb2\r\nb3")
    (where / "a*.txt").write_text("a1\n\na3\n")
    with gzip.open(where / "aa.gz", "wt") as file:
        file.write("z1\nz2\n")
    (where / "_hidden").write_text("no")
    lines = ["a1", "", "a3", "z1", "z2", "b1", "b2", "b3"]
    assert read_lines(spark, where).all_gather() == lines
    assert read_lines(spark, where / "b.txt").all_gather() == ["b1", "b2", "b3"]
    assert read_lines(spark, f"{tmp_path}/*/b*").all_gather() == ["b1", "b2", "b3"]
    assert read_lines(spark, f"file://{tmp_path}/*/aa*").all_gather() == ["z1", "z2"]


@pytest.mark.parametrize("read", [read_lines, read_binary])
def test_a_path_that_matches_nothing(spark: Any, tmp_path: Path, read: Any) -> None:
    for path in (tmp_path / "none", tmp_path / "none*", tmp_path):
        with pytest.raises(UserError, match="which matches nothing"):
            read(spark, path)


def test_lines_that_cannot_be_read(spark: Any, tmp_path: Path) -> None:
    whole = gzip.compress("".join(f"{i * 7919 % 10007}\n" for i in range(20_000)).encode())
    (tmp_path / "cut.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "other.gz").write_bytes(b"no gzip at all")
    (tmp_path / "gone.txt").write_text("a line")
    gone = read_lines(spark, tmp_path / "gone.txt")
    (tmp_path / "gone.txt").unlink()
    for lines in (read_lines(spark, tmp_path / "cut.gz"), read_lines(spark, tmp_path / "other.gz"), gone):
        with pytest.raises(UserError, match=f"size: cannot read .*{tmp_path}"):
            lines.size()
    for path in (f"{tmp_path}/[", "nosuch://here/x", ""):
        with pytest.raises(UserError, match="read_lines: cannot read"):
            read_lines(spark, path)


def test_lines_written_in_several_files_and_in_one(spark: Any, tmp_path: Path) -> None:
    lines = generate(spark, 300, parts=4).map(lambda i: f"line {i} ü")
    files = lines.write_lines(tmp_path / "out", file_bytes=500)
    assert files == sorted(files) and len(files) > 4
    assert sorted(os.listdir(tmp_path / "out")) == [os.path.basename(f) for f in files]
    assert all(0 < os.path.getsize(f) <= 500 for f in files)
    assert os.listdir(tmp_path) == ["out"]
    want = [f"line {i} ü" for i in range(300)]
    assert read_lines(spark, tmp_path / "out").all_gather() == want
    assert lines.write_lines(tmp_path / "one.txt", one_file=True) == [str(tmp_path / "one.txt")]
    assert (tmp_path / "one.txt").read_text() == "".join(f"{w}\n" for w in want)
    with pytest.raises(UserError, match="a directory that is new or empty"):
        lines.write_lines(tmp_path / "out")
    long = (
        generate(spark, 2).map(lambda i: "x" * 900).write_lines(tmp_path / "long", file_bytes=500)
    )
    assert len(long) == 2


def test_binary_files_make_the_same_dia_again(spark: Any, tmp_path: Path) -> None:
    start = datetime(2024, 1, 1, tzinfo=timezone.utc)
    rows = generate(spark, 500, parts=3).map(
        lambda i: {
            "n": i, "t": start + timedelta(hours=i), "p": (str(i), [0.5] * (i % 3)), "z": None
        },
        returns={"n": int, "t": datetime, "p": (str, [float]), "z": bool},
    )  # fmt: skip
    files = rows.write_binary(tmp_path / "rows", file_bytes=6000)
    assert len(files) > 3 and all(os.path.getsize(f) <= 6000 for f in files)
    again = read_binary(spark, tmp_path / "rows")
    assert again._node.kind == rows._node.kind
    assert again.all_gather() == rows.all_gather()
    rows.write_binary(tmp_path / "one.arrow", one_file=True)
    assert read_binary(spark, tmp_path / "one.arrow").size() == 500
    # A record with the one field `value` is not a scalar.
    records = generate(spark, 2).map(lambda i: {"value": i})
    records.write_binary(tmp_path / "records")
    assert read_binary(spark, tmp_path / "records").all_gather() == [{"value": 0}, {"value": 1}]
    empty = records.filter(lambda e: e.value > 9)
    empty.write_binary(tmp_path / "empty")
    assert read_binary(spark, tmp_path / "empty")._node.kind == records._node.kind
    empty.map(lambda e: "x").write_lines(tmp_path / "no lines")
    assert read_lines(spark, tmp_path / "no lines").all_gather() == []
    (tmp_path / "rows" / "zz.arrow").write_bytes(
        (tmp_path / "records" / "part-000000-000000.arrow").read_bytes()
    )
    with pytest.raises(UserError, match="read_binary: expected elements of"):
        read_binary(spark, tmp_path / "rows")


def test_a_write_that_fails_leaves_nothing(spark: Any, tmp_path: Path) -> None:
    late = generate(spark, 60, parts=3).map(lambda i: "x" * (1 // (55 - int(i)) + 2), returns=str)
    for one_file in (False, True):
        with pytest.raises(UserError, match="map: a lambda raised ZeroDivisionError"):
            late.write_lines(tmp_path / "out", one_file=one_file, file_bytes=10)
    with pytest.raises(UserError, match="ZeroDivisionError"):
        late.write_binary(tmp_path / "out")
    with pytest.raises(UserError, match="write_lines: expected lines, got null"):
        generate(spark, 2).map(lambda i: None, returns=str).write_lines(tmp_path / "null")
    with pytest.raises(UserError, match="write_lines: expected strings, got int64"):
        generate(spark, 2).write_lines(tmp_path / "numbers")
    with pytest.raises(UnsupportedError, match="s3: addresses"):
        late.write_lines("s3://bucket/x")
    assert os.listdir(tmp_path) == []
    (tmp_path / "text").write_text("no arrow")
    with pytest.raises(UserError, match="read_binary: expected Arrow files"):
        read_binary(spark, tmp_path / "text")


@pytest.mark.soak
def test_names_that_look_like_parts_of_an_address(spark: Any, tmp_path: Path) -> None:
    for name in ("out#1", "a?b", "50%"):
        generate(spark, 3).write_binary(tmp_path / name)
        assert read_binary(spark, tmp_path / name).all_gather() == [0, 1, 2]


def test_directories_made_for_a_write_that_fails_go_with_it(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(UserError, match="got null"):
        generate(spark, 2).map(lambda i: None, returns=str).write_lines(tmp_path / "mine" / "x" / "y" / "out")
    assert os.listdir(tmp_path / "mine") == []


def test_nothing_is_written_over(spark: Any, tmp_path: Path) -> None:
    lines = generate(spark, 2).map(lambda i: f"line {i}")
    (tmp_path / "there").write_text("mine")
    for one_file in (False, True):
        with pytest.raises(UserError, match="that is new"):
            lines.write_lines(tmp_path / "there", one_file=one_file)
    assert (tmp_path / "there").read_text() == "mine"


def test_hidden_files_are_no_lines_of_a_pattern_either(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    (tmp_path / "_SUCCESS").write_text("")
    assert read_lines(spark, f"{tmp_path}/*").all_gather() == ["a"]
    with pytest.raises(UserError, match="are hidden"):
        read_lines(spark, tmp_path / "_SUCCESS")


def test_links_and_pipes_in_a_directory_of_lines(spark: Any, tmp_path: Path) -> None:
    inside, outside = tmp_path / "sent", tmp_path / "outside"
    for folder in (inside, inside / "2024", outside):
        folder.mkdir()
        (folder / "a.txt").write_text("a\n")
    (tmp_path / "link").symlink_to(inside)
    for named in (inside, tmp_path / "link", f"{tmp_path}/link/*.txt", f"{inside}/20*/a.txt"):
        assert read_lines(spark, named).all_gather() == ["a"], named
    (inside / "2025").symlink_to(outside)
    for pattern in (f"{inside}/20*/a.txt", f"{inside}/20*", f"{inside}/{{2024/a,2025/a}}.txt"):
        with pytest.raises(UserError, match="2025, a link"):
            read_lines(spark, pattern)
    (inside / "b.txt").symlink_to(outside / "a.txt")
    for named in (inside, f"{inside}/*.txt"):
        with pytest.raises(UserError, match=r"b\.txt, a link"):
            read_lines(spark, named)
    assert read_lines(spark, inside / "b.txt").all_gather() == ["a"]
    (inside / "b.txt").unlink()
    os.mkfifo(inside / "c.txt")
    for named in (inside, inside / "c.txt", f"{inside}/*.txt", "/dev/null"):
        with pytest.raises(UserError, match=r"(c\.txt|null), which is not a file"):
            read_lines(spark, named)
