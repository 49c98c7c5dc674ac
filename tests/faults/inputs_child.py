"""A process that reads damaged input files, one after the other: see `wheels_child` for what it prints."""

from __future__ import annotations

import gzip
import json
import random
import resource
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tidemill as tm
from tests import interpreter
from tidemill import col
from tidemill.core.errors import TidemillError

ROWS = 400
SCHEMA = {"t": "int64", "k": "string", "d": "string", "v": "float64", "x": "int64", "ok": "bool"}
EVENTS = tm.stream("s", time="t", schema=SCHEMA)
QUERIES = {
    "windows": EVENTS.group_by("k", "d").window(tm.tumbling(50)).agg(n=tm.count(), s=tm.sum(col.v)),
    "text": EVENTS.where(col.ok).select(up=col.k.upper(), d=col.d, v=col.v),
}
MEMORY = 12 << 30
"""What a process may have, so that a length that was flipped is no load for others."""


def table() -> pa.Table:
    pick = np.random.default_rng(1)
    words = ["", "a", "ümläut", "a longer text than others", None]
    d = pa.array([words[i] for i in pick.integers(0, 5, ROWS)], pa.string()).dictionary_encode()
    return pa.table(
        {
            "t": np.arange(ROWS), "k": [f"key {i}" for i in pick.integers(0, 20, ROWS)], "d": d,
            "v": pa.array(pick.random(ROWS), mask=pick.random(ROWS) < 0.2), "x": np.arange(ROWS) * 3,
            "ok": pick.random(ROWS) < 0.7,
        }
    )  # fmt: skip


def make(folder: Path) -> list[str]:
    """Sound files of every kind; their names."""
    found = table()
    plain = found.set_column(2, "d", found["d"].cast(pa.string()))
    pq.write_table(found, folder / "snappy.parquet", row_group_size=150)
    pq.write_table(plain, folder / "plain.parquet", compression="none", use_dictionary=False)
    pq.write_table(plain, folder / "new.parquet", data_page_version="2.0", compression="zstd")
    options = {"a.arrow": None, "b.feather": "lz4", "c.ipc": "zstd"}
    for name, compression in options.items():
        given = pa.ipc.IpcWriteOptions(compression=compression)
        sink = pa.OSFile(str(folder / name), "wb")
        with sink, pa.ipc.new_file(sink, found.schema, options=given) as writer:
            writer.write_table(found, max_chunksize=150)
    with pa.OSFile(str(folder / "d.arrow"), "wb") as sink, pa.ipc.new_stream(sink, plain.schema) as writer:
        writer.write_table(plain, max_chunksize=150)
    rows = plain.to_pylist()
    lines = "\n".join(json.dumps(row) for row in rows).encode()
    (folder / "e.jsonl").write_bytes(lines)
    (folder / "f.jsonl.gz").write_bytes(gzip.compress(lines))
    import pyarrow.csv as csv

    csv.write_csv(plain, str(folder / "g.csv"))
    (folder / "h.csv.gz").write_bytes(gzip.compress((folder / "g.csv").read_bytes()))
    return sorted(p.name for p in folder.iterdir())


def damaged(whole: bytes, seed: int) -> bytes:
    """The bytes of a file, of which some are others."""
    pick = random.Random(seed)
    content, size = bytearray(whole), len(whole)
    # The ends have the heads and the directories.
    ends = pick.randrange(min(64, size)), size - 1 - pick.randrange(min(700, size))
    at = pick.choice([pick.randrange(size), *ends])
    match pick.choice(["flip", "flip", "flips", "number", "number", "zeros", "cut", "twice", "text"]):
        case "flip":
            content[at] ^= 1 << pick.randrange(8)
        case "flips":
            for _ in range(pick.randrange(1, 20)):
                content[pick.randrange(size)] = pick.randrange(256)
        case "number":
            width = pick.choice([1, 4, 8])
            value = pick.choice([-1, 1 << (8 * width - 1), (1 << (8 * width - 1)) - 1, 1 << 20, 0, 100])
            aligned = at // width * width
            content[aligned : aligned + width] = (value % (1 << (8 * width))).to_bytes(width, "little")
        case "zeros":
            content[at : at + pick.choice([1, 8, 100])] = bytes(pick.choice([1, 8, 100]))
        case "cut":
            del content[at:]
        case "twice":
            content[at:at] = content[at : at + pick.choice([1, 8, 64, 1000])]
        case "text":
            content[at:at] = pick.choice([b'"', b"\n", b",", b"\xff\xfe", b"\x00", b"{", b"NaN", b"9" * 40])
    return bytes(content)


def new_wheel() -> Any:
    return tm.Wheel(
        {"n": tm.count(), "s": tm.sum(col.x)}, schema=SCHEMA, time="t", start=0, keys=["k", "d"],
        granularities=[50], write_ahead=16,
    )  # fmt: skip


def counts(wheel: Any) -> dict[str, Any]:
    """What a wheel has seen. Memory that it has made room in may stay."""
    return {name: said for name, said in wheel.stats().items() if name not in ("bytes", "rings")}


def inserted(path: Path) -> Any:
    """A wheel takes all of a file, or nothing."""
    wheel = new_wheel()
    before = counts(wheel)
    try:
        wheel.insert(path)
    except TidemillError:
        if counts(wheel) != before:
            raise AssertionError(f"{before} became {counts(wheel)}") from None
        wheel.insert([{"t": 1, "k": "a", "d": "b", "v": 1.0, "x": 5, "ok": True}])
        wheel.advance_to(50)
        if wheel.query(0, 50, ("a", "b")) != {"n": 1, "s": 5} or wheel.query(0, 50).num_rows != 1:
            raise AssertionError(f"something went in: {wheel.query(0, 50).to_pylist()}") from None
        raise
    wheel.advance_to(5000)
    return wheel.query(0, 5000).num_rows


WAYS: dict[str, Callable[[Path], Any]] = {
    "windows": lambda path: QUERIES["windows"].run(s=path).num_rows,
    "text": lambda path: QUERIES["text"].run(s=path).num_rows,
    "wheel": inserted,
    "reader": lambda path: QUERIES["windows"].run(s=_opened(path)).num_rows,
    "table": lambda path: QUERIES["text"].run(s=_opened(path, whole=True)).num_rows,
}


def _opened(path: Path, *, whole: bool = False) -> Any:
    """What a user would give who opens the file with Arrow: errors until then are theirs."""
    try:
        reader = _reader(path)
        reader.schema.names.copy()  # they may be no text any more
        return reader.read_all() if whole else reader
    except (pa.ArrowException, OSError, ValueError, KeyError) as theirs:
        raise TidemillError(f"{path}: {theirs}") from theirs


def _reader(path: Path) -> Any:
    if path.suffix == ".parquet":
        return pq.ParquetFile(path).read().to_reader()
    mapped = pa.memory_map(str(path))
    try:
        opened = pa.ipc.open_file(mapped)
        batches = [opened.get_batch(i) for i in range(opened.num_record_batches)]
        return pa.RecordBatchReader.from_batches(opened.schema, batches)
    except pa.ArrowInvalid:
        return pa.ipc.open_stream(mapped)


def outcome(made: Path, case: dict[str, Any], work: Path) -> dict[str, Any]:
    path = work / case["file"]
    path.write_bytes(damaged((made / case["file"]).read_bytes(), case["seed"]))
    try:
        return {"answer": WAYS[case["way"]](path)}
    except TidemillError as refused:
        # What is wrong with values, which a flipped byte may have changed, is said of what needs others.
        values = str(refused).startswith(("window ", "insert: integer overflow"))
        named = values or case["way"] in ("reader", "table") or str(path) in str(refused)
        return {"refused": str(refused), "path": named}
    except Exception as foreign:
        where = "".join(traceback.format_exception(foreign)[-3:])
        return {"foreign": f"{type(foreign).__name__}: {foreign}\n{where}"}


def main(made: str, cases: str, first: str) -> None:
    interpreter.in_child()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    listed = json.loads(Path(cases).read_text())
    for number in range(int(first), len(listed)):
        print(f"begin {number}", flush=True)
        with tempfile.TemporaryDirectory() as work:
            found = outcome(Path(made), listed[number], Path(work))
        print(f"end {number} {json.dumps(found, default=repr)}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
