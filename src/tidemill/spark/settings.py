"""Settings of a session that hold for a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

ANSI = "spark.sql.ansi.enabled"
ADAPTIVE = "spark.sql.adaptive.enabled"


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """The session with another value of a setting; afterwards it is as it was."""
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, str(before))


@contextmanager
def ansi(spark: SparkSession) -> Iterator[None]:
    """Plan in ANSI mode: DataFrames made here fail on overflow, wherever they run later."""
    with setting(spark, ANSI, "true"):
        yield
