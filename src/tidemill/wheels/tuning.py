"""Thresholds of wheels that affect when and how work is done, and what memory it may take; never answers."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class WheelTuning:
    """Thresholds of a wheel. The defaults suit the machine and its memory."""

    most_bytes: int = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    """The most bytes that a wheel allocates ahead: half of the physical memory."""
    many_cells: int = 1 << 12
    """With at least this many empty cells, it pays to close slots in bulk."""
    open_bytes: int = 32 << 20
    """If open slots would take more bytes than this, fewer are open; the rows of others are buffered."""
    fast_slot: int = 1
    """The planner's cost of combining a part of a slot that uses SIMD, see `SlotLayout.slot_cost`."""
    batch_cells: int = 1 << 16
    """Windows times keys in one batch of the results of a query."""
    call_cells: int = 1 << 12
    """Windows times keys in one call. A reader repeats a call during which slots close: calls are short."""


DEFAULT = WheelTuning()
