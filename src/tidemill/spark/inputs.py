"""Frames of inputs that are not Spark's: files, which tasks read, and data in the memory of the driver."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidemill.io.chunks import SIZES
from tidemill.io.data import Data, is_spark
from tidemill.io.files import Part, files_at, open_part, open_path
from tidemill.io.schemas import schema_of_frame
from tidemill.io.sources import open_source
from tidemill.io.stored_files import StoredFile
from tidemill.plan.nodes import Source
from tidemill.spark.expr.schemas import user_schema
from tidemill.spark.workers import Batches, map_batches

_PART = "part"
_MOST = 1000
"""Tasks that read the files of an input."""


def data_of(value: Any) -> Data | None:
    """Return the data of an input that is no frame of Spark's: a path, or data in memory; None for others."""
    if isinstance(value, Data):
        return value
    if isinstance(value, (str, os.PathLike)) or (not is_spark(value) and schema_of_frame(value) is not None):
        return Data(value, type(value).__name__)
    return None


def frame_of_data(spark: SparkSession, data: Data, source: Source) -> DataFrame:
    """Return the columns of a stream that a query needs, in its types, as a frame.

    Files are read by tasks, with the reader of the local engine, so that every value is read in the same way;
    a task reads a file, or a row group of Parquet. All executors must see the files at the same path.
    """
    value = data.value
    if isinstance(value, DataFrame):
        return value
    if isinstance(value, (str, os.PathLike)):
        return _of_files(spark, os.fspath(value), data.system, source)
    chunks = open_source(data, source, promises=False)
    table = pa.Table.from_batches([chunk.batch for chunk in chunks], source.schema.to_arrow())
    return spark.createDataFrame(table)


def _of_files(spark: SparkSession, path: str, system: Any, source: Source) -> DataFrame:
    source = replace(source, held=None)  # which tasks would get
    open_path(path, source, SIZES, system)  # what can be known to be wrong is said now
    files, kind = files_at(path, f"run {source.name}", system)
    parts = [Part(file.absolute(), kind, group) for file in files for group in _groups(file, kind)]
    numbers = spark.createDataFrame([(at,) for at in range(len(parts))], f"{_PART} int")

    def read(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for at in batch.column(_PART).to_pylist():
                for chunk in open_part(parts[at], source, SIZES):
                    yield chunk.batch

    return map_batches(numbers.repartition(min(len(parts), _MOST)), read, user_schema(source.schema))


def _groups(file: StoredFile, kind: str) -> list[int] | list[None]:
    """Return the numbers of the row groups of a Parquet file; None for a file that is read as one."""
    if kind != "Parquet":
        return [None]
    import pyarrow.parquet as pq

    with file.open() as opened:
        return list(range(pq.read_metadata(opened).num_row_groups)) or [None]
