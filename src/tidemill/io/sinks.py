"""Write results to files atomically: a file gets its name when it is complete."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.core.files import appearing, is_plain, our_errors, remove_unfinished

_ROWS = 1 << 18
_BYTES = 64 << 20
_STEP = "write"


def write_parquet(
    path: str | os.PathLike[str], schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> int:
    """Write batches to a Parquet file, and return the number of rows."""
    import pyarrow.parquet as pq

    def writer(file: BinaryIO) -> Any:
        return pq.ParquetWriter(file, schema)

    return _write(path, writer, schema, batches)


def write_ipc(
    path: str | os.PathLike[str], schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> int:
    """Write batches to an Arrow IPC file, and return the number of rows."""
    return _write(path, lambda file: pa.ipc.new_file(file, schema), schema, batches)


def write_csv(
    path: str | os.PathLike[str], schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> int:
    """Write batches to a CSV file with a header, and return the number of rows.

    Null is an empty field, and an empty string is a quoted empty field. Durations are whole microseconds.
    """
    import pyarrow.csv as csv

    require_plain([field.name for field in schema if pa.types.is_nested(field.type)])
    plain = pa.schema(
        [f.with_type(pa.int64()) if pa.types.is_duration(f.type) else f for f in schema]
    )
    return _write(
        path, lambda file: csv.CSVWriter(file, plain), plain, (b.cast(plain) for b in batches)
    )


def require_plain(nested: list[str]) -> None:
    """Raise an error if columns hold lists or structs, which CSV has not."""
    if nested:
        raise UserError(
            "write csv", expected="columns of plain values", got=f"lists or structs in {nested}",
            hint="write Parquet, or select other columns",
        )  # fmt: skip


def _write(
    path: str | os.PathLike[str],
    writer: Callable[[BinaryIO], Any],
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
) -> int:
    rows = 0
    try:
        with appear(path) as file, writer(file) as opened:
            for table in _gathered(_apart(batches), schema):
                opened.write_table(table)
                rows += table.num_rows
    except _FromQuery as failed:
        assert failed.__cause__ is not None
        raise failed.__cause__ from None
    return rows


class _FromQuery(Exception):
    """Marks an OSError that came from reading the input, not from writing the file."""


def _apart(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except OSError as failed:
        raise _FromQuery from failed


def _gathered(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Concatenate batches to tables of the size of a row group."""
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
def appear(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file with `core.files.appearing`, after removing the unfinished files of killed processes."""
    target = Path(path)
    with our_errors(_STEP, target):
        _check(target)
    remove_unfinished(target, step=_STEP)
    with appearing(target, step=_STEP) as file:
        yield file


def _check(target: Path) -> None:
    """Reject a target that a rename must not replace: a link, a directory, a device."""
    if target.is_symlink():
        raise UserError(
            _STEP, expected="the path of a file", got=f"the link {target}",
            hint=f"name the file itself: {os.path.realpath(target)}",
        )  # fmt: skip
    if target.is_dir():
        raise UserError(_STEP, expected="the path of a file", got=f"the directory {target}")
    if not target.parent.is_dir():
        raise UserError(
            _STEP, expected=f"the directory {target.parent} to exist", got="no such directory",
            hint=f"create it: mkdir -p {target.parent}",
        )  # fmt: skip
    if target.exists() and not is_plain(target):
        raise UserError(
            _STEP, expected="the path of a file", got=f"{target}, a device, a pipe or a socket",
            hint="write to a regular file instead",
        )  # fmt: skip
