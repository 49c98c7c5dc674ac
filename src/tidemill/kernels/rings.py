"""Rings of records, one for each key, read out in order."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from tidemill.codegen.runtime import kernel


@kernel
def _unroll(records: Any, keys: int, ring: int, first: int, last: int, out: Any) -> int:
    mask = (1 << ring) - 1
    m = 0
    for k in range(keys):
        base = k << ring
        for p in range(first, last + 1):
            at = base + (p & mask)
            if records[at].pane == p:
                out[m] = records[at]
                m += 1
    return m


def unroll(
    records: npt.NDArray[Any], keys: int, ring: int, first: int, last: int, out: npt.NDArray[Any]
) -> int:
    """Write the records of panes `first..last` to `out` by key and pane; how many there are.

    The panes must fit one turn of the ring.
    """
    return int(_unroll(records, keys, ring, first, last, out))
