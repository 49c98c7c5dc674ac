"""Sizes that decide when the engine works, never what it answers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """Thresholds of the local engine. The defaults suit files and large batches."""

    few_rows: int = 1 << 17
    """An input that is known to have fewer rows is not worth a second thread."""
    few_partials: int = 1 << 18
    """Below this many waiting partials, closing windows can wait: sorting little is not worth it."""
    many_partials: int = 1 << 22
    """From this many on, partials are combined even if no window closes, so that memory follows keys
    and panes."""
    output_rows: int = 1 << 17
    """Rows of a result batch: few enough to stay in the processor's cache."""
    plane_bytes: int = 1 << 28
    """Memory for the planes of all lanes. With more keys than fit, every record is spilled and sorted."""
    few_strings: int = 1 << 16
    """So many strings may stay in a pool whether anything refers to them or not."""
    few_keys: int = 1 << 16
    """So many keys may stay in the index whether they have state or not."""
    backlog: int = 4
    """Calls that may wait for a lane's thread before the caller waits too."""


DEFAULT = Tuning()
