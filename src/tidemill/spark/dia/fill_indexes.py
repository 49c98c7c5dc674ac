"""Place results at their index: n elements in order, with the neutral element in gaps."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill.core.types import DataType
from tidemill.spark.caching import holding
from tidemill.spark.dia.elements import columns_of, decode, encode
from tidemill.spark.dia.operation import Operation
from tidemill.spark.dia.partitions import INDEX, blocks_for, every_index, side_by_side
from tidemill.spark.dia.traced_columns import constant

_THERE = "there"


def filled(
    parent: Operation, found: DataFrame, kind: DataType, n: int, neutral: Any, step: str
) -> DataFrame:
    """Sort elements `c0, …` by their indexes `k0`, and fill the gaps."""
    if neutral is not None:  # raises before anything runs if it does not fit
        neutral = decode(encode([neutral], kind, step=f"{step} neutral"), kind)[0]
    session = parent.session
    there = found.withColumnRenamed("k0", INDEX).withColumn(_THERE, F.lit(True))
    rows = side_by_side([every_index(session, n), there], n, blocks_for(session, n), "left")
    gap = F.col(_THERE).isNull()
    columns = [
        F.when(gap, value).otherwise(F.col(f"c{i}")).alias(name)
        for i, (name, value) in enumerate(zip(columns_of(kind).names, constant(neutral, kind)))
    ]
    return holding(rows.select(*columns), found)
