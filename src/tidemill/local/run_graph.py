"""Push the chunks of inputs through a graph of operators."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from tidemill.core.threads import on_threads
from tidemill.core.time import FOREVER
from tidemill.io.chunks import Chunk
from tidemill.local.graph import Graph
from tidemill.local.turns import in_turn


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

    A graph of one stateless stage runs on several threads.
    """
    if (stage := graph.stateless) is not None:
        [(name, only)] = inputs.items()
        done = on_threads(lambda c: (c, stage.run(c.batch)), only, threads if stage.threadsafe else 1)
        yield from (Round(name, chunk, [batch] if batch.num_rows else []) for chunk, batch in done)
        return
    alone = len(inputs) == 1

    def pushed(name: str, chunk: Chunk, below: int) -> Iterator[pa.RecordBatch]:
        yield from graph.push(name, chunk.batch)
        if alone:
            if not prompt and not graph.wants_advance:
                return
            below = chunk.complete_below
        if below < FOREVER:  # the end of the input is signalled once, by itself
            yield from graph.advance(name, below, prompt=prompt)

    try:
        for name, chunk, below in in_turn(inputs, graph.rank):
            if chunk is None:
                yield Round(name, None, graph.advance(name, FOREVER))
            else:
                yield Round(name, chunk, pushed(name, chunk, below))
    finally:
        graph.close()


def run_graph(
    graph: Graph, inputs: Mapping[str, Iterable[Chunk]], threads: int = 1, *, prompt: bool = False
) -> Iterator[pa.RecordBatch]:
    """Run a graph over all chunks of its inputs (`rounds`), and return its results."""
    if not prompt and graph.stateless is None:
        graph.spray(threads)
    for one in rounds(graph, inputs, threads, prompt=prompt):
        yield from one.results
