"""Files and tables that are not what they seem: an error of ours that names them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidemill.core.errors import UserError
from tidemill.core.schema import schema
from tidemill.io.arrow_checks import require_sound
from tidemill.io.chunks import ChunkSizes
from tidemill.io.sources import open_source
from tidemill.plan.nodes import Source

PLAIN = Source("s", schema({"t": "int64", "k": "string"}), "t")


def _read(value: Any, source: Source = PLAIN) -> int:
    return sum(chunk.batch.num_rows for chunk in open_source(value, source))


def _bad_offsets() -> pa.RecordBatch:
    offsets = pa.py_buffer(np.array([0, 1, 1 << 20, 3], dtype=np.int32))
    text = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"abc")])
    return pa.RecordBatch.from_arrays([pa.array([1, 2, 3]), text], names=["t", "k"])


def _bad_indices() -> pa.RecordBatch:
    numbers = pa.array([0, 99, 0], pa.int32())
    text = pa.DictionaryArray.from_arrays(numbers, pa.array(["a"]), safe=False)
    return pa.RecordBatch.from_arrays([pa.array([1, 2, 3]), text], names=["t", "k"])


@pytest.mark.parametrize("broken", [_bad_offsets, _bad_indices])
@pytest.mark.parametrize("form", ["table", "batches", "reader", "file"])
def test_broken_arrow_data_is_refused_before_a_kernel_reads_it(
    broken: Any, form: str, tmp_path: Path
) -> None:
    batch = broken()
    value: Any = pa.Table.from_batches([batch])
    if form == "batches":
        value = iter([batch])
    elif form == "reader":
        value = pa.RecordBatchReader.from_batches(batch.schema, [batch])
    elif form == "file":
        if broken is not _bad_offsets:
            pytest.skip("Arrow itself does not write that")
        value = tmp_path / "x.arrow"
        with pa.OSFile(str(value), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
    with pytest.raises(UserError, match=r"broken Arrow array|cannot be read"):
        _read(value)


def test_a_pipe_as_a_path_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.csv")
    for path in (tmp_path / "x.csv", tmp_path / "*.csv"):
        with pytest.raises(UserError, match=r"x\.csv, got a pipe"):
            _read(str(path))
    with pytest.raises(UserError, match="nothing at"):
        _read(tmp_path)  # no file in it


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_folder_that_cannot_be_looked_into_is_an_error_and_not_left_out(tmp_path: Path) -> None:
    """Its rows would be missing without a word."""
    with tempfile.TemporaryDirectory() as made:
        os.chmod(made, 0o755)
        inner = Path(made) / "part"
        inner.mkdir()
        (inner / "a.csv").write_text("t,k\n1,a\n")
        (Path(made) / "b.csv").write_text("t,k\n1,a\n")
        (Path(made) / "c.csv").write_text("t,k\n1,a\n")
        os.chmod(Path(made) / "c.csv", 0)
        os.chmod(inner, 0)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            said = []
            os.setuid(12345)
            for path in (made, f"{made}/c.csv"):
                try:
                    said.append(str(_read(path)))
                except BaseException as failed:
                    said.append(f"{type(failed).__name__} {failed}")
            os.write(write, "\n".join(said).encode())
            os._exit(0)
        os.waitpid(child, 0)
        folder, file = os.read(read, 10_000).decode().split("\n")
        assert folder.startswith("UserError") and str(inner) in folder and "Permission" in folder
        assert file.startswith("UserError") and "c.csv" in file and "Permission" in file


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow", "x.jsonl", "x.csv", "x.csv.gz"])
def test_files_that_are_empty_garbage_or_vanish_name_themselves(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"\x93\xff garbage \x00" * 50)
    with pytest.raises(UserError, match=name):
        _read(path)
    path.write_bytes(b"")
    if name.endswith((".parquet", ".arrow")):
        with pytest.raises(UserError, match=name):
            _read(path)
    else:
        assert _read(path) == 0
    path.write_bytes(b"t,k\n1,a\n" if "csv" in name else b'{"t": 1, "k": "a"}\n')
    if name in ("x.csv", "x.jsonl"):
        reader = open_source(path, PLAIN, sizes=ChunkSizes(ahead=1))
        assert len(list(reader)) == 1
        path.unlink()
        with pytest.raises(UserError, match=name):
            list(reader)


def test_a_path_with_a_null_byte_is_ours(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        _read("x\0y.csv")


def test_a_check_of_a_whole_batch_says_which_column_is_broken() -> None:
    """Arrow makes no broken array of numbers from Python, so this one only says that it is broken."""

    class Broken:
        schema = pa.schema({"t": pa.int64(), "x": pa.float64()})
        type = pa.float64()
        columns = property(lambda self: [pa.array([1]), self])

        def validate(self) -> None:
            raise pa.ArrowInvalid("buffer too small")

    with pytest.raises(UserError, match=r"column 'x' to be valid.*buffer too small"):
        require_sound(Broken(), "push", plain=True)
