"""What `detect="auto"` goes by: how many rows there are, and who has the keys of a sample.

The sample is by hash: of the keys in it, all rows on all partitions are seen, so that it tells how many
partitions share a key. It takes one look at the key columns, inside the JVM.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemill.spark.exchange.partitions import arranged_by

SAMPLE = 40_000
"""Rows to look at, about."""


@dataclass(frozen=True)
class Survey:
    """The rows of one input."""

    rows: tuple[int, ...]
    """Of each partition."""
    partitions: npt.NDArray[np.int64]
    """The partition of each row of the sample."""
    hashes: npt.NDArray[np.int64]
    share: float
    """How much of all keys is in the sample."""
    width: float
    """Bytes of a row, about."""

    @property
    def total(self) -> int:
        return sum(self.rows)


def survey(df: DataFrame, hash: Column, expected: float) -> Survey:
    """Look at an input of which about so many rows are `expected`; rows without a hash are not seen."""
    bits = max(0, int(np.log2(max(1.0, expected / SAMPLE))))
    sampled = F.col("h").bitwiseAND(F.lit((1 << bits) - 1)) == 0
    hashes = df.select(F.spark_partition_id().alias("p"), hash.alias("h"))
    columns = (F.count("*").alias("n"), F.expr("collect_list(h) FILTER (WHERE s)").alias("h"))
    rows_by = arranged_by(hashes.select("p", "h", sampled.alias("s")), "p").groupBy("p")
    found = rows_by.agg(*columns).toArrow()
    lists = found["h"].combine_chunks()
    sizes = np.diff(lists.offsets.to_numpy())
    rows = dict(zip(found["p"].to_pylist(), found["n"].to_pylist()))
    return Survey(
        tuple(rows.get(p, 0) for p in range(max(rows, default=-1) + 1)),
        np.repeat(found["p"].to_numpy(), sizes).astype(np.int64),
        lists.flatten().to_numpy().astype(np.int64),
        0.5**bits,
        stored_bytes(df) / max(1, sum(rows.values())),
    )


def stored_bytes(df: DataFrame) -> float:
    """What Spark thinks an input takes: for cached rows it knows, for files it multiplies their size."""
    return float(str(df._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))


