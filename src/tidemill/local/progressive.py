"""Progressive queries: the answer over a growing part of the data, while all of it is read once.

A graph of operators reads the inputs as `run` does. At some points it is asked for what the end of its
inputs would return now (`Graph.so_far`). Together with the windows that have closed, that is the answer over
the rows so far. Closed windows are computed once, so a report costs what is open.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import Any

import pyarrow as pa

from tidemill.core.forks import in_one_process
from tidemill.core.time import BEGINNING, FOREVER
from tidemill.io.chunks import Chunk, earliest
from tidemill.local.graph import Graph
from tidemill.local.progress_report import ProgressReport, points, require_count
from tidemill.local.run import open_inputs, require_none_late, table_of
from tidemill.local.run_graph import rounds
from tidemill.local.tuning import DEFAULT, Tuning
from tidemill.plan.faults import check_inputs
from tidemill.plan.nodes import Plan, Source, WheelWindows


def progressive(
    plan: Plan, inputs: Mapping[str, Any], reports: int = 20, *, tuning: Tuning = DEFAULT
) -> Iterator[ProgressReport]:
    """Run a plan, and yield the answers over the first rows of its inputs; the last one is over all rows.

    A forked child process cannot continue the iteration.
    """
    require_count(reports)
    check_inputs(plan, inputs)
    return in_one_process(_progressive(plan, inputs, reports, tuning), "progressive")


def _progressive(
    plan: Plan, inputs: Mapping[str, Any], reports: int, tuning: Tuning
) -> Iterator[ProgressReport]:
    opened = open_inputs(plan, inputs, tuning)
    graph, known = opened.graph, [n for n in opened.rows.values() if n is not None]
    # The windows of a wheel are not counted, so with one of them there is no total.
    total = sum(known) if len(known) == len(opened.chunks) else None
    cuts = _Cuts(points(reports, total), total, opened.threads, tuning.few_divided)
    chunks = {name: cuts.cut(given, graph.sources[name]) for name, given in opened.chunks.items()}
    read = dict.fromkeys(chunks, 0)
    last: dict[str, Chunk] = {}
    closed: list[pa.RecordBatch] = []
    many_open = False
    with closing(rounds(graph, chunks, opened.threads)) as all_rounds:
        for one in all_rounds:
            closed += one.results
            if one.chunk is None:
                last.pop(one.input, None)
                continue
            last[one.input] = one.chunk
            read[one.input] += one.chunk.batch.num_rows
            rows = sum(read.values())
            if rows not in cuts.due:
                continue
            if many_open:
                closed += _complete(graph, last)
            open_now = graph.so_far()
            many_open = sum(batch.num_rows for batch in open_now) > tuning.many_open
            fraction = None if total is None else rows / total
            yield ProgressReport(_answer(graph, [*closed, *open_now]), fraction, False, dict(read))
    yield ProgressReport(_answer(graph, closed), 1.0, True, read)


def _complete(graph: Graph, last: Mapping[str, Chunk]) -> Iterator[pa.RecordBatch]:
    """Close the windows that are complete after the last chunks of some inputs.

    To know which, all times of a table are read once. So this is not done while few windows are open: they
    are computed for each report instead.
    """
    for name, chunk in last.items():
        if BEGINNING < (below := chunk.complete_below) < FOREVER:
            yield from graph.advance(name, below, prompt=True)


def _answer(graph: Graph, batches: list[pa.RecordBatch]) -> pa.Table:
    require_none_late(graph)
    return table_of(batches, graph.plan.schema.to_arrow(), {"before_start": graph.before_start})


class _Cuts:
    """Cuts chunks where reports come, counted over all inputs in the order in which they are read.

    Where a chunk ends near a point, the report comes there: fewer pieces are read faster. A report waits for
    all threads, so the rows before it are divided among them.
    """

    def __init__(self, points: Iterable[int], total: int | None, threads: int, few: int) -> None:
        self._points, self._total, self._threads, self._few = deque(points), total, threads, few
        self._read = self._last = 0
        self.due: set[int] = set()
        """The numbers of rows after which a report comes."""

    def cut(self, chunks: Iterable[Chunk], leaf: Source | WheelWindows) -> Iterator[Chunk]:
        for chunk in chunks:
            rows, start = chunk.batch.num_rows, 0
            while (size := self._size(rows - start)) < rows - start and isinstance(leaf, Source):
                self._reached(size)
                start += size
                rest = chunk.batch.slice(start)
                yield Chunk(chunk.batch.slice(start - size, size), partial(_before, rest, chunk, leaf))
            self._reached(rows - start)
            yield Chunk(chunk.batch.slice(start), chunk.promise) if start else chunk

    def _size(self, rows: int) -> int:
        """How many of the next rows of a chunk to push at once."""
        if not self._points:
            return rows
        left, share = self._points[0] - self._read, (self._points[0] - self._last) // self._threads
        size = rows if rows <= left + left // 4 else left
        return share if self._few <= share < size - size // 4 else size

    def _reached(self, rows: int) -> None:
        self._read += rows
        if self._points and self._read > self._points[0] - 1 - (self._points[0] - self._last) // 8:
            self._points.popleft()
            while self._points and self._points[0] <= self._read:
                self._points.popleft()
            if self._read != self._total:
                self.due.add(self._read)
            self._last = self._read


def _before(rest: pa.RecordBatch, chunk: Chunk, source: Source) -> int:
    """The watermark within a chunk, before the rest of its rows."""
    after = chunk.complete_below
    return after if after == BEGINNING else min(after, earliest(rest, source))
