"""The local engine: chunks of sources pushed through a graph of operators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.core.forks import in_one_process
from tidemill.core.time import BEGINNING, FOREVER
from tidemill.io.progress import shown
from tidemill.io.sources import Chunk, open_source
from tidemill.io.window_source import WindowSource
from tidemill.local.graph import Graph
from tidemill.local.threads import on_threads, threads
from tidemill.local.tuning import DEFAULT, Tuning
from tidemill.optimize import with_wheels
from tidemill.plan.nodes import Plan, Source, WheelWindows, WindowAggregate, leaves_of


def run_graph(
    graph: Graph, inputs: Mapping[str, Iterable[Chunk]], threads: int = 1
) -> Iterator[pa.RecordBatch]:
    """What comes out of all chunks of the inputs, by the name of the stream.

    The next chunk is read of the input that has promised least: it holds the others back. Where there is
    nothing but one stage, chunks are computed on several threads.
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
            if chunk.complete_below < FOREVER:  # the end of the input is told once, when it comes
                below[name] = max(below[name], chunk.complete_below)
            yield from graph.push(name, chunk.batch)
            yield from graph.advance(name, below[name])
    finally:
        graph.close()


def run(
    plan: Plan, inputs: Mapping[str, Any], *, progress: bool = False,
    counts: dict[str, int] | None = None, tuning: Tuning = DEFAULT,
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    """The result of a plan, batch by batch, as windows close.

    In the end, `counts` has the rows that are in no window by the definition of the windows. A process
    that is forked meanwhile cannot go on with it.
    """
    yield from in_one_process(_run(plan, inputs, progress, counts, tuning), "run")


def _run(
    plan: Plan, inputs: Mapping[str, Any], progress: bool, counts: dict[str, int] | None, tuning: Tuning
) -> Iterator[pa.RecordBatch]:
    source = next(node for node in plan.walk() if isinstance(node, Source))
    check_inputs(source, inputs)
    wheels = {n: given.facts() for n, given in inputs.items() if isinstance(given, WindowSource)}
    plan = with_wheels(plan, wheels) if wheels else plan
    stateless = not any(isinstance(n, WindowAggregate) for n in plan.walk())
    chunks: dict[str, Iterable[Chunk]] = {}
    rows: dict[str, int | None] = {}
    for name, leaf in leaves_of(plan).items():
        if isinstance(leaf, WheelWindows):
            chunks[name], rows[name] = inputs[name].read_windows(leaf), 0
        else:
            reader = open_source(inputs[name], leaf, promises=not stateless)
            chunks[name], rows[name] = reader, reader.total_rows
        if progress:
            chunks[name] = shown(chunks[name], name, rows[name] or None)
    known = [n for n in rows.values() if n is not None]
    few = len(known) == len(rows) and sum(known) < tuning.few_rows
    workers = 1 if few else threads()
    graph = Graph(plan, workers, tuning)
    yield from run_graph(graph, chunks, workers)
    if counts is not None:
        counts["before_start"] = graph.before_start


def check_inputs(source: Source, inputs: Mapping[str, Any], *, step: str = "run") -> None:
    """Each stream of the query needs its input, and nothing else."""
    if set(inputs) != {source.name}:
        raise UserError(
            step, expected=f"one input named {source.name!r}", got=f"{sorted(inputs)}",
            hint=f"write {step}({source.name}=...)",
        )  # fmt: skip
