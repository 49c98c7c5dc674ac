"""The form of a stream on the wire and in files: an Arrow IPC stream, with punctuations among its batches.

A punctuation is a record batch without rows, with metadata of its own: `tidemill.below` is the instant in
ticks, and `tidemill.key`, if the promise is about some keys, an Arrow IPC stream of their values in base64.
Who does not know these sees batches without rows.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.core.types import to_arrow
from tidemill.io.arrow_checks import require_sound
from tidemill.plan.punctuation import Punctuation

BELOW, KEY = b"tidemill.below", b"tidemill.key"
END = b"\xff\xff\xff\xff\0\0\0\0"
"""The end of a stream."""
_CONTINUATION = b"\xff\xff\xff\xff"
_PREFIX = 8
_LONGEST_METADATA = 1 << 28
_BODY_LENGTH = 3
"""The field of an Arrow message that has the length of its body."""


# -- writing


def encoded_rows(batch: pa.RecordBatch) -> bytes:
    """Return the message of a batch."""
    return _message(batch, None)


def encoded_promise(promise: Punctuation, schema: Schema) -> bytes:
    """Return the message of a punctuation."""
    metadata = {BELOW: str(promise.ticks).encode()}
    if promise.key is not None:
        keys = _keys(promise, schema)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, keys.schema) as writer:
            writer.write_batch(keys)
        metadata[KEY] = base64.b64encode(sink.getvalue())
    return _message(pa.RecordBatch.from_pylist([], schema=schema.to_arrow()), metadata)


def _message(batch: pa.RecordBatch, metadata: dict[bytes, bytes] | None) -> bytes:
    sink = pa.BufferOutputStream()
    writer = pa.ipc.new_stream(sink, batch.schema)
    writer.write_batch(batch, custom_metadata=metadata)
    return bytes(memoryview(sink.getvalue())[len(batch.schema.serialize()) :])


def _keys(promise: Punctuation, schema: Schema) -> pa.RecordBatch:
    assert promise.key is not None
    arrays = {}
    for name, given in promise.key.items():
        kind = to_arrow(schema.type_of(name, step="punctuation"))
        listed = given if isinstance(given, (list, tuple, pa.Array)) else [given]
        try:
            arrays[name] = pa.array(listed, kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, OverflowError) as unfit:
            raise UserError(
                "punctuation", expected=f"keys {name!r} of {kind}", got=f"{given!r:.80}"
            ) from unfit
    if len({len(array) for array in arrays.values()}) != 1:
        raise UserError("punctuation", expected="key columns of one length", got=f"{promise.key!r:.80}")
    return pa.record_batch(arrays)


# -- reading


def decoded(
    batch: pa.RecordBatch, metadata: Any, schema: pa.Schema, step: str
) -> pa.RecordBatch | Punctuation:
    """Return a batch as it is, or the punctuation that it stands for. What it says is checked."""
    said = dict(metadata or {})
    if BELOW not in said:
        return batch
    try:
        below = int(said[BELOW])
        key = _decoded_keys(said[KEY], schema, step) if KEY in said else None
        return Punctuation(below, key)
    except (ValueError, binascii.Error, pa.ArrowException, OSError, UserError) as broken:
        raise UserError(step, f"a punctuation cannot be read: {broken}") from broken


def _decoded_keys(text: bytes, schema: pa.Schema, step: str) -> dict[str, pa.Array]:
    with pa.ipc.open_stream(base64.b64decode(text, validate=True)) as reader:
        table = reader.read_all()
    for field in table.schema:
        if field.name not in schema.names or field.type != schema.field(field.name).type:
            raise UserError(step, expected="keys that are columns of the stream", got=str(field))
    batches = [require_sound(batch, step) for batch in table.to_batches()]
    return {
        name: pa.Table.from_batches(batches, table.schema)[name].combine_chunks()
        for name in table.column_names
    }


def ends_of_messages(data: bytes | memoryview, step: str) -> tuple[list[int], bool]:
    """Return where the whole messages of some bytes end, and whether the end of the stream is behind them.

    A message that is not whole yet is left out. Bytes that no message can begin with are an error.
    """
    ends: list[int] = []
    at = 0
    while True:
        missing, after = _one_message(data, at, step)
        if missing:
            return ends, False
        if after == at + _PREFIX:  # a message without metadata
            return ends, True
        ends.append(after)
        at = after


def _one_message(data: bytes | memoryview, at: int, step: str) -> tuple[bool, int]:
    """Return whether bytes of the message at a position are missing, and where it ends if none are."""
    if not _CONTINUATION.startswith(bytes(data[at : at + 4])):
        raise _damaged(step, at)
    if len(data) < at + _PREFIX:
        return True, at
    (size,) = struct.unpack_from("<i", data, at + 4)
    if not 0 <= size <= _LONGEST_METADATA:
        raise _damaged(step, at)
    start = at + _PREFIX
    if size == 0 or len(data) < start + size:
        return size > 0, start
    try:
        body = _body_length(memoryview(data)[start : start + size])
    except (struct.error, ValueError) as broken:
        raise _damaged(step, at) from broken
    end = start + size + body
    return len(data) < end, end


def _body_length(metadata: memoryview) -> int:
    """Return the length of the body of a message, from its metadata, a table of FlatBuffers."""

    def number(form: str, at: int) -> int:
        if at < 0:
            raise ValueError("an offset before the beginning")
        return int(struct.unpack_from(form, metadata, at)[0])

    root = number("<I", 0)
    fields = root - number("<i", root)
    slot = fields + 4 + 2 * _BODY_LENGTH
    field = number("<H", slot) if slot < fields + number("<H", fields) else 0
    length = number("<q", root + field) if field else 0
    if length < 0:
        raise ValueError("a negative length")
    return length


def read_batches(
    header: bytes, messages: bytes, schema: pa.Schema, step: str
) -> Iterator[pa.RecordBatch | Punctuation]:
    """Yield what is in whole messages, behind the message with the schema."""
    try:
        reader = pa.ipc.open_stream(header + messages)
        while True:
            found = reader.read_next_batch_with_custom_metadata()
            yield decoded(found.batch, found.custom_metadata, schema, step)
    except StopIteration:
        return
    except (pa.ArrowException, OSError) as broken:
        raise UserError(step, f"cannot be read: {broken}") from broken


def require_plain(schema: pa.Schema, step: str) -> None:
    """Raise an error for a stream with dictionaries, whose batches cannot be read one by one."""
    for field in schema:
        if _has_dictionary(field.type):
            raise UserError(
                step, expected="plain columns in a stream that is followed",
                got=f"{field.name!r} of {field.type}",
                hint="tm.StreamWriter writes plain columns",
            )  # fmt: skip


def _has_dictionary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return True
    return any(_has_dictionary(kind.field(i).type) for i in range(kind.num_fields))


def _damaged(step: str, at: int) -> UserError:
    return UserError(step, f"cannot be read: no message of an Arrow stream at byte {at}")
