"""Rows to the partitions that detection found for their keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Tuple  # noqa: UP035  # Spark reads the hints of a function, and knows this one

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from tidemill.kernels.holders import DROPPED
from tidemill.kernels.targets import STAY, Targets
from tidemill.spark.exchange import partitions
from tidemill.spark.exchange.detect import read_answer
from tidemill.spark.exchange.units import Units
from tidemill.spark.expr import named


def routed(
    df: DataFrame, hash: Column, target: str, units: Units, size: int, answers: Sequence[bytes], missing: int
) -> DataFrame:
    """Rows in the partitions that they belong to, with a new column `target` that says which.

    Rows whose hash is null, or is not listed, go where `missing` says: see `kernels.targets`.
    """
    answer = fresh_name("answer", [*df.columns, target])
    first = units.starts()

    def send(columns: Iterator[Tuple[pa.Array, pa.Array]]) -> Iterator[pa.Array]:  # noqa: UP006
        own, targets = 0, None
        for hashes, told in columns:
            if targets is None:
                own, listed = read_answer(told[0].as_py())
                targets = Targets.of(listed.buckets, listed.numbers.astype(np.int32), size=size)
            known = hashes.is_valid().to_numpy(zero_copy_only=False)
            values = hashes.fill_null(0).to_numpy(zero_copy_only=False).view(np.uint64)
            out = targets.partitions(values, missing=missing, own=own, first=first)
            if not known.all():
                out[~known] = first[own] if missing == STAY else DROPPED
            yield pa.array(out)

    # A second run of it might come without the first row.
    ask: Any = arrow_udf(send, "int")  # type: ignore[call-overload]  # it reads the hints
    rows = partitions.beside(df, answer, answers)
    rows = rows.withColumn(target, ask.asNondeterministic()(hash, named(answer)))
    kept = rows.filter(named(answer).isNull() & (named(target) >= 0)).drop(answer)
    return kept.repartitionById(units.targets, named(target))


def fresh_name(name: str, taken: Sequence[str]) -> str:
    """A name that no column has."""
    low = {t.lower() for t in taken}
    while name in low:
        name += "_"
    return name


def null_where(condition: Column, value: Column) -> Column:
    return F.when(~condition, value)
