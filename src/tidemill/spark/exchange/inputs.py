"""What the plan of an input says: how large it is, and whether a second reading gives the same rows."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager

from pyspark.sql import DataFrame, SparkSession

from tidemill.spark import private
from tidemill.spark.settings import LEAVES, setting

LIKELY_WIDTH = 50.0
"""Bytes of a row of which nothing is known."""

_EXCHANGING = (
    "Aggregate", "Join", "Exchange", "Window", "Sort", "Limit", "TakeOrdered", "Cartesian", "Coalesce",
    "Python", "InArrow", "InPandas",
)  # fmt: skip
_MAPS = re.compile(r"\b(percentile|median|mode|percentile_cont|percentile_disc)\(", re.IGNORECASE)
_NOW = re.compile(r"current_(timestamp|date|time)\(|localtimestamp\(|\bnow\(", re.IGNORECASE)
"""What is another moment in each plan."""


def is_read_twice_alike(df: DataFrame) -> bool:
    """Whether every run of a plan gives each partition the same rows."""
    return not _NOW.search(private.analyzed_plan(df)) and private.is_deterministic(df)


def reads_only(df: DataFrame) -> bool:
    """Whether a plan reads and computes row by row: reading it twice costs little more, and partitions are as
    they were. (A `coalesce` puts them together by where they are, which may change.)"""
    return not any(word in name for name in _operators(private.physical_plan(df)) for word in _EXCHANGING)


def row_count(df: DataFrame) -> float:
    """How many rows Spark thinks there are: of cached ones it knows, of files it goes by their size."""
    rows, of_sources, size = private.estimated_size(df)
    if rows is not None:
        return rows
    known = [n for n in of_sources if n is not None]
    return max(known) if known and len(known) == len(of_sources) else size / LIKELY_WIDTH


def has_bloom_filter(df: DataFrame) -> bool:
    """Whether Spark's optimizer put a Bloom filter of its own into the plan of a join."""
    return "might_contain" in private.optimized_plan(df)


def merges_maps(df: DataFrame) -> bool:
    """Whether a plan has an aggregate that Spark keeps in a map of values and how often they come."""
    return bool(_MAPS.search(private.optimized_plan(df)))


def read_alike(df: DataFrame) -> DataFrame:
    """The same rows in partitions that stay, whenever they are read.

    What shuffles, sorts or limits is run now, and its rows are kept: run again, it could give other ones.
    """
    if not reads_only(df):
        return df.localCheckpoint()
    return df if private.partition_count(df) else df.repartition(1)  # an empty frame may have none


def steady(spark: SparkSession) -> AbstractContextManager[None]:
    """Cut files and ranges as now while a block runs, though executors come and go."""
    return setting(spark, LEAVES, str(spark.sparkContext.defaultParallelism))


def _operators(plan: str) -> list[str]:
    """The operators of a plan as Spark prints it; not those that made what is in the cache."""
    found: list[str] = []
    cached = None
    for line in plan.splitlines():
        text = line.lstrip(" :+-*")
        depth = len(line) - len(text)
        cached = None if cached is not None and depth <= cached else cached
        if cached is None and text.startswith("InMemoryRelation"):
            cached = depth
        if cached is None and text:
            found.append(re.split(r"[ (]", text, maxsplit=1)[0])
    return found
