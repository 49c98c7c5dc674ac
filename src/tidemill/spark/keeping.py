"""Frames that are kept while somebody needs them, and no longer."""

from __future__ import annotations

import weakref
from contextlib import suppress
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame


def kept(df: DataFrame) -> DataFrame:
    """Hold a frame in memory, or on disk, for as long as somebody has it."""
    df.persist(StorageLevel.MEMORY_AND_DISK)
    # Spark's cache would hold it for ever, and a loop that makes one a round would fill the disks.
    weakref.finalize(df, _release, df._jdf).atexit = False
    return df


def holding(df: DataFrame, source: object) -> DataFrame:
    """A frame that lets its source live as long: what that one has kept is not released before."""
    df.__dict__["_tidemill_source"] = source
    return df


def _release(frame: Any) -> None:
    with suppress(Exception):  # the session may be gone
        frame.unpersist(False)
