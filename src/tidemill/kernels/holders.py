"""Who holds a bucket, and where its rows shall go (paper 002, Algorithms 5 and 6).

*Units* are what rows stay on: a host, or a partition. *Sources* are the sets of buckets that came in;
each is of one unit and one side of a join. Entries are pairs of a bucket and a source, in order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tidemill.codegen.runtime import kernel
from tidemill.kernels.buckets import bucket_of

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

UNLISTED, DROPPED = -1, -2
"""In place of a unit: nothing is said of the bucket, or its rows have left."""

_MIX = np.uint64(0x9E3779B97F4A7C15)


@kernel
def spread(bucket: int, units: int) -> Any:
    """The unit of a bucket that may go anywhere: as good as random, and the same everywhere."""
    x = np.uint64(bucket) * _MIX
    x ^= x >> np.uint64(29)
    return bucket_of(x * _MIX, units)


@kernel
def unique_units(buckets: Ints, sources: Ints, unit_of: Ints, out: Ints) -> None:
    """For each entry, the unit if no other one has the bucket."""
    i = 0
    while i < buckets.size:
        end = i + 1
        one = True
        while end < buckets.size and buckets[end] == buckets[i]:
            one = one and unit_of[sources[end]] == unit_of[sources[i]]
            end += 1
        for j in range(i, end):
            out[j] = unit_of[sources[i]] if one else UNLISTED
        i = end


@kernel
def _best_units(
    buckets: Ints, sources: Ints, weights: Floats, unit_of: Ints, side_of: Ints, sides: int, most: float,
    held: Floats, loads: Floats, out: Ints,
) -> None:  # fmt: skip
    units = loads.size
    i = 0
    while i < buckets.size:
        end = i
        seen = 0
        total = 0.0
        while end < buckets.size and buckets[end] == buckets[i]:
            held[unit_of[sources[end]]] += weights[end]
            seen |= 1 << side_of[sources[end]]
            total += weights[end]
            end += 1
        best = unit_of[sources[i]]
        for j in range(i + 1, end):
            unit = unit_of[sources[j]]
            more = held[unit] - held[best]
            if more > 0 or (more == 0 and loads[unit] < loads[best]):
                best = unit
        for j in range(i, end):
            held[unit_of[sources[j]]] = 0.0
        elsewhere = spread(buckets[i], units)
        # What is heavier than the bound by itself is on one unit wherever it goes: it stays.
        if loads[best] + total > most and total <= most:
            best = elsewhere
        if seen == sides:
            loads[best] += total
            # Of groups, nobody needs to be told what everybody assumes. In a join the list is what stays.
            if sides == 1 and best == elsewhere:
                best = UNLISTED
        else:
            best = UNLISTED
        for j in range(i, end):
            out[j] = best
        i = end


class Located(NamedTuple):
    """Where entries go, and what each unit gets."""

    units: Ints
    loads: Floats


def best_units(
    buckets: Ints, sources: Ints, weights: Floats, unit_of: Ints, side_of: Ints, *, units: int, both: bool,
    slack: float,
) -> Located:  # fmt: skip
    """For each entry, the unit that holds most of its bucket; ties go to the one with less to do.

    A unit gets at most `slack` times its fair share; what goes beyond is spread over all. With `both`,
    buckets that are on one side only are not listed.
    """
    out, loads = np.empty(len(buckets), dtype=np.int64), np.zeros(units)
    most = slack * float(weights.sum()) / units
    _best_units(
        buckets, sources, weights, unit_of, side_of, 3 if both else 1, most, np.zeros(units), loads, out
    )
    return Located(out, loads)
