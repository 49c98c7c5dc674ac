"""Exchanges against Spark's own operators: the same rows, whatever was detected."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidemill as tm
from tests.examples import later
from tidemill import col
from tidemill.core.errors import UnsupportedError, UserError

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill.spark import private
from tidemill.spark.exchange import (
    colocate,
    explain,
    group_by_key,
    inputs,
    join,
    place,
    reduce_by_key,
    report,
    traffic,
)  # fmt: skip
from tidemill.spark.exchange.decision import decision_of
from tidemill.spark.exchange.join import LEAVES
from tidemill.spark.exchange.result_partitions import ResultPartitions, _seated
from tidemill.spark.exchange.route import LISTED, most_listed
from tidemill.spark.settings import setting


def bag(df: DataFrame) -> list[str]:
    """The rows in an order of their own, floats without their last digits."""
    rounded = (
        [f"{v:.9g}" if isinstance(v, float) and not math.isnan(v) else repr(v) for v in row]
        for row in df.collect()
    )
    return sorted(map(repr, rounded))


def events(spark: Any, seed: int, rows: int = 600, parts: int = 3, span: int = 150) -> DataFrame:
    """Keys that are mostly near to each other, one that is everywhere, some null; texts; numbers."""
    rng = np.random.default_rng(seed)
    near = np.sort(rng.integers(0, span, rows))
    key = np.where(rng.random(rows) < 0.15, 7, near)
    table = pa.table({
        "k": pa.array(key, mask=rng.random(rows) < 0.05),
        "s": pa.array([f"t{k % 5}" for k in key], mask=rng.random(rows) < 0.05),
        "v": pa.array(rng.integers(-50, 50, rows), mask=rng.random(rows) < 0.1),
        "x": rng.normal(size=rows),
        "ts": np.arange(rows).astype("datetime64[us]"),
        "part": np.arange(rows) * parts // rows,
    })  # fmt: skip
    return (
        spark.createDataFrame(table)
        .repartitionById(parts, F.col("part").cast("int"))
        .drop("part")
        .cache()
    )


@pytest.fixture(scope="module")
def left(spark: Any) -> DataFrame:
    return events(spark, 1)


@pytest.fixture(scope="module")
def right(spark: Any) -> DataFrame:
    other = events(spark, 2, rows=200, parts=2, span=400).select("k", "s", F.col("v").alias("w"))
    return other.withColumn("k", F.col("k").cast("int")).cache()  # of another type than on the left


def listing(spark: Any, few: bool) -> AbstractContextManager[None]:
    """A few leaving buckets are listed in the plan, or else all rows are looked up."""
    return nullcontext() if few else setting(spark, LISTED, "0")


@pytest.fixture(params=["hosts", *later("partitions")])
def placed(request: Any, spark: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Units are partitions, as on one machine; or hosts, of which Spark says that there are two, and rows
    are looked up as if many left."""
    if request.param == "hosts":
        known = lambda df: [f"host{i % 2}" for i in range(private.partition_count(df))]
        monkeypatch.setattr(private, "partition_hosts", known)
    with listing(spark, request.param != "hosts"):
        yield str(request.param)


@pytest.mark.parametrize(
    "how", [pytest.param(h, marks=() if h == "anti" else pytest.mark.soak) for h in LEAVES]
)
@pytest.mark.usefixtures("generated_java")
def test_joins(
    spark: Any, left: DataFrame, right: DataFrame, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how in ("inner", "left", "anti"):
        known = lambda df: [f"host{i % 2}" for i in range(private.partition_count(df))]
        monkeypatch.setattr(private, "partition_hosts", known)
    with listing(spark, how not in ("inner", "full", "anti")):
        made = join(left, right, ["k", "s"], how, detect="on")
    plain = left.join(right, ["k", "s"], how)
    assert made.columns == plain.columns
    assert bag(made) == bag(plain)
    found = decision_of(made).detected
    assert (
        found is not None and found.numbers["rows"] < left.count() + right.count()
    )  # nulls stay out


def test_one_sided_keys_leave_an_inner_join_before_the_shuffle(spark: Any, left: DataFrame) -> None:
    """No key is on both sides: nothing is sent. Of keys that are, no more than of one side."""
    rows = left.select(F.col("k") + 1000, "x").toDF("k", "y").cache()
    with traffic(spark) as seen:
        none = join(left, rows, ["k"], detect="on")
        assert none.count() == 0
    assert decision_of(none).numbers["leaving"] == 0
    assert seen.records < 50  # sets of buckets, and counts
    some = join(left, rows.withColumn("k", F.col("k") - 1000), ["k"], detect="on")
    assert bag(some) == bag(left.join(rows.withColumn("k", F.col("k") - 1000), ["k"]))


def test_rows_that_are_where_they_belong_are_not_shuffled(spark: Any) -> None:
    """A table and another one of the same keys in the same partitions, and one in the opposite order."""
    orders = spark.range(0, 400, 1, 4).select(F.col("id").alias("k"), F.lit("some text").alias("s"))
    lines = spark.range(0, 1600, 1, 4).select(
        (F.col("id") / 4).cast("long").alias("k"), F.col("id").alias("v")
    )
    with traffic(spark) as seen:
        assert join(orders, lines, ["k"], detect="on").count() == 1600
    filters = seen.records
    turned = lines.repartitionById(4, (3 - F.floor(F.col("k") / 100)).cast("int")).cache()
    turned.count()
    made = join(orders, turned, ["k"], "full", detect="on")
    with traffic(spark) as seen:
        made.count()
    # Orders have fewer bytes than their lines: they go.
    assert filters < 50 and 400 <= seen.records < 400 + 50
    assert bag(made) == bag(orders.join(lines, ["k"], "full"))


def test_operators_below_a_cache_are_not_of_a_plan() -> None:
    plan = """Project [a#1]
+- BroadcastHashJoin [a#1]
   :- Filter (a#1 > 0)
   :  +- InMemoryTableScan [a#1]
   :        +- InMemoryRelation [a#1], StorageLevel(memory)
   :              +- *(1) Sort [a#1 ASC]
   +- Range (0, 10)"""
    names = ["Project", "BroadcastHashJoin", "Filter", "InMemoryTableScan", "Range"]
    assert inputs._operators(plan) == names


def test_partitions_of_two_inputs_share_slots_on_their_hosts() -> None:
    hosts: list[str | None] = []
    assert _seated(["a", "b", "a", "b"], hosts) == (0, 1, 2, 3)
    assert _seated(["b", "a", "b", "b", None], hosts) == (1, 0, 3, 4, 2)
    assert hosts == ["a", "b", "a", "b", "b"]
    unknown: list[str | None] = []
    assert _seated([None, None], unknown) == (0, 1)
    assert _seated(["b", None, "a"], unknown) == (0, 2, 1) and unknown == ["b", "a", None]


def test_partitions_are_put_together(spark: Any) -> None:
    one, two = spark.range(0, 5, 1, 5), spark.range(5, 7, 1, 2)
    made = private.put_together([one, two], [[[3, 0], [], [1]], [[], [1], [0]]])
    where = made.select("id", F.spark_partition_id().alias("at")).collect()
    assert [(r.id, r.at) for r in where] == [(3, 0), (0, 0), (6, 1), (1, 2), (5, 2)]


def test_keys_are_counted_on_their_hosts() -> None:
    spread = ResultPartitions(("a", "b", "c", "a", "b", "c", "a", "b"), (tuple(range(8)),), by_host=True)
    (dealt,) = spread.dealt(6)
    assert sorted(p for own in dealt for p in own) == list(range(8))
    assert len(dealt) == 6 and all(len({spread.hosts[p] for p in own}) == 1 for own in dealt)
    anywhere = ResultPartitions((None,) * 5, (tuple(range(5)), (0, 2)), by_host=False)
    assert anywhere.dealt(2) == [[[0, 2, 4], [1, 3]], [[0, 1], []]]


@pytest.mark.usefixtures("generated_java")
def test_reduce(left: DataFrame, placed: str) -> None:
    aggs = {
        "n": tm.count(), "nv": tm.count(col.v), "total": tm.sum(col.v * 2), "high": tm.max(col.x),
        "sd": tm.std(col.x), "corr": tm.covariance(col.x, col.v), "last": tm.last(col.v),
        "least": tm.arg_min(col.s, by=col.x), "any": tm.any(col.v > 40),
    }  # fmt: skip
    made = reduce_by_key(left, ["k", "s"], aggs, time="ts", detect="on")
    plain = reduce_by_key(left, ["k", "s"], aggs, time="ts", detect="off")
    assert made.schema.simpleString() == plain.schema.simpleString()
    assert bag(made) == bag(plain)
    own = left.groupBy("k", "s").agg(F.count("*").alias("n"), F.sum(F.col("v") * 2).alias("total"))
    assert bag(made.select("k", "s", "n", "total")) == bag(own)
    decision = decision_of(made)
    assert decision.slots is not None and decision.slots.count == 3
    assert len(set(decision.slots.host_of)) == (2 if placed == "hosts" else 3)
    assert 0 < decision.numbers["leaving"] < decision.numbers["entries"]


@pytest.mark.soak
def test_groups(left: DataFrame, placed: str) -> None:
    made = group_by_key(
        left, ["k"], [F.median("v").alias("m"), F.count("*").alias("n")], detect="on"
    )
    plain = left.groupBy("k").agg(F.median("v").alias("m"), F.count("*").alias("n"))
    assert bag(made) == bag(plain)


def test_groups_of_a_function(left: DataFrame) -> None:
    def spread(key: tuple[Any, ...], rows: pa.Table) -> pa.Table:
        assert "target" not in rows.column_names
        (k,) = key
        values = rows["x"].to_numpy()
        return pa.table(
            {"k": pa.array([k.as_py()], pa.int64()), "d": [values.max() - values.min()]}
        )

    made = group_by_key(left, ["k"], spread, "k long, d double", detect="on")
    plain = left.groupBy("k").agg((F.max("x") - F.min("x")).alias("d"))
    assert bag(made) == bag(plain)


@pytest.mark.soak
def test_colocated_rows_of_a_key_are_in_one_partition(left: DataFrame) -> None:
    made = colocate(left, ["s"], detect="on")
    assert bag(made) == bag(left)
    where = made.select("s", F.spark_partition_id().alias("p")).distinct()
    assert where.count() == left.select("s").distinct().count()


@pytest.fixture(scope="module")
def named(left: DataFrame) -> DataFrame:
    """Columns may have any name, also those that rows get on their way."""
    names = ["target", "cell", "to.low", "partition", "Hash"]
    return left.select("k", "s", "v", "x", "ts").toDF(*names).cache()


def test_groups_by_names_that_are_ours_too(named: DataFrame) -> None:
    most = F.max("cell").alias("TARGET")
    made = group_by_key(named, ["partition"], most, detect="on")
    assert made.columns == ["partition", "TARGET"]
    assert bag(made) == bag(named.groupBy("partition").agg(most))


@pytest.mark.parametrize("how", later("full_outer", "inner", "leftanti"))
def test_joins_by_names_that_are_ours_too(named: DataFrame, how: str) -> None:
    other = named.select("target", "cell", F.lit(1).alias("found")).where("target > 20")
    made = join(named, other, ["target", "cell"], how, detect="on")
    assert bag(made) == bag(named.join(other, ["target", "cell"], how))


def test_what_comes_out_of_a_limit_is_read_once(spark: Any, left: DataFrame) -> None:
    """Read again, it might be other rows."""
    some = left.orderBy(F.col("k") % 3).limit(100)
    assert not inputs.reads_only(some) and not inputs.reads_only(left.limit(5))
    made = group_by_key(some, ["k"], F.count("*").alias("n"), detect="on")
    assert sum(r.n for r in made.collect()) == 100
    now = left.withColumn("k", F.unix_timestamp(F.current_timestamp()))
    assert "might give other rows" in decision_of(group_by_key(now, ["k"], F.sum("v"), detect="on")).why


@pytest.mark.soak
def test_partitions_that_were_put_together_are_read_once(spark: Any) -> None:
    """Spark puts them together by where they are, which a cache changes when it is filled."""
    rows = spark.range(0, 4000, 1, 16).selectExpr("id div 300 AS k", "id v").cache()
    made = group_by_key(rows.coalesce(3), ["k"], F.count("*").alias("n"), detect="on")
    assert made.count() == 14 and not inputs.reads_only(rows.coalesce(3))
    rows.unpersist()


def test_a_star_is_the_columns_of_the_user(left: DataFrame) -> None:
    first = F.min(F.struct("*")).alias("least")
    made = group_by_key(left, ["k"], first, detect="on")
    assert made.schema == left.groupBy("k").agg(first).schema and "'*'" in decision_of(made).why


@pytest.mark.soak
def test_files_and_frames_of_nothing(spark: Any, left: DataFrame, tmp_path: Any) -> None:
    left.write.parquet(str(tmp_path / "rows"))
    files = spark.read.parquet(str(tmp_path / "rows"))
    none = spark.createDataFrame([], files.schema)
    for one, two, how in (
        (files, files, "inner"), (files, none, "full"), (none, files, "right"), (none, none, "full"),
    ):  # fmt: skip
        two = two.select("k", F.col("v").alias("w"))
        assert bag(join(one, two, ["k"], how, detect="on")) == bag(one.join(two, ["k"], how))
    assert reduce_by_key(none, ["k"], {"n": tm.count()}, detect="on").collect() == []


def test_nothing_stays_behind(spark: Any, left: DataFrame, right: DataFrame) -> None:
    """Neither what was kept while it was found out where rows go, nor settings."""
    kept = lambda: {int(i) for i in spark.sparkContext._jsc.getPersistentRDDs()}
    names = ("spark.sql.adaptive.enabled", "spark.sql.leafNodeDefaultParallelism")
    assert left.count() and right.count()  # they are cached when they are first read
    before = kept(), [spark.conf.get(n, None) for n in names]
    assert join(left, right, ["k"], detect="on").count()
    with pytest.raises(UserError, match="inputs whose partitions are on hosts that Spark knows"):
        join(spark.range(5).toDF("k"), spark.range(9).toDF("k"), ["k"], detect="on", by="host")
    # Nothing is there that was not there before; what earlier tests left to the collector may go.
    assert kept() <= before[0] and [spark.conf.get(n, None) for n in names] == before[1]


def test_placements_say_what_is_wrong(spark: Any) -> None:
    pages = [(i, [(i * 7) % 20, (i + 1) % 20]) for i in range(20)]
    links = spark.createDataFrame(pages, "p int, o array<int>")
    placed = place(links.repartitionById(4, F.col("p") % 4), ["p"], detect="on")
    pushed = placed.rows.select(F.explode("o").alias("p"))
    with pytest.raises(UserError, match="known_to"):
        placed.reduce(pushed, {"n": tm.count()})
    with pytest.raises(UserError, match="a frame made from placement"):
        placed.known_to(pushed.repartition(3))
    made = placed.known_to(pushed).reduce(pushed, {"n": tm.count()})
    assert bag(made.select("p", "n")) == bag(pushed.groupBy("p").agg(F.count("*").alias("n")))
    assert placed.join(made).count() == made.count()
    placed.release()


def test_zeros_and_nans_are_one_key(spark: Any) -> None:
    rows = [(0.0, 1), (-0.0, 2), (float("nan"), 4), (-float("nan"), 8), (1.5, 16), (None, 32)]
    df = spark.createDataFrame(rows, "f double, v long").repartitionById(6, F.col("v").cast("int"))
    made = reduce_by_key(df, ["f"], {"t": tm.sum(col.v)}, detect="on")
    assert sorted(r.t for r in made.collect()) == [3, 12, 16, 32]


@pytest.mark.soak
def test_an_input_that_is_shuffled_below_is_read_as_it_was(spark: Any, left: DataFrame) -> None:
    """Spark chooses the partitions of a shuffle while it runs; the second reading has those of the first."""
    counted = left.groupBy("k", "v").count()
    made = group_by_key(counted, ["k"], F.sum("count").alias("n"), detect="on")
    assert bag(made) == bag(left.groupBy("k").agg(F.count("*").alias("n")))


def test_an_overflow_fails(spark: Any) -> None:
    df = spark.createDataFrame([(1, 2**62), (1, 2**62)], "k long, v long").repartitionById(
        2, F.lit(1)
    )
    with pytest.raises(Exception, match="overflow"):
        reduce_by_key(df, ["k"], {"t": tm.sum(col.v)}, detect="on").collect()


def test_what_is_refused(spark: Any, left: DataFrame, right: DataFrame) -> None:
    mapped = left.select("k", F.create_map("s", "v").alias("m"))
    for fail, expected in (
        (lambda: reduce_by_key(mapped, ["m"], {"n": tm.count()}), "a key 'm' that can be hashed, got map"),
        (lambda: reduce_by_key(left, [], {"n": tm.count()}), "names of key columns, got none"),
        (lambda: reduce_by_key(left, ["nope"], {"n": tm.count()}), "a key column 'nope', got columns"),
        (lambda: reduce_by_key(left, ["k"], {}), "at least one aggregate"),
        (lambda: reduce_by_key(left, ["k"], {"n": F.count("*")}), "an aggregate such as tm.sum"),
        (lambda: reduce_by_key(left, ["k"], {"k": tm.count()}), "a name not taken by the keys"),
        (lambda: reduce_by_key(left, ["k"], {"l": tm.last(col.v)}), "time=, the column that orders rows"),
        (lambda: reduce_by_key(left, ["k"], {"s": tm.sum(col.nope)}), "a column of"),
        (lambda: reduce_by_key(left, ["k"], {"n": tm.count()}, detect="yes"), "detect= one of auto, on, off"),
        (lambda: reduce_by_key(left, ["k"], {"n": tm.count()}, detect="on", by="rack"), "by= one of"),
        (lambda: group_by_key(left, ["k"], lambda t: t), "schema= of what the function returns"),
        (lambda: join(left, right, ["k"], "cross"), "how= one of inner, left"),
        (lambda: join(left, right, left["k"] == right["k"]), "the names of key columns, which both sides"),
        (lambda: group_by_key(left, ["k"], tm.count()), "aggregates of Spark's, such as F.median"),
        (lambda: group_by_key(left, ["k"], "count"), "aggregates of Spark's, such as F.median"),
        (lambda: join(left, right.select(F.col("s").alias("k")), ["k"]), "keys 'k' of one type on both"),
    ):  # fmt: skip
        with pytest.raises(UserError) as refused:
            fail()
        assert expected in str(refused.value)
    with pytest.raises(UnsupportedError, match="use group_by_key"):
        reduce_by_key(left, ["k"], {"m": tm.median(col.v)})


def test_where_equal_keys_could_part_nothing_is_detected(spark: Any, left: DataFrame) -> None:
    random = left.withColumn("r", F.rand())
    made = reduce_by_key(random, ["k"], {"n": tm.count()}, detect="on")
    assert "might give other rows" in decision_of(made).why
    nested = left.select(F.struct("x").alias("k"), "v")
    assert "0.0 equals -0.0" in decision_of(group_by_key(nested, ["k"], F.sum("v"), detect="on")).why


def test_a_report_has_what_travelled_and_why(spark: Any, left: DataFrame, right: DataFrame) -> None:
    with report(spark) as seen:
        joined = join(left, right, ["k"], detect="on")
        joined.count()
        reduce_by_key(left, ["s"], {"n": tm.count()}).collect()
    first, second = seen.exchanges
    assert first.detects and not second.detects and "on one host" in second.why
    assert seen.traffic.remote_bytes == 0 and seen.traffic.local_bytes > seen.filter_bytes > 0
    text = str(seen)
    for part in (
        "join inner",
        "bits a key",
        "share of buckets in use",
        "would have travelled",
        "hashes",
    ):
        assert part in text
    assert set(seen.phases()) >= {"hashes", "filter", "rows"}
    assert len(seen.plot().axes) == 2
    assert "filter:" in explain(joined)
    with pytest.raises(UserError, match="a DataFrame returned by an exchange"):
        explain(left)


def test_how_many_buckets_a_plan_lists_is_a_setting(spark: Any) -> None:
    assert most_listed(spark) == 200
    with setting(spark, LISTED, "7"):
        assert most_listed(spark) == 7
    with (
        setting(spark, LISTED, "some"),
        pytest.raises(UserError, match=r"spark\.tidemill\.exchange\.listed as a number .* got 'some'"),
    ):
        most_listed(spark)
