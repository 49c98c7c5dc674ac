"""Divide the intervals of keys among joiners, as a schedule says."""

from __future__ import annotations

import numpy as np

from tidemill.intervals.loops.blocks import Ints
from tidemill.jit.kernel import kernel


@kernel
def divide(order: Ints, keys: Ints, teams: Ints, sizes: Ints, joiners: int, loads: Ints) -> tuple[Ints, Ints]:
    """Return `order` by joiner, and where the part of each of them begins.

    `order` is in order of key. Partition `p` has keys `k` with `k % len(sizes) == p`, and the joiners
    `teams[p, :sizes[p]]`. Each of them takes a run of its intervals. `loads` becomes their number.
    """
    partitions = sizes.size
    first = np.zeros(joiners + 1, np.int64)
    member = np.zeros(partitions, np.int64)
    seen = np.zeros(partitions, np.int64)
    ends = np.zeros(partitions, np.int64)
    loads[:] = 0
    key, p = -1, 0
    for j in range(order.size):
        if keys[order[j]] != key:
            key = keys[order[j]]
            p = max(key, 0) % partitions
        loads[p] += 1
    for p in range(partitions):
        for m in range(sizes[p]):
            first[teams[p, m] + 1] += loads[p] * (m + 1) // sizes[p] - loads[p] * m // sizes[p]
        ends[p] = loads[p] // sizes[p]
    for j in range(joiners):
        first[j + 1] += first[j]
    place = first.copy()
    found = np.empty(order.size, np.int64)
    key, p = -1, 0
    for j in range(order.size):
        i = order[j]
        if keys[i] != key:
            key = keys[i]
            p = max(key, 0) % partitions
        while seen[p] == ends[p]:
            member[p] += 1
            ends[p] = loads[p] * (member[p] + 1) // sizes[p]
        seen[p] += 1
        joiner = teams[p, member[p]]
        found[place[joiner]] = i
        place[joiner] += 1
    return found, first
