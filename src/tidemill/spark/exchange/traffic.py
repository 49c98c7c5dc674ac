"""Measure the bytes that jobs move between tasks and hosts, by Spark's shuffle metrics.

Spark keeps the metrics of each stage even without its web UI. The jobs of a block are identified by a job tag
of the calling thread, which threads that Spark starts for it inherit: so blocks may be nested, and jobs of
other threads do not count.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import SparkSession

from tidemill.spark.private import require_classic, stages_of


@dataclass(frozen=True)
class StageTraffic:
    """A stage, with all its attempts. Bytes are counted as sent: serialized and compressed."""

    id: int
    name: str
    seconds: float
    """From its start to its end. Stages may run at the same time."""
    remote_bytes: int
    """Read from shuffles, from executors on other hosts."""
    local_bytes: int
    """Read from shuffles, on the same host."""
    written_bytes: int
    """Written to shuffles, for later stages to read."""
    records: int
    """Rows written to shuffles."""
    result_bytes: int
    """Sent to the driver as results of tasks."""
    wait_seconds: float = 0.0
    """Seconds that tasks waited for shuffle data, summed over tasks."""

    def __repr__(self) -> str:
        return (
            f"stage {self.id}: {self.seconds:.2f} s, {_moved(self)},"
            f" {readable_size(self.result_bytes)} to the driver ({self.name})"
        )


@dataclass(frozen=True)
class Traffic:
    """The result of `traffic`. It is empty until the block has ended."""

    stages: tuple[StageTraffic, ...] = ()

    @property
    def remote_bytes(self) -> int:
        """Bytes sent between hosts."""
        return self._sum(lambda s: s.remote_bytes)

    @property
    def local_bytes(self) -> int:
        return self._sum(lambda s: s.local_bytes)

    @property
    def written_bytes(self) -> int:
        return self._sum(lambda s: s.written_bytes)

    @property
    def records(self) -> int:
        return self._sum(lambda s: s.records)

    @property
    def result_bytes(self) -> int:
        return self._sum(lambda s: s.result_bytes)

    def _sum(self, of: Callable[[StageTraffic], int]) -> int:
        return sum(map(of, self.stages))

    def __repr__(self) -> str:
        total = (
            f"{_moved(self)}, {self.records:,} rows in shuffles,"
            f" {readable_size(self.result_bytes)} to the driver, {len(self.stages)} stages"
        )
        return "\n".join([total, *(f"  {stage!r}" for stage in self.stages)])


@contextmanager
def traffic(spark: SparkSession) -> Iterator[Traffic]:
    """Measure the jobs that a `with` block starts.

    Example::

        with traffic(spark) as seen:
            df.groupBy("k").count().collect()
        print(seen.remote_bytes, seen.local_bytes)

    It does not include what Spark does not count: broadcasts, and local traffic with Python workers.
    """
    require_classic("traffic", spark)
    tag = f"traffic-{uuid.uuid4().hex}"
    seen = Traffic()
    spark.sparkContext.addJobTag(tag)
    try:
        yield seen
    finally:
        spark.sparkContext.removeJobTag(tag)
    # The dataclass is frozen for users; only this line fills it in.
    object.__setattr__(seen, "stages", tuple(StageTraffic(**metrics) for metrics in stages_of(spark, tag)))


def _moved(what: StageTraffic | Traffic) -> str:
    return (
        f"{readable_size(what.remote_bytes)} remote, {readable_size(what.local_bytes)} local,"
        f" {readable_size(what.written_bytes)} written"
    )


def readable_size(bytes: int) -> str:
    """Format a number of bytes with a unit.

    >>> readable_size(940), readable_size(57_800_000)
    ('940 B', '57.8 MB')
    """
    value = float(bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            break
        value /= 1000
    return f"{value:.3g} {unit}"
