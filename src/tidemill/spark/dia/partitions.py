"""Fix partitions, compute global indexes, and align rows by index.

The order of a DIA is (partition, position in it). Operations in two passes inspect the partitions
first and compute afterwards, so both passes must see the same partitions. Adaptive execution may merge
partitions differently in two plans of the same DataFrame; `pinned` plans once, and both passes read that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemill.spark import private
from tidemill.spark.caching import holding, kept
from tidemill.spark.dia.operation import BESIDE, Operation
from tidemill.spark.dia.task_errors import clear_errors

PART, INDEX, BLOCK = (f"{BESIDE}{name}" for name in ("part", "index", "block"))

_POSITION = (1 << 33) - 1
"""The low bits of `monotonically_increasing_id` are the position in the partition."""


def pinned(node: Operation, *, twice: bool = True) -> DataFrame:
    """The frame of a node with fixed partitions; shuffles below it run once, and are reused.

    With `twice`, two readings give the same elements in the same order: if the order could differ, as after
    a shuffle, the elements are cached.
    """
    if not node.is_fixed:
        node.fix(fixed(node.frame))
    if twice and not node.settled and not node.is_kept:
        node.fix(kept(node.frame), keep=True)
    return node.frame


def fixed(df: DataFrame) -> DataFrame:
    """The same rows in partitions that no plan changes. Shuffles below run now."""
    return holding(private.fixed_partitions(df), df)


def sizes(df: DataFrame, *, step: str) -> list[int]:
    """The number of elements in each partition of a pinned frame."""
    counted = df.select(F.spark_partition_id().alias(PART)).groupBy(PART).count()
    with clear_errors(step):
        found = {row[0]: row[1] for row in counted.collect()}
    return [found.get(p, 0) for p in range(private.partition_count(df))]


def offsets(counts: Sequence[int]) -> list[int]:
    """The global index of the first element of each partition, and the total.

    >>> offsets([2, 0, 3])
    [0, 2, 2, 5]
    """
    return list(accumulate(counts, initial=0))


def by_part(values: Mapping[int, int] | Sequence[int]) -> SparkColumn:
    """A column with the value of the row's partition, for a pinned frame."""
    if len(values) < 2:
        return F.lit(values[0] if values else None).cast("bigint")
    listed = ",".join(str(values[p]) for p in range(len(values)))
    # One string, which Spark folds to a constant: a literal for each value would need a JVM call each.
    array = F.split(F.lit(listed), ",").cast("array<bigint>")
    return F.get(array, F.spark_partition_id())


def indexed(node: Operation) -> tuple[DataFrame, int]:
    """The rows of a node with their global index, and their number. It runs a job that counts."""
    df = pinned(node)
    starts = offsets(sizes(df, step=node.op))
    position = F.monotonically_increasing_id().bitwiseAND(F.lit(_POSITION))
    index = (by_part(starts[:-1]) + position).alias(INDEX)
    return df.select("*", index), starts[-1]


def every_index(session: SparkSession, total: int) -> DataFrame:
    """A frame of the indexes from 0 to total - 1."""
    return session.range(total).toDF(INDEX)


def in_blocks(df: DataFrame, total: int, blocks: int) -> DataFrame:
    """Move rows with an index into blocks of equal size (± 1), each a sorted partition."""
    return _sent(df, total, blocks).sortWithinPartitions(BLOCK, INDEX)


def _sent(df: DataFrame, total: int, blocks: int) -> DataFrame:
    block = F.expr(f"int(`{INDEX}` * {blocks}L div {max(1, total)}L)")
    return df.withColumn(BLOCK, block).repartitionById(blocks, F.col(BLOCK))


def side_by_side(frames: Sequence[DataFrame], total: int, blocks: int, how: str) -> DataFrame:
    """Join rows of several frames with the same index into one row, sorted by index.

    `how` is as in Spark's joins: "inner" has the indexes of all frames, "left" those of the first.
    (After a full join Spark does not know the partitioning, so it would shuffle again.)
    """
    first, *others = (_sent(df, total, blocks) for df in frames)
    joined = first
    for other in others:
        # A merge join of rows that are in place: no further shuffle, and AQE does not change it.
        joined = joined.join(other.hint("merge"), [BLOCK, INDEX], how)
    return joined.sortWithinPartitions(BLOCK, INDEX)


def blocks_for(session: SparkSession, total: int) -> int:
    """The number of partitions to make for `total` new elements."""
    most = int(str(session.conf.get("spark.sql.shuffle.partitions")))
    return max(1, min(total, most, max(parallelism(session), total // ELEMENTS_TO_A_BLOCK)))


ELEMENTS_TO_A_BLOCK = 100_000
"""Enough elements for a task to be worth its start."""


def parallelism(session: SparkSession) -> int:
    """The default number of tasks that run at a time."""
    return int(session.sparkContext.defaultParallelism)
