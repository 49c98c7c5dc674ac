"""write_lines and write_binary: write files in the order of the DIA, all or none (Table 3.4).

Tasks write into a hidden directory beside the target. When all have succeeded, files of failed task attempts
are removed, and one rename gives the directory its name. If the job fails, the directory is removed; if the
process is killed, the next write removes it (`hidden_directory`).
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from tidemill.core.errors import UserError
from tidemill.core.files import our_errors
from tidemill.core.types import STRING, DataType
from tidemill.spark.dia.checksums import CheckedWriter, checked_batches
from tidemill.spark.dia.elements import columns_of, spelled
from tidemill.spark.dia.file_sources import SCALAR
from tidemill.spark.dia.hidden_directory import hidden_directory, remove_leftovers
from tidemill.spark.dia.opaque_batches import mapped
from tidemill.spark.dia.operation import Operation
from tidemill.spark.dia.partitions import PART
from tidemill.spark.dia.paths import local_path
from tidemill.spark.dia.task_errors import clear_errors
from tidemill.spark.workers import Batches

FILE_BYTES = 64 << 20
"""The default size limit of a file, as in Thrill."""

_REPORT = "file string, bytes bigint"


class Writer(Protocol):
    """A file that is being written."""

    def room_for(self, batch: pa.RecordBatch, limit: int) -> int:
        """The number of rows of a batch that still fit; an empty file takes at least one."""

    def write(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> int:
        """Close the file; returns its bytes."""


def write_lines(node: Operation, path: Any, *, one_file: bool, file_bytes: int) -> list[str]:
    """Write each element as a line of text."""
    if node.kind != STRING:
        raise UserError(
            "write_lines", expected="strings", got=spelled(node.kind), hint="map them to text first"
        )
    return _write(node, path, Lines, _joined_lines, "txt", one_file, file_bytes, "write_lines")


def write_binary(node: Operation, path: Any, *, one_file: bool, file_bytes: int) -> list[str]:
    """Write elements as Arrow files with their schema."""
    schema = file_schema(node.kind)
    make = lambda file: ArrowFile(file, schema)
    joined = lambda files, target: _joined_arrow(files, target, schema)
    return _write(node, path, make, joined, "arrow", one_file, file_bytes, "write_binary")


def file_schema(kind: DataType) -> pa.Schema:
    """The schema of a file, with metadata that distinguishes scalars from records."""
    scalar = b"no" if kind.kind == "struct" else b"yes"
    return columns_of(kind).to_arrow().with_metadata({SCALAR: scalar})


def _write(
    node: Operation, path: Any, make: Callable[[str], Writer],
    join: Callable[[list[str], str], None], suffix: str, one_file: bool, limit: int, step: str,
) -> list[str]:  # fmt: skip
    if limit < 1:
        raise UserError(step, expected="a limit of at least one byte", got=repr(limit))
    target = local_path(path, step=step)
    with our_errors(step, target):
        remove_leftovers(target)
        _check_free(target, one_file, step)
    with hidden_directory(target, step) as hidden:
        with clear_errors(step, node):
            rows = node.frame.select("*", F.spark_partition_id().alias(PART))
            done = mapped(rows, _task(make, hidden, suffix, limit, step), _REPORT).collect()
        with our_errors(step, target):
            files = sorted(row[0] for row in done)
            if not files:  # an empty DIA has one empty file
                files = [f"{_name(0, 0)}.{suffix}"]
                make(os.path.join(hidden, files[0])).close()
            for left_over in set(os.listdir(hidden)) - set(files):
                os.unlink(os.path.join(hidden, left_over))
            return _published(hidden, files, target, one_file, join)


def _check_free(target: str, one_file: bool, step: str) -> None:
    if os.path.islink(target):
        raise UserError(step, expected="a path that is not a link", got=target)
    if one_file and os.path.isdir(target):
        raise UserError(step, expected="the name of a file", got=f"{target}, a directory")
    if os.path.isdir(target) and not os.listdir(target):
        return
    if os.path.exists(target):
        wanted = "a file that is new" if one_file else "a directory that is new or empty"
        raise UserError(step, expected=wanted, got=target, hint="remove it, or write somewhere else")


def _published(
    hidden: str, files: list[str], target: str, one_file: bool,
    join: Callable[[list[str], str], None],
) -> list[str]:  # fmt: skip
    if one_file:
        whole = os.path.join(hidden, "whole")
        join([os.path.join(hidden, f) for f in files], whole)
        os.replace(whole, target)
        return [target]
    names = [_final(f) for f in files]
    for file, name in zip(files, names):
        os.rename(os.path.join(hidden, file), os.path.join(hidden, name))
    os.rename(hidden, target)
    return [os.path.join(target, n) for n in names]


def _name(part: int, number: int) -> str:
    # Numbers have a fixed length, so that names sort in the order of partitions.
    return f"part-{part:06d}-{number:06d}"


def _final(file: str) -> str:
    """The name of a file without the attempt of its task: `part-000001-000000-3f2a….txt`."""
    stem, suffix = os.path.splitext(file)
    return "-".join(stem.split("-")[:3]) + suffix


def _task(make: Callable[[str], Writer], hidden: str, suffix: str, limit: int, step: str) -> Any:
    """A task that writes the rows of a partition to files below the limit, and yields names and bytes."""

    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        with our_errors(step, hidden):
            yield from write(batches)

    def write(batches: Batches) -> Iterator[pa.RecordBatch]:
        made: list[tuple[str, int]] = []
        writer: Writer | None = None
        # Two attempts of a task may run at the same time: each writes its own files.
        attempt, part = uuid.uuid4().hex[:8], 0
        try:
            for batch in batches:
                if batch.num_rows:
                    part = int(batch.column(batch.schema.get_field_index(PART))[0].as_py())
                rows = batch.drop_columns([PART])
                while rows.num_rows:
                    if writer is None:
                        name = f"{_name(part, len(made))}-{attempt}.{suffix}"
                        writer = make(os.path.join(hidden, name))
                        made.append((name, 0))
                    fits = writer.room_for(rows, limit)
                    writer.write(rows.slice(0, fits))
                    rows = rows.slice(fits)
                    if rows.num_rows:
                        made[-1] = (made[-1][0], writer.close())
                        writer = None
        finally:
            if writer is not None:
                made[-1] = (made[-1][0], writer.close())
        yield pa.RecordBatch.from_pydict(
            {"file": [n for n, _ in made], "bytes": [b for _, b in made]},
            schema=pa.schema({"file": pa.string(), "bytes": pa.int64()}),
        )

    return task


# --- lines ----------------------------------------------------------------------------------------


class Lines:
    """A text file: UTF-8, each line ended by a newline."""

    def __init__(self, file: str) -> None:
        self._file, self._bytes = open(file, "wb"), 0  # noqa: SIM115 - closed by the task

    def room_for(self, batch: pa.RecordBatch, limit: int) -> int:
        if batch.column(0).null_count:
            raise UserError("write_lines", expected="lines", got="null", hint="filter them out")
        lengths = pc.add(pc.binary_length(batch.column(0).cast(pa.binary())), 1)
        ends = pc.cumulative_sum(lengths.cast(pa.int64())).to_numpy()
        fits = int(ends.searchsorted(limit - self._bytes, side="right"))
        return max(fits, 1 if self._bytes == 0 else 0)

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        # Append a newline to each line; the bytes of all lines are then contiguous in one buffer.
        ended = pc.binary_join_element_wise(batch.column(0).cast(pa.binary()), b"", b"\n")
        _, places, text = ended.buffers()
        ends = np.frombuffer(places, np.int32)[ended.offset : ended.offset + len(ended) + 1]
        self._file.write(text[int(ends[0]) : int(ends[-1])])
        self._bytes += int(ends[-1] - ends[0])

    def close(self) -> int:
        self._file.close()
        return self._bytes


def _joined_lines(files: list[str], target: str) -> None:
    with open(target, "wb") as whole:
        for file in files:
            with open(file, "rb") as part:
                shutil.copyfileobj(part, whole)


# --- Arrow ----------------------------------------------------------------------------------------


class ArrowFile:
    """An Arrow IPC file. The metadata bytes of a batch are overestimated, to stay below the limit."""

    def __init__(self, file: str, schema: pa.Schema) -> None:
        self._sink = pa.OSFile(file, "wb")
        self._schema = schema
        self._writer = CheckedWriter(self._sink, schema)
        self._batches = 0

    def room_for(self, batch: pa.RecordBatch, limit: int) -> int:
        free = limit - self._sink.tell() - self._around(self._batches + 1)
        fits = batch.num_rows
        while fits > 1 and batch.slice(0, fits).nbytes > free:
            fits = max(1, min(fits - 1, fits * max(free, 0) // batch.slice(0, fits).nbytes))
        too_large = batch.slice(0, fits).nbytes > free
        return 0 if too_large and self._batches else fits

    def _around(self, batches: int) -> int:
        buffers = 1 + 3 * len(self._schema) * 4
        return 2048 + 64 * buffers + 64 * batches + int(self._schema.serialize().size)

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        arrays = [c.cast(t) for c, t in zip(batch.columns, self._schema.types)]
        self._writer.write(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self._batches += 1

    def close(self) -> int:
        self._writer.close()
        size = int(self._sink.tell())
        self._sink.close()
        return size


def _joined_arrow(files: list[str], target: str, schema: pa.Schema) -> None:
    with pa.OSFile(target, "wb") as sink:
        whole = CheckedWriter(sink, schema)
        for file in files:
            with pa.OSFile(file, "rb") as source:
                for batch in checked_batches(pa.ipc.open_file(source), 8 * os.path.getsize(file)):
                    if batch.num_rows:
                        whole.write(batch)
        whole.close()
