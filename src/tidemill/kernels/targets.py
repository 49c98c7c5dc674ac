"""From hashes of rows to the partitions they are sent to, by a compact map of buckets.

The map is three arrays: the listed buckets in order, the unit of each, and a directory that says where
the buckets with the same high bits begin. Buckets are as good as random, so few have the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidemill.codegen.runtime import kernel
from tidemill.kernels.buckets import bucket_of
from tidemill.kernels.holders import DROPPED, UNLISTED, spread

Ints = npt.NDArray[np.int64]

SPREAD, STAY, DROP = range(3)
"""What becomes of a row whose bucket is not listed."""


@dataclass(frozen=True)
class Targets:
    """Buckets of one source and where their rows go.

    >>> listed = Targets.of(np.array([1, 5]), np.array([1, 0]), size=8)
    >>> hashes = np.array([1, 5, 6], dtype=np.uint64) << np.uint64(61)  # of buckets 1, 5, 6
    >>> listed.partitions(hashes, missing=STAY, own=1, first=np.array([0, 1, 2])).tolist()
    [1, 0, 1]
    """

    size: int
    buckets: Ints
    units: npt.NDArray[np.int32]
    directory: npt.NDArray[np.int32]
    shift: int

    @staticmethod
    def of(buckets: Ints, units: npt.NDArray[np.int32], *, size: int) -> Targets:
        """The map of listed buckets, which are in order."""
        shift = max(0, size.bit_length() - max(1, len(buckets)).bit_length())
        directory = np.searchsorted(buckets >> shift, np.arange((size >> shift) + 2))
        return Targets(
            size, buckets.astype(np.int64), units.astype(np.int32), directory.astype(np.int32), shift
        )

    def partitions(
        self, hashes: npt.NDArray[np.uint64], *, missing: int, own: int, first: Ints
    ) -> npt.NDArray[np.int32]:
        """Where rows go; unit `u` has the partitions from `first[u]` up to `first[u + 1]`. -2: nowhere."""
        out = np.empty(len(hashes), dtype=np.int32)
        _partitions(
            hashes, self.size, self.buckets, self.units, self.directory, self.shift, missing, own,
            first.astype(np.int64), out,
        )  # fmt: skip
        return out


@kernel
def _partitions(
    hashes: npt.NDArray[np.uint64], size: int, buckets: Ints, units: npt.NDArray[np.int32],
    directory: npt.NDArray[np.int32], shift: int, missing: int, own: int, first: Ints,
    out: npt.NDArray[np.int32],
) -> None:  # fmt: skip
    for i in range(hashes.size):
        bucket = bucket_of(hashes[i], size)
        at = bucket >> shift
        unit = np.int64(UNLISTED)
        for j in range(directory[at], directory[at + 1]):
            if buckets[j] == bucket:
                unit = np.int64(units[j])
                break
        if unit == UNLISTED:
            if missing == DROP:
                out[i] = DROPPED
                continue
            unit = np.int64(own if missing == STAY else spread(bucket, first.size - 1))
        # Within a unit by other bits of the hash: those of the bucket are alike in what is near.
        inside = first[unit + 1] - first[unit]
        if inside > 1:
            out[i] = first[unit] + bucket_of(hashes[i] * np.uint64(0x9E3779B97F4A7C15), inside)
        else:
            out[i] = first[unit]
