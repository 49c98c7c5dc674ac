"""A process with Spark of its own that builds a wheel and appends to it, until it is killed.

`python -m tests.faults.wheels_builder PATH COUNT`: it prints `begin`, then the rows of each version that is
complete; after COUNT of them it ends.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import tidemill as tm
from tests.conformance.wheels import AGGREGATES
from tidemill.wheels.files.format import saves_in

ROWS = 60


def main(where: str, count: str) -> None:
    spark = (
        SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2").config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )  # fmt: skip
    path = Path(where)
    print("begin", flush=True)
    for _ in range(int(count)):
        known: int = tm.open_wheel(path).watermark if saves_in(path) else 0
        rows = spark.range(known, known + ROWS).select(
            F.col("id").alias("t"), (F.col("id") % 7).alias("k"), F.lit(1).cast("long").alias("v")
        )
        if known:
            tm.spark.append(rows, path)
        else:
            tm.spark.build_wheel(
                rows, path, AGGREGATES["sum"], time="t", keys="k", start=0, buckets=3,
                granularities=[(1, "keep"), (5, "keep"), (20, "keep")], compress=4,
            )  # fmt: skip
        print(known + ROWS, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
