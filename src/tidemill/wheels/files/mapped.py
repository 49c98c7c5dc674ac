"""Memory-map a file of a save, and check its type, its size and its columns."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt
import pyarrow as pa

from tidemill.core.errors import TidemillError, UserError
from tidemill.core.files import open_plain, our_errors


@dataclass(frozen=True)
class Mapped:
    """A memory-mapped file of a save, with its checksum from the manifest."""

    file: Path
    content: pa.Buffer
    sha256: str
    hint: str

    def verify(self) -> None:
        """Compare the whole file with its checksum."""
        if hashlib.sha256(self.content).hexdigest() != self.sha256:
            raise corrupt(self.file, "its checksum differs", self.hint)

    def table(self, schema: pa.Schema) -> pa.Table:
        """Read the table; it must have this schema, and no buffer may lie outside of the file."""
        return table_in(self.content, schema, self.file, self.hint)


def table_in(content: pa.Buffer, schema: pa.Schema, file: Path, hint: str) -> pa.Table:
    """Read the table in an untrusted Arrow file: see `Mapped.table`."""
    with as_it_must_be(file, hint):
        reader = pa.ipc.open_stream(pa.BufferReader(_batches(content)))
        if not reader.schema.equals(schema):
            raise corrupt(file, f"columns {_shown(reader.schema)}, not {_shown(schema)}", hint)
        table = reader.read_all()
        # Text and lists have offsets, which must be checked; numbers have none, and may be many.
        table.validate(full=not all(pa.types.is_primitive(f.type) for f in schema))
        return table.combine_chunks()


_MAGIC = b"ARROW1\0\0"
_HEADER, _METADATA, _COMPRESSION = 2, 4, 3
"""Field numbers in a message, and in its record batch."""


def _batches(content: pa.Buffer) -> pa.Buffer:
    """The stream of batches in an Arrow file; a compressed batch is an error.

    Saves are never compressed, and a few compressed bytes may expand beyond the memory. So every message is
    checked, also for metadata by which Arrow decompresses it; reading by the footer would skip that.
    """
    if content.slice(0, len(_MAGIC)).to_pybytes() != _MAGIC:
        raise ValueError("not an Arrow file")
    stream = content.slice(len(_MAGIC))
    for message in pa.ipc.MessageReader.open_stream(pa.BufferReader(stream)):
        if message.type == "schema":
            continue
        metadata = message.metadata.to_pybytes()
        root = struct.unpack_from("<I", metadata)[0]
        if _field(metadata, root, _METADATA) is not None:
            raise ValueError("a batch with its own metadata, which may mean that it is compressed")
        batch = _field(metadata, root, _HEADER)
        if message.type != "record batch" or batch is None:
            raise ValueError(f"a {message.type} in an Arrow file")
        if _field(metadata, batch + struct.unpack_from("<I", metadata, batch)[0], _COMPRESSION) is not None:
            raise ValueError("a compressed batch")
    return stream


def _field(flatbuffer: bytes, table: int, field: int) -> int | None:
    """The position of a field in a FlatBuffers table; None if the field is absent."""
    vtable = table - struct.unpack_from("<i", flatbuffer, table)[0]
    at = 4 + 2 * field
    if at >= struct.unpack_from("<H", flatbuffer, vtable)[0]:
        return None
    offset: int = struct.unpack_from("<H", flatbuffer, vtable + at)[0]
    return table + offset if offset else None


def map_file(file: Path, sha256: str, size: int, hint: str) -> Mapped:
    try:
        handle = open_plain(file, step="open wheel")
    except FileNotFoundError as gone:
        raise corrupt(file, "missing", hint) from gone
    with our_errors("open wheel", file), open(handle, "rb") as opened:
        found = os.fstat(handle).st_size
        if found != size or found == 0:
            raise corrupt(file, f"{found} bytes, not {size}", hint)
        content = pa.py_buffer(mmap.mmap(opened.fileno(), found, access=mmap.ACCESS_READ))
    return Mapped(file, content, sha256, hint)


def column(table: pa.Table, name: str) -> npt.NDArray[Any]:
    """A column of numbers, without a copy if it is aligned; bools are unpacked."""
    [array] = table[name].chunks or [pa.array([], table.schema.field(name).type)]
    if array.null_count:
        raise UserError("open wheel", expected=f"column {name!r} without nulls", got="nulls in it")
    found: npt.NDArray[Any] = array.to_numpy(zero_copy_only=not pa.types.is_boolean(array.type))
    return found if found.flags.aligned else found.copy()


@contextlib.contextmanager
def as_it_must_be(file: Path, hint: str) -> Iterator[None]:
    """Turn any error while a file is read into a `UserError` that names the file."""
    try:
        yield
    except UserError as wrong:
        if str(file) in str(wrong):
            raise
        what = f"{file} is invalid"
        if not wrong.expected:
            raise UserError("open wheel", f"{what}: {wrong}", hint=hint) from wrong
        raise UserError(
            "open wheel", what, expected=wrong.expected, got=wrong.got, hint=wrong.hint or hint
        ) from wrong
    except TidemillError as wrong:
        raise UserError("open wheel", f"{file} is invalid: {wrong}", hint=hint) from wrong
    except Exception as wrong:  # from Python, NumPy or Arrow: caused by the file's contents
        raise corrupt(file, f"{type(wrong).__name__}: {wrong}", hint) from wrong


def corrupt(file: Path, why: str, hint: str) -> UserError:
    return UserError("open wheel", expected=f"{file} as it was written", got=why, hint=hint)


def _shown(schema: pa.Schema) -> str:
    return "{" + ", ".join(f"{f.name}: {f.type}" for f in schema) + "}"
