"""Frames that are cached as long as somebody uses them."""

from __future__ import annotations

from pyspark import StorageLevel
from pyspark.sql import DataFrame

from tidemill.spark.private import unpersist_with


def kept(df: DataFrame) -> DataFrame:
    """Cache a frame in memory, or on disk, for as long as somebody has it."""
    df.persist(StorageLevel.MEMORY_AND_DISK)
    # Spark's cache would hold it for ever, and a loop that makes one a round would fill the disks.
    unpersist_with(df)
    return df


def holding(df: DataFrame, source: object) -> DataFrame:
    """A frame that lets its source live as long: what the source has cached is not released before."""
    df.__dict__["_tidemill_source"] = source
    return df
