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
from tidemill.spark import private


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

    known = [None] if cluster.is_local else cluster.hosts
    wanted = [known[i % len(known)] for i in range(len(paths))]
    parts = private.texts_at(cluster.spark, [str(p) for p in paths], wanted)
    df = parts.mapInArrow(read, from_arrow_schema(schema)).cache()
    df.count()
    if not cluster.is_local:
        found = private.partition_hosts(df)
        assert found == wanted, f"parts are on {found}, not on {wanted}"
    return df


def _schema(found: pa.Schema) -> pa.Schema:
    """As Spark takes it: without views."""
    views = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return pa.schema([(f.name, views.get(f.type, f.type)) for f in found])
