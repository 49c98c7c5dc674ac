"""Rows with two 8-byte columns to memory and back: our streams of Arrow IPC, and Avro (section 7.5)."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import tidemill as tm
from benchmarks import resources
from benchmarks.answers import same_numbers
from benchmarks.harness import HOME, Case

SCHEMA = {"a": "int64", "b": "int64"}
BATCH = 80_000
"""The rows of a batch, as in the paper."""


def cases(quick: bool) -> list[Case]:
    return compared(100_000 if quick else 2_000_000)


def compared(rows: int) -> list[Case]:
    """Writing and reading back so many rows, and handing over the rows that were read."""
    systems: dict[str, Callable[[Any], Any]] = {HOME: _ours, "fastavro": _avro}
    return [
        Case(
            "serialized/two columns of 8 bytes, there and back", {"rows": rows, "rows a batch": BATCH},
            systems, same_numbers(), lambda: _rows(rows),
            derive=lambda seconds: {"million rows/s": {s: rows / t / 1e6 for s, t in seconds.items()}},
        )
    ]  # fmt: skip


def _rows(rows: int) -> tuple[pa.Table, list[dict[str, int]]]:
    """The same rows as each library takes them: Arrow columns, and dictionaries."""
    rng = np.random.default_rng(8)
    table = pa.table({name: rng.integers(0, 1 << 62, rows) for name in SCHEMA})
    return table, table.to_pylist()


def _ours(given: tuple[pa.Table, Any]) -> dict[str, int]:
    with tempfile.NamedTemporaryFile(dir=_memory()) as file:
        tm.write_stream(file, given[0].to_batches(max_chunksize=BATCH), SCHEMA)
        file.flush()
        found = list(tm.read_stream(file.name))
        count, last = sum(batch.num_rows for batch in found), found[-1]
        return {"rows": count, "last": last.column("b")[-1].as_py()}


def _avro(given: tuple[Any, list[dict[str, int]]]) -> dict[str, int]:
    import fastavro

    kind = {"type": "record", "name": "row", "fields": [{"name": n, "type": "long"} for n in SCHEMA]}
    memory = io.BytesIO()
    fastavro.writer(memory, fastavro.parse_schema(kind), given[1], sync_interval=BATCH * 16)
    memory.seek(0)
    found = list(fastavro.reader(memory))
    return {"rows": len(found), "last": found[-1]["b"]}


def _memory() -> Path:
    """A folder of files in memory, where there is one."""
    shared = Path("/dev/shm")
    return shared if shared.is_dir() else resources.scratch()
