"""Convert stores between compressed and uncompressed form."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidemill.wheels.loops.range_plan import END, LOW, PLAIN, ROOM, TOTAL
from tidemill.wheels.memory.compressed import compress_full, decompressed
from tidemill.wheels.memory.store import FIRST_ROOM, Ints, RingStore, mark, unmark


def as_plain(store: RingStore) -> RingStore:
    """The same store without compression."""
    return store if store.blocks is None else _rebuilt(store, 0)


def as_compressed(store: RingStore, slots: int) -> RingStore:
    """The same store, compressed in blocks of `slots` slots."""
    return _rebuilt(store, slots)


def _rebuilt(store: RingStore, compress: int) -> RingStore:
    other = RingStore(
        store.layout, store.rings, store.first, len(store.ahead), prefix=store.prefix,
        threshold=store.threshold, compress=compress, tuning=store.tuning,
    )  # fmt: skip
    other.know(store.keys)
    other.have_open(len(store.ahead))  # for many keys there may be fewer now
    if any(store.held):
        other.need_marks()
    other.room_until(store.now)
    for r in range(len(store.rings)):
        _take_ring(other, r, store)
    keys = store.keys
    other.ahead[:, :keys], other.totals[:keys] = store.ahead[:, :keys], store.totals[:keys]
    other.head[TOTAL] = store.head[TOTAL]
    other.changed()
    return other


def _take_ring(store: RingStore, r: int, other: RingStore) -> None:
    """Copy the slots of a ring from another store, block by block."""
    low, end = int(other.ring(r)[LOW]), int(other.ring(r)[END])
    store.ring(r)[[LOW, END, PLAIN]] = low
    step = store.compress or other.compress or FIRST_ROOM
    for start in range(low, end, step):
        slots = np.arange(start, min(end, start + step))
        columns, marks = decompressed(other, r, slots)
        _put(store, r, slots, columns, marks)
        store.ring(r)[END] = slots[-1] + 1
        compress_full(store)


def _put(store: RingStore, r: int, slots: Ints, columns: list[Any], marks: list[Any]) -> None:
    rows, room, keys = store.rows(r, slots), int(store.head[ROOM]), store.keys
    for target, source in zip(store.columns, columns):
        target[: store.slots_in_all * room].reshape(-1, room)[rows, :keys] = source
    cells = rows[:, None] * room + np.arange(keys)
    for bits, present in zip(store.marks, marks):
        mark(bits, cells[present])
        unmark(bits, cells[~present])
