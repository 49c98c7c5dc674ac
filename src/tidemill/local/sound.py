"""Arrow data that kernels can read: buffers as long as they must be, offsets and indices inside.

Arrow does not look at this by itself. What Arrow has decoded, from Parquet, CSV or JSON, is sound; an IPC
file holds the arrays as they are in memory, damaged or not, and is looked at in full, text included: four
nanoseconds a string. Of arrays in memory only what a kernel would go wrong with is checked: a fifth of one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.core.errors import UserError

_TEXT = (pa.types.is_string, pa.types.is_binary)
_LARGE_TEXT = (pa.types.is_large_string, pa.types.is_large_binary)


def require_sound(batch: pa.RecordBatch, step: str, *, full: bool = False) -> pa.RecordBatch:
    """The batch, if its arrays are what they say; with `full`, also if all text is UTF-8.

    >>> require_sound(pa.record_batch({"x": ["a"]}), "run").num_rows
    1
    """
    for name, array in zip(batch.schema.names, batch.columns):
        try:
            _check(array, full)
        except (pa.ArrowException, ValueError) as broken:
            raise UserError(
                step, expected=f"column {name!r} to be sound", got=f"a broken Arrow array: {broken}",
                hint="what wrote it is at fault, or the file is damaged",
            ) from broken  # fmt: skip
    return batch


def _check(array: Any, full: bool) -> None:
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        _check(array.storage, full)
    elif full or pa.types.is_nested(kind) or pa.types.is_run_end_encoded(kind) or _is_view(kind):
        array.validate(full=True)
    else:
        array.validate()
        if pa.types.is_dictionary(kind):
            _check(array.dictionary, full)
            _check_indices(array)
        elif any(of(kind) for of in _TEXT):
            _check_offsets(array, np.int32)
        elif any(of(kind) for of in _LARGE_TEXT):
            _check_offsets(array, np.int64)


def _check_offsets(array: Any, kind: Any) -> None:
    """`validate` has looked at the first and the last one."""
    if len(array):
        offsets = np.frombuffer(array.buffers()[1], dtype=kind)[array.offset :][: len(array) + 1]
        if not (offsets[1:] >= offsets[:-1]).all():
            raise ValueError("offsets that go back")


def _check_indices(array: pa.DictionaryArray) -> None:
    import pyarrow.compute as pc

    array.indices.validate()
    found = pc.min_max(array.indices)
    least, most = found["min"].as_py(), found["max"].as_py()
    if least is not None and not 0 <= least <= most < len(array.dictionary):
        raise ValueError(f"indices from {least} to {most} of {len(array.dictionary)} values")


def _is_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))
