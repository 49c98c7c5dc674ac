"""Send rows to the slots that detection chose for their keys. Rows already there are not shuffled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemill.core.errors import UserError
from tidemill.kernels.bucket_targets import Cells, cell_bits
from tidemill.spark import private
from tidemill.spark.exchange.detect import Detected, read_answer
from tidemill.spark.exchange.result_partitions import ResultPartitions
from tidemill.spark.expr.values import named
from tidemill.spark.names import OURS
from tidemill.spark.settings import planned, setting

LISTED = "spark.tidemill.exchange.listed"
"""A Spark setting: up to this many leaving buckets of a side, the plan lists them; beyond, rows are joined
with a table."""
FEW = 200
"""The default of `LISTED`."""


@dataclass(frozen=True)
class RoutingTable:
    """For each partition of an input, the buckets that leave it and their slots: a row for each cell."""

    cells: DataFrame
    """Each partition of the input has its own cells, in the partition of the same number."""
    bits: int
    high: int
    """How many of a bucket's bits are the number of its cell."""


_PARTITION, _HASH, _CELL, _LOW, _LOWS, _TO = _BESIDE = [
    f"{OURS}{name}" for name in ("partition", "hash", "cell", "low", "lows", "to")
]


def routing_table(
    spark: SparkSession, slots: ResultPartitions, side: int, found: Detected, *, kept: bool = False
) -> RoutingTable | None:
    """The cells of a side, in which tasks look up the slots of rows; None if no row leaves.

    Tasks carry the cells, unless they are `kept` on the hosts of their slots because they are read often.
    """
    if not any(found.listed[side]):
        return None
    high = cell_bits(max(found.listed[side]), found.bits)
    narrow = _fitting(found.bits - high), _fitting(slots.count.bit_length())
    batches = []
    for answer in found.answers[side]:
        listed = read_answer(answer)
        own = Cells.of(listed.buckets, listed.numbers, bits=found.bits, high=high)
        columns = [
            pa.array(np.arange(1 << high, dtype=np.int32)),
            pa.ListArray.from_arrays(own.starts, pa.array(own.lows, narrow[0])),
            pa.ListArray.from_arrays(own.starts, pa.array(own.targets, narrow[1])),
        ]
        batches.append(pa.RecordBatch.from_arrays(columns, [_CELL, _LOWS, _TO]))
    # Below this threshold Spark makes a local relation, of which every task would get all rows.
    with setting(spark, "spark.sql.execution.arrow.localRelationThreshold", "0"):
        cells = private.one_batch_each(spark, batches)
    if kept:
        # Checkpointed on their hosts, so that tasks do not carry them in every round.
        cells = private.on_hosts(cells, [slots.hosts[s] for s in slots.of_side[side]]).localCheckpoint()
    cells = private.arranged_by(cells.select("*", _here()), _PARTITION)
    return RoutingTable(cells.hint("shuffle_hash"), found.bits, high)


def routed(
    df: DataFrame, hash: Column, target: str, slots: ResultPartitions, side: int, found: Detected
) -> DataFrame:
    """Move rows to their slots, and add a column `target` with the slot.

    Only rows that leave are shuffled; `df` is read twice, so it must be cheap. Rows whose hash is null stay.
    """
    if not any(found.listed[side]):
        return _all_stay(df, target, slots, side)
    if sum(found.listed[side]) <= most_listed(df.sparkSession):
        rows, goes = _spelled_out(df, hash, side, found)
    else:
        known = routing_table(df.sparkSession, slots, side, found)
        assert known is not None
        rows, goes = _looked_up(df, hash, known)
    stay = rows.filter(goes.isNull()).withColumn(target, _own_slot(slots, side)).drop(*_BESIDE)
    sent = rows.withColumn(target, goes).drop(*_BESIDE).filter(named(target).isNotNull())
    sent = sent.repartitionById(slots.count, named(target))
    with planned(df.sparkSession):
        return private.in_slots(stay, target, slots.of_side[side], slots.hosts, sent)


def most_listed(spark: SparkSession) -> int:
    """How many leaving buckets of a side a plan lists."""
    given = spark.conf.get(LISTED, None)
    if given is None:
        return FEW
    if not given.isdecimal():
        raise UserError("exchange", expected=f"{LISTED} as a number of buckets", got=repr(given))
    return int(given)


def shuffled(
    df: DataFrame, hash: Column, target: str, slots: ResultPartitions, side: int, known: RoutingTable | None
) -> DataFrame:
    """As `routed`, for rows that are costly to read: all rows are shuffled once, even those that stay."""
    if known is None:
        return _all_stay(df, target, slots, side)
    rows, goes = _looked_up(df, hash, known)
    sent = rows.withColumn(target, F.coalesce(goes, _own_slot(slots, side))).drop(*_BESIDE)
    return sent.repartitionById(slots.count, named(target))


def _spelled_out(df: DataFrame, hash: Column, side: int, found: Detected) -> tuple[DataFrame, Column]:
    """Rows, and the slot of each row (null if it stays), with all leaving buckets as literals in the plan."""
    bucket = f"shiftrightunsigned({_HASH}, {64 - found.bits})"
    leaving, of_partition = [], ""
    for partition, answer in enumerate(found.answers[side]):
        to: dict[int, list[int]] = {}
        own = read_answer(answer)
        for number, slot in zip(own.buckets.tolist(), own.numbers.tolist()):
            to.setdefault(slot, []).append(number)
        leaving += own.buckets.tolist()
        if to:
            cases = " ".join(f"WHEN {_is_in(bucket, own)} THEN {slot}" for slot, own in to.items())
            of_partition += f" WHEN {partition} THEN CASE {cases} END"
    goes = f"CASE WHEN {_is_in(bucket, leaving)} THEN CASE {_PARTITION}{of_partition} END END"
    return df.select("*", _here(), hash.alias(_HASH)), F.expr(goes)


def _is_in(number: str, numbers: Sequence[int]) -> str:
    return f"{number} IN ({', '.join(f'{n}L' for n in numbers)})"


def _looked_up(df: DataFrame, hash: Column, known: RoutingTable) -> tuple[DataFrame, Column]:
    """Rows joined with the cells of their buckets, and the slot of each row (null if it stays).

    The task that reads a partition also reads its cells. Spark joins on a dense range of numbers with an
    array lookup.
    """
    bits, high = known.bits, known.high
    lows = known.cells.schema[_LOWS].dataType
    assert isinstance(lows, T.ArrayType)
    mask = (1 << (bits - high)) - 1
    rows = df.select("*", _here(), hash.alias(_HASH)).selectExpr(
        "*",
        # Rows without a hash join some cell, and match no bucket in it.
        f"CAST(coalesce(shiftrightunsigned({_HASH}, {64 - high}), 0) AS int) AS {_CELL}",
        f"CAST(shiftrightunsigned({_HASH}, {64 - bits}) & {mask}L AS {lows.elementType.simpleString()})"
        f" AS {_LOW}",
    )
    both = private.arranged_by(rows, _PARTITION).join(known.cells, [_PARTITION, _CELL])
    at = f"CAST(array_position({_LOWS}, {_LOW}) AS int)"
    return both, F.expr(f"CASE WHEN {at} > 0 THEN CAST(get({_TO}, {at} - 1) AS int) END")


def _here() -> Column:
    return F.expr(f"spark_partition_id() AS {_PARTITION}")


def _fitting(bits: int) -> pa.DataType:
    """The narrowest Spark integer type for numbers of `bits` bits, because these arrays are sent."""
    kinds = ((8, pa.int8()), (16, pa.int16()), (32, pa.int32()), (64, pa.int64()))
    return next(kind for width, kind in kinds if bits < width)


def _all_stay(df: DataFrame, target: str, slots: ResultPartitions, side: int) -> DataFrame:
    rows = df.select("*", _own_slot(slots, side).alias(target))
    return private.in_slots(rows, target, slots.of_side[side], slots.hosts)


def _own_slot(slots: ResultPartitions, side: int) -> Column:
    """The slot of a row's own partition."""
    seats = slots.of_side[side]
    if seats == tuple(range(len(seats))):
        return F.spark_partition_id()
    return F.get(F.array(*map(F.lit, seats)), F.spark_partition_id())


def null_where(condition: Column, value: Column) -> Column:
    return F.when(~condition, value)
