"""Convert snapshots of operators to bytes and back, with checks.

The bytes are an Arrow stream with two columns: the name of each table, and the table itself as an Arrow
stream. Reading a snapshot executes nothing, and checks all data before it is used.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.local.operator import Snapshot

_SCHEMA = pa.schema([("name", pa.string()), ("table", pa.large_binary())])
_STEP = "restore"


def to_bytes(state: Snapshot) -> pa.Buffer:
    """Serialize a snapshot, for a file or another process."""
    tables = [_stream(table).to_pybytes() for table in state.values()]
    columns = [pa.array(list(state), pa.string()), pa.array(tables, pa.large_binary())]
    return _stream(pa.Table.from_arrays(columns, schema=_SCHEMA))


def from_bytes(data: pa.Buffer | bytes) -> Snapshot:
    """Deserialize a snapshot that `to_bytes` wrote; raise a `UserError` for other bytes."""
    outer = _table(data)
    if outer.schema != _SCHEMA:
        raise UserError(_STEP, expected="a snapshot", got=f"an Arrow stream of {outer.schema.names}")
    return {name: _table(table) for name, table in zip(*(c.to_pylist() for c in outer.columns))}


def nbytes(state: Snapshot) -> int:
    """Return the size of all tables in bytes."""
    return sum(table.nbytes for table in state.values())


def _stream(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _table(data: pa.Buffer | bytes) -> pa.Table:
    try:
        with pa.ipc.open_stream(data) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, TypeError) as broken:
        raise UserError(_STEP, f"the snapshot cannot be read: {broken}") from broken
    return table


# --- tables of plain numbers ------------------------------------------------------------------------


def numbers(**columns: npt.NDArray[np.int64] | list[int]) -> pa.Table:
    """Return a table with int64 columns."""
    return pa.table({name: pa.array(np.asarray(c, dtype=np.int64)) for name, c in columns.items()})


def column(table: pa.Table, name: str) -> npt.NDArray[np.int64]:
    """Return a column that `numbers` wrote, as a NumPy array."""
    found = table.column(name)
    if found.type != pa.int64() or found.null_count:
        raise UserError(_STEP, expected=f"ints in {name!r}", got=str(found.type))
    array: npt.NDArray[np.int64] = found.combine_chunks().to_numpy(zero_copy_only=False).copy()
    return array


def array_of(given: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """Return a column as one array, after checking its type."""
    if given.type != kind:
        raise UserError(_STEP, expected=f"a column of {kind}", got=str(given.type))
    array = given.combine_chunks()
    return pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array


def ids(table: pa.Table, name: str, below: int) -> npt.NDArray[np.int64]:
    """Return a column of ids, after checking that each is in `[0, below)`: they are used as indices."""
    found = column(table, name)
    if len(found) and (found.min() < 0 or found.max() >= below):
        raise UserError(_STEP, expected=f"{name!r} from 0 to {below - 1}", got="another number")
    return found
