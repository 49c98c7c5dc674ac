"""A machine that damages the binary files of a DIA: each is read as it was, or refused with its name.

Files are read by processes of their own, as Spark's workers read them; some also by Spark itself.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.faults.counts import SOAK, report, seed_of
from tidemill.core.errors import UserError
from tidemill.core.types import FLOAT64, INT64, STRING, DataType, list_of, struct_of
from tidemill.spark.dia import read_binary
from tidemill.spark.dia.elements import decode, encode
from tidemill.spark.dia.file_sources import _batches
from tidemill.spark.dia.writing import ArrowFile, file_schema

KINDS: dict[str, tuple[DataType, list[Any]]] = {
    "numbers": (INT64, list(range(300))),
    "text": (STRING, [None if i % 7 == 0 else f"text {i} ü" * (i % 3) for i in range(200)]),
    "records": (
        struct_of({"a": INT64, "b": list_of(STRING), "c": struct_of({"x": FLOAT64})}),
        [{"a": i, "b": [f"{i}"] * (i % 4), "c": {"x": i / 2}} for i in range(150)],
    ),
    "nothing": (INT64, []),
}
TIMEOUT = 300


def written(path: Path, name: str) -> list[Any]:
    """A file of several batches; its elements as they are read again."""
    kind, elements = KINDS[name]
    schema = file_schema(kind)
    file = ArrowFile(str(path), schema)
    third = len(elements) // 3 + 1
    for start in range(0, len(elements), third):
        file.write(encode(elements[start : start + third], kind, step="test"))
    file.close()
    return [e for batch in _batches(str(path), schema.remove_metadata()) for e in decode(batch, kind)]


def damaged(data: bytes, pick: random.Random) -> bytes:
    """Some bits flipped, bytes replaced, cut out or put in; or the file cut off, or made longer."""
    how = pick.choice(["flip", "flip", "byte", "word", "cut", "grow", "drop", "swap", "zero"])
    at = pick.randrange(len(data))
    # The footer, of which a file is found to consist, is where damage does most.
    at = pick.randrange(max(0, len(data) - 900), len(data)) if pick.random() < 0.4 else at
    if how == "flip":
        return data[:at] + bytes([data[at] ^ 1 << pick.randrange(8)]) + data[at + 1 :]
    if how == "byte":
        return data[:at] + bytes([pick.randrange(256)]) + data[at + 1 :]
    if how == "word":
        word = pick.choice([0, 1, -1, 1 << 31, (1 << 63) - 1, -(1 << 63), 1 << 40, pick.getrandbits(62)])
        at = at // 8 * 8
        return data[:at] + word.to_bytes(9, "little", signed=True)[:8] + data[at + 8 :]
    if how == "cut":
        return data[:at]
    if how == "grow":
        return data + pick.randbytes(pick.randint(1, 99))
    if how == "drop":
        return data[:at] + data[at + pick.randint(1, 99) :]
    if how == "zero":
        return data[:at] + bytes(min(64, len(data) - at)) + data[at + 64 :]
    to = pick.randrange(len(data))
    return data[:at] + data[to : to + 64] + data[at + 64 :]


def machine(folder: Path, cases: int) -> None:
    pick, wrong, done = random.Random(seed_of("damaged DIA files")), [], 0
    while done < cases:
        for name in KINDS:
            many = min(500, max(1, cases // len(KINDS)))
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            wanted = written(folder / "whole", name)
            whole, files = (folder / "whole").read_bytes(), []
            for i in range(many):
                bad = damaged(whole, pick)
                if bad != whole:
                    (folder / f"f{i}").write_bytes(bad)
                    files.append(str(folder / f"f{i}"))
            wrong += [_kept(w, folder) for w in read_apart(files, wanted, folder)]
            done += len(files)
    report("damaged DIA files", done, len(wrong))
    assert not wrong, "\n".join(wrong)


def read_apart(files: list[str], wanted: list[Any], folder: Path) -> list[str]:
    """What is wrong, as a process of its own sees it; if it ends, or hangs, on which file that was."""
    (folder / "job.json").write_text(json.dumps([files, wanted]))
    code = (
        "import json, sys; from tests.faults.dia_child import read; "
        f"print(json.dumps(read(*json.load(open({str(folder / 'job.json')!r})))))"
    )
    try:
        ran = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT
        )
    except subprocess.TimeoutExpired as hung:
        return [f"{_last(hung.stdout)}: hung"]
    if ran.returncode:
        return [f"{_last(ran.stdout)}: ended with {ran.returncode}: {ran.stderr[-500:]}"]
    found: list[str] = json.loads(ran.stdout.splitlines()[-1])
    return found


def _last(said: Any) -> str:
    text = said.decode() if isinstance(said, bytes) else said or ""
    return text.splitlines()[-1] if text else "nothing"


def _kept(wrong: str, folder: Path) -> str:
    """A failure with a copy of its file, as the folder is used again."""
    file = Path(wrong.partition(":")[0])
    if file.parent == folder and file.exists():
        copy = folder.parent / f"kept-{random.getrandbits(32):08x}"
        shutil.copy(file, copy)
        return f"{wrong} (kept as {copy})"
    return wrong


def test_damaged_binary_files_are_refused_or_read_as_they_were(tmp_path: Path) -> None:
    machine(tmp_path / "work", 90)


@pytest.mark.soak
def test_many_damaged_binary_files(tmp_path: Path) -> None:
    machine(tmp_path / "work", int(8000 * SOAK))


def test_spark_survives_damaged_binary_files(spark: Any, tmp_path: Path) -> None:
    """One of such files once ended the JVM: text whose offsets go far beyond it."""
    wrong = []
    for bad in spark_files(tmp_path):
        try:
            got = read_binary(spark, bad).all_gather()
        except UserError as refused:
            if str(bad) not in str(refused):
                wrong.append(f"no path in {refused}")
        else:
            wrong.append(f"{bad} was read: {got[:3]}")
    assert not wrong
    assert spark.range(3).count() == 3


def spark_files(folder: Path) -> Iterator[Path]:
    written(folder / "whole.arrow", "text")
    whole = (folder / "whole.arrow").read_bytes()
    data = bytearray(whole)
    at = whole.index("text 1 ü".encode())  # inside the first batch; flip what is text
    data[at] ^= 0xFF
    (folder / "text.arrow").write_bytes(data)
    (folder / "cut.arrow").write_bytes(whole[: len(whole) // 2])
    # A file of others, without checksums, whose text goes on in memory that is not the text's.
    table = pa.table({"value": ["hello", "x", "y"]})
    with pa.ipc.new_file(str(folder / "far.arrow"), table.schema) as file:
        file.write(table)
    offsets, far = (b"".join(n.to_bytes(4, "little") for n in (0, 5, n, 7)) for n in (6, 2_000_000_000))
    foreign = (folder / "far.arrow").read_bytes()
    assert offsets in foreign
    (folder / "far.arrow").write_bytes(foreign.replace(offsets, far))
    with pa.ipc.new_file(str(folder / "nulls.arrow"), pa.schema({"value": pa.null()})) as file:
        nulls = pa.Array.from_buffers(pa.null(), (1 << 31) - 1, [None])  # which take no bytes
        file.write_batch(pa.RecordBatch.from_arrays([nulls], names=["value"]))
    yield from (folder / f"{name}.arrow" for name in ("text", "cut", "far", "nulls"))


def test_a_directory_with_a_link_or_a_pipe_in_it(spark: Any, tmp_path: Path) -> None:
    inside, secret = tmp_path / "sent", tmp_path / "secret.arrow"
    inside.mkdir()
    written(secret, "numbers")
    written(inside / "a.arrow", "numbers")
    (inside / "b.arrow").symlink_to(secret)
    with pytest.raises(UserError, match=r"b\.arrow, a link"):
        read_binary(spark, inside)
    (inside / "b.arrow").unlink()
    os.mkfifo(inside / "c.arrow")
    with pytest.raises(UserError, match=r"c\.arrow"):
        read_binary(spark, inside)
