"""Merge two stores, cell by cell."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidemill.kernels.functions import OVERFLOW
from tidemill.wheels.loops.merge_cells import merge_kernel
from tidemill.wheels.loops.range_plan import END, HEAD, LOW, MARKED, RING, ROOM, TOTAL
from tidemill.wheels.memory.recompressed import as_compressed, as_plain
from tidemill.wheels.memory.store import RingStore

Ints = npt.NDArray[np.int64]


def merged(a: RingStore, b: RingStore, key_of: Ints, keys: int) -> tuple[RingStore, int]:
    """Return a store with the contents of both, and error bits.

    Both have the same layout, rings and watermark. Key `k` of `b` becomes `key_of[k]`; the keys of `a` keep
    their numbers. The result has `keys` keys.
    """
    assert a.now == b.now and a.rings == b.rings
    compress = a.compress
    a, b = as_plain(a), as_plain(b)
    both = RingStore(
        a.layout, a.rings, min(a.first, b.first), len(a.ahead), prefix=a.prefix, threshold=a.threshold
    )  # fmt: skip
    both.know(keys)
    both.hold_until(a.now)
    kernel = merge_kernel(a.layout)
    err = 0
    for one, names in ((a, np.arange(a.keys)), (b, key_of)):
        for r in range(len(a.rings)):
            slots = np.arange(max(one.ring(r)[LOW], both.ring(r)[LOW]), one.ring(r)[END])
            err |= kernel.cells(
                one.rows(r, slots), both.rows(r, slots), names, one.head[ROOM], both.head[ROOM],
                bool(one.head[MARKED]), one.marks, both.marks, *one.columns, *both.columns,
            )  # fmt: skip
        if kernel.records(names, one.totals, both.totals) or not one.head[TOTAL]:
            both.head[TOTAL] = 0
        for mine, theirs in zip(one.ahead, both.ahead):
            err |= kernel.records(names, mine, theirs)
    if any(both.ahead[name].any() for name in both.slots.carries):
        err |= OVERFLOW
    if a.prefix:
        for r in range(len(a.rings)):
            err |= kernel.prefixes(both.head, HEAD + RING * r, *both.columns, *both.prefixes)
    return as_compressed(both, compress) if compress else both, int(err)

