"""Choose the slot to which the rows of each bucket are shuffled (paper 002, Algorithms 5 and 6).

A *slot* holds rows; a host has several slots. A *source* is a set of buckets received from one slot and one
side of a join. Entries are pairs of a bucket and a source, sorted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tidemill.jit.kernel import kernel
from tidemill.kernels.hash_buckets import bucket_of

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

STAYS = -1
"""In place of a slot: the rows are not moved."""

_MIX = np.uint64(0x9E3779B97F4A7C15)


@kernel
def spread(bucket: int, slots: int) -> Any:
    """Return a pseudo-random slot for a bucket; every process computes the same one."""
    x = np.uint64(bucket) * _MIX
    x ^= x >> np.uint64(29)
    return bucket_of(x * _MIX, slots)


@kernel
def _located(
    buckets: Ints, sources: Ints, weights: Floats, slot_of: Ints, side_of: Ints, host_of: Ints,
    partners: bool, most: float, held: Floats, hosted: Floats, host_loads: Floats, loads: Floats, out: Ints,
) -> None:  # fmt: skip
    i = 0
    while i < buckets.size:
        end = i
        sides = 0
        total = 0.0
        while end < buckets.size and buckets[end] == buckets[i]:
            slot = slot_of[sources[end]]
            held[slot] += weights[end]
            hosted[host_of[slot]] += weights[end]
            total += weights[end]
            sides |= 1 << side_of[sources[end]]
            end += 1
        # Choose the host with the most rows of the bucket, then the slot with the most rows there.
        host = host_of[slot_of[sources[i]]]
        for j in range(i + 1, end):
            other = host_of[slot_of[sources[j]]]
            more = hosted[other] - hosted[host]
            if more > 0 or (more == 0 and host_loads[other] < host_loads[host]):
                host = other
        best = np.int64(STAYS)
        for j in range(i, end):
            slot = slot_of[sources[j]]
            if host_of[slot] == host:
                more = 1.0 if best == STAYS else held[slot] - held[best]
                if more > 0 or (more == 0 and loads[slot] < loads[best]):
                    best = slot
        for j in range(i, end):
            slot = slot_of[sources[j]]
            held[slot] = 0.0
            hosted[host_of[slot]] = 0.0
        if partners and sides != 3:
            for j in range(i, end):
                out[j] = STAYS
        else:
            # A bucket that exceeds the bound by itself would exceed it in any slot, so it stays.
            if loads[best] + total > most and total <= most:
                best = spread(buckets[i], loads.size)
            loads[best] += total
            host_loads[host_of[best]] += total
            for j in range(i, end):
                out[j] = STAYS if slot_of[sources[j]] == best else best
        i = end


class Located(NamedTuple):
    """The target slot of each entry, and the load of each slot."""

    slots: Ints
    loads: Floats


def located(
    buckets: Ints, sources: Ints, weights: Floats, slot_of: Ints, side_of: Ints, host_of: Ints, *,
    partners: bool, slack: float,
) -> Located:  # fmt: skip
    """Return for each entry the slot that its bucket is shuffled to, or `STAYS`.

    The target is the slot with the most rows of the bucket, on the host with the most; ties go to the lower
    load. Buckets that would load a slot beyond `slack` times its fair share are spread over all slots. With
    `partners`, buckets that only one side of the join has are not moved.

    >>> located(np.array([4, 7, 7]), np.array([0, 0, 1]), np.ones(3), np.array([0, 1]), np.zeros(2, int),
    ...         np.array([0, 1]), partners=False, slack=9.0).slots
    array([-1,  1, -1])
    """
    slots = len(host_of)
    out, loads = np.empty(len(buckets), dtype=np.int64), np.zeros(slots)
    hosts = int(host_of.max(initial=0)) + 1
    most = slack * float(weights.sum()) / slots
    _located(
        buckets, sources, weights, slot_of, side_of, host_of, partners, most, np.zeros(slots),
        np.zeros(hosts), np.zeros(hosts), loads, out,
    )  # fmt: skip
    return Located(out, loads)
