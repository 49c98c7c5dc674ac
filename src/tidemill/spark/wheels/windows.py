"""Answer the windows of a query from a wheel as a DataFrame; buckets of a store are read in parallel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidemill.aggregates.algebra import Aggregate
from tidemill.plan.nodes import WheelWindows
from tidemill.spark.expr.schemas import user_schema
from tidemill.spark.workers import Batches, Task, map_batches
from tidemill.wheels.files.buckets import BUCKETS, open_bucket
from tidemill.wheels.queries import WheelQueries
from tidemill.wheels.query_windows import read_windows
from tidemill.wheels.wheel_store import WheelStore


def where_answered(plan: WheelWindows, wheel: WheelQueries) -> str:
    """Describe which processes read the wheel, for `explain`."""
    return "each bucket by a task" if _in_buckets(plan, wheel) else "by the driver"


def wheel_frame(spark: SparkSession, plan: WheelWindows, wheel: WheelQueries) -> DataFrame:
    """The windows that a plan asks of a wheel, as a DataFrame."""
    schema = user_schema(plan.schema)
    if isinstance(wheel, WheelStore) and _in_buckets(plan, wheel):
        task = _answering(str(wheel.path), wheel.description, wheel.given, plan, wheel.verify)
        buckets = sorted(map(int, wheel.description[BUCKETS]["saves"]))
        numbers = spark.createDataFrame([(b,) for b in buckets], "bucket int")
        return map_batches(numbers.repartitionById(max(1, len(buckets)), "bucket"), task, schema)
    found = pa.Table.from_batches(
        [chunk.batch for chunk in wheel.read_windows(plan)], schema=plan.schema.to_arrow()
    )
    return spark.createDataFrame(found, schema)


def _in_buckets(plan: WheelWindows, wheel: WheelQueries) -> bool:
    # Windows that end with the last row of all keys cannot be computed by bucket.
    return isinstance(wheel, WheelStore) and not any(w.spec.until_end for w in plan.windows)


def _answering(
    path: str, facts: Mapping[str, Any], given: Mapping[str, Aggregate], plan: WheelWindows, verify: bool
) -> Task:
    """A task that takes numbers of buckets and yields their windows."""

    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for bucket in batch.column(0).to_pylist():
                wheel = open_bucket(Path(path), facts, given, bucket, verify=verify)
                yield from (chunk.batch for chunk in read_windows(plan, wheel))

    return task
