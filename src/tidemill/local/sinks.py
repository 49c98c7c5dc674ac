"""Results as files. A file appears whole, by rename, or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from tidemill.core.errors import UserError

_ROWS = 1 << 18
_BYTES = 64 << 20


def write_parquet(
    path: str | os.PathLike[str], schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> int:
    """Write batches to a Parquet file; returns the number of rows."""
    import pyarrow.parquet as pq

    def writer(file: BinaryIO) -> Any:
        return pq.ParquetWriter(file, schema)

    return _write(path, writer, schema, batches)


def write_ipc(
    path: str | os.PathLike[str], schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> int:
    """Write batches to an Arrow IPC file; returns the number of rows."""
    return _write(path, lambda file: pa.ipc.new_file(file, schema), schema, batches)


def write_csv(
    path: str | os.PathLike[str], schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> int:
    """Write batches to a CSV file with a header; returns the number of rows.

    Null is an empty field, an empty string a quoted one; durations are whole microseconds.
    """
    import pyarrow.csv as csv

    nested = [field.name for field in schema if pa.types.is_nested(field.type)]
    if nested:
        raise UserError(
            "write csv", expected="columns of plain values", got=f"lists or structs in {nested}",
            hint="write Parquet, or select other columns",
        )  # fmt: skip
    plain = pa.schema(
        [f.with_type(pa.int64()) if pa.types.is_duration(f.type) else f for f in schema]
    )
    return _write(
        path, lambda file: csv.CSVWriter(file, plain), plain, (b.cast(plain) for b in batches)
    )


def _write(
    path: str | os.PathLike[str],
    writer: Callable[[BinaryIO], Any],
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
) -> int:
    rows = 0
    with _appear(path) as file, writer(file) as opened:
        for table in _gathered(batches, schema):
            opened.write_table(table)
            rows += table.num_rows
    return rows


def _gathered(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Batches put together until they make a row group worth the name."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _ROWS or size >= _BYTES:
            yield pa.Table.from_batches(waiting, schema).combine_chunks()
            waiting, rows, size = [], 0, 0
    if rows:
        yield pa.Table.from_batches(waiting, schema).combine_chunks()


@contextmanager
def _appear(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write that takes its name when all of it is on disk, and is gone if that fails."""
    target = Path(path)
    if target.is_dir():
        raise UserError("write", expected="the path of a file", got=f"the directory {target}")
    if not target.parent.is_dir():
        raise UserError(
            "write", expected=f"the directory {target.parent} to exist", got="no such directory",
            hint=f"create it: mkdir -p {target.parent}",
        )  # fmt: skip
    # In the same directory, so that the rename is atomic; hidden, so that no glob reads it.
    hidden = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    try:
        with open(hidden, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(hidden, target)
    except BaseException:
        hidden.unlink(missing_ok=True)
        raise
    _sync(target.parent)


def _sync(folder: Path) -> None:
    """Make the rename itself durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
