"""Merge two stores, cell by cell."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.codegen.algebra import numpy_type
from tidemill.kernels.functions import OVERFLOW
from tidemill.wheels.loops.merge_cells import MergeKernel, merge_kernel
from tidemill.wheels.loops.range_plan import END, HEAD, LOW, MARKED, RING, ROOM, TOTAL
from tidemill.wheels.memory.compressed import decompressed
from tidemill.wheels.memory.recompressed import as_compressed, as_plain
from tidemill.wheels.memory.sparse_store import SparseStore, grouped, packed_marks
from tidemill.wheels.memory.store import RingStore

Ints = npt.NDArray[np.int64]


def merged(a: RingStore, b: RingStore, key_of: Ints, keys: int) -> tuple[RingStore, int]:
    """Return a store with the contents of both, and error bits.

    Both have the same layout, rings and watermark. Key `k` of `b` becomes `key_of[k]`; the keys of `a` keep
    their numbers. The result has `keys` keys. It is sparse if one of the two is.
    """
    assert a.now == b.now and a.rings == b.rings
    compress, kernel, err = a.compress, merge_kernel(a.layout), 0
    named = (a, np.arange(a.keys)), (b, key_of)
    both: RingStore
    if isinstance(a, SparseStore) or isinstance(b, SparseStore):
        both, err = _sparse_cells(named, keys, kernel)
    else:
        a, b = as_plain(a), as_plain(b)
        both = RingStore(
            a.layout, a.rings, min(a.first, b.first), len(a.ahead), prefix=a.prefix, threshold=a.threshold,
            tuning=a.tuning,
        )  # fmt: skip
        both.know(keys)
        both.hold_until(a.now)
        for one, names in ((a, named[0][1]), (b, key_of)):
            err |= _dense_cells(one, both, names, kernel)
    for one, names in named:
        if kernel.records(names, one.totals, both.totals) or not one.head[TOTAL]:
            both.head[TOTAL] = 0
    slots = max(len(a.ahead), len(b.ahead))
    if len(both.ahead) < slots:
        both.have_open(slots)
    for one, names in named:
        for slot in one.occupied.tolist():
            mine, theirs = one.ahead[slot & (len(one.ahead) - 1)], both.ahead[slot & (len(both.ahead) - 1)]
            err |= kernel.records(names, mine, theirs)
    if any(both.ahead[name].any() for name in both.slots.carries):
        err |= OVERFLOW
    if a.prefix:
        for r in range(len(a.rings)):
            err |= kernel.prefixes(both.head, HEAD + RING * r, *both.columns, *both.prefixes)
    if isinstance(both, SparseStore):
        both.touch()
    return as_compressed(both, compress) if compress and not isinstance(both, SparseStore) else both, int(err)


def _dense_cells(one: RingStore, both: RingStore, names: Ints, kernel: MergeKernel) -> int:
    """Add the closed cells of a store to another; returns error bits."""
    err = 0
    for r in range(len(one.rings)):
        slots = np.arange(max(one.ring(r)[LOW], both.ring(r)[LOW]), one.ring(r)[END])
        err |= kernel.cells(
            one.rows(r, slots), both.rows(r, slots), names, one.head[ROOM], both.head[ROOM],
            bool(one.head[MARKED]), one.marks, both.marks, *one.columns, *both.columns,
        )  # fmt: skip
    return err


def _sparse_cells(
    named: tuple[tuple[RingStore, Ints], ...], keys: int, kernel: MergeKernel
) -> tuple[SparseStore, int]:
    """A sparse store with the closed cells of all stores, each with the numbers of its keys; error bits."""
    one, first = named[0][0], min(s.first for s, _ in named)
    both = SparseStore(
        one.layout, one.rings, first, len(one.ahead),
        keyed=any(isinstance(s, SparseStore) and s.keyed for s, _ in named), threshold=one.threshold,
        tuning=one.tuning,
    )  # fmt: skip
    both.know(keys)
    both.hold_until(one.now)
    low = np.array([both.ring(r)[LOW] for r in range(len(both.rings))])
    found: list[tuple[Any, ...]] = []
    for store, names in named:
        ring, key, slot, *cells = _listed(store)
        kept = slot >= low[ring]
        of = ring * both.room + names[key]
        found.append((of[kept], slot[kept], cells[0][kept], *cells[1:]))
    of, slot = (np.concatenate([f[i] for f in found]) for i in range(2))
    order = np.lexsort((slot, of))
    of, slot = of[order], slot[order]
    new = np.ones(len(of), dtype=np.bool_)
    new[1:] = (of[1:] != of[:-1]) | (slot[1:] != slot[:-1])
    target = np.empty(len(of), dtype=np.int64)
    target[order] = np.cumsum(new) - 1
    count = int(new.sum())
    columns = [np.full(count, both.identity[n], dtype=numpy_type(t)) for n, t in both.slots.stored]
    marks = packed_marks(np.zeros((len(both.slots.marks), count), dtype=np.bool_))
    at, err = 0, 0
    for own_of, _, cells, own_columns, own_marks in found:
        to = target[at : at + len(own_of)]
        at += len(own_of)
        err |= kernel.cells(
            cells, to, np.zeros(1, dtype=np.int64), 1, 1, True, own_marks, marks, *own_columns, *columns
        )
    start, bits, of_group = grouped(of[new], slot[new])
    both.take_over(start, bits, of_group, columns, marks)
    both.find_due()
    both.changed()
    return both, int(err)


def _listed(store: RingStore) -> tuple[Any, ...]:
    """All cells: ring, key, slot and number of each; and the columns and marks in which they have numbers."""
    if isinstance(store, SparseStore):
        of, slot, cells = store.listed()
        return of // store.room, of % store.room, slot, cells, store.columns, store.marks
    rings, keys, slots, columns, marks = [], [], [], [], []
    for r in range(len(store.rings)):
        held = np.arange(store.ring(r)[LOW], store.ring(r)[END])
        values, present = decompressed(store, r, held)
        row, key = np.nonzero(present[0])
        rings.append(np.full(len(row), r))
        keys.append(key)
        slots.append(held[row])
        columns.append([v[row, key] for v in values])
        marks.append(np.array([p[row, key] for p in present]))
    ring, key, slot = (np.concatenate(x) for x in (rings, keys, slots))
    return (
        ring, key, slot, np.arange(len(ring)), [np.concatenate(c) for c in zip(*columns)],
        packed_marks(np.concatenate(marks, axis=1)),
    )  # fmt: skip
