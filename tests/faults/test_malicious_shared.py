"""Shared directories that someone else made, and what comes between a writer and its directory."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidemill as tm
from tests.faults.shared_child import new_wheel, write
from tidemill.core.errors import UserError
from tidemill.wheels.loops.answer import CHANGED
from tidemill.wheels.sharing import writer as shared

pytestmark = pytest.mark.interpreted


@pytest.fixture
def writer(tmp_path: Path) -> Any:
    wheel = new_wheel()
    write(wheel, 1, 0, 5)
    wheel.share(tmp_path / "wheel")
    return wheel


@pytest.mark.parametrize("file", ["*-wheel.json", "*-1.json"])
def test_json_of_a_hundred_thousand_brackets_is_refused(writer: Any, file: str, tmp_path: Path) -> None:
    [found] = (tmp_path / "wheel").glob(file)
    found.write_text("[" * 100_000)
    with pytest.raises(UserError, match=rf"{found} as it was written, got not JSON"):
        tm.open_wheel(tmp_path / "wheel")


def test_keys_in_few_bytes_do_not_become_more_than_there_is_memory_for(writer: Any, tmp_path: Path) -> None:
    [file] = (tmp_path / "wheel").glob("*-keys-0.arrow")
    zeros = pa.table({"k": np.zeros(1 << 20, dtype=np.int64)})
    packed = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, zeros.schema, options=packed) as out:
        out.write_table(zeros)
    reader: Any = tm.open_wheel(tmp_path / "wheel")
    with pytest.raises(UserError, match=r"keys-0.arrow.*compressed"):
        reader.query(0, 5)


def test_a_file_that_comes_while_a_directory_is_taken_over_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thesis = tmp_path / "thesis.txt"
    monkeypatch.setattr(shared, "_take_over", lambda path: thesis.write_text("three years"))
    new_wheel().share(tmp_path)
    assert thesis.read_text() == "three years"


@pytest.mark.parametrize("owner, call", [(os, "replace"), (os, "unlink"), (Path, "iterdir")])
def test_a_directory_in_which_this_user_may_not_write_is_named(
    owner: Any, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{'0' * 16}-1.json").write_text("{}")  # a writer that was killed left it

    def refused(path: Any, *_: Any, **__: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", os.fspath(path))

    wheel = new_wheel()
    monkeypatch.setattr(owner, call, refused)
    with pytest.raises(UserError, match=rf"{tmp_path}.*check the permissions"):
        wheel.share(tmp_path)


def test_a_wheel_that_finds_no_room_elsewhere_stays_where_it_was_shared(
    writer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader: Any = tm.open_wheel(tmp_path / "wheel")

    def full(*_: Any) -> None:
        raise UserError("share wheel", "the disk is full")

    publish, first = shared.Publisher.publish, writer._publisher

    def publish_elsewhere(publisher: Any, store: Any) -> None:
        """There is no room for another copy where it is shared already, either."""
        return full() if publisher is first else publish(publisher, store)

    for step in ("add_keys", "_new_root"):  # when its arrays are in the new files, and before
        with monkeypatch.context() as patch:
            patch.setattr(shared.Publisher, step, full)
            patch.setattr(shared.Publisher, "publish", publish_elsewhere)
            with pytest.raises(UserError, match="disk is full"):
                writer.share(tmp_path / "other")
        assert os.listdir(tmp_path / "other") == ["writer.lock"]
        assert reader.writer == "alive"
    writer._share_by(first)  # as it publishes without the patch
    write(writer, 1, 5, 30)
    assert reader.watermark == 30 and reader.query(0, 30, 0)["n"] == 30
    assert writer.query(0, 30).to_pylist() == reader.query(0, 30).to_pylist()
    writer.share(tmp_path / "other")
    assert tm.open_wheel(tmp_path / "other").query(0, 30, 0)["n"] == 30


def test_readers_are_told_when_there_is_no_room_to_come_back_to_what_they_had(
    writer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader: Any = tm.open_wheel(tmp_path / "wheel")
    publish, calls = shared.Publisher.publish, []

    def once(publisher: Any, store: Any) -> None:
        calls.append(1)
        if len(calls) > 1:
            raise UserError("share wheel", "the disk is full")
        publish(publisher, store)
        raise KeyboardInterrupt  # just when readers have the new arrays

    with monkeypatch.context() as patch:
        patch.setattr(shared.Publisher, "publish", once)
        writer._share_by(writer._publisher)
        with pytest.raises(UserError, match="disk is full"):
            writer._view.store.know(1000)
    assert len(calls) == 2 and reader.writer == "gone"
    write(writer, 1, 5, 30)  # it goes on alone
    assert writer.query(0, 30, 0)["n"] == 30
    assert reader.watermark == 5


def test_slots_that_close_now_and_then_are_not_a_writer_that_stopped(
    writer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One query makes many answers. Two of them meet slots that close, with a long time between."""
    reader: Any = tm.open_wheel(tmp_path / "wheel")
    store, clock = reader._view.store, [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    kernel = store._answer.one_at

    def closing(*given: Any) -> Any:
        if not done:
            done.append(1)
            return (CHANGED,)  # slots have closed meanwhile
        return kernel(*given)

    monkeypatch.setattr(store, "_one_at", closing)
    for _ in range(2):
        done: list[int] = []
        assert store.answer(0, 5, 0) is not None and done
        clock[0] += shared.PATIENCE + 1
