"""Rows that belong to a stream: `tm.read` keeps them with it, so that a run needs no argument."""

from __future__ import annotations

from typing import Any


class Data:
    """Where the rows of a stream are: a path, or a frame or table in memory. Compared by identity.

    >>> Data("clicks.parquet", "Parquet file clicks.parquet")
    Parquet file clicks.parquet
    """

    def __init__(self, value: Any, about: str) -> None:
        self.value, self.about = value, about

    def __repr__(self) -> str:
        return self.about


def is_spark(value: Any) -> bool:
    """Return whether a value is a Spark DataFrame, without importing Spark."""
    return type(value).__module__.startswith("pyspark.") and hasattr(value, "mapInArrow")
