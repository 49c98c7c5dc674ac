"""Check that kernels can read Arrow data: lengths of buffers, ranges of offsets and indices, UTF-8.

Arrow does not check this when it reads data. An IPC file or stream holds arrays as they are in memory,
damaged or not, a table may be such a file, and in Parquet and JSON any bytes become text. All input is
therefore checked. This costs half a nanosecond per string if all are ASCII, five otherwise, and nothing for
numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.core.errors import UserError

_ASCII = 127
_TEXT = (pa.types.is_string, pa.types.is_binary)
_LARGE_TEXT = (pa.types.is_large_string, pa.types.is_large_binary)


def require_sound(batch: pa.RecordBatch, step: str, *, plain: bool = False) -> pa.RecordBatch:
    """Return the batch if its arrays are valid; otherwise raise an error.

    Pass `plain=True` if `is_plain` says so of its schema: then one call checks all columns at once.

    >>> require_sound(pa.record_batch({"x": ["a"]}), "run").num_rows
    1
    """
    if plain and _is_valid(batch):
        return batch
    for name, array in zip(batch.schema.names, batch.columns):
        try:
            _check(array)
        except (pa.ArrowException, ValueError) as broken:
            raise UserError(
                step, expected=f"column {name!r} to be valid", got=f"a broken Arrow array: {broken}",
                hint="the program that wrote it has a bug, or the file is damaged",
            ) from broken  # fmt: skip
    return batch


def is_plain(schema: pa.Schema) -> bool:
    """Return whether Arrow's own check of a whole batch is all that columns of these types need.

    >>> is_plain(pa.schema({"x": pa.int64()})), is_plain(pa.schema({"x": pa.string()}))
    (True, False)
    """
    return all(pa.types.is_primitive(kind) for kind in schema.types)


def _is_valid(batch: pa.RecordBatch) -> bool:
    try:
        batch.validate()
    except pa.ArrowInvalid:
        return False
    return True


def checks_by_row(schema: pa.Schema) -> bool:
    """Return whether to check parts of a batch takes no longer than to check all of it."""
    flat = (pa.types.is_primitive, *_TEXT, *_LARGE_TEXT)
    return all(any(of(kind) for of in flat) for kind in schema.types)


def _check(array: Any) -> None:
    kind = array.type
    if pa.types.is_primitive(kind):
        array.validate()
    elif isinstance(array, pa.ExtensionArray):
        _check(array.storage)
    elif pa.types.is_dictionary(kind):
        array.validate()
        _check(array.dictionary)
        _check_indices(array)
    elif any(of(kind) for of in _TEXT):
        _check_text(array, np.int32)
    elif any(of(kind) for of in _LARGE_TEXT):
        _check_text(array, np.int64)
    elif pa.types.is_nested(kind) or pa.types.is_run_end_encoded(kind) or _is_view(kind):
        array.validate(full=True)
    else:
        array.validate()


def _check_text(array: Any, kind: Any) -> None:
    array.validate()  # checks the first and the last offset only
    if not len(array):
        return
    _, ends, body = array.buffers()
    offsets = np.frombuffer(ends, dtype=kind)[array.offset :][: len(array) + 1]
    if not (offsets[1:] >= offsets[:-1]).all():
        raise ValueError("offsets that decrease")
    text = np.frombuffer(body, dtype=np.uint8)[offsets[0] : offsets[-1]] if body else offsets[:0]
    if len(text) and text.max() > _ASCII:
        array.validate(full=True)


def _check_indices(array: pa.DictionaryArray) -> None:
    import pyarrow.compute as pc

    array.indices.validate()
    found = pc.min_max(array.indices)
    least, most = found["min"].as_py(), found["max"].as_py()
    if least is not None and not 0 <= least <= most < len(array.dictionary):
        raise ValueError(f"indices from {least} to {most} of {len(array.dictionary)} values")


def _is_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))
