"""Frames of inputs that are not Spark's: files, which tasks read, and data in the memory of the driver."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidemill.io.data import Data
from tidemill.io.files import files_at
from tidemill.io.sources import open_source
from tidemill.plan.nodes import Source
from tidemill.spark.expr.schemas import user_schema
from tidemill.spark.workers import Batches, map_batches

_FILE, _GROUP = "file", "group"
_MOST = 1000
"""Tasks that read the files of an input."""


def frame_of_data(spark: SparkSession, data: Data, source: Source) -> DataFrame:
    """Return the columns of a stream that a query needs, in its types, as a frame.

    Files are read by tasks, with the reader of the local engine, so that every value is read in the same way;
    a task reads a file, or a row group of Parquet. All executors must see the files at the same path.
    """
    value = data.value
    if isinstance(value, DataFrame):
        return value
    if isinstance(value, (str, os.PathLike)):
        return _of_files(spark, os.fspath(value), source)
    chunks = open_source(data, source, promises=False)
    table = pa.Table.from_batches([chunk.batch for chunk in chunks], source.schema.to_arrow())
    return spark.createDataFrame(table)


def _of_files(spark: SparkSession, path: str, source: Source) -> DataFrame:
    source = replace(source, held=None)  # which tasks would get
    open_source(path, source)  # what can be known to be wrong is said now
    files, kind = files_at(path, f"run {source.name}")
    parts = [(str(file.resolve()), group) for file in files for group in _groups(file, kind)]
    units = spark.createDataFrame(parts, f"{_FILE} string, {_GROUP} int").repartition(min(len(parts), _MOST))

    def read(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for unit in batch.to_pylist():
                for chunk in open_source(_part(unit[_FILE], unit[_GROUP]), source, promises=False):
                    yield chunk.batch

    return map_batches(units, read, user_schema(source.schema))


def _groups(file: Path, kind: str) -> list[int]:
    """Return the numbers of the row groups of a Parquet file; -1 for a file that is read as one."""
    if kind != "Parquet":
        return [-1]
    import pyarrow.parquet as pq

    return list(range(pq.read_metadata(file).num_row_groups)) or [-1]


def _part(file: str, group: int) -> Any:
    """Return what is read of a file: all of it, or a row group."""
    if group < 0:
        return file
    import pyarrow.dataset as ds

    [fragment] = ds.dataset(file, format="parquet").get_fragments()
    one = fragment.subset(row_group_ids=[group])
    return ds.FileSystemDataset([one], one.physical_schema, one.format, one.filesystem)
