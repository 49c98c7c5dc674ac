"""Write streams to files, and read them: Arrow IPC streams with punctuations among their batches."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from tidemill.core.batch import check_schema
from tidemill.core.clock import Clock
from tidemill.core.errors import UserError
from tidemill.core.files import lock, open_plain, our_errors
from tidemill.core.schema import Schema
from tidemill.core.schema import schema as read_schema
from tidemill.io.arrow_checks import require_sound
from tidemill.io.chunks import step_of
from tidemill.io.feeds import Arrival, Feed, OpenFeed, count_of
from tidemill.io.sinks import appear
from tidemill.io.sources import open_source
from tidemill.io.stream_format import (
    END,
    decoded,
    encoded_promise,
    encoded_rows,
    ends_of_messages,
)
from tidemill.plan.nodes import Source
from tidemill.plan.punctuation import Punctuation

_TOGETHER = 1 << 17
"""Rows of small batches that are given together."""


class StreamWriter:
    """Append batches and punctuations to a stream in a file, while others follow it: `tm.follow(path)`.

    A stream that is not there is begun; one that is there is continued, after a half-written message at its
    end is cut off. Each call writes one message, and who follows the file sees it whole or not at all. The
    file has one writer at a time.

    >>> import tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "clicks.arrows")
    >>> with StreamWriter(path, {"t": "int64", "ad": "int64"}) as writer:
    ...     writer.write([{"t": 3, "ad": 7}])
    ...     writer.punctuate(10)
    >>> [item if isinstance(item, Punctuation) else item.to_pylist() for item in read_stream(path)]
    [[{'t': 3, 'ad': 7}], Punctuation(below=10, key=None)]
    """

    def __init__(self, path: str | os.PathLike[str], schema: Any) -> None:
        self._encoder = _Encoder(schema)
        self._path, self._step = Path(path), f"write stream {os.fspath(path)}"
        descriptor = open_plain(self._path, os.O_RDWR | os.O_CREAT, step=self._step)
        self._file = open(descriptor, "r+b", buffering=0)  # noqa: SIM115  # `close` closes it
        try:
            if not lock(descriptor):
                raise UserError(
                    self._step, expected="one writer at a time", got="another one that has the file"
                )
            self._continue()
        except BaseException:
            self._file.close()
            raise

    def write(self, rows: Any) -> None:
        """Append rows: Arrow data, a frame, or dicts."""
        for message in self._encoder.messages([rows]):
            self._append(message)

    def punctuate(self, below: Any, *, key: Mapping[str, Any] | None = None) -> None:
        """Append the promise that no row to come has a time below an instant; with `key`, of some keys."""
        self._append(encoded_promise(Punctuation(below, key), self._encoder.schema))

    def sync(self) -> None:
        """Wait until all that was written is on disk."""
        with our_errors(self._step, self._path):
            os.fsync(self._file.fileno())

    def end(self) -> None:
        """End the stream: who follows it stops. Nothing can be appended any more."""
        self._append(END)
        self.close()

    def close(self) -> None:
        """Close the file. The stream has not ended: another writer may continue it."""
        self._file.close()

    def __enter__(self) -> StreamWriter:
        return self

    def __exit__(self, *failed: object) -> None:
        self.close()

    def _append(self, message: bytes) -> None:
        if self._file.closed:
            raise UserError(self._step, expected="a writer that is open", got="one that was closed")
        with our_errors(self._step, self._path):
            start = self._file.tell()
            try:
                _write_all(self._file, message)
            except BaseException:
                self._file.truncate(start)  # half a message would be the end of the stream
                self._file.seek(start)
                raise

    def _continue(self) -> None:
        """Go to the end of the last whole message."""
        header = self._encoder.header
        with our_errors(self._step, self._path):
            there = self._file.read(len(header))
            if there != header[: len(there)]:
                raise UserError(
                    self._step, expected=f"a stream of {self._encoder.schema!r}, or no file",
                    got="a file with something else",
                )  # fmt: skip
            self._file.seek(0)
            if len(there) < len(header):
                self._file.truncate(0)
                _write_all(self._file, header)
                return
            end = len(header)
            with pa.memory_map(str(self._path)) as mapped:
                ends, ended = ends_of_messages(memoryview(mapped.read_buffer())[end:], self._step)
            if ended:
                raise UserError(self._step, expected="a stream that goes on", got="one that was ended")
            end += ends[-1] if ends else 0
            self._file.truncate(end)
            self._file.seek(end)


def write_stream(path: str | os.PathLike[str] | BinaryIO, items: Iterable[Any], schema: Any) -> int:
    """Write a whole stream of batches and `tm.Punctuation`s; a file appears when it is complete.

    `schema` is that of a stream, as `tm.stream` takes it, or an Arrow schema. Instead of a path there may be
    a file that is open for writing: a pipe, a socket. Returns the number of rows.

    >>> import io
    >>> write_stream(io.BytesIO(), [[{"t": 1}, {"t": 2}], Punctuation(2)], {"t": "int64"})
    2
    """
    encoder = _Encoder(schema)
    if not isinstance(path, (str, os.PathLike)):
        _write_messages(path, encoder, items)
        return encoder.rows
    with appear(path) as file:
        _write_messages(file, encoder, items)
    return encoder.rows


def _write_messages(file: Any, encoder: _Encoder, items: Iterable[Any]) -> None:
    for message in itertools.chain([encoder.header], encoder.messages(items), [END]):
        _write_all(file, message)


def _write_all(file: Any, data: bytes) -> None:
    """Write bytes to a file, which may take fewer at once."""
    view = memoryview(data)
    while view:
        taken = file.write(view)
        view = view[len(view) if taken is None else taken :]


class _Encoder:
    """Turns rows and punctuations into messages."""

    def __init__(self, schema: Any) -> None:
        given = {f.name: f.type for f in schema} if isinstance(schema, pa.Schema) else schema
        self.schema = given if isinstance(given, Schema) else read_schema(given)
        self.header = self.schema.to_arrow().serialize().to_pybytes()
        self.rows = 0
        self._source = Source("stream", self.schema, self.schema.names[0], step="write stream")

    def messages(self, items: Iterable[Any]) -> Iterator[bytes]:
        for item in items:
            if isinstance(item, Punctuation):
                yield encoded_promise(item, self.schema)
                continue
            rows = [item] if isinstance(item, Mapping) else item
            for chunk in open_source(rows, self._source, promises=False):
                self.rows += chunk.batch.num_rows
                yield encoded_rows(chunk.batch)


def read_stream(path: str | os.PathLike[str]) -> StreamFile:
    """Read a whole stream from a file, memory-mapped: `live.read(clicks=tm.read_stream(path))`.

    Iterate over it to get its batches and punctuations. As an input of `query.run` it is its rows. A file
    that is still being written is followed instead: `tm.follow(path)`.
    """
    return StreamFile(Path(path))


class StreamFile(Feed):
    """A stream in a file. Its position is the number of batches and punctuations that were read."""

    about = "read_stream"

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self._step = path, f"read stream {path}"
        with our_errors(self._step, path), self._mapped() as mapped:
            self.schema: pa.Schema = self._reader(mapped).schema
            """The Arrow schema of its batches."""

    def __repr__(self) -> str:
        return f"read_stream({str(self.path)!r})"

    def __iter__(self) -> Iterator[pa.RecordBatch | Punctuation]:
        """Yield batches, which are valid but may have any columns, and punctuations."""
        with our_errors(self._step, self.path):
            mapped = self._mapped()
        reader = self._reader(mapped)
        while True:
            try:
                found = reader.read_next_batch_with_custom_metadata()
            except StopIteration:
                return
            except (pa.ArrowException, OSError) as broken:
                raise UserError(self._step, f"cannot be read: {broken}") from broken
            item = decoded(found.batch, found.custom_metadata, self.schema, self._step)
            yield item if isinstance(item, Punctuation) else require_sound(item, self._step)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Give the rows to `query.run`, and to other libraries that read Arrow data."""
        batches = (item for item in self if not isinstance(item, Punctuation))
        reader = pa.RecordBatchReader.from_batches(self.schema, batches)
        return reader.__arrow_c_stream__(requested_schema)

    def open(self, source: Source, position: Any, clock: Clock) -> OpenFeed:
        check_schema(self.schema, source.schema, source.reading, step=step_of(source, f"file {self.path}"))
        return _OpenStreamFile(iter(self), count_of(position, source), clock)

    def _mapped(self) -> pa.MemoryMappedFile:
        os.close(open_plain(self.path.resolve(), step=self._step))  # neither a pipe nor a device
        return pa.memory_map(str(self.path))

    def _reader(self, mapped: pa.MemoryMappedFile) -> pa.ipc.RecordBatchStreamReader:
        try:
            return pa.ipc.open_stream(mapped)
        except (pa.ArrowException, OSError) as broken:
            raise UserError(
                self._step, expected="an Arrow IPC stream", got=f"something else: {broken}",
                hint="tm.write_stream writes one; other files are read with tm.replay or tm.follow",
            ) from broken  # fmt: skip


class _OpenStreamFile(OpenFeed):
    def __init__(self, items: Iterator[pa.RecordBatch | Punctuation], count: int, clock: Clock) -> None:
        super().__init__(count, clock)
        self._arrivals = together(enumerate(itertools.islice(items, count, None), count + 1))

    def _look(self) -> Arrival | None:
        found = next(self._arrivals, None)
        self.ended = found is None
        return found


def together(items: Iterable[tuple[Any, pa.RecordBatch | Punctuation]]) -> Iterator[Arrival]:
    """Gather batches up to the next punctuations; items come with the position after them."""
    rows: list[pa.RecordBatch] = []
    promises: list[Punctuation] = []
    position: Any = None
    for after, item in items:
        if isinstance(item, Punctuation):
            promises.append(item)
        else:
            if promises or sum(batch.num_rows for batch in rows) >= _TOGETHER:
                yield _arrival(position, rows, promises)
                rows, promises = [], []
            rows.append(item)
        position = after
    if rows or promises:
        yield _arrival(position, rows, promises)


def _arrival(position: Any, rows: list[pa.RecordBatch], promises: list[Punctuation]) -> Arrival:
    table = pa.Table.from_batches(rows) if rows else None
    return Arrival(position, table, tuple(promises))
