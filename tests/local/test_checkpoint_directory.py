"""Directories of checkpoints as a user meets them: what is written, what stays, what is refused."""

from __future__ import annotations

import json
import shutil
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidemill as tm
from tidemill import col
from tidemill.core.checksums import CHECKSUM, checksum
from tidemill.local import checkpoint_directory as directory
from tidemill.local.live import Live

STREAM = tm.stream("s", time="t", schema={"t": "int64", "k": "int64", "x": "int64"})
SUMS = STREAM.group_by("k").window(tm.hopping(40, every=10)).agg(n=tm.count(), x=tm.sum(col.x))
SLACK = tm.Disorder(slack=5)


def rows(t: int, keys: Any, x: int = 1) -> pa.Table:
    keys = np.asarray(keys)
    return pa.table({"t": np.full(len(keys), t), "k": keys, "x": np.full(len(keys), x)})


def files(path: Path, kind: str) -> list[str]:
    return sorted(p.name for p in path.iterdir() if p.name.startswith(kind))


def some(path: Path, checkpoints: int, keep: int = 3) -> Live:
    """A live query over many keys, of which few change, and its checkpoints; `position` is their number."""
    live = SUMS.live(SLACK)
    live.push(s=rows(0, range(3000)))
    for number in range(1, checkpoints + 1):
        live.push(s=rows(number, range(number, number + 9), x=number), position=number)
        live.checkpoint(path, keep=keep)
    return live


def flushed(live: Live) -> list[dict[str, Any]]:
    return live.flush().sort_by([("k", "ascending"), ("window_start", "ascending")]).to_pylist()


def test_a_checkpoint_costs_what_changed(tmp_path: Path) -> None:
    live = SUMS.live(SLACK)
    for t in (0, 10, 20):
        live.push(s=rows(t, range(4000)))
    whole = live.checkpoint(tmp_path, keep=3)
    live.push(s=rows(21, range(1000, 1040)))
    few_keys = live.checkpoint(tmp_path)
    assert few_keys < 0.05 * whole
    live.push(s=rows(36, range(1000, 1040)))  # closes a window, and evicts a pane of all keys
    assert live.checkpoint(tmp_path) < 0.05 * whole
    assert live.checkpoint(tmp_path) < 0.04 * whole, "nothing changed"
    live.close()
    again = tm.restore(SUMS, tmp_path, SLACK)
    again.push(s=rows(37, [7]))
    assert again.checkpoint(tmp_path) < 0.05 * whole, "it goes on from what it was restored from"
    assert len(files(tmp_path, "checkpoint")) == 3


def test_the_newest_stay_and_what_they_need(tmp_path: Path) -> None:
    live = some(tmp_path, 6, keep=2)
    assert files(tmp_path, "checkpoint") == ["checkpoint-000005.json", "checkpoint-000006.json"]
    named = {s.file for number in (5, 6) for s in directory.read_manifest(tmp_path, number).segments}
    assert set(files(tmp_path, "segment")) == named and len(named) == 6, "the whole state, and five changes"
    for left in ("segment-000009-00000000.arrow", ".segment-000007-00000000.arrow.0123456789ab.tmp",
                 ".checkpoint-000007.json.0123456789ab.tmp"):  # fmt: skip
        (tmp_path / left).write_bytes(b"of a writer that was killed")
    for other in ("notes.txt", "segment.arrow", ".hidden"):
        (tmp_path / other).write_bytes(b"of somebody else")
    live.checkpoint(tmp_path, keep=1)
    kept = {"checkpoint-000007.json", "writer.lock", "notes.txt", "segment.arrow", ".hidden"}
    named = {s.file for s in directory.read_manifest(tmp_path, 7).segments}
    assert {p.name for p in tmp_path.iterdir()} == kept | named


def test_the_state_is_written_whole_again_when_changes_are_many(tmp_path: Path) -> None:
    live = SUMS.live(SLACK)
    segments = []
    for t in range(1, 18):
        live.push(s=rows(t, range(50 * (t % 3), 400)))
        live.checkpoint(tmp_path, keep=1)
        segments.append(len(files(tmp_path, "segment")))
    assert segments.count(1) > 2 and 1 < max(segments) < 8
    assert flushed(tm.restore(SUMS, tmp_path, SLACK)) == flushed(live)


def test_a_damaged_checkpoint_is_left_out_with_a_warning(tmp_path: Path) -> None:
    some(tmp_path, 5).close()
    newest = directory.read_manifest(tmp_path, 5).segments[-1].file
    data = bytearray((tmp_path / newest).read_bytes())
    data[len(data) // 3] ^= 4
    (tmp_path / newest).write_bytes(data)
    with pytest.warns(RuntimeWarning, match=r"checkpoint 5 in .* is damaged \(the ch.*from checkpoint 4"):
        live = tm.restore(SUMS, tmp_path, SLACK)
    assert live.positions == {"s": 4}
    live.push(s=rows(6, [1]), position=6)
    live.checkpoint(tmp_path)
    assert files(tmp_path, "checkpoint") == [f"checkpoint-00000{n}.json" for n in (3, 4, 6)]
    assert len(directory.read_manifest(tmp_path, 6).segments) == 1, "whole: the one before is not the newest"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tm.restore(SUMS, tmp_path, SLACK).positions == {"s": 6}
    for name in files(tmp_path, "segment"):
        (tmp_path / name).unlink()
    with pytest.raises(tm.UserError, match=r"a whole checkpoint .* 6: segment-000006.* is missing; 4: "):
        tm.restore(SUMS, tmp_path, SLACK)


def test_one_query_writes_to_a_directory(tmp_path: Path) -> None:
    live = some(tmp_path, 2)
    other = tm.restore(SUMS, tmp_path, SLACK)
    with pytest.raises(tm.UserError, match=r"one live query that writes .*, got another one — close it"):
        other.checkpoint(tmp_path)
    live.checkpoint(tmp_path)
    live.close()
    other.push(s=rows(3, [5]))
    other.checkpoint(tmp_path)
    assert len(directory.read_manifest(tmp_path, 4).segments) == 1, "whole: it was restored from another"
    assert flushed(tm.restore(SUMS, tmp_path, SLACK)) == flushed(other)


def test_a_query_that_failed_lets_others_write(tmp_path: Path) -> None:
    live = some(tmp_path, 1)
    live.push(s=rows(2, [1, 1], x=(1 << 63) - 1))
    with pytest.raises(tm.UserError, match="int64"):
        live.punctuate(50)
    tm.restore(SUMS, tmp_path, SLACK).checkpoint(tmp_path)


def test_a_changed_query_is_refused_with_what_changed(tmp_path: Path) -> None:
    some(tmp_path, 1).close()
    some_rows = STREAM.where(col.x > 0).group_by("k")
    wider = some_rows.window(tm.hopping(60, every=10)).agg(n=tm.count(), x=tm.sum(col.x))
    said = r"aggregate: 'hopping\(40, every=10\)' is now 'hopping\(60, every=10\)'"
    with pytest.raises(tm.UserError, match=said) as refused:
        tm.restore(wider, tmp_path)
    assert "where: is new: '(col.x > 0)'" in str(refused.value)
    with pytest.raises(tm.UserError, match=r"of this query(.|\n)*where: is new(.|\n)*another directory"):
        wider.live().checkpoint(tmp_path)
    assert files(tmp_path, "checkpoint") == ["checkpoint-000001.json"]


def test_a_checkpoint_that_fails_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live = some(tmp_path, 2)
    before = {p.name for p in tmp_path.iterdir()}
    live.push(s=rows(8, [4, 5000]), position=8)

    def full(self: Any, manifest: Any) -> int:
        raise tm.UserError("checkpoint", "the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(directory.Writer, "_write_manifest", full)
        with pytest.raises(tm.UserError, match="disk is full"):
            live.checkpoint(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == before
    live.push(s=rows(9, [6]), position=9)
    live.checkpoint(tmp_path)
    again = tm.restore(SUMS, tmp_path, SLACK)
    assert again.positions == {"s": 9} and flushed(again) == flushed(live)


def test_reading_while_another_prunes(tmp_path: Path) -> None:
    live, stop, read = some(tmp_path, 1, keep=1), threading.Event(), []

    def restore() -> None:
        while not stop.is_set():
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                with tm.restore(SUMS, tmp_path, SLACK) as found:
                    read.append(found.positions["s"])

    reader = threading.Thread(target=restore)
    reader.start()
    at = 1
    while len(read) < 5 and reader.is_alive():
        at += 1
        live.push(s=rows(at, [at]), position=at)
        live.checkpoint(tmp_path, keep=1)
    stop.set()
    reader.join()
    assert len(read) >= 5 and read == sorted(read)


@pytest.mark.parametrize("path", ["new/", "there", "kept"])
def test_which_paths_are_directories(path: str, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    live = SUMS.live()
    live.push(s=rows(1, [1]), position=1)
    live.checkpoint(f"{tmp_path}/{path}", keep=1 if path == "kept" else None)
    live.checkpoint(tmp_path / "file")
    assert (tmp_path / path).is_dir() and (tmp_path / "file").is_file()
    for name in (path, "file"):
        assert tm.restore(SUMS, tmp_path / name).positions == {"s": 1}
    with pytest.raises(tm.UserError, match="keep= a number of checkpoints, at least 1, got 0"):
        live.checkpoint(tmp_path / "other", keep=0)
    with pytest.raises(tm.UserError, match=r"a directory at .*, or nothing yet"):
        live.checkpoint(tmp_path / "file", keep=2)
    (tmp_path / "empty").mkdir()
    with pytest.raises(tm.UserError, match=r"a whole checkpoint in .*empty, got none"):
        tm.restore(SUMS, tmp_path / "empty")


def test_late_rows_and_keys_that_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "MOST_CHANGES", 1000)  # so small a state would be written whole
    live = SUMS.live(tm.Disorder(slack=0))
    expected = []
    for t in range(0, 400, 40):
        live.push(s=rows(t, range(t, t + 30)))
        live.push(s=rows(t - 3, [t]))  # late
        if t == 200:
            live.take_late()
        live.checkpoint(tmp_path, keep=1)
        again = tm.restore(SUMS, tmp_path, SLACK)
        assert again.late().equals(live.late()) and again.stats().inputs == live.stats().inputs
        expected.append(live.late().num_rows)
        again.close()
    assert expected == [*range(1, 6), 0, *range(1, 5)]
    for _ in range(2):  # the second time, rows are as they were written once, but not last
        live.take_late()
        for late in (9, 3):
            live.push(s=rows(100, range(late)))
            live.checkpoint(tmp_path, keep=1)
            with tm.restore(SUMS, tmp_path, SLACK) as again:
                assert again.late().equals(live.late())
    assert flushed(tm.restore(SUMS, tmp_path, SLACK)) == flushed(live)


@pytest.mark.parametrize(
    "change",
    [
        {"number": 3},
        {"segments": []},
        {"segments": [{"file": "../outside.arrow", "bytes": 1, "page": 1, "sha256": ""}]},
        {"segments": [{"file": "segment-000001-00000000.arrow"}]},
        {"segments": None},
    ],
)
def test_a_crafted_manifest_does_no_harm(change: dict[str, Any], tmp_path: Path) -> None:
    some(tmp_path / "saved", 2).close()
    shutil.copy(next((tmp_path / "saved").glob("segment*")), tmp_path / "outside.arrow")
    file = tmp_path / "saved" / "checkpoint-000002.json"
    page = json.loads(file.read_text()) | change
    page[CHECKSUM] = checksum(page)
    file.write_text(json.dumps(page))
    with pytest.warns(RuntimeWarning, match="checkpoint 2 .* is damaged"):
        assert tm.restore(SUMS, tmp_path / "saved", SLACK).positions == {"s": 1}


def test_a_checkpoint_of_another_version_is_refused(tmp_path: Path) -> None:
    some(tmp_path, 1).close()
    file = tmp_path / "checkpoint-000001.json"
    page = json.loads(file.read_text()) | {"format": 99}
    page[CHECKSUM] = checksum(page)
    file.write_text(json.dumps(page))
    with pytest.raises(tm.UserError, match="another version of Tidemill"):
        tm.restore(SUMS, tmp_path, SLACK)
