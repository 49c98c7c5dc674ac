"""Answers on Spark that are too large to bring together: all rows are made, counted, and added up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def consumed(answer: Any, by: Sequence[str], value: str) -> dict[str, Any]:
    """Run a DataFrame to the end without keeping rows: their number, and sums that tell answers apart.

    `by` are columns that tell rows apart, `value` is a column of numbers.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    seen = Observation()
    place = F.pmod(F.xxhash64(*by), F.lit(1_000_003))
    observed = answer.observe(
        seen, F.count("*").alias("rows"), F.sum(place).alias("places"),
        F.sum(value).alias("values"), F.sum(F.col(value) * place).alias("values by place"),
    )  # fmt: skip
    observed.write.format("noop").mode("overwrite").save()
    return dict(seen.get)
