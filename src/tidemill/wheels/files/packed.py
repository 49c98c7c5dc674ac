"""Convert stores of numbers to arrays without spare capacity for files, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.aggregates.layout import Layout
from tidemill.wheels.files.checks import MOST_KEYS, check_compressed, check_head, require
from tidemill.wheels.loops.range_plan import (
    BASE,
    BLOCK_ROW,
    CAPACITY,
    END,
    HEAD,
    KEYS,
    MARKED,
    OFFSET,
    PLAIN,
    RING,
    ROOM,
    VERSION,
)  # fmt: skip
from tidemill.wheels.memory.compressed import CompressedBlocks
from tidemill.wheels.memory.store import RingStore, no_bits, records
from tidemill.wheels.rings import Ring
from tidemill.wheels.spec import MOST_AHEAD, power_of_two
from tidemill.wheels.tuning import DEFAULT, WheelTuning


def packed(store: RingStore) -> tuple[dict[str, npt.NDArray[Any]], dict[str, npt.NDArray[Any]]]:
    """The cells of closed slots by name, ring by ring without spare capacity; and the other arrays."""
    held = [np.arange(store.ring(r)[PLAIN], store.ring(r)[END]) for r in range(len(store.rings))]
    rows = np.concatenate([store.rows(r, slots) for r, slots in enumerate(held)])
    room, keys = int(store.head[ROOM]), store.keys
    cells = {}
    for kind, columns in (("f", store.columns), ("x", store.prefixes if store.prefix else [])):
        for (name, _), values in zip(store.slots.stored, columns):
            by_slot = values[: store.slots_in_all * room].reshape(-1, room)
            cells[f"{kind}_{name}"] = by_slot[rows, :keys].ravel()
    if store.head[MARKED]:
        at = (rows[:, None] * room + np.arange(keys)).ravel()
        for m, bits in enumerate(store.marks):
            cells[f"mark{m}"] = np.unpackbits(bits, bitorder="little")[at].astype(np.bool_)
    ahead = store.ahead[:, :keys].ravel()
    if not ahead["rows"].any():
        ahead = ahead[:0]
    return cells, {"head": store.head, "ahead": ahead, "totals": store.totals[:keys]}


def unpacked(
    layout: Layout, rings: Sequence[Ring], ahead: int, cells: Mapping[str, npt.NDArray[Any]],
    rest: Mapping[str, npt.NDArray[Any]], *, prefix: bool, threshold: int,
    blocks: CompressedBlocks | None = None, tuning: WheelTuning = DEFAULT,
) -> RingStore:  # fmt: skip
    """Make a store over packed cells, which are copied only when something changes.

    The arrays are untrusted: everything that kernels use is checked. The number of keys is that of the head.
    """
    store = RingStore(
        layout, rings, 0, ahead, prefix=prefix, threshold=threshold,
        compress=0 if blocks is None else blocks.slots, room=False, tuning=tuning,
    )  # fmt: skip
    keys, offset = int(rest["head"][KEYS]), 0
    require(0 <= keys < MOST_KEYS, f"keys from 0 to {MOST_KEYS}", keys)
    check_head(rest["head"], rings, keys=keys, prefix=prefix, block=store.compress, cells=True)
    if blocks is not None:
        which = range(len(rings))
        rooms = [store.plain_room(r) for r in which]
        check_compressed(blocks, rest["head"], [store.compresses(r) for r in which], rooms)
    never = store.head[HEAD + BLOCK_ROW :: RING].copy()
    store.head[...] = rest["head"]
    store.head[HEAD + BLOCK_ROW :: RING] = never
    store.head[ROOM], store.head[VERSION] = max(1, keys), 0
    store.blocks = blocks
    if blocks is not None:
        store.note_directory()
    for r in range(len(rings)):
        h = store.ring(r)
        held = int(h[END] - h[PLAIN])
        h[BASE], h[CAPACITY], h[OFFSET] = h[PLAIN], max(1, held), offset
        offset += held
    store.slots_in_all = offset
    names = [n for n, _ in store.slots.stored]
    for name, values in cells.items():
        require(len(values) == offset * keys, f"{offset * keys} cells in {name!r}", len(values))
    require(len(rest["totals"]) == keys, f"totals of {keys} keys", len(rest["totals"]))
    if opened := len(rest["ahead"]):
        ahead = opened // max(1, keys)
        fits = ahead * keys == opened and ahead == power_of_two(ahead) <= MOST_AHEAD
        require(fits, f"open slots of {keys} keys, as many as a power of two", opened)
    else:
        ahead = store.fewer_open(ahead, 0, max(1, keys))
    need = ahead * max(1, keys) * store.fresh.itemsize
    need += 0 if keys else offset * store.cell_bytes
    most = tuning.most_bytes
    require(need <= most, f"a wheel that takes at most {most} bytes of memory", need)
    if keys == 0:  # allocate one key, as a new store does
        store.columns = [store.column(n, offset) for n in names]
        store.prefixes = [store.column(n, offset if prefix else 0) for n in names]
        store.marks = store.no_marks()
    else:
        store.columns = [cells[f"f_{n}"] for n in names]
    if keys and prefix:
        store.prefixes = [cells[f"x_{n}"] for n in names]
    if keys and store.head[MARKED]:
        marks = [cells[f"mark{m}"] for m in range(len(store.slots.marks))]
        store.marks = np.array([np.packbits(m, bitorder="little") for m in marks])
    room = int(store.head[ROOM])
    store.ahead = records(store.fresh, ahead * room).reshape(ahead, room)
    store.touched = no_bits(ahead, room)
    store.totals = records(store.fresh, room)
    if keys:
        if len(rest["ahead"]):
            store.ahead[...] = rest["ahead"].reshape(ahead, keys)
        store.totals[...] = rest["totals"]
    store.packed = True
    store.changed()
    return store
