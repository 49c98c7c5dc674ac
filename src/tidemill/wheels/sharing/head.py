"""Check the head of a shared wheel before kernels use it: kernels do not check bounds.

A live writer keeps the head consistent. With a damaged or forged directory, nothing outside of its files is
read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.wheels.files.checks import MOST_KEYS, check_head, check_length, require
from tidemill.wheels.loops.range_plan import (
    BLOCK_ROW,
    CAPACITY,
    END,
    HEAD,
    KEYS,
    LOW,
    MARKED,
    NEVER,
    OFFSET,
    RING,
    ROOM,
)  # fmt: skip
from tidemill.wheels.loops.sparse_cells import GROUP, SPAN
from tidemill.wheels.memory.sparse_store import SparseStore
from tidemill.wheels.memory.store import RingStore


def check_arrays(
    head: npt.NDArray[np.int64], arrays: Mapping[str, npt.NDArray[Any]], store: RingStore
) -> None:
    """Raise unless a consistent copy of a head fits the arrays and a store of this kind."""
    check_length(head, store.rings)
    check_head(head, store.rings, keys=int(head[KEYS]), prefix=store.prefix, block=0, cells=True)
    keys, room = int(head[KEYS]), int(head[ROOM])
    require(0 <= keys <= room < MOST_KEYS and room > 0, f"room for {keys} keys", room)
    require(len(arrays["totals"]) >= room, f"totals of {room} keys", len(arrays["totals"]))
    require(arrays["marks"].shape[0] == len(store.slots.marks), "marks", arrays["marks"].shape)
    if isinstance(store, SparseStore):
        _check_sparse(arrays, store, room)
        return
    slots = 0
    for r, ring in enumerate(store.rings):
        own = head[HEAD + RING * r : HEAD + RING * (r + 1)].tolist()
        require(own[OFFSET] == slots, f"ring {ring.shown} at {slots}", own[OFFSET])
        held = own[END] - own[LOW]
        require(held <= own[CAPACITY] < 1 << 48, f"room for {held} slots of {ring.shown}", own[CAPACITY])
        require(own[CAPACITY] > 0, f"room for slots of {ring.shown}", own[CAPACITY])
        require(own[BLOCK_ROW] == NEVER, f"ring {ring.shown} uncompressed", "a compressed one")
        slots += own[CAPACITY]
    cells = slots * room
    marks = cells // 8 + 1 if head[MARKED] else 1
    require(arrays["marks"].shape[1] >= marks, f"marks of {cells} cells", arrays["marks"].shape)
    for name, array in arrays.items():
        least = cells if name.startswith("f_") or (store.prefix and name.startswith("x_")) else 1
        require(array.size >= least, f"{least} cells in {name}", array.size)


def _check_sparse(arrays: Mapping[str, npt.NDArray[Any]], store: SparseStore, room: int) -> None:
    """Raise unless the arrays of a sparse store fit each other: kernels check what is in them."""
    spans, groups, marks = (arrays[n] for n in ("spans", "groups", "marks"))
    rows = len(store.rings) * room
    require(spans.shape[1] == SPAN and len(spans) >= rows, f"{rows} spans", spans.shape)
    require(groups.shape[1] == GROUP, f"groups of {GROUP} numbers", groups.shape)
    sizes = {len(array) for name, array in arrays.items() if name.startswith("f_")}
    require(len(sizes) <= 1, "as many cells in each column", sizes)
    cells = max(sizes, default=0)
    require(marks.shape[1] * 8 >= cells, f"marks of {cells} cells", marks.shape)
