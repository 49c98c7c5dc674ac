"""Sources from files: read_lines and read_binary (Table 3.1).

Elements are in the order of file names, then as in the file.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from tidemill.core.errors import UserError
from tidemill.core.schema import schema as read_schema
from tidemill.core.types import STRING, DataType, from_arrow
from tidemill.spark.dia.checksums import checked_batches
from tidemill.spark.dia.elements import columns_of, spelled, type_of_columns
from tidemill.spark.dia.opaque_batches import in_arrow
from tidemill.spark.dia.operation import ARROW, Operation
from tidemill.spark.dia.partitions import parallelism
from tidemill.spark.dia.paths import escaped, files_of, local_path
from tidemill.spark.private import lines_of, require_classic
from tidemill.spark.workers import Batches

SCALAR = b"tidemill.scalar"
"""A metadata key that marks whether a file with one column `value` holds scalars or records."""


def read_lines(session: SparkSession, path: str | os.PathLike[str]) -> Operation:
    """Read the lines of text files. Hadoop decompresses files by suffix, such as `.gz`."""
    require_classic("read_lines", session)
    names = [escaped(f) for f in files_of(session, path, step="read_lines")]

    # Spark's own text reader groups files by size; this one keeps their order.
    build = lambda: lines_of(session, ",".join(names), parallelism(session))
    shown = f"{path} ({len(names)} file{'s' if len(names) > 1 else ''})"
    return Operation("read_lines", (), STRING, session, build, shown)


def read_binary(session: SparkSession, path: str | os.PathLike[str]) -> Operation:
    """Read the Arrow files that `write_binary` wrote. Every worker must reach them by this path."""
    step = "read_binary"
    require_classic(step, session)
    where = local_path(path, step=step)  # local, whatever Hadoop's default file system is
    files = [local_path(f, step=step) for f in files_of(session, f"file:{where}", step=step)]
    kinds = {f: _kind(f) for f in files}
    kind = kinds[files[0]]
    for file, other in kinds.items():
        if other != kind:
            raise UserError(
                step, expected=f"elements of {spelled(kind)}, as in {files[0]}",
                got=f"{spelled(other)} in {file}",
            )  # fmt: skip
    parts = min(len(files), max(parallelism(session), len(files) // 4))
    bounds = [len(files) * p // parts for p in range(parts + 1)]

    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        wanted = columns_of(kind).to_arrow()
        for batch in batches:
            for part in batch.column(0).to_pylist():
                for file in files[bounds[part] : bounds[part + 1]]:
                    yield from _batches(file, wanted)

    build = lambda: in_arrow(session.range(0, parts, 1, parts), task, kind)
    shown = f"{path} ({len(files)} file{'s' if len(files) > 1 else ''})"
    return Operation(step, (), kind, session, build, shown, runs=ARROW)


def _kind(file: str) -> DataType:
    with _opened(file) as reader:
        found = reader.schema
        columns = read_schema(found, step="read_binary")
    if (found.metadata or {}).get(SCALAR) == b"no":
        return DataType("struct", tuple(t for _, t in columns), columns.names)
    return type_of_columns(columns)


def _batches(file: str, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the elements of a file; each batch is checked completely before use."""
    with _opened(file) as reader:
        for batch in checked_batches(reader, 8 * os.path.getsize(file)):
            if not _fits(batch.schema, wanted):
                raise pa.ArrowInvalid(f"columns {batch.schema.to_string()}".replace("\n", ", "))
            arrays = [c.cast(t) for c, t in zip(batch.columns, wanted.types)]
            yield pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _fits(found: pa.Schema, wanted: pa.Schema) -> bool:
    """Whether the columns have the names and types that the driver saw."""
    kinds = [(f.name, from_arrow(f.type)) for f in found]
    return kinds == [(f.name, from_arrow(f.type)) for f in wanted]


@contextlib.contextmanager
def _opened(file: str) -> Iterator[pa.RecordBatchFileReader]:
    """Open an Arrow file; errors name the file."""
    try:
        if not stat.S_ISREG(os.stat(file).st_mode):  # opening a pipe would block forever
            raise OSError("not a file")
        # Read, not memory-mapped: truncating a mapped file would kill the process.
        with pa.OSFile(file, "rb") as source:
            yield pa.ipc.open_file(source)
    except UserError as wrong:
        raise UserError("read_binary", f"{file}: {wrong}") from wrong
    except (pa.ArrowException, OSError, ValueError, MemoryError, KeyError) as wrong:
        what = (str(wrong).splitlines() or [type(wrong).__name__])[0]
        raise UserError("read_binary", expected="Arrow files", got=f"{file}: {what}") from wrong
