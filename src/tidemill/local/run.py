"""The local engine: read chunks of sources and push them through a graph of operators."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tidemill.core.forks import in_one_process
from tidemill.core.threads import on_threads, threads
from tidemill.core.time import BEGINNING, FOREVER
from tidemill.io.chunks import SIZES, Chunk, ChunkSizes
from tidemill.io.progress import shown
from tidemill.io.sources import open_source
from tidemill.io.window_source import WindowSource
from tidemill.local.graph import Graph
from tidemill.local.tuning import DEFAULT, Tuning
from tidemill.optimize.optimizer import with_wheels
from tidemill.plan.faults import broken_promise, check_inputs
from tidemill.plan.nodes import Plan, WheelWindows, WindowAggregate, leaves_of
from tidemill.plan.temporal import Temporal

AS_THEY_COME = replace(SIZES, small=1)
"""Chunks are not joined: someone waits for their results."""


@dataclass(frozen=True)
class Round:
    """What happened to one chunk of an input, or to its end."""

    input: str
    chunk: Chunk | None
    """None at the end of the input."""
    results: Iterable[pa.RecordBatch]
    """To be exhausted before the next round: the work happens while it is read."""


def rounds(
    graph: Graph, inputs: Mapping[str, Iterable[Chunk]], threads: int = 1, *, prompt: bool = False
) -> Generator[Round, None, None]:
    """Run a graph over all chunks of its inputs, which are given by the names of its sources.

    The next chunk is read from the input with the lowest watermark, because it holds the others back. A
    graph of one stateless stage runs on several threads.
    """
    if (stage := graph.stateless) is not None:
        [(name, only)] = inputs.items()
        done = on_threads(lambda c: (c, stage.run(c.batch)), only, threads if stage.threadsafe else 1)
        yield from (Round(name, chunk, [batch] if batch.num_rows else []) for chunk, batch in done)
        return
    below = dict.fromkeys(inputs, BEGINNING)
    chunks = {name: iter(given) for name, given in inputs.items()}

    def pushed(name: str, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        yield from graph.push(name, chunk.batch)
        if len(below) == 1 and not prompt and not graph.wants_advance:
            return
        if chunk.complete_below < FOREVER:  # the end of the input is signalled once, below
            below[name] = max(below[name], chunk.complete_below)
        yield from graph.advance(name, below[name], prompt=prompt)

    try:
        while chunks:
            name = min(chunks, key=below.__getitem__)
            chunk = next(chunks[name], None)
            if chunk is None:
                del chunks[name]
                yield Round(name, None, graph.advance(name, FOREVER))
                continue
            chunks[name] = chunks.pop(name)  # inputs with equal watermarks take turns
            yield Round(name, chunk, pushed(name, chunk))
    finally:
        graph.close()


def run_graph(
    graph: Graph, inputs: Mapping[str, Iterable[Chunk]], threads: int = 1, *, prompt: bool = False
) -> Iterator[pa.RecordBatch]:
    """Run a graph over all chunks of its inputs (`rounds`), and return its results."""
    for one in rounds(graph, inputs, threads, prompt=prompt):
        yield from one.results


def run(
    plan: Plan, inputs: Mapping[str, Any], *, progress: bool = False, prompt: bool = False,
    counts: dict[str, int] | None = None, tuning: Tuning = DEFAULT,
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    """Run a plan and return its result batch by batch, as windows close.

    With `prompt`, rows of inputs without a known end are not joined to larger chunks, and windows close as
    soon as they are complete. After the last batch, `counts["before_start"]` is the number of rows before the
    start of all windows. A forked child process cannot continue the iteration.
    """
    yield from in_one_process(_run(plan, inputs, progress, prompt, counts, tuning), "run")


def _run(
    plan: Plan, inputs: Mapping[str, Any], progress: bool, prompt: bool, counts: dict[str, int] | None,
    tuning: Tuning,
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    opened = open_inputs(plan, inputs, tuning, AS_THEY_COME if prompt else SIZES)
    chunks = opened.chunks
    if progress:
        chunks = {name: shown(given, name, opened.rows.get(name)) for name, given in chunks.items()}
    unknown = None in opened.rows.values()
    yield from run_graph(opened.graph, chunks, opened.threads, prompt=prompt and unknown)
    require_none_late(opened.graph)
    if counts is not None:
        counts["before_start"] = opened.graph.before_start


@dataclass(frozen=True)
class Opened:
    """The inputs of a query, and the graph that reads them."""

    graph: Graph
    chunks: dict[str, Iterable[Chunk]]
    rows: dict[str, int | None]
    """How many rows each input has, None where that is not known; a wheel has none."""
    threads: int


def open_inputs(
    plan: Plan, inputs: Mapping[str, Any], tuning: Tuning = DEFAULT, sizes: ChunkSizes = SIZES
) -> Opened:
    """Open the inputs of a plan, and make a graph with threads for them."""
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
    few = None not in rows.values() and sum(n for n in rows.values() if n is not None) < tuning.few_rows
    workers = 1 if few else threads()
    return Opened(Graph(plan, workers, tuning, watch=watch), chunks, rows, workers)


def table_of(batches: Sequence[pa.RecordBatch], schema: pa.Schema, counts: Mapping[str, int]) -> pa.Table:
    """A result as a table, with counts that are not zero in its metadata."""
    table = pa.Table.from_batches(batches, schema=schema)
    found = {f"tidemill.{name}": str(n) for name, n in counts.items() if n}
    return table.replace_schema_metadata(found) if found else table


def require_none_late(graph: Graph) -> None:
    """Raise an error if an input broke its promise about its times, as wrong statistics of a file do."""
    if late := graph.late():
        raise broken_promise(list(graph.sources), sum(rows.num_rows for rows in late.values()))
