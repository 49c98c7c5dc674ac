"""What Spark's public interface has no word for: partitions of a DataFrame as they are.

Three things, all of the classic session (there is no Spark Connect here): have partitions stay as they
are while they are read twice, tell Spark that rows are where a column says, and give each task a piece
of data of its own beside its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

_CATALYST = "org.apache.spark.sql.catalyst"


def count(df: DataFrame) -> int:
    return int(_rdd(df).getNumPartitions())


def is_read_twice_alike(df: DataFrame) -> bool:
    """Whether every run of a plan gives each partition the same rows."""
    return bool(df._jdf.queryExecution().optimizedPlan().deterministic())


def reads_only(df: DataFrame) -> bool:
    """Whether a plan reads and computes row by row, so that reading it twice costs little more."""
    return _exchanges(_physical(df)) == 0


def pinned(df: DataFrame) -> DataFrame:
    """The same rows in partitions that stay. Shuffles below run now, and are not run again."""
    if reads_only(df):
        return df if count(df) else df.repartition(1)  # of a frame of nothing there is one, too
    return fixed(df)


def fixed(df: DataFrame) -> DataFrame:
    """The same rows in partitions that no plan changes. Shuffles below are run."""
    session = df.sparkSession
    again = _jvm_session(session).internalCreateDataFrame(_rdd(df), df._jdf.schema(), False)
    return DataFrame(again, session)


def hosts(df: DataFrame) -> list[str | None]:
    """The host that has each partition, where Spark knows: of cached rows, of files on hosts."""
    rdd = _rdd(df)
    context = df.sparkSession.sparkContext._jsc.sc()
    found: list[str | None] = []
    for i in range(rdd.getNumPartitions()):
        places = context.getPreferredLocs(rdd, i)
        found.append(str(places.head().host()) if places.size() else None)
    return found


def arranged_by(df: DataFrame, column: str) -> DataFrame:
    """The same rows, of which Spark now knows that each is in the partition that a column says.

    Grouping by that column and others moves no row, then.
    """
    session = df.sparkSession
    jvm: Any = session.sparkContext._jvm
    execution = df._jdf.queryExecution()
    rdd, columns = execution.toRdd(), execution.analyzed().output()
    attribute = next(
        columns.apply(i) for i in range(columns.size()) if columns.apply(i).name() == column
    )
    direct = _class(jvm, f"{_CATALYST}.expressions.DirectShufflePartitionID")(attribute)
    by = _class(jvm, f"{_CATALYST}.plans.physical.ShufflePartitionIdPassThrough")(
        direct, rdd.getNumPartitions()
    )
    nothing, none = jvm.PythonUtils.toSeq(jvm.java.util.ArrayList()), jvm.scala.Option.empty()
    plan = _class(jvm, "org.apache.spark.sql.execution.LogicalRDD")(
        columns, rdd, by, nothing, False, none, _jvm_session(session), none, none, False
    )
    return DataFrame(
        _class(jvm, "org.apache.spark.sql.classic.Dataset").ofRows(_jvm_session(session), plan), session
    )


def beside(df: DataFrame, column: str, pieces: Sequence[bytes]) -> DataFrame:
    """The rows of each partition after one row that has a piece of data in a new column, and no more.

    A piece is sent to the task that reads its partition and to no other.
    """
    session = df.sparkSession
    context = session.sparkContext
    jvm: Any = context._jvm
    data = jvm.java.util.ArrayList()
    for piece in pieces:
        data.add(piece)
    made = _jvm_session(session).createDataset(
        context._jsc.parallelize(data, len(pieces)).rdd(), jvm.org.apache.spark.sql.Encoders.BINARY()
    )
    empty = (F.lit(None).cast(f.dataType).alias(f.name) for f in df.schema.fields)
    alone = DataFrame(made.toDF(), session).select(F.col("value").alias(column), *empty)
    rest = _rdd(df.select(F.lit(None).cast("binary").alias(column), "*"))
    both = jvm.java.util.ArrayList()
    both.add(_rdd(alone))
    both.add(rest)
    union = _class(jvm, "org.apache.spark.rdd.SQLPartitioningAwareUnionRDD")(
        context._jsc.sc(), jvm.PythonUtils.toSeq(both), len(pieces), rest.elementClassTag()
    )
    rows = _jvm_session(session).internalCreateDataFrame(union, alone._jdf.schema(), False)
    return DataFrame(rows, session)


def _rdd(df: DataFrame) -> Any:
    return df._jdf.queryExecution().toRdd()


def _jvm_session(session: SparkSession) -> Any:
    return session._jsparkSession


def _physical(df: DataFrame) -> Any:
    return df._jdf.queryExecution().sparkPlan()


def _exchanges(plan: Any) -> int:
    """How many operators of a physical plan, before exchanges are put in, will need one or are one."""
    name = str(plan.nodeName())
    needs = any(w in name for w in ("Aggregate", "Join", "Exchange", "Window", "Sort", "Limit", "Python"))
    children = plan.children()
    return int(needs) + sum(_exchanges(children.apply(i)) for i in range(children.size()))


def _class(jvm: Any, name: str) -> Any:
    found = jvm
    for part in name.split("."):
        found = getattr(found, part)
    return found
