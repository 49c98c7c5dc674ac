"""Checksums in binary files, so that damage is an error and not a wrong answer.

Each batch of a file has its number and a checksum of itself and the schema; a final empty batch has the
number of batches. Arrow files of other writers have no checksums, and are read without.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import pyarrow as pa

_NUMBER, _SUM, _END = b"tidemill.batch", b"tidemill.sum", b"tidemill.batches"
CHECKED = b"tidemill.checked"
"""A metadata key in the schema of files with checksums."""


class CheckedWriter:
    """Writes batches with checksums to an Arrow file."""

    def __init__(self, sink: pa.NativeFile, schema: pa.Schema) -> None:
        self._schema = schema.with_metadata({**(schema.metadata or {}), CHECKED: b"1"})
        self._writer = pa.ipc.new_file(sink, self._schema)
        self._batches = 0

    def write(self, batch: pa.RecordBatch) -> None:
        batch = pa.RecordBatch.from_arrays(batch.columns, schema=self._schema)
        # The checksum is of the batch as read back: a slice, for instance, has other buffers in memory.
        read = pa.ipc.read_record_batch(batch.serialize(), self._schema)
        noted = {_NUMBER: b"%d" % self._batches, _SUM: _sum(read)}
        self._writer.write_batch(batch, custom_metadata=noted)
        self._batches += 1

    def close(self) -> None:
        end = pa.RecordBatch.from_pylist([], schema=self._schema)
        self._writer.write_batch(end, custom_metadata={_END: b"%d" % self._batches})
        self._writer.close()


def checked_batches(reader: pa.RecordBatchFileReader, most_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a file, each checked before use; raises `pa.ArrowInvalid` if it is damaged."""
    checked = CHECKED in (reader.schema.metadata or {})
    ended = False
    for i in range(reader.num_record_batches):
        batch, noted = reader.get_batch_with_custom_metadata(i)
        # A column without buffers, such as nulls, can claim any number of rows.
        if batch.num_rows > most_rows:
            raise pa.ArrowInvalid(f"{batch.num_rows} rows in a file of {most_rows // 8} bytes")
        # Check offsets and text: Arrow does not check them when it computes, and Spark reads them off-heap.
        batch.validate(full=True)
        found = dict(noted or {})
        if checked or found:
            ended = found == {_END: b"%d" % i} and not batch.num_rows
            if not ended and found != {_NUMBER: b"%d" % i, _SUM: _sum(batch)}:
                raise pa.ArrowInvalid(f"the checksum of batch {i} differs: the file is damaged")
            if ended and i + 1 < reader.num_record_batches:
                raise pa.ArrowInvalid("batches after the last one: the file is damaged")
        yield batch
    if checked and not ended:
        raise pa.ArrowInvalid("batches are missing: the file is damaged")


def _sum(batch: pa.RecordBatch) -> bytes:
    return b"%08x" % zlib.crc32(batch.serialize(), zlib.crc32(batch.schema.serialize()))
