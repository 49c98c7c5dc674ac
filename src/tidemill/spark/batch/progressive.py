"""Progressive queries on Spark: partials of a few partitions at a time, and answers over those so far.

Spark aggregates each partition of the input where it is, once, as for panes (`windows`), and sends the
partials to the driver. There a graph of operators adds them up; what it would return at the end is a report.
The jobs of the next partitions run meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession

from tidemill.core.batch import conform
from tidemill.core.errors import UnsupportedError
from tidemill.local.graph import Graph
from tidemill.local.partial_batches import add_partial_batch
from tidemill.local.progress_report import ProgressReport, points
from tidemill.local.window_operator import WindowOperator
from tidemill.plan.nodes import Plan, Source, WheelWindows, WindowAggregate
from tidemill.plan.stages import stage_of
from tidemill.spark.batch.blocks import Blocks
from tidemill.spark.batch.run import Leaf, frame_of
from tidemill.spark.batch.windows import partials_in_place, strategy
from tidemill.spark.private import Partitions
from tidemill.spark.settings import ansi, files_in

AHEAD = 2
"""Partitions that are asked for in advance, for each core; there are at least as many."""
MOST_JOBS = 16


@dataclass(frozen=True)
class _Feed:
    """A frame whose partitions are read one after the other, and what the driver does with its rows."""

    partitions: Partitions
    operator: WindowOperator | None = None
    """Adds up partials; None if rows are results."""
    blocks: Blocks | None = None

    def read(self, start: int, end: int) -> list[pa.RecordBatch]:
        return self.partitions.read(range(start, end)) if start < end else []

    def add(self, rows: pa.RecordBatch) -> None:
        """Add partials to those of earlier partitions."""
        assert self.operator is not None
        for some in (rows,) if self.blocks is None else self.blocks.partials(rows):
            add_partial_batch(self.operator, some)


def progressive(plan: Plan, leaf: Leaf, spark: SparkSession, reports: int) -> Iterator[ProgressReport]:
    """Yield the answers over the first partitions of the inputs; the last one is over all of them.

    `leaf` returns the frames of streams; `require_partials` accepts the plan.
    """
    cores = spark.sparkContext.defaultParallelism
    graph = Graph(plan)
    with ansi(spark), files_in(spark, max(reports, AHEAD * cores)):
        feeds = _feeds(graph, leaf)
    counts = [feed.partitions.count for feed in feeds]
    total = max(counts)
    ends = (*points(reports, total), total)
    results: list[pa.RecordBatch] = []
    with ThreadPoolExecutor(min(MOST_JOBS, AHEAD * cores)) as pool:
        parts = deque((end, [_scaled(end, n, total) for n in counts]) for end in ends)
        coming: deque[tuple[int, list[int], list[Future[list[pa.RecordBatch]]]]] = deque()
        read, asked, before = 0, 0, [0] * len(feeds)
        try:
            while parts or coming:
                while parts and (not coming or asked - read < AHEAD * cores):
                    asked, after = parts.popleft()
                    jobs = [
                        pool.submit(inheritable_thread_target(spark)(feed.read), start, end)
                        for feed, start, end in zip(feeds, before, after)
                    ]
                    coming.append((asked, after, jobs))
                    before = after
                read, done, jobs = coming.popleft()
                for feed, job in zip(feeds, jobs):
                    for batch in job.result():
                        if feed.operator is None:
                            results.append(conform(batch, plan.schema, step="progressive"))
                        elif batch.num_rows:
                            feed.add(batch)
                table = pa.Table.from_batches([*results, *graph.so_far()], schema=plan.schema.to_arrow())
                fraction = read / total if total else 1.0
                yield ProgressReport(table, fraction, read == total, partitions=sum(done))
        finally:
            for job in (job for _, _, jobs in coming for job in jobs):
                job.cancel()


def _scaled(part: int, count: int, total: int) -> int:
    """How many partitions of an input to read by the time that the longest one has come so far."""
    return part * count // total if total else 0


def _feeds(graph: Graph, leaf: Leaf) -> list[_Feed]:
    operators = [s.operator for s in graph.steps if isinstance(s.operator, WindowOperator)]
    if not operators:
        return [_Feed(Partitions(frame_of(graph.plan, leaf)))]
    feeds = []
    for operator in operators:
        if _is_lowest(operator.plan):
            base = frame_of(stage_of(operator.plan.input).base, leaf)
            frame, blocks = partials_in_place(operator.plan, base)
            feeds.append(_Feed(Partitions(frame), operator, blocks))
    return feeds


def require_partials(plan: Plan) -> None:
    """Raise an error if a plan has no partials that Spark can make of any few partitions."""
    windows = [node for node in plan.walk() if isinstance(node, WindowAggregate)]
    for node in plan.walk():
        if isinstance(node, WheelWindows):
            _refuse(f"windows of the wheel {node.stream} progressively", "a wheel answers at once: use run()")
    for window in windows:
        chosen = strategy(window)
        if _is_lowest(window) and chosen.name == "colocated":
            specs = ", ".join(str(w.spec) for w in window.windows)
            _refuse(
                f"{specs} progressively: {chosen.why}, so there are no partials of some partitions",
                "use run(), or query.progressive(...) in this process",
            )
    if windows and _has_rows_beside(plan):
        _refuse(
            "a union of rows and of windows progressively", "ask for both apart, or use run()",
        )  # fmt: skip


def _refuse(what: str, instead: str) -> None:
    raise UnsupportedError("spark", what, instead=instead)


def _is_lowest(window: WindowAggregate) -> bool:
    return not any(isinstance(node, WindowAggregate) for node in window.input.walk())


def _has_rows_beside(plan: Plan) -> bool:
    """Whether a stream is read without a window."""
    if isinstance(plan, WindowAggregate):
        return False
    return isinstance(plan, Source) or any(map(_has_rows_beside, plan.children()))
