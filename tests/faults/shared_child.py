"""A process that reads damaged shared directories, one after the other: see `wheels_child`."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import tidemill as tm
from tests.faults.inputs_child import damaged
from tidemill import col
from tidemill.core.errors import TidemillError

SCHEMA = {"t": "int64", "k": "int64", "v": "int64"}
EVERY = 10
"""A key comes every so many slots."""


def new_wheel() -> Any:
    return tm.Wheel(
        {"total": tm.sum(col.v), "n": tm.count()}, schema=SCHEMA, time="t", start=0, keys="k",
        granularities=[(1, "keep"), (60, "keep")],
    )  # fmt: skip


def write(wheel: Any, writer: int, first: int, until: int) -> None:
    """Rows of one of several writers: each has other values, and keys in another order."""
    slots = np.arange(first, until)
    counts = slots // EVERY + 2
    t = np.repeat(slots, counts)
    # Key 0 tells who writes. Others come in an order that depends on the writer.
    number = np.concatenate([np.arange(n) for n in counts])
    k = np.where(number == 0, 0, key_of(number, writer))
    wheel.insert(pa.table({"t": t, "k": k, "v": np.where(k == 0, writer, 1000 * writer + k)}))
    wheel.advance_to(until)


def key_of(number: Any, writer: int) -> Any:
    return 1 + (number - 1) * 7 % 101 + writer % 50


def expected(writer: int, number: int, a: int, b: int) -> tuple[int | None, int]:
    """Total and rows of the key that came with a number."""
    begin = max(a, EVERY * (number - 1))
    rows = max(0, b - begin)
    return (rows * (1000 * writer + int(key_of(number, writer))) if rows else None), rows


def answers(path: Path) -> Any:
    reader = tm.open_wheel(path)
    now = reader.watermark
    return [
        now, reader.query(0, 30, 0), reader.query(5, 25, 1), reader.query(0, 60).to_pylist(),
        reader.landmark(0), reader.group_by(0, 30, 10, key=[0, 1]).num_rows, str(reader.stats()),
    ]  # fmt: skip


def make(path: Path) -> None:
    wheel = new_wheel()
    write(wheel, 3, 0, 20)
    wheel.share(path)
    write(wheel, 3, 20, 70)  # more keys, in a file of their own, and a coarser slot


def outcome(made: Path, case: dict[str, Any], work: Path) -> dict[str, Any]:
    path = work / "wheel"
    shutil.copytree(made, path)
    file = path / case["file"]
    match case["how"]:
        case "gone":
            file.unlink()
        case "other":
            file.write_bytes((path / case["other"]).read_bytes())
        case "link":
            (path.parent / "elsewhere").write_bytes(file.read_bytes())
            file.unlink()
            file.symlink_to(path.parent / "elsewhere")
        case _:
            file.write_bytes(damaged(file.read_bytes(), case["seed"]))
    try:
        return {"answer": answers(path)}
    except TidemillError as refused:
        # What is wrong with a question has no path: a watermark may have become another one.
        question = refused.step in ("query", "wheel query")
        return {"refused": str(refused), "path": str(path) in str(refused) or question}
    except Exception as foreign:
        where = "".join(traceback.format_exception(foreign)[-3:])
        return {"foreign": f"{type(foreign).__name__}: {foreign}\n{where}"}


def main(made: str, cases: str, first: str) -> None:
    listed = json.loads(Path(cases).read_text())
    for number in range(int(first), len(listed)):
        print(f"begin {number}", flush=True)
        with tempfile.TemporaryDirectory() as work:
            found = outcome(Path(made), listed[number], Path(work))
        print(f"end {number} {json.dumps(found, default=repr)}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
