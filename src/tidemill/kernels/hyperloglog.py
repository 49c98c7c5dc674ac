"""Estimate the number of distinct hashes in several sets (HyperLogLog).

DataSketches takes values one by one from Python, which is slow for millions of hashes; these functions take
an array. The estimator is Ertl's (2017), which needs no tables and no switch between ranges.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from tidemill.jit.intrinsics import leading_zeros
from tidemill.jit.kernel import kernel

Registers = npt.NDArray[np.uint8]

BITS = 12
"""With 2**12 registers the standard error is 1.04 / 64, or 1.6 %."""
_RANKS = 64 - BITS


def registers(hashes: npt.NDArray[np.uint64]) -> Registers:
    """Return the registers of a set of hashes; the union of two sets has the maximum of each register."""
    out = np.zeros(1 << BITS, dtype=np.uint8)
    _fill(hashes, out)
    return out


@kernel
def _fill(hashes: npt.NDArray[np.uint64], out: Registers) -> None:
    for i in range(hashes.size):
        at = hashes[i] >> np.uint64(_RANKS)
        rest = hashes[i] << np.uint64(BITS)
        rank = min(leading_zeros(rest), _RANKS) + 1
        if rank > out[at]:
            out[at] = rank


def estimate(found: Registers) -> float:
    """Estimate the number of distinct hashes.

    >>> hashes = np.random.default_rng(0).integers(0, 1 << 64, 100_000, dtype=np.uint64)
    >>> abs(estimate(registers(hashes)) / 100_000 - 1) < 0.05
    True
    >>> estimate(registers(hashes[:0]))
    0.0
    """
    m = len(found)
    multiplicity = np.bincount(found, minlength=_RANKS + 2)
    z = m * _tau(1 - multiplicity[_RANKS + 1] / m)
    for k in range(_RANKS, 0, -1):
        z = 0.5 * (z + multiplicity[k])
    z += m * _sigma(multiplicity[0] / m)
    return float(m * m / (2 * math.log(2) * z))


def _sigma(x: float) -> float:
    if x == 1.0:
        return math.inf
    y, z = 1.0, x
    while True:
        x, before = x * x, z
        z += x * y
        y += y
        if z == before:
            return z


def _tau(x: float) -> float:
    if x in (0.0, 1.0):
        return 0.0
    y, z = 1.0, 1 - x
    while True:
        x, before, y = math.sqrt(x), z, 0.5 * y
        z -= (1 - x) ** 2 * y
        if z == before:
            return z / 3
