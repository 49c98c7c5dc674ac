"""Tables in the memory of a cluster, part i on host i modulo their number: so it is known what is where.

Who asks Spark to read files gets the parts on whichever host was free. Here each task says where it wants to
run, reads its part with pyarrow, and leaves it in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.exchange.cluster import Cluster


def load(cluster: Cluster, folder: Path) -> Any:
    """A cached DataFrame of the parts in a folder; all are in memory, and evenly spread."""
    paths = sorted(folder.glob("part-*.parquet"), key=lambda p: int(p.stem.split("-")[1]))
    assert paths, f"no parts in {folder}"
    schema = _schema(pq.read_schema(paths[0]))

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path in batch.column(0).to_pylist():
                for found in pq.ParquetFile(path).iter_batches(batch_size=1 << 16):
                    yield pa.RecordBatch.from_arrays(
                        [column.cast(kind) for column, kind in zip(found.columns, schema.types)],
                        schema=schema,
                    )

    from pyspark.sql.pandas.types import from_arrow_schema

    df = _at_hosts(cluster, [str(p) for p in paths]).mapInArrow(read, from_arrow_schema(schema))
    df = df.cache()
    df.count()
    if not cluster.is_local:
        expected = [cluster.hosts[i % len(cluster.hosts)] for i in range(len(paths))]
        found = where(df)
        assert found == expected, f"parts are on {found}, not on {expected}"
    return df


def where(df: Any) -> list[str]:
    """The host that holds each partition of a cached DataFrame."""
    spark = df.sparkSession
    sc = spark.sparkContext._jsc.sc()
    manager = spark._jsparkSession.sharedState().cacheManager()
    cached = manager.lookupCachedData(df._jdf)
    assert cached.isDefined(), "not a cached DataFrame"
    rdd = cached.get().cachedRepresentation().cacheBuilder().cachedColumnBuffers()
    hosts = []
    for i in range(rdd.getNumPartitions()):
        found = sc.getPreferredLocs(rdd, i)
        assert found.size() == 1, f"partition {i} is on {found.size()} hosts"
        hosts.append(found.apply(0).host())
    return hosts


def _at_hosts(cluster: Cluster, values: list[str]) -> Any:
    """A DataFrame with one value in each partition, which wants to be on its host."""
    from pyspark.sql import DataFrame

    spark = cluster.spark
    jvm = spark.sparkContext._jvm
    pairs = jvm.java.util.ArrayList()
    for i, value in enumerate(values):
        hosts = jvm.java.util.ArrayList()
        if not cluster.is_local:
            hosts.add(cluster.hosts[i % len(cluster.hosts)])
        pairs.add(jvm.scala.Tuple2(value, _seq(jvm, hosts)))
    tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("java.lang.String"))
    rdd = spark.sparkContext._jsc.sc().makeRDD(_seq(jvm, pairs), tag)
    strings = spark._jsparkSession.createDataset(rdd, jvm.org.apache.spark.sql.Encoders.STRING())
    return DataFrame(strings.toDF(), spark)


def _seq(jvm: Any, found: Any) -> Any:
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(found).toList()


def _schema(found: pa.Schema) -> pa.Schema:
    """As Spark takes it: without views."""
    views = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return pa.schema([(f.name, views.get(f.type, f.type)) for f in found])
