"""What the jobs of a block moved between tasks and hosts, by Spark's own shuffle metrics.

Spark keeps them for each stage, also without its web page. Jobs of a block are told from others by a tag
that the calling thread gives them, and that the threads which Spark starts for it hand on: so blocks may be
nested, and other threads' jobs do not count.
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
    """One stage with the attempts to run it. Bytes are as they travel: serialized and compressed."""

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
    """That tasks waited for shuffles, all together."""

    def __repr__(self) -> str:
        return (
            f"stage {self.id}: {self.seconds:.2f} s, {_moved(self)},"
            f" {readable_size(self.result_bytes)} to the driver ({self.name})"
        )


@dataclass(frozen=True)
class Traffic:
    """What `traffic` saw. It is empty until the block has ended."""

    stages: tuple[StageTraffic, ...] = ()

    @property
    def remote_bytes(self) -> int:
        """Bytes that went from host to host."""
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
    """Watch the jobs that the block starts.

    Example::

        with traffic(spark) as seen:
            df.groupBy("k").count().collect()
        print(seen.remote_bytes, seen.local_bytes)

    What Spark does not count is not in it: broadcasts, and Python's traffic with its own machine.
    """
    require_classic("traffic", spark)
    tag = f"traffic-{uuid.uuid4().hex}"
    seen = Traffic()
    spark.sparkContext.addJobTag(tag)
    try:
        yield seen
    finally:
        spark.sparkContext.removeJobTag(tag)
    # Frozen for whoever holds it; filled in once, here.
    object.__setattr__(seen, "stages", tuple(StageTraffic(**metrics) for metrics in stages_of(spark, tag)))


def _moved(what: StageTraffic | Traffic) -> str:
    return (
        f"{readable_size(what.remote_bytes)} remote, {readable_size(what.local_bytes)} local,"
        f" {readable_size(what.written_bytes)} written"
    )


def readable_size(bytes: int) -> str:
    """Bytes in words.

    >>> readable_size(940), readable_size(57_800_000)
    ('940 B', '57.8 MB')
    """
    value = float(bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            break
        value /= 1000
    return f"{value:.3g} {unit}"
