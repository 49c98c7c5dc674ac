"""Where elements are: partitions that stay put, global indexes, and rows brought side by side.

The order of a DIA is (partition, position in it). Operations in two passes look at the partitions
first and compute after, so both must see the same ones. Adaptive execution may merge partitions
differently in two plans of the same DataFrame; `pinned` plans once, and both passes read that.
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
    """The frame of a node with its partitions fixed; shuffles below it are run, once, and reused.

    Who reads it `twice` sees the same elements in the same order both times: where they may come
    otherwise the next time, as after a shuffle, they are kept.
    """
    if not node.is_fixed:
        node.fix(fixed(node.frame))
    if twice and not node.settled and not node.is_kept:
        node.fix(kept(node.frame), keep=True)
    return node.frame


def fixed(df: DataFrame) -> DataFrame:
    """The same rows in partitions that no plan changes. Shuffles below are run."""
    return holding(private.fixed_partitions(df), df)


def sizes(df: DataFrame, *, step: str) -> list[int]:
    """How many elements each partition of a pinned frame has."""
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
    """The number that belongs to the partition of a row of a pinned frame."""
    if len(values) < 2:
        return F.lit(values[0] if values else None).cast("bigint")
    listed = ",".join(str(values[p]) for p in range(len(values)))
    # One text, which Spark folds into one constant: a literal for each would be told call by call.
    array = F.split(F.lit(listed), ",").cast("array<bigint>")
    return F.get(array, F.spark_partition_id())


def indexed(node: Operation) -> tuple[DataFrame, int]:
    """The rows of a node with their global index, and how many there are. Counts first."""
    df = pinned(node)
    starts = offsets(sizes(df, step=node.op))
    position = F.monotonically_increasing_id().bitwiseAND(F.lit(_POSITION))
    index = (by_part(starts[:-1]) + position).alias(INDEX)
    return df.select("*", index), starts[-1]


def every_index(session: SparkSession, total: int) -> DataFrame:
    """The indexes from 0 on."""
    return session.range(total).toDF(INDEX)


def in_blocks(df: DataFrame, total: int, blocks: int) -> DataFrame:
    """Rows with an index in blocks of equal size, give or take one, each a partition and in order."""
    return _sent(df, total, blocks).sortWithinPartitions(BLOCK, INDEX)


def _sent(df: DataFrame, total: int, blocks: int) -> DataFrame:
    block = F.expr(f"int(`{INDEX}` * {blocks}L div {max(1, total)}L)")
    return df.withColumn(BLOCK, block).repartitionById(blocks, F.col(BLOCK))


def side_by_side(frames: Sequence[DataFrame], total: int, blocks: int, how: str) -> DataFrame:
    """Rows of several frames with the same index in one row, in order of the index.

    `how` is that of Spark's joins: "inner" has the indexes that all have, "left" those of the first.
    (A full join does not say where its rows are, so Spark would send them elsewhere for the next.)
    """
    first, *others = (_sent(df, total, blocks) for df in frames)
    joined = first
    for other in others:
        # A merge join of what is in place already: nothing travels again, and AQE leaves it alone.
        joined = joined.join(other.hint("merge"), [BLOCK, INDEX], how)
    return joined.sortWithinPartitions(BLOCK, INDEX)


def blocks_for(session: SparkSession, total: int) -> int:
    """How many partitions to make for so many elements of which no partition is there yet."""
    most = int(str(session.conf.get("spark.sql.shuffle.partitions")))
    return max(1, min(total, most, max(parallelism(session), total // ELEMENTS_TO_A_BLOCK)))


ELEMENTS_TO_A_BLOCK = 100_000
"""Enough that starting a task for them pays."""


def parallelism(session: SparkSession) -> int:
    """How many tasks run at a time, by default."""
    return int(session.sparkContext.defaultParallelism)
