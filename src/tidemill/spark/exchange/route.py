"""Rows to the slots that detection found for their keys. Those that are there already are not touched."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type

from tidemill.kernels.targets import Cells, cell_bits
from tidemill.spark.exchange import partitions
from tidemill.spark.exchange.detect import Detected, read_answer
from tidemill.spark.exchange.slots import Slots
from tidemill.spark.values import named


def routed(
    df: DataFrame, hash: Column, target: str, slots: Slots, side: int, found: Detected, *,
    again: bool = True,
) -> DataFrame:  # fmt: skip
    """Rows in the slots that they belong to, with a new column `target` that says which.

    `again` says that reading `df` twice costs little: then only rows that leave are shuffled. Rows whose
    hash is null stay.
    """
    seats = slots.of_side[side]
    own = _own_slot(seats)
    if not found.leaving[side]:
        return partitions.in_slots(df.select("*", own.alias(target)), target, seats, slots.hosts)
    rows, goes = _looked_up(df, hash, target, slots, side, found)
    told = [c for c in rows.columns if c not in df.columns]
    if not again:
        sent = rows.withColumn(target, F.coalesce(goes, own)).drop(*told)
        return sent.repartitionById(slots.count, named(target))
    stay = rows.filter(goes.isNull()).withColumn(target, own).drop(*told)
    sent = rows.withColumn(target, goes).drop(*told).filter(named(target).isNotNull())
    sent = sent.repartitionById(slots.count, named(target))
    return partitions.in_slots(stay, target, seats, slots.hosts, sent)


def _looked_up(
    df: DataFrame, hash: Column, target: str, slots: Slots, side: int, found: Detected
) -> tuple[DataFrame, Column]:
    """Rows with the cells of their buckets beside them; the slot that a row goes to, null if it stays.

    The cells of a partition come to the task that has its rows, as a table of their own. Spark looks up what
    is in a dense range of numbers in an array.
    """
    taken = [*df.columns, target]
    names = ("partition", "cell", "low", "lows", "to")
    partition, cell, low, lows, to = (fresh_name(n, taken) for n in names)
    bits = found.bits
    high = cell_bits(found.leaving[side], bits)
    narrow = _fitting(bits - high), _fitting(slots.count.bit_length())
    batches = []
    for answer in found.answers[side]:
        listed = read_answer(answer)
        own = Cells.of(listed.buckets, listed.numbers, bits=bits, high=high)
        columns = [
            pa.array(np.arange(1 << high, dtype=np.int32)),
            pa.ListArray.from_arrays(own.starts, pa.array(own.lows, narrow[0])),
            pa.ListArray.from_arrays(own.starts, pa.array(own.targets, narrow[1])),
        ]
        batches.append(pa.RecordBatch.from_arrays(columns, [cell, lows, to]))
    here = F.spark_partition_id().alias(partition)
    cells = partitions.one_each(df.sparkSession, batches).select("*", here)
    inside = from_arrow_type(narrow[0])
    bucket, mask = F.shiftrightunsigned(hash, 64 - bits), F.lit((1 << (bits - high)) - 1).cast("long")
    rows = df.select(
        "*",
        here,
        # Rows without a hash look in some cell, and find nothing there.
        F.coalesce(F.shiftrightunsigned(hash, 64 - high), F.lit(0)).cast("int").alias(cell),
        bucket.bitwiseAND(mask).cast(inside).alias(low),
    )
    beside = partitions.arranged_by(cells, partition).hint("shuffle_hash")
    both = partitions.arranged_by(rows, partition).join(beside, [partition, cell])
    at = F.array_position(named(lows), named(low)).cast("int")
    return both, F.when(at > 0, F.get(named(to), at - 1).cast("int"))


def _fitting(bits: int) -> pa.DataType:
    """The narrowest integers of Spark's for numbers of so many bits: these arrays travel."""
    kinds = ((8, pa.int8()), (16, pa.int16()), (32, pa.int32()), (64, pa.int64()))
    return next(kind for width, kind in kinds if bits < width)


def _own_slot(slots: Sequence[int]) -> Column:
    if tuple(slots) == tuple(range(len(slots))):
        return F.spark_partition_id()
    return F.get(F.array(*map(F.lit, slots)), F.spark_partition_id())


def fresh_name(name: str, taken: Sequence[str]) -> str:
    """A name that no column has."""
    low = {t.lower() for t in taken}
    while name in low:
        name += "_"
    return name


def null_where(condition: Column, value: Column) -> Column:
    return F.when(~condition, value)
