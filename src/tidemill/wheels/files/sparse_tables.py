"""Convert sparse stores to tables for files, and back.

Cells are in the order of ring, key and time. `groups` says in which slots they are, and `spans` how many
groups each key has in each ring: see `loops.sparse_cells`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.codegen.algebra import numpy_type
from tidemill.wheels.files.checks import MOST_KEYS, check_head, check_length, require
from tidemill.wheels.files.mapped import column
from tidemill.wheels.loops.range_plan import (
    END,
    FIRST,
    HEAD,
    KEYS,
    LOW,
    MARKED,
    PLAIN,
    RING,
    ROOM,
    TOTAL,
    VERSION,
)
from tidemill.wheels.loops.sparse_cells import BITS, START, WIDTH
from tidemill.wheels.memory.sparse_store import SparseStore, packed_marks
from tidemill.wheels.memory.store import Ints, no_bits, records
from tidemill.wheels.spec import MOST_AHEAD, power_of_two

PLACE = "place"
"""The column that locates an open record: its slots from the watermark on, times the number of keys, plus its
key."""


def sparse_tables(store: SparseStore) -> dict[str, pa.Table]:
    """Tables of all cells and groups, of the head, the totals and the records of open slots."""
    rows, of = store.group_rows()
    _, _, cells = store.listed()
    keys, room = store.keys, store.room
    counts = np.bincount(of, minlength=len(store.spans)).reshape(-1, room)[:, :keys]
    marks = store.marks_of(cells)
    held = {f"f_{n}": c[cells] for (n, _), c in zip(store.slots.stored, store.columns)}
    held |= {f"mark{m}": marks[m] for m in range(1, len(marks))}
    occupied = store.occupied
    opened = store.ahead[occupied & (len(store.ahead) - 1), :keys]
    which, key = np.nonzero(opened["rows"])
    place = (occupied[which] - store.now) * keys + key
    return {
        "cells": pa.table(held),
        "groups": pa.table({"start": store.groups[rows, START], "bits": store.groups[rows, BITS]}),
        "spans": pa.table({"groups": counts.ravel()}),
        "head": pa.table({"head": store.head}),
        "totals": _records(store.totals[:keys]),
        "open": _records(opened[which, key]).append_column(PLACE, pa.array(place, pa.int64())),
    }


def sparse_schemas(store: SparseStore) -> dict[str, pa.Schema]:
    """The schemas of `sparse_tables`."""
    cells = [(f"f_{n}", pa.from_numpy_dtype(numpy_type(t))) for n, t in store.slots.stored]
    cells += [(f"mark{m}", pa.bool_()) for m in range(1, len(store.slots.marks))]
    fields: Mapping[str, Any] = store.slots.open_type.fields or {}
    record = [(n, pa.from_numpy_dtype(kind)) for n, (kind, *_) in fields.items()]
    return {
        "cells": pa.schema(cells), "groups": pa.schema({"start": pa.int64(), "bits": pa.int64()}),
        "spans": pa.schema({"groups": pa.int64()}), "head": pa.schema({"head": pa.int64()}),
        "totals": pa.schema(record), "open": pa.schema([*record, (PLACE, pa.int64())]),
    }  # fmt: skip


def restore_sparse(store: SparseStore, tables: Mapping[str, pa.Table]) -> None:
    """Fill an empty store; cells are copied only when something changes.

    The tables are untrusted: everything that kernels use is checked.
    """
    head = column(tables["head"], "head")
    check_length(head, store.rings)
    keys = int(head[KEYS])
    require(0 <= keys < MOST_KEYS, f"keys from 0 to {MOST_KEYS}", keys)
    check_head(head, store.rings, keys=keys, prefix=False, block=0, cells=True)
    own, room = store.head, max(1, keys)
    need = room * (store.fresh.itemsize + store.spans.nbytes)
    most = store.tuning.most_bytes
    require(need <= most, f"a wheel that takes at most {most} bytes of memory", need)
    own[[KEYS, FIRST, ROOM, MARKED, TOTAL]] = keys, head[FIRST], room, 1, head[TOTAL]
    own[VERSION] = 0
    for r in range(len(store.rings)):
        mine, theirs = store.ring(r), head[HEAD + RING * r : HEAD + RING * (r + 1)]
        mine[[LOW, END, PLAIN]] = theirs[[LOW, END, PLAIN]]
    counts = column(tables["spans"], "groups")
    start, bits = (column(tables["groups"], n) for n in ("start", "bits"))
    cells = tables["cells"]
    held = int(np.bitwise_count(bits.view(np.uint64)).sum())
    require(cells.num_rows == held or not cells.num_columns, f"{held} cells", cells.num_rows)
    _check_groups(store, keys, counts, start, bits)
    of = np.repeat(np.arange(len(counts)), counts)
    columns = [column(cells, f"f_{n}") for n, _ in store.slots.stored]
    marks = np.zeros((len(store.slots.marks), held), dtype=np.bool_)
    for m in range(1, len(marks)):
        marks[m] = column(cells, f"mark{m}")
    store.spans = np.zeros((len(store.rings) * room, store.spans.shape[1]), dtype=np.int64)
    store.take_over(start, bits, of, columns, packed_marks(marks))
    store.find_due()
    totals, opened = tables["totals"], tables["open"]
    require(totals.num_rows == keys, f"totals of {keys} keys", totals.num_rows)
    place = column(opened, PLACE)
    inside = bool(((place >= 0) & (place < MOST_AHEAD * keys)).all())
    require(inside, f"records of {MOST_AHEAD} open slots of {keys} keys", place)
    slot, key = np.divmod(place, room)
    extent = int(slot.max(initial=-1)) + 1
    ahead = store.fewer_open(power_of_two(max(len(store.ahead), extent)), extent, room)
    need = room * ahead * store.fresh.itemsize
    require(need <= most, f"open slots that take at most {most} bytes of memory", need)
    store.totals = records(store.fresh, room)
    store.ahead = records(store.fresh, ahead * room).reshape(ahead, room)
    store.touched = no_bits(ahead, room)
    row = (slot + store.now) & (ahead - 1)
    for name in store.slots.open_type.names or ():
        store.totals[name][:keys] = column(totals, name)
        store.ahead[name][row, key] = column(opened, name)
    store.packed = True
    store.touch()
    store.changed()


def _check_groups(store: SparseStore, keys: int, counts: Ints, start: Ints, bits: Ints) -> None:
    """Raise for groups that overlap, that are not held, or that do not start with a cell."""
    rings = len(store.rings)
    require(len(counts) == rings * keys, f"groups of {rings} rings and {keys} keys", len(counts))
    fits = bool((counts >= 0).all() and (counts <= len(start)).all()) and int(counts.sum()) == len(start)
    require(fits, f"{len(start)} groups in all", counts)
    require(bool(((bits & 1) == 1).all()), "groups that start with a cell", bits)
    ring = np.repeat(np.arange(rings * keys) // max(1, keys), counts)
    low = np.array([store.ring(r)[LOW] for r in range(rings)])[ring]
    end = np.array([store.ring(r)[END] for r in range(rings)])[ring]
    # A group may start before the oldest slot that is held.
    there = bool(((start > low - WIDTH) & (start < end)).all())
    require(there, "groups of slots that are held", start)
    last = start + _last_bit(bits)
    require(bool((last < end).all()), "cells of closed slots", last)
    same = np.repeat(np.arange(rings * keys), counts)
    apart = (same[1:] != same[:-1]) | (start[1:] > last[:-1])
    require(bool(apart.all()), "groups in the order of time", start)


def _last_bit(bits: Ints) -> Ints:
    """The position of the highest set bit of each int."""
    smeared = bits.view(np.uint64).copy()
    for shift in (1, 2, 4, 8, 16, 32):
        smeared |= smeared >> np.uint64(shift)
    return np.bitwise_count(smeared).astype(np.int64) - 1


def _records(found: npt.NDArray[Any]) -> pa.Table:
    return pa.table({n: np.ascontiguousarray(found[n]) for n in found.dtype.names or ()})
