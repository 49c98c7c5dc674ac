"""Spark's shuffle metrics of a block, in local mode: nothing is remote there."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pyspark.sql import functions as F

from tidemill.spark.exchange.traffic import traffic


def _grouped(spark: Any, rows: int = 1000) -> int:
    df = spark.range(rows).repartition(3, "id").groupBy((F.col("id") % 10).alias("k")).count()
    return len(df.collect())


def test_a_shuffle_in_local_mode_is_local(spark: Any) -> None:
    with traffic(spark) as seen:
        assert _grouped(spark) == 10
    assert seen.remote_bytes == 0
    assert seen.local_bytes == seen.written_bytes > 0
    assert seen.records == 1000 + 30  # each of 3 partitions sends each of 10 groups on
    assert seen.result_bytes > 0
    assert sum(s.written_bytes for s in seen.stages) == seen.written_bytes
    assert all(s.seconds >= 0 and s.name for s in seen.stages)
    assert len({s.id for s in seen.stages}) == len(seen.stages) == 3


def test_only_jobs_inside_the_block_count(spark: Any) -> None:
    _grouped(spark)
    with traffic(spark) as empty:
        pass
    _grouped(spark)
    assert empty.stages == () and empty.written_bytes == 0
    assert repr(empty).startswith("0 B remote, 0 B local, 0 B written")


def test_blocks_nest(spark: Any) -> None:
    with traffic(spark) as outer:
        _grouped(spark)
        with traffic(spark) as inner:
            _grouped(spark)
        with traffic(spark) as other:
            _grouped(spark)
    assert inner.records == other.records == 1030
    assert set(outer.stages) > {*inner.stages, *other.stages}
    assert outer.records == 3 * 1030


def test_jobs_of_other_threads_do_not_count(spark: Any) -> None:
    begun, done = threading.Event(), threading.Event()

    def elsewhere() -> None:
        assert begun.wait(60)
        _grouped(spark, 5000)
        done.set()

    thread = threading.Thread(target=elsewhere)
    thread.start()
    with traffic(spark) as seen:
        begun.set()
        _grouped(spark)
        assert done.wait(60)
    thread.join()
    assert seen.records == 1030


def test_work_that_spark_does_on_threads_of_its_own_counts(spark: Any) -> None:
    """Broadcasts and subqueries."""
    one, two = (spark.range(n).withColumn("v", F.rand(n)) for n in (500, 400))
    with traffic(spark) as seen:
        assert one.join(two.hint("shuffle_hash"), "id").count() == 400
    assert seen.records >= 900
    counts = spark.range(600).groupBy((F.col("id") % 300).alias("k")).agg(F.count("*").alias("n"))
    counts.createOrReplaceTempView("counts")
    with traffic(spark) as seen:
        few = two.groupBy((F.col("id") * 2).alias("id")).count()
        joined = one.join(F.broadcast(few), "id")
        assert joined.where("v >= (SELECT 0 * max(n) FROM counts)").count() == 250
    assert seen.records >= 400 + 300


def test_rows_that_a_cache_holds_are_not_shuffled_again(spark: Any) -> None:
    df = spark.range(1000).repartition(3, "id").cache()
    try:
        with traffic(spark) as first:
            df.count()
        with traffic(spark) as second:
            df.count()
    finally:
        df.unpersist()
    assert first.records >= 1000 and second.records < 10


def test_a_block_that_fails_leaves_no_tag(spark: Any) -> None:
    with pytest.raises(ZeroDivisionError), traffic(spark):
        raise ZeroDivisionError
    assert not {t for t in spark.sparkContext.getJobTags() if t.startswith("traffic-")}
    with traffic(spark) as seen:
        _grouped(spark)
    assert "stage" in repr(seen) and "rows in shuffles" in repr(seen)
