"""Medians by key (paper 002, section 3.4.4): a function that needs all values of a key at once.

    python -m examples.medians
"""

from __future__ import annotations

from typing import Any

from tidemill.spark.exchange import group_by_key, report

FOR_EACH_KEY = 128


def medians(pairs: Any, detect: str = "auto") -> Any:
    """The median of `v` for each `k`. Values meet on the host that has most of their key."""
    from pyspark.sql import functions as F

    return group_by_key(pairs, ["k"], F.median("v").alias("median"), detect=detect)


def some_pairs(spark: Any, count: int) -> Any:
    """Algorithm 3: as many pairs for each key, following each other."""
    return spark.range(0, count, 1, 4).selectExpr(
        f"id div {FOR_EACH_KEY} AS k", "pmod(hash(id), 1000000) AS v"
    )


def main() -> None:
    from examples.session import session

    with session() as spark:
        with report(spark) as seen:
            medians(some_pairs(spark, 100_000), detect="on").orderBy("k").show(5)
        print(seen)


if __name__ == "__main__":
    main()
