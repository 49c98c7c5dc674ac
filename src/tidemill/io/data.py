"""Rows that belong to a stream: `tm.read` keeps them with it, so that a run needs no argument."""

from __future__ import annotations

from typing import Any


class Data:
    """Where the rows of a stream are: a path, or a frame or table in memory. Compared by identity.

    >>> Data("clicks.parquet", "Parquet file clicks.parquet")
    Parquet file clicks.parquet
    """

    def __init__(self, value: Any, about: str, system: Any = None) -> None:
        self.value, self.about = value, about
        self.system = system
        """The file system of Arrow's that a path is in, if it is not on the local disk and no URI."""

    def __repr__(self) -> str:
        return self.about


def is_spark(value: Any) -> bool:
    """Return whether a value is a Spark DataFrame, without importing Spark."""
    return type(value).__module__.startswith("pyspark.") and hasattr(value, "mapInArrow")


def quoted(name: str) -> str:
    """Return the name of a column of a Spark DataFrame, with any characters in it.

    >>> quoted("a`b")
    '`a``b`'
    """
    return f"`{name.replace('`', '``')}`"
