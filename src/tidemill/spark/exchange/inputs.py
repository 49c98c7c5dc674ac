"""Inspect the plan of an input: its size, and whether a second reading gives the same rows."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager

from pyspark.sql import DataFrame, SparkSession

from tidemill.spark import private
from tidemill.spark.frames import printed_plan
from tidemill.spark.settings import LEAVES, setting

LIKELY_WIDTH = 50.0
"""The assumed bytes of a row if nothing is known."""

_EXCHANGING = (
    "Aggregate", "Join", "Exchange", "Window", "Sort", "Limit", "TakeOrdered", "Cartesian", "Coalesce",
    "Python", "InArrow", "InPandas",
)  # fmt: skip
_MAPS = re.compile(r"\b(percentile|median|mode|percentile_cont|percentile_disc)\(", re.IGNORECASE)
_NOW = re.compile(r"current_(timestamp|date|time)\(|localtimestamp\(|\bnow\(", re.IGNORECASE)
"""Functions of the current time, which differ between two plans."""


_RANDOM = re.compile(
    r"\b(rand\w*|uuid|shuffle|\w*partition_id|monotonically_\w+|input_file_\w+)\(| more fields", re.IGNORECASE
)
"""What a printed plan must not have if a second reading shall give the same rows."""
_NUMBERED = re.compile(r"^\*?\(\d+\) ")


def is_read_twice_alike(df: DataFrame) -> bool:
    """Whether every run of a plan gives each partition the same rows; by its text in a session of Connect."""
    if private.is_connect(df.sparkSession):
        text = printed_plan(df)
        return not (_NOW.search(text) or _RANDOM.search(text))
    return not _NOW.search(private.analyzed_plan(df)) and private.is_deterministic(df)


def reads_only(df: DataFrame) -> bool:
    """Whether a plan only reads and computes row by row, so that a second reading is cheap and has the same
    partitions. (A `coalesce` groups partitions by their hosts, which may change.)"""
    connect = private.is_connect(df.sparkSession)
    operators = _operators(printed_plan(df) if connect else private.physical_plan(df))
    return not any(word in name for name in operators for word in _EXCHANGING)


def row_count(df: DataFrame) -> float:
    """Spark's estimate of the number of rows: exact for cached inputs, by size for files.

    A session of Connect does not tell it, so rows are counted.
    """
    if private.is_connect(df.sparkSession):
        return float(df.count())
    rows, of_sources, size = private.estimated_size(df)
    if rows is not None:
        return rows
    known = [n for n in of_sources if n is not None]
    return max(known) if known and len(known) == len(of_sources) else size / LIKELY_WIDTH


def has_bloom_filter(df: DataFrame) -> bool:
    """Whether Spark's optimizer added its own Bloom filter to the plan of a join."""
    return "might_contain" in private.optimized_plan(df)


def merges_maps(df: DataFrame) -> bool:
    """Whether a plan has an aggregate whose buffer is a map of values to counts."""
    return bool(_MAPS.search(private.optimized_plan(df)))


def read_alike(df: DataFrame) -> DataFrame:
    """Return the same rows in partitions that are equal in every reading.

    A plan that shuffles, sorts or limits runs now and is checkpointed: a second run could give other rows.
    """
    if not reads_only(df):
        return df.localCheckpoint()
    return df if private.partition_count(df) else df.repartition(1)  # an empty frame may have none


def steady(spark: SparkSession) -> AbstractContextManager[None]:
    """Split files and ranges the same way throughout a block, even if the number of executors changes."""
    return setting(spark, LEAVES, str(spark.sparkContext.defaultParallelism))


def _operators(plan: str) -> list[str]:
    """The operators of a plan as Spark prints it, without those below a cached relation."""
    found: list[str] = []
    cached = None
    for line in plan.splitlines():
        text = line.lstrip(" :+-*")
        depth = len(line) - len(text)
        cached = None if cached is not None and depth <= cached else cached
        if cached is None and text.startswith("InMemoryRelation"):
            cached = depth
        if cached is None and text:
            found.append(re.split(r"[ (]", _NUMBERED.sub("", text), maxsplit=1)[0])
    return found
