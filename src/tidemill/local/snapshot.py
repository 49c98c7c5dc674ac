"""Convert snapshots of operators to bytes and back, with checks.

The bytes are an Arrow stream with two columns: the name of each table, and the table itself as an Arrow
stream. Reading a snapshot executes nothing, and checks all data before it is used.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.local.limits import Limits
from tidemill.local.operator import Snapshot

_SCHEMA = pa.schema([("name", pa.string()), ("table", pa.large_binary())])
_STEP = "restore"


def to_bytes(state: Snapshot) -> pa.Buffer:
    """Serialize a snapshot, for a file or another process."""
    tables = [stream_bytes(table).to_pybytes() for table in state.values()]
    columns = [pa.array(list(state), pa.string()), pa.array(tables, pa.large_binary())]
    return stream_bytes(pa.Table.from_arrays(columns, schema=_SCHEMA))


def from_bytes(data: pa.Buffer | bytes) -> Snapshot:
    """Deserialize a snapshot that `to_bytes` wrote; raise a `UserError` for other bytes."""
    outer = read_table(data)
    if outer.schema != _SCHEMA:
        raise UserError(_STEP, expected="a snapshot", got=f"an Arrow stream of {outer.schema.names}")
    return {name: read_table(table) for name, table in zip(*(c.to_pylist() for c in outer.columns))}


def nbytes(state: Snapshot) -> int:
    """Return the size of all tables in bytes."""
    return sum(table.nbytes for table in state.values())


def stream_bytes(table: pa.Table) -> pa.Buffer:
    """Serialize one table, as an Arrow stream."""
    sink = pa.BufferOutputStream()
    write_table(table, sink)
    return sink.getvalue()


def write_table(table: pa.Table, sink: pa.NativeFile) -> None:
    """Write one table as an Arrow stream."""
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def read_table(data: pa.Buffer | bytes) -> pa.Table:
    """Read an Arrow stream, and check all of it."""
    try:
        with pa.ipc.open_stream(data) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, TypeError) as broken:
        raise UserError(_STEP, f"the snapshot cannot be read: {broken}") from broken
    return table


# --- tables of plain numbers ------------------------------------------------------------------------


def tables(state: Snapshot, schemas: Mapping[str, pa.Schema]) -> list[pa.Table]:
    """Tables of a snapshot, each of the columns and types that it must have."""
    found = []
    for name, schema in schemas.items():
        table = state.get(name)
        if table is None or not table.schema.equals(schema):
            got = "no such table" if table is None else f"columns {table.schema.to_string()!r:.200}"
            raise UserError(_STEP, expected=f"a table {name!r} with columns {schema.names}", got=got)
        found.append(table)
    return found


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


def limits_table(limits: Limits) -> pa.Table:
    """Limits as a table: the common one, then those by key."""
    by_key = np.empty(0, dtype=np.int64) if limits.by_key is None else limits.by_key
    return numbers(limits=np.append(np.array([limits.common]), by_key))


def limits_of(table: pa.Table | None, keys: int, farthest: int) -> Limits:
    """What `limits_table` gave, for no more than so many keys, none farther from zero than it may be."""
    given = {} if table is None else {"limits": table}
    (checked,) = tables(given, {"limits": pa.schema([("limits", pa.int64())])})
    found = column(checked, "limits")
    if not 1 <= len(found) <= keys + 1:
        raise UserError(_STEP, expected=f"limits of at most {keys} keys", got=str(len(found) - 1))
    if found.min() < -farthest or found.max() > farthest:
        raise UserError(_STEP, expected=f"limits within {farthest} of zero", got="one beyond")
    return Limits(int(found[0]), found[1:] if len(found) > 1 else None)


def ids(table: pa.Table, name: str, below: int) -> npt.NDArray[np.int64]:
    """Return a column of ids, after checking that each is in `[0, below)`: they are used as indices."""
    found = column(table, name)
    if len(found) and (found.min() < 0 or found.max() >= below):
        raise UserError(_STEP, expected=f"{name!r} from 0 to {below - 1}", got="another number")
    return found
