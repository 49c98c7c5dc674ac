"""Streams in files: what was written comes back, punctuations included, and damage is refused."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidemill as tm
from tidemill.core.time import to_datetime

SCHEMA = {"ts": "timestamp", "k": "string", "x": "float64"}
STREAM = tm.stream("s", time="ts", schema=SCHEMA)
ROW = {"ts": to_datetime(7_000_000), "k": "a", "x": 1.5}


def listed(path: Path) -> list[Any]:
    return [i if isinstance(i, tm.Punctuation) else i.to_pylist() for i in tm.read_stream(path)]


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "s.arrows"
    items = [
        [ROW, {**ROW, "k": None}], tm.Punctuation("1970-01-01T00:00:09Z"), ROW,
        tm.Punctuation(20_000_000, key={"k": [None, "a"], "ts": [to_datetime(1), None]}),
        pa.table({"ts": [ROW["ts"]], "k": ["b"], "x": [2]}),
    ]  # fmt: skip
    assert tm.write_stream(path, items, STREAM.schema) == 4
    first, promise, second, of_keys, last = listed(path)
    assert (first, second, last) == ([ROW, {**ROW, "k": None}], [ROW], [{**ROW, "k": "b", "x": 2.0}])
    assert promise == tm.Punctuation(9_000_000)
    assert of_keys.below == 20_000_000
    assert {n: a.to_pylist() for n, a in of_keys.key.items()} == {
        "k": [None, "a"],
        "ts": [to_datetime(1), None],
    }
    assert pa.ipc.open_stream(path.read_bytes()).read_all().num_rows == 4, "others see the rows"
    count = STREAM.window(tm.tumbling("1s")).agg(n=tm.count())
    assert count.run(s=tm.read_stream(path)).to_pydict()["n"] == [4]
    assert count.run(s=path).to_pydict()["n"] == [4]
    assert "read_stream" in repr(tm.read_stream(path))


def test_a_stream_through_a_pipe() -> None:
    sink = io.BytesIO()
    tm.write_stream(
        sink, [ROW], pa.schema([("ts", pa.timestamp("us", "UTC")), ("k", pa.string()), ("x", pa.float32())])
    )
    assert pa.ipc.open_stream(sink.getvalue()).read_all().to_pylist() == [ROW]


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    def items() -> Any:
        yield [ROW]
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        tm.write_stream(tmp_path / "s.arrows", items(), SCHEMA)
    assert os.listdir(tmp_path) == []


def test_a_writer_continues_a_stream_and_cuts_off_half_a_message(tmp_path: Path) -> None:
    path = tmp_path / "s.arrows"
    with tm.StreamWriter(path, SCHEMA) as writer:
        writer.write(ROW)
        whole = path.stat().st_size
        writer.punctuate(5)
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - 3)
    with tm.StreamWriter(path, SCHEMA) as writer:
        assert path.stat().st_size == whole
        with pytest.raises(tm.UserError, match="one writer at a time"):
            tm.StreamWriter(path, SCHEMA)
        writer.punctuate(6)
        writer.sync()
        writer.end()
    assert listed(path) == [[ROW], tm.Punctuation(6)]
    with pytest.raises(tm.UserError, match="a writer that is open"):
        writer.write(ROW)
    with pytest.raises(tm.UserError, match="one that was ended"):
        tm.StreamWriter(path, SCHEMA)
    with pytest.raises(tm.UserError, match=r"a stream of Schema.*, got a file with something else"):
        tm.StreamWriter(path, {"t": "int64"})


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ([{"ts": 1}], "write stream, row 1"),
        (tm.Punctuation(1, key={"y": 1}), "punctuation: expected a column"),
        (tm.Punctuation(1, key={"k": 1}), "punctuation: expected keys 'k' of string"),
        (tm.Punctuation(1, key={"k": ["a"], "x": [1.0, 2.0]}), "key columns of one length"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, item: Any, said: str) -> None:
    with tm.StreamWriter(tmp_path / "s.arrows", SCHEMA) as writer:
        writer.write(ROW)
        with pytest.raises(tm.UserError, match=said):
            writer.punctuate(item.below, key=item.key) if isinstance(item, tm.Punctuation) else writer.write(
                item
            )
    assert listed(tmp_path / "s.arrows") == [[ROW]]


@pytest.mark.parametrize(
    "make", [lambda: tm.Punctuation(1 << 62), lambda: tm.Punctuation(1, key={}), lambda: tm.Punctuation(None)]
)  # type: ignore
def test_a_promise_of_nothing_is_refused(make: Any) -> None:
    with pytest.raises(tm.UserError, match="punctuation: expected"):
        make()


def said_below(metadata: dict[str, str]) -> bytes:
    """A stream with one batch that has metadata."""
    sink = pa.BufferOutputStream()
    batch = pa.RecordBatch.from_pylist([], schema=STREAM.schema.to_arrow())
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch, custom_metadata=metadata)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    "metadata",
    [
        {"tidemill.below": "x"},
        {"tidemill.below": str(1 << 62)},
        {"tidemill.below": "1", "tidemill.key": "no base64"},
        {"tidemill.below": "1", "tidemill.key": "AAAA"},
    ],
)
def test_a_promise_that_cannot_be_read_is_refused(tmp_path: Path, metadata: dict[str, str]) -> None:
    path = tmp_path / "s.arrows"
    path.write_bytes(said_below(metadata))
    with pytest.raises(tm.UserError, match=r"read stream .*: a punctuation cannot be read"):
        list(tm.read_stream(path))


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.arrows"
    tm.write_stream(path, [[ROW] * 3, tm.Punctuation(5)], SCHEMA)
    data = path.read_bytes()
    for size in range(0, len(data) - 9, 16):
        path.write_bytes(data[:size])
        try:
            whole = listed(path)
        except tm.UserError:
            continue
        assert whole in ([], [[ROW] * 3]), "a prefix of whole messages"
    with pytest.raises(tm.UserError, match="read stream"):
        tm.read_stream(tmp_path / "none.arrows")
    with pytest.raises(tm.UserError, match="a plain file"):
        tm.read_stream(tmp_path)
    path.write_text("t,k\n")
    with pytest.raises(tm.UserError, match=r"expected an Arrow IPC stream.*tm.write_stream writes one"):
        tm.read_stream(path)
