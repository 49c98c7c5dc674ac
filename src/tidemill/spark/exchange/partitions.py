"""What Spark's public interface has no word for: partitions of a DataFrame as they are.

All of the classic session (there is no Spark Connect here): have partitions stay as they are while they are
read twice, tell Spark that rows are where a column says, give each task a piece of data of its own, and
put partitions of several frames together.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import reduce
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tidemill.core.errors import UserError
from tidemill.spark.settings import LEAVES, planned, setting

LIKELY_WIDTH = 50.0
"""Bytes of a row of which nothing is known."""

_CATALYST = "org.apache.spark.sql.catalyst"


def count(df: DataFrame) -> int:
    return int(_rdd(df).getNumPartitions())


def is_read_twice_alike(df: DataFrame) -> bool:
    """Whether every run of a plan gives each partition the same rows."""
    execution = df._jdf.queryExecution()
    if _NOW.search(str(execution.analyzed().toString())):
        return False
    return bool(execution.optimizedPlan().deterministic())


def reads_only(df: DataFrame) -> bool:
    """Whether a plan reads and computes row by row: reading it twice costs little more, and partitions are as
    they were. (A `coalesce` puts them together by where they are, which may change.)"""
    return not _needs_exchange(df)


def row_count(df: DataFrame) -> float:
    """How many rows Spark thinks there are: of cached ones it knows, of files it goes by their size."""
    stats = df._jdf.queryExecution().optimizedPlan().stats()
    counted = stats.rowCount()
    if counted.isDefined():
        return float(str(counted.get()))
    leaves = df._jdf.queryExecution().optimizedPlan().collectLeaves()
    known = [leaves.apply(i).stats().rowCount() for i in range(leaves.size())]
    if known and all(n.isDefined() for n in known):
        return max(float(str(n.get())) for n in known)
    return float(str(stats.sizeInBytes())) / LIKELY_WIDTH


def has_bloom_filter(df: DataFrame) -> bool:
    """Whether Spark's optimizer put a Bloom filter of its own into the plan of a join."""
    return "might_contain" in str(df._jdf.queryExecution().optimizedPlan().toString())


def merges_maps(df: DataFrame) -> bool:
    """Whether a plan has an aggregate that Spark keeps in a map of values and how often they come."""
    return bool(_MAPS.search(str(df._jdf.queryExecution().optimizedPlan().toString())))


def pinned(df: DataFrame) -> DataFrame:
    """The same rows in partitions that stay, whenever they are read.

    What shuffles, sorts or limits is run now, and its rows are kept: run again, it could give other ones.
    """
    if not reads_only(df):
        return df.localCheckpoint()
    return df if count(df) else df.repartition(1)  # of a frame of nothing there is one, too


def steady(spark: SparkSession) -> AbstractContextManager[None]:
    """Have files and ranges cut as they are now, though executors come and go while they are read."""
    return setting(spark, LEAVES, str(spark.sparkContext.defaultParallelism))


def fixed(df: DataFrame) -> DataFrame:
    """The same rows in partitions that no plan changes. Shuffles below are run."""
    return _frame_of(df.sparkSession, _rdd(df), df._jdf.schema())


def hosts(df: DataFrame) -> list[str | None]:
    """The host that has each partition, where Spark knows: of cached rows, of files on hosts."""
    rdd = _rdd(df)
    found = (_hosts(df.sparkSession, rdd, i) for i in range(rdd.getNumPartitions()))
    return [own[0] if own else None for own in found]


def arranged_by(df: DataFrame, column: str) -> DataFrame:
    """The same rows, of which Spark now knows that each is in the partition that a column says.

    Grouping by that column and others moves no row, then.
    """
    return _claimed(df, _rdd(df), column)


def in_slots(
    df: DataFrame, column: str, slots: Sequence[int], at: Sequence[str | None],
    sent: DataFrame | None = None,
) -> DataFrame:  # fmt: skip
    """The rows of partition i in partition `slots[i]`, as `column` says of each; partitions are `at` hosts.

    Beside them are those that were sent there, in a frame of the same columns with as many partitions.
    """
    count = len(at)
    rows = _reordered(df.sparkSession, _rdd(df), slots, count)
    if sent is not None:
        with planned(df.sparkSession):
            more = _rdd(sent)
        rows = _zipped(df.sparkSession, [rows, _nothing(df.sparkSession, at), more], count)
    return _claimed(df, rows, column)


def put_together(frames: Sequence[DataFrame], groups: Sequence[Sequence[Sequence[int]]]) -> DataFrame:
    """A frame whose partition i has, of each frame, the partitions `groups[frame][i]`, one after the other.

    Unlike `coalesce`, which takes some from other hosts so that all have as many, and `union`.
    """
    session = frames[0].sparkSession
    layers = []
    for df, own in zip(frames, groups):
        rdd = _rdd(df)
        for k in range(max(map(len, own))):
            layers.append(_picked(session, rdd, [g[k] if k < len(g) else -1 for g in own]))
    together = _zipped(session, layers, len(groups[0]))
    return _frame_of(session, together, frames[0]._jdf.schema())


def one_each(spark: SparkSession, batches: Sequence[pa.RecordBatch]) -> DataFrame:
    """A frame with a partition for each batch: it goes to the task that has that partition, and no other."""
    jvm = _jvm(spark)
    data = jvm.java.util.ArrayList()
    for batch in batches:
        data.add(batch.serialize().to_pybytes())
    schema = from_arrow_schema(batches[0].schema).json()
    each = jvm.scala.jdk.javaapi.CollectionConverters.asScala(data.iterator())
    # As rows of the driver's own, which it would otherwise make of so little, all would go to every task.
    with setting(spark, "spark.sql.execution.arrow.localRelationThreshold", "0"):
        return DataFrame(jvm.PythonSQLUtils.toDataFrame(each, schema, _jvm_session(spark)), spark)


def kept_at(df: DataFrame, at: Sequence[str | None]) -> DataFrame:
    """The same rows, kept on hosts for as long as somebody has them: no task brings them any more."""
    session = df.sparkSession
    there = _zipped(session, [_rdd(df), _nothing(session, at)], len(at))
    return _frame_of(session, there, df._jdf.schema()).localCheckpoint()


def texts_at(session: SparkSession, texts: Sequence[str], at: Sequence[str | None]) -> DataFrame:
    """A frame with one text, `value`, in each partition, which wants to be on a host."""
    jvm = _jvm(session)
    wanted = [jvm.scala.Tuple2(t, _seq(jvm, [h] if h else []).toList()) for t, h in zip(texts, at)]
    tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("java.lang.String"))
    near = session.sparkContext._jsc.sc().makeRDD(_seq(jvm, wanted).toList(), tag)
    made = _jvm_session(session).createDataset(near, jvm.org.apache.spark.sql.Encoders.STRING())
    return DataFrame(made.toDF(), session)


def _claimed(df: DataFrame, rdd: Any, column: str) -> DataFrame:
    """Rows of an RDD as a frame like `df`, with the word of ours that they are where the column says."""
    session = df.sparkSession
    jvm: Any = session.sparkContext._jvm
    columns = df._jdf.queryExecution().analyzed().output()
    attribute = columns.apply(df.columns.index(column))
    direct = _class(jvm, f"{_CATALYST}.expressions.DirectShufflePartitionID")(attribute)
    by = _class(jvm, f"{_CATALYST}.plans.physical.ShufflePartitionIdPassThrough")(
        direct, rdd.getNumPartitions()
    )
    nothing, none = _seq(jvm, []), jvm.scala.Option.empty()
    plan = _class(jvm, "org.apache.spark.sql.execution.LogicalRDD")(
        columns, rdd, by, nothing, False, none, _jvm_session(session), none, none, False
    )
    return DataFrame(
        _class(jvm, "org.apache.spark.sql.classic.Dataset").ofRows(_jvm_session(session), plan),
        session,
    )


def _reordered(session: SparkSession, rdd: Any, slots: Sequence[int], count: int) -> Any:
    """The partitions of an RDD in other places, with empty ones between them."""
    if rdd.getNumPartitions() != len(slots):
        raise UserError(
            "exchange", expected=f"an input of {len(slots)} partitions, as when its keys were read",
            got=str(rdd.getNumPartitions()), hint="files have changed meanwhile: cache the input first",
        )  # fmt: skip
    wanted = [-1] * count
    for partition, slot in enumerate(slots):
        wanted[slot] = partition
    return _picked(session, rdd, wanted)


def _picked(session: SparkSession, rdd: Any, wanted: Sequence[int]) -> Any:
    """Some partitions of an RDD in an order, with an empty one for -1."""
    if list(wanted) == list(range(rdd.getNumPartitions())):
        return rdd
    context, jvm = session.sparkContext, _jvm(session)
    parts = []
    for run in _runs(wanted):
        if run[0] < 0:
            empty = jvm.java.util.ArrayList()
            parts.append(context._jsc.parallelize(empty, len(run)).rdd())
        else:
            # A set of Scala's is a function, and says which partitions are in it.
            chosen = _seq(jvm, [jvm.java.lang.Integer(p) for p in run]).toSet()
            parts.append(_class(jvm, "org.apache.spark.rdd.PartitionPruningRDD").create(rdd, chosen))
    return _class(jvm, "org.apache.spark.rdd.UnionRDD")(
        context._jsc.sc(), _seq(jvm, parts), rdd.elementClassTag()
    )


def _runs(wanted: Sequence[int]) -> list[list[int]]:
    """Parts of a list in which numbers grow, or all are -1.

    >>> _runs([0, 2, 1, -1, -1, 3])
    [[0, 2], [1], [-1, -1], [3]]
    """
    runs: list[list[int]] = []
    for number in wanted:
        last = runs[-1][-1] if runs else None
        if last is not None and (number > last >= 0 or number == last == -1):
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs


def _nothing(session: SparkSession, at: Sequence[str | None]) -> Any:
    """Empty partitions that want to be on hosts.

    Where a task has two kinds of data, Spark asks both where to run and counts votes: without these, a few
    rows that were sent could have all others read from another host.
    """
    # No optimizer knows that there are none.
    return _rdd(texts_at(session, [""] * len(at), at).filter("length(value) > 0"))


def _zipped(session: SparkSession, rdds: Sequence[Any], count: int) -> Any:
    """Partition i of all of them, one after the other."""
    jvm = _jvm(session)
    return _class(jvm, "org.apache.spark.rdd.SQLPartitioningAwareUnionRDD")(
        session.sparkContext._jsc.sc(), _seq(jvm, rdds), count, rdds[0].elementClassTag()
    )


def _hosts(session: SparkSession, rdd: Any, partition: int) -> list[str]:
    places = session.sparkContext._jsc.sc().getPreferredLocs(rdd, partition).mkString(" ")
    return [_host(p) for p in str(places).split()]


def _host(place: str) -> str:
    """The host that Spark means by a place.

    >>> _host("executor_10.0.0.1_3"), _host("hdfs_cache_one"), _host("two")
    ('10.0.0.1', 'one', 'two')
    """
    if place.startswith("executor_"):
        return place.removeprefix("executor_").rsplit("_", 1)[0]
    return place.removeprefix("hdfs_cache_")


def _rdd(df: DataFrame) -> Any:
    return df._jdf.queryExecution().toRdd()


def _frame_of(session: SparkSession, rdd: Any, schema: Any) -> DataFrame:
    return DataFrame(_jvm_session(session).internalCreateDataFrame(rdd, schema, False), session)


def _jvm(session: SparkSession) -> Any:
    return session.sparkContext._jvm


def _seq(jvm: Any, items: Sequence[Any]) -> Any:
    """A list of Scala's."""
    made = jvm.java.util.ArrayList()
    for item in items:
        made.add(item)
    return jvm.PythonUtils.toSeq(made)


def _jvm_session(session: SparkSession) -> Any:
    return session._jsparkSession


def _needs_exchange(df: DataFrame) -> bool:
    """Whether an operator of the physical plan, before exchanges are put in, will need one or is one."""
    plan = str(df._jdf.queryExecution().sparkPlan().toString())
    return any(word in name for name in _operators(plan) for word in _EXCHANGING)


def _operators(plan: str) -> list[str]:
    """The operators of a plan as Spark prints it; not those that made what is in the cache."""
    found: list[str] = []
    cached = None
    for line in plan.splitlines():
        text = line.lstrip(" :+-*")
        depth = len(line) - len(text)
        cached = None if cached is not None and depth <= cached else cached
        if cached is None and text.startswith("InMemoryRelation"):
            cached = depth
        if cached is None and text:
            found.append(re.split(r"[ (]", text, maxsplit=1)[0])
    return found


_EXCHANGING = (
    "Aggregate", "Join", "Exchange", "Window", "Sort", "Limit", "TakeOrdered", "Cartesian", "Coalesce",
    "Python", "InArrow", "InPandas",
)  # fmt: skip
_MAPS = re.compile(r"\b(percentile|median|mode|percentile_cont|percentile_disc)\(", re.IGNORECASE)
_NOW = re.compile(r"current_(timestamp|date|time)\(|localtimestamp\(|\bnow\(", re.IGNORECASE)
"""What is another moment in each plan."""


def _class(jvm: Any, name: str) -> Any:
    """A class of Java's, looked up once: each part of its name is a question to the other process."""
    known = _classes.setdefault(jvm, {})
    if name not in known:
        known[name] = reduce(getattr, name.split("."), jvm)
    return known[name]


_classes: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
