"""Convert stores of Python objects to tables for files, and back."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from tidemill.aggregates.algebra import Sketch
from tidemill.aggregates.layout import Layout
from tidemill.aggregates.sketch_checks import check_sketch
from tidemill.core.types import to_arrow
from tidemill.local.state_columns import state_fields
from tidemill.wheels.files.checks import check_head, check_length, require
from tidemill.wheels.files.mapped import column
from tidemill.wheels.loops.range_plan import END, KEYS, LOW, TOTALS, VERSION
from tidemill.wheels.memory.store import Ints
from tidemill.wheels.objects.cells import cells_in, cells_out
from tidemill.wheels.objects.store import ObjectStore

PLACE = ("ring", "slot", "key")
"""The columns that locate a cell."""
OPEN = -2
"""The ring number that stands for open slots."""


def cell_tables(store: ObjectStore) -> dict[str, pa.Table]:
    """Tables of all cells with ring, slot and key, of the head, and of the keys that had rows."""
    rings = enumerate(store.closed)
    placed = [(r, s, k, c) for r, ring in rings for s, slot in ring.items() for k, c in slot.items()]
    placed += [(OPEN, s, k, c) for s, slot in store.open.items() for k, c in slot.items()]
    placed += [(TOTALS, 0, k, c) for k, cells in store.wholes.items() for c in cells]
    where = {n: pa.array([p[i] for p in placed], pa.int64()) for i, n in enumerate(PLACE)}
    states = cells_out(store.layout, [p[3] for p in placed])
    present = pa.array(list(store.wholes), pa.int64())
    return {
        "cells": pa.table({**where, **states}), "head": pa.table({"head": store.head}),
        "present": pa.table({"key": present}),
    }  # fmt: skip


def cell_schemas(layout: Layout) -> dict[str, pa.Schema]:
    """The schemas of `cell_tables`."""
    states = [(n, to_arrow(t)) for p in layout.parts for n, t in state_fields(p)]
    return {
        "cells": pa.schema([*((n, pa.int64()) for n in PLACE), *states]),
        "head": pa.schema({"head": pa.int64()}), "present": pa.schema({"key": pa.int64()}),
    }  # fmt: skip


def restore_cells(store: ObjectStore, tables: Mapping[str, pa.Table]) -> None:
    """Fill an empty store. The tables are untrusted: invalid contents raise an error."""
    head, cells = column(tables["head"], "head"), tables["cells"]
    check_length(head, store.rings)
    check_head(head, store.rings, keys=int(head[KEYS]), prefix=False, block=0, cells=False)
    store.head[...] = head
    store.head[VERSION] = 0
    present = column(tables["present"], "key")
    require(bool(((present >= 0) & (present < store.keys)).all()), f"{store.keys} keys", present)
    for part in store.layout.parts:
        if isinstance(sketch := part.part.algebra, Sketch):
            for data in cells[state_fields(part)[0][0]].to_pylist():
                if data is not None:
                    check_sketch(sketch, data)
    where = [column(cells, n) for n in PLACE]
    _check_places(store, *where)
    store.wholes = dict.fromkeys(present.tolist(), ())
    for (r, slot, key), cell in zip(zip(*(w.tolist() for w in where)), cells_in(store.layout, cells)):
        if r == TOTALS:
            store.count_in(key, cell)
        else:
            ring = store.open if r == OPEN else store.closed[r]
            ring.setdefault(slot, {})[key] = cell


def _check_places(store: ObjectStore, rings: Ints, slots: Ints, keys: Ints) -> None:
    """Raise for cells in slots that are not held, or of unknown keys."""
    require(bool(((keys >= 0) & (keys < store.keys)).all()), f"cells of {store.keys} keys", keys)
    there = rings == TOTALS
    there |= (rings == OPEN) & (slots >= store.now) & (slots < store.now + len(store.ahead))
    for r in range(len(store.rings)):
        h = store.ring(r)
        there |= (rings == r) & (slots >= h[LOW]) & (slots < h[END])
    require(bool(there.all()), "cells in slots that are held", slots[~there])
