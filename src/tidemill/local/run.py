"""The local engine: read chunks of sources and push them through a graph of operators."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tidemill.core.forks import in_one_process
from tidemill.core.threads import threads
from tidemill.io.chunks import SIZES, Chunk, ChunkSizes
from tidemill.io.progress import shown
from tidemill.io.sources import open_source
from tidemill.io.window_source import WindowSource
from tidemill.jit.modes import on_few_rows
from tidemill.local.divided_run import DividedPlan, parts_of
from tidemill.local.graph import Graph
from tidemill.local.run_graph import run_graph
from tidemill.local.tuning import DEFAULT, Tuning
from tidemill.optimize.optimizer import with_wheels
from tidemill.plan.faults import broken_promise, check_inputs
from tidemill.plan.nodes import Plan, WheelWindows, WindowAggregate, leaves_of
from tidemill.plan.temporal import Temporal

AS_THEY_COME = replace(SIZES, small=1)
"""Chunks are not joined: someone waits for their results."""


def run(
    plan: Plan, inputs: Mapping[str, Any], *, progress: bool = False, prompt: bool = False,
    counts: dict[str, int] | None = None, tuning: Tuning = DEFAULT, sizes: ChunkSizes = SIZES,
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    """Run a plan and return its result batch by batch, as windows close.

    With `prompt`, rows of inputs without a known end are not joined to larger chunks, and windows close as
    soon as they are complete. After the last batch, `counts["before_start"]` is the number of rows before the
    start of all windows. A forked child process cannot continue the iteration.
    """
    yield from in_one_process(_run(plan, inputs, progress, prompt, counts, tuning, sizes), "run")


def _run(
    plan: Plan, inputs: Mapping[str, Any], progress: bool, prompt: bool, counts: dict[str, int] | None,
    tuning: Tuning, sizes: ChunkSizes,
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    opened = open_inputs(plan, inputs, tuning, AS_THEY_COME if prompt else sizes)
    results = _results(opened, progress, prompt, counts, tuning)
    yield from on_few_rows(results) if opened.few(tuning.plain_rows) else results


def _results(
    opened: Opened, progress: bool, prompt: bool, counts: dict[str, int] | None, tuning: Tuning
) -> Iterator[pa.RecordBatch]:
    chunks = opened.chunks
    if progress:
        chunks = {name: shown(given, name, opened.rows.get(name)) for name, given in chunks.items()}
    unknown = None in opened.rows.values()
    parts = None if opened.threads == 1 or (prompt and unknown) else parts_of(opened.plan)
    if parts is None:
        late = not (prompt and unknown)
        graphs = [Graph(opened.plan, opened.threads, tuning, watch=opened.watch, ahead=late)]
        yield from run_graph(graphs[0], chunks, opened.threads, prompt=not late)
    else:
        divided = DividedPlan(parts, opened.threads, tuning, watch=opened.watch)
        graphs = divided.graphs
        yield from divided.results(chunks)
    require_none_late(*graphs)
    if counts is not None:
        counts["before_start"] = sum(graph.before_start for graph in graphs)


@dataclass(frozen=True)
class Opened:
    """The inputs of a query."""

    plan: Plan
    """The plan for these inputs."""
    tuning: Tuning
    chunks: dict[str, Iterable[Chunk]]
    rows: dict[str, int | None]
    """How many rows each input has, None where that is not known; a wheel has none."""
    threads: int
    watch: bool
    """Whether rows may break the promises of an input."""

    def few(self, limit: int) -> bool:
        """Return whether the inputs are known to have fewer rows; those of a wheel do not count."""
        known = [n for n in self.rows.values() if n is not None]
        return len(known) == len(self.rows) and sum(known) < limit

    @functools.cached_property
    def graph(self) -> Graph:
        """The graph that reads them."""
        return Graph(self.plan, self.threads, self.tuning, watch=self.watch)


def open_inputs(
    plan: Plan, inputs: Mapping[str, Any], tuning: Tuning = DEFAULT, sizes: ChunkSizes = SIZES
) -> Opened:
    """Open the inputs of a plan."""
    check_inputs(plan, inputs)
    wheels = {n: given.facts() for n, given in inputs.items() if isinstance(given, WindowSource)}
    plan = with_wheels(plan, wheels) if wheels else plan
    stateful = any(isinstance(n, (WindowAggregate, Temporal)) for n in plan.walk())
    chunks: dict[str, Iterable[Chunk]] = {}
    rows: dict[str, int | None] = {}
    watch = False
    for name, leaf in leaves_of(plan).items():
        if isinstance(leaf, WheelWindows):
            chunks[name] = inputs[leaf.stream].read_windows(leaf)
        else:
            reader = open_source(inputs[name], leaf, promises=stateful and not leaf.table, sizes=sizes)
            chunks[name], rows[name] = reader, reader.total_rows
            watch |= not reader.exact
    opened = Opened(plan, tuning, chunks, rows, 1, watch)
    return opened if opened.few(tuning.few_rows) else replace(opened, threads=threads())


def table_of(batches: Sequence[pa.RecordBatch], schema: pa.Schema, counts: Mapping[str, int]) -> pa.Table:
    """A result as a table, with counts that are not zero in its metadata."""
    table = pa.Table.from_batches(batches, schema=schema)
    found = {f"tidemill.{name}": str(n) for name, n in counts.items() if n}
    return table.replace_schema_metadata(found) if found else table


def require_none_late(*graphs: Graph) -> None:
    """Raise an error if an input broke its promise about its times, as wrong statistics of a file do."""
    late = sum(rows.num_rows for graph in graphs for rows in graph.late().values())
    if late:
        raise broken_promise([name for graph in graphs for name in graph.sources], late)
