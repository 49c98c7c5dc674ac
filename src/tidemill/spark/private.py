"""Spark's private names, all of them: objects of the JVM, and names of PySpark that begin with `_`.

Written for the PySpark releases in `WRITTEN_FOR`; any other is refused. They need a classic session: a
Spark Connect client has no JVM in its process. `tests/test_layers.py` keeps such names out of other files.
"""

from __future__ import annotations

import json
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial, reduce
from queue import SimpleQueue
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyspark
from py4j.protocol import Py4JJavaError as JavaError
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.util import _load_from_socket

from tidemill.core.errors import UnsupportedError, UserError

WRITTEN_FOR = ((4, 2), (4, 3))
"""Releases of PySpark. Python 3.10 gets 4.2, later ones 4.3."""

_CATALYST = "org.apache.spark.sql.catalyst"

__all__ = ["JavaError"]  # of py4j, for who catches it


# --- versions and sessions ------------------------------------------------------------------------


def release() -> tuple[int, int]:
    """The release of PySpark, such as (4, 3). One that this file was not written for is refused."""
    major, minor = map(int, pyspark.__version__.split(".")[:2])
    if (major, minor) not in WRITTEN_FOR:
        known = [f"{a}.{b}" for a, b in WRITTEN_FOR]
        raise UnsupportedError(
            "spark", f"PySpark {pyspark.__version__}: it was written for {' and '.join(known)}",
            instead=f"install one of these: pip install 'pyspark=={known[-1]}.*'",
        )  # fmt: skip
    return major, minor


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def require_classic(step: str, spark: SparkSession) -> None:
    """Refuse a session of Spark Connect."""
    if is_connect(spark):
        raise UnsupportedError(
            "spark", f"{step} under Spark Connect",
            instead="use a classic session: SparkSession.builder.master(...).getOrCreate()",
        )  # fmt: skip


def session_id(spark: SparkSession) -> str:
    """The same for all Python objects of one session."""
    return str(spark.session_id if is_connect(spark) else _session(spark).sessionUUID())  # type: ignore[attr-defined]


def _session(spark: SparkSession) -> Any:
    release()
    return spark._jsparkSession


def _context(spark: SparkSession) -> Any:
    """The `JavaSparkContext`."""
    release()
    return spark.sparkContext._jsc


def _jvm(spark: SparkSession) -> Any:
    release()
    return spark.sparkContext._jvm


def _execution(df: DataFrame) -> Any:
    release()
    return df._jdf.queryExecution()


# --- workers --------------------------------------------------------------------------------------


@contextmanager
def worker_python(spark: SparkSession, executable: str, path: str | None) -> Iterator[None]:
    """Functions that are made in this block run in workers of this interpreter, with `path` on their path.

    Each function carries both with it, so functions that are made elsewhere keep theirs.
    """
    context: Any = spark.sparkContext
    with _worker_lock:
        before = context.pythonExec, context.environment
        paths = [p for p in (path, context.environment.get("PYTHONPATH")) if p]
        changed = {"PYTHONPATH": os.pathsep.join(paths)} if paths else {}
        context.pythonExec, context.environment = executable, {**context.environment, **changed}
        try:
            yield
        finally:
            context.pythonExec, context.environment = before


_worker_lock = threading.RLock()


def worker_executable(spark: SparkSession) -> str:
    """The interpreter that PySpark starts workers with, as it was told or by default."""
    return str(spark.sparkContext.pythonExec)


# --- plans ----------------------------------------------------------------------------------------


def analyzed_plan(df: DataFrame) -> str:
    """The plan as Spark prints it when names are resolved."""
    return str(_execution(df).analyzed().toString())


def optimized_plan(df: DataFrame) -> str:
    """The plan as Spark prints it after its optimizer."""
    return str(_execution(df).optimizedPlan().toString())


def physical_plan(df: DataFrame) -> str:
    """The operators as Spark prints them before it puts exchanges between them."""
    return str(_execution(df).sparkPlan().toString())


def is_deterministic(df: DataFrame) -> bool:
    """Whether no expression of the plan is random."""
    return bool(_execution(df).optimizedPlan().deterministic())


def estimated_size(df: DataFrame) -> tuple[float | None, list[float | None], float]:
    """Spark's estimates: rows of the result, rows of each source (None where unknown), and bytes."""
    plan = _execution(df).optimizedPlan()
    leaves = [_optional(leaf.stats().rowCount()) for leaf in _every(plan.collectLeaves())]
    return _optional(plan.stats().rowCount()), leaves, float(str(plan.stats().sizeInBytes()))


def _optional(found: Any) -> float | None:
    return float(str(found.get())) if found.isDefined() else None


def files_read(df: DataFrame) -> Iterator[tuple[str, str | None, T.StructType]]:
    """Of each source of files: its format, its `timeZone` option and its schema."""
    for leaf in _every(_execution(df).analyzed().collectLeaves()):
        if leaf.getClass().getSimpleName() != "LogicalRelation":
            continue
        relation = leaf.relation()
        if relation.getClass().getSimpleName() == "HadoopFsRelation":
            zone = relation.options().get("timeZone")
            schema = T.StructType.fromJson(json.loads(relation.schema().json()))
            yield str(relation.toString()), str(zone.get()) if zone.isDefined() else None, schema


def unpersist_with(df: DataFrame) -> None:
    """Release the cached rows of a frame when Python forgets the frame.

    A frame may be forgotten at any moment, even inside a call of Java, which cannot be called again there:
    another thread releases the rows.
    """
    global _releasing
    release()
    weakref.finalize(df, _forgotten.put, partial(df._jdf.unpersist, False)).atexit = False
    if _releasing is None or not _releasing.is_alive():  # a forked process has no threads
        _releasing = threading.Thread(target=_release_forgotten, name="tidemill-release", daemon=True)
        _releasing.start()


def await_released() -> None:
    """Wait until the rows of all frames that are forgotten by now are released."""
    if _releasing is None or not _releasing.is_alive():
        return  # no frame of this process is cached
    done = threading.Event()
    _forgotten.put(done.set)
    done.wait()


def _release_forgotten() -> None:
    while True:
        with suppress(Exception):  # the session may be gone
            _forgotten.get()()


_forgotten: SimpleQueue[Callable[[], object]] = SimpleQueue()
_releasing: threading.Thread | None = None


# --- partitions as they are -----------------------------------------------------------------------


def partition_count(df: DataFrame) -> int:
    """How many partitions a frame has."""
    return int(_rdd(df).getNumPartitions())


def fixed_partitions(df: DataFrame) -> DataFrame:
    """The same rows in partitions that no plan changes. Shuffles below are run."""
    return _frame_of(df.sparkSession, _rdd(df), df._jdf.schema())


class Partitions:
    """The partitions of a frame, to read a few at a time. It is planned once; shuffles below run now."""

    def __init__(self, df: DataFrame) -> None:
        self._session = df.sparkSession
        self._schema = to_arrow_schema(df.schema, timezone="UTC")
        self._batches = df._jdf.toArrowBatchRdd().toJavaRDD()
        self.count = int(self._batches.getNumPartitions())

    def read(self, numbers: Sequence[int]) -> list[pa.RecordBatch]:
        """Run a job that reads some partitions and no others."""
        jvm = _jvm(self._session)
        wanted = jvm.java.util.ArrayList()
        for number in numbers:
            wanted.add(number)
        # A frame of these partitions would be planned again each time, which takes as long as the job.
        place = jvm.PythonRDD.runJob(_context(self._session).sc(), self._batches, wanted)
        with _load_from_socket(place, NoOpSerializer()) as batches:
            return [pa.ipc.read_record_batch(pa.py_buffer(batch), self._schema) for batch in batches]


def partition_hosts(df: DataFrame) -> list[str | None]:
    """The host that has each partition, where Spark knows: of cached rows, of files on hosts."""
    rdd, context = _rdd(df), _context(df.sparkSession).sc()
    found = []
    for partition in range(rdd.getNumPartitions()):
        places = str(context.getPreferredLocs(rdd, partition).mkString(" ")).split()
        found.append(_host(places[0]) if places else None)
    return found


def _host(place: str) -> str:
    """The host that Spark means by a preferred location.

    >>> _host("executor_10.0.0.1_3"), _host("hdfs_cache_one"), _host("two")
    ('10.0.0.1', 'one', 'two')
    """
    if place.startswith("executor_"):
        return place.removeprefix("executor_").rsplit("_", 1)[0]
    return place.removeprefix("hdfs_cache_")


def arranged_by(df: DataFrame, column: str) -> DataFrame:
    """The same rows, of which Spark now knows that each is in the partition that a column says.

    Grouping by that column and others then moves no row.
    """
    return _claimed(df, _rdd(df), column)


def in_slots(
    df: DataFrame, column: str, slots: Sequence[int], at: Sequence[str | None],
    sent: DataFrame | None = None,
) -> DataFrame:  # fmt: skip
    """The rows of partition i in partition `slots[i]`, as `column` says of each; partitions are `at` hosts.

    Beside them are those that were `sent` there, in a frame of the same columns with as many partitions.
    """
    session, count = df.sparkSession, len(at)
    rows = _reordered(session, _rdd(df), slots, count)
    if sent is not None:
        rows = _zipped(session, [rows, _nothing(session, at), _rdd(sent)], count)
    return _claimed(df, rows, column)


def put_together(frames: Sequence[DataFrame], groups: Sequence[Sequence[Sequence[int]]]) -> DataFrame:
    """A frame whose partition i has, of each frame, the partitions `groups[frame][i]`, one after the other.

    `coalesce` would take some from other hosts to have as many in each.
    """
    session = frames[0].sparkSession
    layers = []
    for df, own in zip(frames, groups):
        rdd = _rdd(df)
        for k in range(max(map(len, own))):
            layers.append(_picked(session, rdd, [g[k] if k < len(g) else -1 for g in own]))
    together = _zipped(session, layers, len(groups[0]))
    return _frame_of(session, together, frames[0]._jdf.schema())


def one_batch_each(spark: SparkSession, batches: Sequence[pa.RecordBatch]) -> DataFrame:
    """A frame with a partition for each batch, which goes to the task of that partition and no other.

    Set `spark.sql.execution.arrow.localRelationThreshold` to 0 around it: otherwise Spark sends little data
    to every task.
    """
    jvm = _jvm(spark)
    data = jvm.java.util.ArrayList()
    for batch in batches:
        data.add(batch.serialize().to_pybytes())
    schema = from_arrow_schema(batches[0].schema).json()
    each = jvm.scala.jdk.javaapi.CollectionConverters.asScala(data.iterator())
    return DataFrame(jvm.PythonSQLUtils.toDataFrame(each, schema, _session(spark)), spark)


def on_hosts(df: DataFrame, at: Sequence[str | None]) -> DataFrame:
    """The same rows, each partition on the host that is named for it."""
    session = df.sparkSession
    there = _zipped(session, [_rdd(df), _nothing(session, at)], len(at))
    return _frame_of(session, there, df._jdf.schema())


def texts_at(session: SparkSession, texts: Sequence[str], at: Sequence[str | None]) -> DataFrame:
    """A frame with one text, `value`, in each partition, which prefers a host."""
    jvm = _jvm(session)
    wanted = [jvm.scala.Tuple2(t, _seq(jvm, [h] if h else []).toList()) for t, h in zip(texts, at)]
    tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("java.lang.String"))
    return _texts(session, _context(session).sc().makeRDD(_seq(jvm, wanted).toList(), tag))


def lines_of(session: SparkSession, files: str, parts: int) -> DataFrame:
    """The lines of text files, `value`, with files in the order in which they are named."""
    return _texts(session, _context(session).textFile(files, parts).rdd())


def _texts(session: SparkSession, rdd: Any) -> DataFrame:
    strings = _jvm(session).org.apache.spark.sql.Encoders.STRING()
    return DataFrame(_session(session).createDataset(rdd, strings).toDF(), session)


def _claimed(df: DataFrame, rdd: Any, column: str) -> DataFrame:
    """Rows of an RDD as a frame like `df`; Spark is told that they are where the column says."""
    session = df.sparkSession
    jvm = _jvm(session)
    columns = _execution(df).analyzed().output()
    attribute = columns.apply(df.columns.index(column))
    direct = _class(jvm, f"{_CATALYST}.expressions.DirectShufflePartitionID")(attribute)
    by = _class(jvm, f"{_CATALYST}.plans.physical.ShufflePartitionIdPassThrough")(
        direct, rdd.getNumPartitions()
    )
    nothing, none = _seq(jvm, []), jvm.scala.Option.empty()
    plan = _class(jvm, "org.apache.spark.sql.execution.LogicalRDD")(
        columns, rdd, by, nothing, False, none, _session(session), none, none, False
    )
    dataset = _class(jvm, "org.apache.spark.sql.classic.Dataset")
    return DataFrame(dataset.ofRows(_session(session), plan), session)


def _reordered(session: SparkSession, rdd: Any, slots: Sequence[int], count: int) -> Any:
    """The partitions of an RDD at other positions, with empty ones between them."""
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
    context, jvm = _context(session), _jvm(session)
    parts = []
    for run in _runs(wanted):
        if run[0] < 0:
            empty = jvm.java.util.ArrayList()
            parts.append(context.parallelize(empty, len(run)).rdd())
        else:
            # A set of Scala's is a function, and says which partitions are in it.
            chosen = _seq(jvm, [jvm.java.lang.Integer(p) for p in run]).toSet()
            parts.append(_class(jvm, "org.apache.spark.rdd.PartitionPruningRDD").create(rdd, chosen))
    union = _class(jvm, "org.apache.spark.rdd.UnionRDD")
    return union(context.sc(), _seq(jvm, parts), rdd.elementClassTag())


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
    """Empty partitions that prefer hosts.

    Where a task has two kinds of data, Spark asks both where to run and counts votes: without these, a few
    rows that were sent could have all others read from another host.
    """
    # No optimizer knows that there are none.
    return _rdd(texts_at(session, [""] * len(at), at).filter("length(value) > 0"))


def _zipped(session: SparkSession, rdds: Sequence[Any], count: int) -> Any:
    """Partition i of all of them, one after the other."""
    jvm = _jvm(session)
    union = _class(jvm, "org.apache.spark.rdd.SQLPartitioningAwareUnionRDD")
    return union(_context(session).sc(), _seq(jvm, rdds), count, rdds[0].elementClassTag())


def _rdd(df: DataFrame) -> Any:
    return _execution(df).toRdd()


def _frame_of(session: SparkSession, rdd: Any, schema: Any) -> DataFrame:
    return DataFrame(_session(session).internalCreateDataFrame(rdd, schema, False), session)


# --- executors and metrics ------------------------------------------------------------------------


def executors(spark: SparkSession) -> list[tuple[str, int]]:
    """The host and the cores of each executor that runs tasks."""
    every = _every(_context(spark).sc().statusStore().executorList(True))
    workers = [e for e in every if e.id() != "driver"] or every  # in local mode the driver runs tasks
    return [(str(e.hostPort()).rsplit(":", 1)[0], int(e.totalCores())) for e in workers]


def stages_of(spark: SparkSession, tag: str) -> Iterator[dict[str, Any]]:
    """Metrics of each stage that ran in jobs with this tag, all of its attempts together."""
    context = _context(spark).sc()
    context.listenerBus().waitUntilEmpty()  # metrics come in by a queue, behind the jobs' results
    store = context.statusStore()
    jobs = [j for j in _every(store.jobsList(None)) if j.jobTags().contains(tag)]
    # A stage may be of several jobs, which count on what the first of them left.
    for id in sorted({i for job in jobs for i in _every(job.stageIds())}):
        ran = [a for a in _attempts(spark, store, id) if a.completionTime().isDefined()]
        if ran:
            yield {"id": id, "name": ran[-1].name(), **{n: sum(map(of, ran)) for n, of in _METRICS.items()}}


_METRICS: Mapping[str, Callable[[Any], float]] = {
    "seconds": lambda a: (a.completionTime().get().getTime() - a.submissionTime().get().getTime()) / 1000,
    "remote_bytes": lambda a: a.shuffleRemoteBytesRead(),
    "local_bytes": lambda a: a.shuffleLocalBytesRead(),
    "written_bytes": lambda a: a.shuffleWriteBytes(),
    "records": lambda a: a.shuffleWriteRecords(),
    "result_bytes": lambda a: a.resultSize(),
    "wait_seconds": lambda a: a.shuffleFetchWaitTime() / 1000,
}


def _attempts(spark: SparkSession, store: Any, id: int) -> list[Any]:
    """All attempts to run a stage, none where Spark found its output there."""
    gateway: Any = spark.sparkContext._gateway
    none = gateway.new_array(gateway.jvm.double, 0)
    details, summaries = False, False
    found = store.stageData(id, details, gateway.jvm.java.util.ArrayList(), summaries, none)
    return [a for a in _every(found) if a.status().toString() != "SKIPPED"]


# --- files ----------------------------------------------------------------------------------------


def files_named(spark: SparkSession, path: str, otherwise: str) -> tuple[str, list[str]]:
    """The files that a path names, itself, those in it or those that match it, but for hidden ones.

    Before them, the full path of what was named: of a pattern, the directory `otherwise`.
    """
    hadoop = _jvm(spark).org.apache.hadoop.fs.Path
    where = hadoop(path)
    system = where.getFileSystem(_context(spark).hadoopConfiguration())
    if system.exists(where):
        named, found = where, [where]
    else:
        named = hadoop(otherwise)
        found = [status.getPath() for status in system.globStatus(where) or []]
    files: list[str] = []
    for each in found:
        status = system.getFileStatus(each)
        inside = system.listStatus(each) if status.isDirectory() else [status]
        files += [
            s.getPath().toString() for s in inside
            if not s.isDirectory() and s.getPath().getName()[0] not in "._"
        ]  # fmt: skip
    return system.makeQualified(named).toString(), files


def java_message(failed: Exception) -> str:
    """What Java said, if the exception is one of Java's; otherwise its own text."""
    java = getattr(failed, "java_exception", None)
    return str(java.getMessage() if java is not None else failed)


# --- Scala and Java -------------------------------------------------------------------------------


def _every(seq: Any) -> list[Any]:
    """A Scala sequence as a list."""
    return [seq.apply(i) for i in range(seq.size())]


def _seq(jvm: Any, items: Sequence[Any]) -> Any:
    """A list as a Scala sequence."""
    made = jvm.java.util.ArrayList()
    for item in items:
        made.add(item)
    return jvm.PythonUtils.toSeq(made)


def _class(jvm: Any, name: str) -> Any:
    """A class of Java's, looked up once: each part of its name is a question to the other process."""
    known = _classes.setdefault(jvm, {})
    if name not in known:
        known[name] = reduce(getattr, name.split("."), jvm)
    return known[name]


_classes: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
