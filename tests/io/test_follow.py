"""What is followed: whole lines and whole messages only, and a file that is no longer the same is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidemill as tm
from tidemill.core.clock import Clock
from tidemill.core.schema import schema
from tidemill.io.arrow_checks import require_sound
from tidemill.io.feeds import Arrival, Feed, OpenFeed
from tidemill.plan.nodes import Source

SCHEMA = {"t": "int64", "k": "string"}
SOURCE = Source("s", schema(SCHEMA), "t", step="read s")
TIMED = Source("s", schema({"ts": "timestamp", "k": "string"}), "ts", step="read s")


def opened(feed: Feed, position: Any = None, source: Source = SOURCE) -> OpenFeed:
    return feed.open(source, position, Clock())


def taken(feed: OpenFeed) -> list[Any]:
    """Accept all that is there, and return its rows and promises."""
    found: list[Any] = []
    while (arrival := feed.poll()) is not None:
        found += items_of(arrival)
        feed.accept()
    return found


def items_of(arrival: Arrival) -> list[Any]:
    rows = [] if arrival.rows is None else list(map(tuple, map(dict.values, arrival.rows.to_pylist())))
    return [*rows, *arrival.promises]


# --- lines --------------------------------------------------------------------------------------------


def test_a_half_written_line_waits(tmp_path: Path) -> None:
    log = tmp_path / "s.csv"
    feed = opened(tm.follow(log))
    assert feed.poll() is None, "a file that is not there is waited for"
    log.write_text("k,")
    assert feed.poll() is None, "not even the header is whole"
    with open(log, "a") as file:
        file.write("t\nä,1\n\nb,2")
    assert taken(feed) == [(1, "ä")]
    with open(log, "a") as file:
        file.write("3\r\n")
    assert taken(feed) == [(23, "b")]
    assert feed.position["offset"] == log.stat().st_size and feed.position["line"] == 5
    again = opened(tm.follow(log), feed.position)
    with open(log, "a") as file:
        file.write("c,4\n")
    assert taken(again) == [(4, "c")], "the header is read again"


def test_what_was_not_accepted_comes_again(tmp_path: Path) -> None:
    log = tmp_path / "s.jsonl"
    log.write_text('{"t": 1, "k": "a"}\n')
    feed = opened(tm.follow(log))
    assert feed.poll() is feed.poll()
    assert feed.position is None
    assert taken(feed) == [(1, "a")]


@pytest.mark.parametrize(
    ("name", "lines", "said"),
    [
        (
            "s.csv",
            ["t,k", "1,a", "x,b", "3,c"],
            r"line 3 at byte 8: cannot be read: 'x,b': expected column 't' of int64, got 'x'",
        ),
        (
            "s.csv",
            ["t,k", "1,a", "2", "3,c"],
            r"line 3 at byte 8: cannot be read: '2': .*Expected 2 columns, got 1",
        ),
        ("s.csv", ["t,k", "1,a", '2,"b', '3,c"'], r"line 3 at byte 8.*a quote that is not closed"),
        ("s.jsonl", ['{"t": 1}', "{"], r"line 2 at byte 9: cannot be read: '{'"),
        ("s.jsonl", ['{"t": 1}', '{"t": 2}{"t": 3}'], "line 2 at byte 9: .*1 lines with 2 rows"),
        ("s.jsonl", ['{"t": 1}', '{"t":', "2}"], "line 2 at byte 9: "),
        ("s.jsonl", ['{"t": 1}', '{"t": "x"}'], "line 2 at byte 9: "),
    ],
)
def test_a_bad_line_is_named_by_its_place(tmp_path: Path, name: str, lines: list[str], said: str) -> None:
    log = tmp_path / name
    log.write_text("\n".join(lines) + "\n")
    with pytest.raises(tm.UserError, match=rf"read s, file .*{name}, {said}"):
        opened(tm.follow(log)).poll()


def test_bad_lines_can_be_taken_by_a_function(tmp_path: Path) -> None:
    log, bad = tmp_path / "s.csv", []
    good = [f"{t},k{t}" for t in range(300)]
    log.write_text("\n".join(["t,k", *good[:150], "bad", '7,"', *good[150:], "x,y"]) + "\n")
    feed = tm.follow(log, on_bad=bad.append)
    assert taken(opened(feed)) == [(t, f"k{t}") for t in range(300)]
    assert [line.text for line in bad] == [b"bad", b'7,"', b"x,y"]
    assert feed.bad_lines == 3 and "line 152 at byte" in bad[0].place  # type: ignore[attr-defined]


def test_quotes_within_a_line_are_fine(tmp_path: Path) -> None:
    log = tmp_path / "s.csv"
    log.write_text('t,k\n1,"a,b"\n2,"say ""so"""\n3,5"\n4,""\n5,\n')
    assert taken(opened(tm.follow(log))) == [(1, "a,b"), (2, 'say "so"'), (3, '5"'), (4, ""), (5, None)]


def test_instants_are_read_as_from_other_files(tmp_path: Path) -> None:
    log = tmp_path / "s.csv"
    log.write_text("ts,k\n1970-01-01T01:00:00+01:00,a\n1970-01-01,b\n")
    assert [ts.timestamp() for ts, _ in taken(opened(tm.follow(log), source=TIMED))] == [0, 0]
    with open(log, "a") as file:
        file.write("yesterday,c\n")
    with pytest.raises(
        tm.UserError, match="line 4 at byte 46: cannot be read: 'yesterday,c': expected times in column 'ts'"
    ):
        taken(opened(tm.follow(log), source=TIMED))


def test_a_missing_column_and_invalid_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t,other\n1,2\n")
    with pytest.raises(tm.UserError, match=r"a.csv, line 1: expected a column 'k'"):
        opened(tm.follow(tmp_path / "a.csv")).poll()
    (tmp_path / "b.jsonl").write_bytes(b'{"t": 1, "k": "a"}\n{"t": 2, "k": "\xff"}\n')
    with pytest.raises(tm.UserError, match="line 2 at byte 19"):
        opened(tm.follow(tmp_path / "b.jsonl")).poll()


def rotate(log: Path) -> None:
    log.rename(log.with_suffix(".old"))
    log.write_text('{"t": 1, "k": "a"}\n' * 9)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda log: log.write_text("{}\n"), "truncated"),
        (lambda log: log.write_text('{"t": 2, "k": "b"}\n' * 9), "another beginning"),
        (rotate, "rotated"),
        (lambda log: log.unlink(), "removed"),
    ],
)
def test_a_file_that_is_not_the_same_is_refused(
    tmp_path: Path, change: Callable[[Path], Any], said: str
) -> None:
    log = tmp_path / "s.jsonl"
    log.write_text('{"t": 1, "k": "a"}\n' * 3)
    feed = opened(tm.follow(log))
    assert len(taken(feed)) == 3
    change(log)
    with pytest.raises(
        tm.UserError, match=rf"the file that was read up to byte 57, got .*{said}.*positions.pop"
    ):
        taken(feed)
    feed.close()


def test_a_file_that_was_replaced_while_nobody_read_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "s.jsonl"
    log.write_text('{"t": 1, "k": "a"}\n')
    feed = opened(tm.follow(log))
    taken(feed)
    log.write_text('{"t": 7, "k": "a"}\n' * 2)
    with pytest.raises(tm.UserError, match="another beginning"):
        opened(tm.follow(log), feed.position).poll()
    log.unlink()
    with pytest.raises(tm.UserError, match="no file there"):
        opened(tm.follow(log), feed.position).poll()


def test_what_a_rotated_file_still_had_is_read_first(tmp_path: Path) -> None:
    log = tmp_path / "s.jsonl"
    log.write_text('{"t": 1, "k": "a"}\n')
    feed = opened(tm.follow(log))
    taken(feed)
    with open(log, "a") as file:
        file.write('{"t": 2, "k": "a"}\n')
    rotate(log)
    assert feed.poll() is not None
    feed.accept()
    with pytest.raises(tm.UserError, match="rotated"):
        feed.poll()


@pytest.mark.parametrize(
    "position", [7, {"offset": -1, "head": ""}, {"offset": 3}, {"offset": 1, "head": "x"}, "x"]
)
def test_a_position_of_something_else_is_refused(tmp_path: Path, position: Any) -> None:
    (tmp_path / "s.csv").write_text("t,k\n1,a\n")
    with pytest.raises(tm.UserError, match=r"a position of this kind of source.*positions.pop\('s'\)"):
        opened(tm.follow(tmp_path / "s.csv"), position)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda folder: tm.follow(folder / "x.parquet"), "a file of CSV, JSON lines"),
        (lambda folder: tm.follow(folder / "x.csv", format="xml"), "format= one of"),
        (lambda folder: tm.follow(folder, format="csv"), "format= and on_bad= for one file"),
        (lambda folder: tm.follow(folder / "x.csv", poll=5), "a time such as '100ms'"),
        (lambda folder: tm.follow(folder / "x.csv", on_bad=5), "on_bad= a function"),
    ],
)
def test_what_cannot_be_followed_is_refused(tmp_path: Path, make: Callable[[Path], Any], said: str) -> None:
    with pytest.raises(tm.UserError, match=said):
        make(tmp_path)


# --- directories --------------------------------------------------------------------------------------


def part(path: Path, *times: int) -> None:
    pq.write_table(pa.table({"t": list(times), "k": ["a"] * len(times)}), path)


def test_parts_come_in_the_order_of_names_and_later_ones_later(tmp_path: Path) -> None:
    for name, t in (("b", 2), ("a", 1), (".hidden", 8), ("_log", 9), ("c.parquet.tmp", 9)):
        part(tmp_path / (name if "." in name else f"{name}.parquet"), t)
    feed = opened(tm.follow(tmp_path))
    assert [t for t, _ in taken(feed)] == [1, 2]
    part(tmp_path / "aa.parquet", 3, 4)
    (tmp_path / "2026").mkdir()
    (tmp_path / "2026" / "x.csv").write_text("t,k\n5,b\n")
    assert [t for t, _ in taken(feed)] == [5, 3, 4], "a part with a lower name than others that were read"
    os.unlink(tmp_path / "a.parquet")
    again = opened(tm.follow(tmp_path), json.loads(json.dumps(feed.position)))
    part(tmp_path / "z.parquet", 6)
    assert [t for t, _ in taken(again)] == [6]
    assert sorted(again.position["done"]) == ["2026/x.csv", "aa.parquet", "b.parquet", "z.parquet"]


def test_a_part_that_changes_is_refused(tmp_path: Path) -> None:
    part(tmp_path / "a.parquet", 1)
    feed = opened(tm.follow(tmp_path / "*.parquet"))
    taken(feed)
    part(tmp_path / "a.parquet", 1, 2)
    with pytest.raises(tm.UserError, match=r"a part that stays as it is.*after it was read.*a new name"):
        feed.poll()
    with pytest.raises(tm.UserError, match="a part that stays as it is"):
        opened(tm.follow(tmp_path / "*.parquet"), feed.position).poll()


def test_a_part_that_goes_before_it_was_read_is_an_error(tmp_path: Path) -> None:
    for name in "abc":
        part(tmp_path / f"{name}.parquet", 1)
    feed = opened(tm.follow(tmp_path))
    assert feed.poll() is not None
    feed.accept()
    started = feed.position
    (tmp_path / "b.parquet").unlink()
    with pytest.raises(tm.UserError, match=r"b\.parquet: .*removed before it was read"):
        taken(feed)
    assert len(taken(feed)) == 1, "the others are read"
    part(tmp_path / "a.parquet", 1, 2)
    with pytest.raises(tm.UserError, match="another file, or none, after some of it was read"):
        opened(tm.follow(tmp_path), started).poll()


def test_a_part_is_left_in_the_middle(tmp_path: Path) -> None:
    pq.write_table(pa.table({"t": range(300_000), "k": ["a"] * 300_000}), tmp_path / "a.parquet")
    feed, rows = opened(tm.follow(tmp_path)), 0
    for _ in range(9):
        arrival = feed.poll()
        if arrival is None:
            break
        if arrival.rows is not None:
            assert arrival.rows["t"][0].as_py() == rows
            rows += arrival.rows.num_rows
        feed.accept()
        feed = opened(tm.follow(tmp_path), json.loads(json.dumps(feed.position)))
    assert rows == 300_000


def test_a_damaged_part_and_a_folder_that_is_gone_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(tm.UserError, match=r"read s, file .*a\.parquet: cannot be read"):
        opened(tm.follow(tmp_path)).poll()
    feed = opened(tm.follow(tmp_path))
    (tmp_path / "a.parquet").unlink()
    tmp_path.rmdir()
    with pytest.raises(tm.UserError, match="FileNotFoundError"):
        feed.poll()


# --- streams ------------------------------------------------------------------------------------------


def test_a_stream_is_followed_message_by_message(tmp_path: Path) -> None:
    whole, grown = tmp_path / "whole.arrows", tmp_path / "grown.arrows"
    with tm.StreamWriter(whole, SCHEMA) as writer:
        writer.write([{"t": 1, "k": "a"}])
        writer.punctuate(5)
        writer.punctuate(9, key={"k": ["a", "b"]})
        writer.write([{"t": 6, "k": "b"}, {"t": 7, "k": None}])
        writer.end()
    data = whole.read_bytes()
    feed, found, position = opened(tm.follow(grown)), [], None
    for end in range(0, len(data) + 1, 4):
        grown.write_bytes(data[:end]) if end == 0 else _append(grown, data[end - 4 : end])
        found += taken(feed)
        if feed.position != position:
            position = json.loads(json.dumps(feed.position))
            feed.close()
            feed = opened(tm.follow(grown), position)
    assert feed.poll() is None and feed.ended
    assert found[:2] == [(1, "a"), tm.Punctuation(5)]
    assert (found[2].below, found[2].key["k"].to_pylist()) == (9, ["a", "b"])
    assert found[3:] == [(6, "b"), (7, None)]


def _append(path: Path, data: bytes) -> None:
    with open(path, "ab") as file:
        file.write(data)


def test_damaged_streams_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.arrows"
    with tm.StreamWriter(path, SCHEMA) as writer:
        writer.write([{"t": 1, "k": "a"}])
        writer.punctuate(5, key={"k": "a"})
    data = path.read_bytes()
    refused = 0
    for at in range(0, len(data), 3):
        damaged = data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
        path.write_bytes(damaged)
        try:  # each byte is either no matter, or missing bytes, or an error of ours
            for arrival in iter(opened(tm.follow(path)).poll, None):
                if arrival.rows is not None:
                    [require_sound(batch, "push") for batch in arrival.rows.to_batches()]  # as `push` does
                break
        except tm.UserError:
            refused += 1
    assert refused > 20
    path.write_bytes(b"t,k\n1,a\n")
    with pytest.raises(tm.UserError, match="no message of an Arrow stream at byte 0"):
        opened(tm.follow(path)).poll()


def test_a_stream_with_dictionaries_or_other_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.arrows"
    table = pa.table({"t": [1], "k": pa.array(["a"]).dictionary_encode()})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(tm.UserError, match="plain columns in a stream that is followed"):
        opened(tm.follow(path)).poll()
    path.unlink()
    tm.write_stream(path, [], {"t": "int64"})
    with pytest.raises(tm.UserError, match="expected a column 'k'"):
        opened(tm.follow(path)).poll()


def test_a_directory_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    query = tm.stream("s", time="t", schema={"t": "int64"}).window(tm.tumbling(10)).agg(n=tm.count())
    live, looked = query.live(tm.Disorder(slack=0)), []

    def appears() -> bool:
        looked.append(None)
        if len(looked) == 1:
            folder.mkdir()
            (folder / "a.jsonl").write_text('{"t": 1}\n{"t": 12}\n')
            return False
        return True

    feed = tm.follow(f"{folder}/", until=appears, poll="1ms")
    assert [table.to_pydict()["n"] for table in live.read(s=feed)] == [[1]]
