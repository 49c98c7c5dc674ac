"""Results of Spark queries as files, which tasks write, and as frames and files of the driver."""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemill.core.batch import conform
from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.io.sinks import require_plain
from tidemill.spark.expr.values import interval_micros, named

_CSV = {
    "header": "true", "timeZone": "UTC", "timestampFormat": "yyyy-MM-dd HH:mm:ss.SSSSSS'Z'", "escape": '"',
    "emptyValue": '""', "nullValue": "",
}  # fmt: skip
"""As the local engine writes CSV: instants in UTC, null as an empty field, an empty string in quotes."""


def as_table(df: DataFrame, schema: Schema) -> pa.Table:
    """Fetch a result, in the types that it has in process."""
    table = df.toArrow()
    batches = [conform(batch, schema, step="run") for batch in table.to_batches()]
    return pa.Table.from_batches(batches, schema.to_arrow())


def write_parquet(df: DataFrame, path: str | os.PathLike[str], overwrite: bool) -> int:
    """Have tasks write a directory of Parquet files, and return the number of rows."""
    return _written(df, path, "parquet", {}, overwrite)


def write_csv(df: DataFrame, path: str | os.PathLike[str], overwrite: bool) -> int:
    """Have tasks write a directory of CSV files with headers, and return the number of rows."""
    nested = [f.name for f in df.schema.fields if isinstance(f.dataType, (T.ArrayType, T.StructType))]
    require_plain(nested)
    columns = [
        (interval_micros(named(f.name)) if isinstance(f.dataType, T.DayTimeIntervalType) else named(f.name))
        .alias(f.name)
        for f in df.schema.fields
    ]
    return _written(df.select(*columns), path, "csv", _CSV, overwrite)


def _written(
    df: DataFrame, path: str | os.PathLike[str], format: str, options: dict[str, Any], overwrite: bool
) -> int:
    rows = Observation()
    writer = df.observe(rows, F.count(F.lit(1)).alias("rows")).write.format(format).options(**options)
    try:
        writer.mode("overwrite" if overwrite else "error").save(os.fspath(path))
    except AnalysisException as failed:
        if failed.getCondition() != "PATH_ALREADY_EXISTS":
            raise
        raise UserError(
            f"write {format}", expected="a path where nothing is", got=os.fspath(path),
            hint="overwrite=True replaces it",
        ) from failed  # fmt: skip
    return int(rows.get["rows"])
