"""The local engine: read chunks of sources and push them through a graph of operators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tidemill.core.forks import in_one_process
from tidemill.core.threads import on_threads, threads
from tidemill.core.time import BEGINNING, FOREVER
from tidemill.io.chunks import SIZES, Chunk
from tidemill.io.progress import shown
from tidemill.io.sources import open_source
from tidemill.io.window_source import WindowSource
from tidemill.local.graph import Graph
from tidemill.local.tuning import DEFAULT, Tuning
from tidemill.optimize.optimizer import with_wheels
from tidemill.plan.faults import broken_promise, check_inputs
from tidemill.plan.nodes import Plan, WheelWindows, WindowAggregate, leaves_of

AS_THEY_COME = replace(SIZES, small=1)
"""Chunks are not joined: someone waits for their results."""


def run_graph(
    graph: Graph, inputs: Mapping[str, Iterable[Chunk]], threads: int = 1, *, prompt: bool = False
) -> Iterator[pa.RecordBatch]:
    """Run a graph over all chunks of its inputs, which are given by the names of its sources.

    The next chunk is read from the input with the lowest watermark, because it holds the others back. A
    graph of one stateless stage runs on several threads.
    """
    if (stage := graph.stateless) is not None:
        [only] = inputs.values()
        batches = on_threads(stage.run, (c.batch for c in only), threads if stage.threadsafe else 1)
        yield from (batch for batch in batches if batch.num_rows)
        return
    below = dict.fromkeys(inputs, BEGINNING)
    chunks = {name: iter(given) for name, given in inputs.items()}
    try:
        while chunks:
            name = min(chunks, key=below.__getitem__)
            chunk = next(chunks[name], None)
            if chunk is None:
                del chunks[name]
                yield from graph.advance(name, FOREVER)
                continue
            chunks[name] = chunks.pop(name)  # inputs with equal watermarks take turns
            yield from graph.push(name, chunk.batch)
            if len(below) == 1 and not prompt and not graph.wants_advance:
                continue
            if chunk.complete_below < FOREVER:  # the end of the input is signalled once, above
                below[name] = max(below[name], chunk.complete_below)
            yield from graph.advance(name, below[name], prompt=prompt)
    finally:
        graph.close()


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
    check_inputs(plan, inputs)
    wheels = {n: given.facts() for n, given in inputs.items() if isinstance(given, WindowSource)}
    plan = with_wheels(plan, wheels) if wheels else plan
    stateful = any(isinstance(n, WindowAggregate) for n in plan.walk())
    chunks: dict[str, Iterable[Chunk]] = {}
    rows: list[int | None] = []
    watch = False
    for name, leaf in leaves_of(plan).items():
        if isinstance(leaf, WheelWindows):
            chunks[name], total = inputs[leaf.stream].read_windows(leaf), None
        else:
            reader = open_source(
                inputs[name], leaf, promises=stateful, sizes=AS_THEY_COME if prompt else SIZES
            )
            chunks[name], total = reader, reader.total_rows
            watch |= not reader.exact
            rows.append(total)
        if progress:
            chunks[name] = shown(chunks[name], name, total)
    few = None not in rows and sum(n for n in rows if n is not None) < tuning.few_rows
    workers = 1 if few else threads()
    graph = Graph(plan, workers, tuning, watch=watch)
    yield from run_graph(graph, chunks, workers, prompt=prompt and None in rows)
    if late := graph.late():
        raise broken_promise(list(chunks), sum(rows.num_rows for rows in late.values()))
    if counts is not None:
        counts["before_start"] = graph.before_start
