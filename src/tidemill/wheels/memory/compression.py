"""Closed slots of a store into compressed blocks, and out of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tidemill.codegen.algebra import numpy_type
from tidemill.wheels.loops.range_plan import END, HOT, LOW

if TYPE_CHECKING:
    from tidemill.wheels.memory.store import RingStore

Ints = npt.NDArray[np.int64]


def freeze(store: RingStore) -> None:
    """Compress blocks of slots that are complete and not needed as they are."""
    for r in range(len(store.rings) if store.compress else 0):
        h = store.ring(r)
        while store.compresses(r) and h[END] - h[HOT] >= store.hot_room(r) - store.compress:
            _freeze_block(store, r)
            h = store.ring(r)
        if store.compresses(r) and store.rings[r].slots is not None:
            h[LOW] = max(h[LOW], h[END] - store.rings[r].slots)


def _freeze_block(store: RingStore, r: int) -> None:
    assert store.cold is not None
    h, size = store.ring(r), store.compress
    block = int(h[HOT]) // size
    # Of the first block there may be a part only.
    slots = np.maximum(np.arange(block * size, (block + 1) * size), h[HOT])
    cells = size * store.keys
    if not store.cold.has_room(r, cells):
        store.head = store.head.copy()  # who reads now reads again: see `RingStore.changed`
        store.cold.make_room(r, cells)
        if store.rings[r].slots is not None:
            store.cold.forget(r, int(h[LOW]) // size)
        store.note_directory()
        store.changed()
    columns, marks = store.cells(r, slots)
    values = [*columns, *(m.astype(np.int64) for m in marks)]
    store.cold.add(r, block, store.keys, [_as_ints(v).ravel() for v in values])
    store.note_directory()
    store.ring(r)[HOT] = (block + 1) * size


def freeze_empty(store: RingStore, r: int, end: int) -> None:
    """Close the slots of a ring below one. There is nothing in them, nor in those that are not compressed.

    Blocks of nothing are rows of the directory. Those that the ring would not keep are left out.
    """
    assert store.cold is not None
    size, kept, block = store.compress, store.rings[r].slots, int(store.ring(r)[HOT]) // store.compress
    plain = store.hot_room(r) - size
    until = max(block, (end - plain) // size + 1)  # fewer slots than that are left as they are
    store.head = store.head.copy()  # who reads now reads again: see `RingStore.changed`
    if kept is not None and (end - kept) // size > block:
        block = min(until, (end - kept) // size)
        store.cold.restart(r, block)
    nothing = [_as_ints(np.array([store.identity[n]], numpy_type(k)))[0] for n, k in store.slots.stored]
    store.cold.add_constant(r, block, until - block, store.keys, [*nothing, *(0 for _ in store.marks)])
    h = store.ring(r)
    h[END], h[HOT] = end, until * size
    if kept is not None:
        h[LOW] = max(h[LOW], end - kept)
    store.note_directory()
    store.changed()


def thawed(store: RingStore, r: int, slots: Ints) -> tuple[list[Any], list[Any]]:
    """As `RingStore.cells`, compressed or not."""
    hot = int(store.ring(r)[HOT])
    own = store.cells(r, slots[slots >= hot])
    frozen = slots[slots < hot]
    if len(frozen) == 0:
        return own
    parts = [_of_block(store, r, block, frozen) for block in np.unique(frozen // store.compress).tolist()]
    parts.append(own)
    columns = [np.concatenate(c) for c in zip(*(p[0] for p in parts))]
    return columns, [np.concatenate(m) for m in zip(*(p[1] for p in parts))]


def _of_block(store: RingStore, r: int, block: int, wanted: Ints) -> tuple[list[Any], list[Any]]:
    """The slots of a block that are wanted; keys that came later have nothing in it."""
    assert store.cold is not None
    size, stored = store.compress, len(store.slots.stored)
    then, values = store.cold.block(r, block)
    at = wanted[wanted // size == block] - block * size
    columns = []
    for values_, (name, kind) in zip(values[:stored], store.slots.stored):
        wide = np.full((len(at), store.keys), store.identity[name], dtype=numpy_type(kind))
        wide[:, :then] = _from_ints(values_, wide.dtype).reshape(size, then)[at]
        columns.append(wide)
    marks = []
    for values_ in values[stored:]:
        there = np.zeros((len(at), store.keys), dtype=np.bool_)
        there[:, :then] = values_.reshape(size, then)[at]
        marks.append(there)
    return columns, marks


def _as_ints(values: npt.NDArray[Any]) -> Ints:
    """Values as ints that are compressed: floats by their bits."""
    return values.view(np.int64) if values.dtype == np.float64 else values.astype(np.int64, copy=False)


def _from_ints(values: Ints, kind: Any) -> npt.NDArray[Any]:
    return values.view(np.float64) if kind == np.float64 else values.astype(kind, copy=False)
