"""Settings of a session that hold for a block."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from pyspark.sql import SparkSession

from tidemill.core.errors import UserError
from tidemill.spark.private import is_connect, session_id

ANSI = "spark.sql.ansi.enabled"
ADAPTIVE = "spark.sql.adaptive.enabled"
CASE = "spark.sql.caseSensitive"
SPLITS = "spark.sql.files.minPartitionNum"
LEAVES = "spark.sql.leafNodeDefaultParallelism"


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Run a block with another value of a setting, and restore the old value afterwards.

    A session is shared: where blocks overlap, of several threads or one in the other, the first sees what
    there was before, and the last brings it back. They want the same value.
    """
    key = session_id(spark), name
    with _lock:
        if key not in _before:
            _before[key] = spark.conf.get(name, None)
        _inside[key] = _inside.get(key, 0) + 1
        spark.conf.set(name, value)
    try:
        yield
    finally:
        with _lock:
            _inside[key] -= 1
            if not _inside[key]:
                before = _before.pop(key)
                spark.conf.unset(name) if before is None else spark.conf.set(name, before)


_lock = threading.Lock()
_before: dict[tuple[str, str], str | None] = {}
_inside: dict[tuple[str, str], int] = {}


def case_matters(spark: SparkSession) -> bool:
    """Whether Spark tells columns `a` and `A` apart."""
    return str(spark.conf.get(CASE)).lower() == "true"


def files_in(spark: SparkSession, partitions: int) -> AbstractContextManager[None]:
    """Split files into at least so many partitions, unless the session says how many."""
    if spark.conf.get(SPLITS, None) is not None:
        return nullcontext()
    return setting(spark, SPLITS, str(partitions))


def planned(spark: SparkSession) -> AbstractContextManager[None]:
    """Plan without adaptive execution, which runs shuffles and looks at their sizes while it plans."""
    return setting(spark, ADAPTIVE, "false")


@contextmanager
def ansi(spark: SparkSession) -> Iterator[None]:
    """Plan in ANSI mode: DataFrames made here fail on overflow, wherever they run later.

    Spark Connect plans a DataFrame when it runs, so there the session itself must be in ANSI mode.
    """
    if not is_connect(spark):
        with setting(spark, ANSI, "true"):
            yield
        return
    if str(spark.conf.get(ANSI)).lower() != "true":
        raise UserError(
            "spark", expected=f"{ANSI}=true, as Spark Connect plans queries when they run", got="false",
            hint=f"spark.conf.set({ANSI!r}, True), or use a classic session",
        )  # fmt: skip
    yield
