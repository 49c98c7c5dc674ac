"""Files appear whole or not at all, and only plain ones are opened."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

import tidemill as tm
from tidemill.core.errors import UserError
from tidemill.core.files import appearing, becomes, our_errors, read_plain, remove_unfinished


def test_a_file_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"before")
    with pytest.raises(KeyboardInterrupt), appearing(tmp_path / "x", step="test") as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert (tmp_path / "x").read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["x"]


def test_what_a_killed_process_left_is_found(tmp_path: Path) -> None:
    with appearing(tmp_path / "x", step="test") as file:
        file.write(b"whole")
        [hidden] = os.listdir(tmp_path)
        assert hidden.startswith(".x.") and becomes(hidden) == "x"
        remove_unfinished(tmp_path / "x", step="test")  # this one is locked: it is being written
    assert read_plain(tmp_path / "x", step="test") == b"whole"
    (tmp_path / hidden).write_bytes(b"half")
    remove_unfinished(tmp_path / "x", step="test")
    assert os.listdir(tmp_path) == ["x"]


def test_a_file_that_is_gone_is_left_to_who_reads_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_plain(tmp_path / "x", step="test")


@pytest.mark.parametrize("kind", ["symlink", "fifo", "socket", "directory", "device"])
def test_what_is_not_a_plain_file_is_refused(tmp_path: Path, kind: str) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    path = tmp_path / "x"
    if kind == "symlink":
        path.symlink_to(tmp_path / "secret")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        socket.socket(socket.AF_UNIX).bind(str(path))
    elif kind == "directory":
        path.mkdir()
    else:
        path = Path("/dev/zero")
    with pytest.raises(UserError, match=f"plain file at {path}, got a {kind.replace('fifo', 'pipe')}"):
        read_plain(path, step="test")


def test_what_the_system_refuses_is_ours_with_the_path_in_it(tmp_path: Path) -> None:
    path = tmp_path / "none" / "x"
    with pytest.raises(UserError, match=f"{path}.*FileNotFoundError"), appearing(path, step="test"):
        raise AssertionError("there is no such directory")
    with pytest.raises(UserError, match=r"x.*disk is full"), our_errors("test", tmp_path / "x"):
        raise OSError(28, "No space left on device")


def test_a_path_with_a_nul_in_it_is_refused_by_whoever_gets_it(tmp_path: Path) -> None:
    schema = {"t": "int64", "v": "int64"}
    wheel = tm.Wheel(tm.sum("v"), schema=schema, time="t", start=0, granularities=[1, 10])
    stream, strange = tm.stream("s", time="t", schema=schema), f"{tmp_path}/a\0b"
    for ask in (
        lambda: tm.open_wheel(strange), lambda: wheel.save(strange), lambda: wheel.share(strange),
        lambda: stream.to_csv(strange, s=[]), lambda: stream.run(s=f"{strange}.csv"),
    ):  # fmt: skip
        with pytest.raises(UserError, match="x00"):
            ask()
