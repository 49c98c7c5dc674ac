"""Run a plan on several threads, each with the rows of some keys, from the inputs to the results.

Where a plan can be divided by a key (`plan.division`), filters and projections run on any thread, batch by
batch, and divide their rows by a hash of the key. Each share is a graph of its own, on a thread of its own.
Nothing is exchanged between shares, up to the results. Of another plan, the largest parts that can be divided
run so; the rest reads their results as it reads inputs, with what they promise beside them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace

import pyarrow as pa

from tidemill.core.schema import internal
from tidemill.core.threads import borrowed, on_threads, returned
from tidemill.core.time import BEGINNING, FOREVER
from tidemill.expr.nodes import Column
from tidemill.io.chunks import Chunk, step_of
from tidemill.kernels.row_batches import shared_out
from tidemill.kernels.shards import shares_of
from tidemill.local.graph import Graph
from tidemill.local.run_graph import run_graph
from tidemill.local.stage_runner import StageRunner, stage_runner
from tidemill.local.thread_safety import threadsafe
from tidemill.local.tuning import Tuning
from tidemill.local.turns import in_turn
from tidemill.plan.division import Division, division
from tidemill.plan.intervals import IntervalJoin
from tidemill.plan.nodes import Filter, Plan, Project, Source, leaves_of
from tidemill.plan.properties import looks_up
from tidemill.plan.stages import stage_of
from tidemill.plan.temporal import Cut, Edges, Join, Lifetime, Temporal, Unnest

_Turn = tuple[str, Chunk | None, int]
_Found = tuple[list[pa.RecordBatch], int]


@dataclass(frozen=True)
class Parts:
    """A plan that reads the results of others, which can be divided."""

    top: Plan
    """It is one of the sources if all of the plan is divided."""
    below: Mapping[str, Division]
    """By the name of the source of `top` that has their results."""


def parts_of(plan: Plan) -> Parts | None:
    """Return the largest parts of a plan that are worth a thread for each share of their rows, if any."""
    found: dict[str, Division] = {}
    reads: list[set[str]] = []

    def cut_off(node: Plan) -> Plan | None:
        if not _keeps(node) or not all(map(threadsafe, node.walk())) or (one := division(node)) is None:
            return None
        name = internal(f"part {len(found)}")
        found[name] = one
        reads.append(set(leaves_of(node)))
        return Source(name, node.schema, node.time, end_column=node.end)

    top = plan.fold(lambda node, children: node.with_children(children), cut_off)
    # A stream is read once, so one part, or the rest, has it alone.
    reads.append(set(leaves_of(top)) - found.keys())
    shared = sum(map(len, reads)) > len(set().union(*reads))
    return None if not found or shared else Parts(top, found)


def _keeps(plan: Plan) -> bool:
    """Return whether an operator on lifetimes in the plan keeps rows by key.

    Interval joins do as well, but threads may take turns at their base rows, whatever the keys.
    """
    stateless = (Lifetime, Unnest)
    return any(
        isinstance(n, Temporal) and not isinstance(n, (*stateless, IntervalJoin))
        and not (isinstance(n, Edges) and not n.changes) and not (isinstance(n, (Join, Cut)) and looks_up(n))
        for n in plan.walk()
    )  # fmt: skip


class DividedPlan:
    """Runs a plan of which parts are divided."""

    def __init__(self, parts: Parts, threads: int, tuning: Tuning, *, watch: bool) -> None:
        self._below = {
            name: _Shares(one, threads, tuning, watch=watch) for name, one in parts.below.items()
        }
        self._top, self._threads = parts.top, threads
        self._graph = Graph(parts.top, threads, tuning, watch=watch, ahead=True)

    @property
    def graphs(self) -> list[Graph]:
        return [self._graph, *(graph for shares in self._below.values() for graph in shares.graphs)]

    def results(self, inputs: Mapping[str, Iterable[Chunk]]) -> Iterator[pa.RecordBatch]:
        """Read all chunks of the inputs, and yield the results."""
        read = {name: shares.chunks(inputs) for name, shares in self._below.items()}
        if isinstance(self._top, Source):
            yield from (chunk.batch for chunk in read[self._top.name])
            return
        given = {name: read.get(name) or inputs[name] for name in self._graph.sources}
        yield from run_graph(self._graph, given, self._threads)


class _Shares:
    """The shares of a plan: graphs that read the rows of their keys."""

    def __init__(self, divided: Division, threads: int, tuning: Tuning, *, watch: bool) -> None:
        self._threads, self._backlog = threads, tuning.backlog
        self._names = tuple(leaves_of(divided.plan))
        plan, self._leaves = _cut_off(divided)
        shares = 1 << (threads.bit_length() - 1)
        self.graphs = [Graph(plan, 1, tuning, watch=watch) for _ in range(shares)]

    def chunks(self, inputs: Mapping[str, Iterable[Chunk]]) -> Iterator[Chunk]:
        """Read all chunks of the inputs of the plan; the work happens while results are read."""
        running: deque[list[Future[_Found]]] = deque()
        pools = [borrowed(1) for _ in self.graphs]
        read = in_turn({name: inputs[name] for name in self._names})
        try:
            for rows, chunk, below in on_threads(self._divided, read, self._threads):
                promise = chunk if len(self._names) == 1 else None
                running.append([
                    pool.submit(_worked, graph, {n: own[number] for n, own in rows.items()}, promise, below)
                    for number, (pool, graph) in enumerate(zip(pools, self.graphs))
                ])  # fmt: skip
                if len(running) > self._backlog:
                    yield from _chunks(running.popleft())
            while running:
                yield from _chunks(running.popleft())
        finally:
            for number, pool in enumerate(pools):
                returned(pool, [calls[number] for calls in running])
            for graph in self.graphs:
                graph.close()

    def _divided(self, turn: _Turn) -> tuple[dict[str, list[pa.RecordBatch | None]], Chunk | None, int]:
        """Return the rows of each leaf of a stream by share."""
        stream, chunk, below = turn
        found: dict[str, list[pa.RecordBatch | None]] = {}
        for name, leaf in self._leaves.items():
            if leaf.stream == stream:
                found[name] = [None] * len(self.graphs) if chunk is None else self._shares(leaf, chunk.batch)
        return found, chunk, below

    def _shares(self, leaf: _Leaf, batch: pa.RecordBatch) -> list[pa.RecordBatch | None]:
        if leaf.runner is not None:
            batch = leaf.runner.run(batch)
        if leaf.column is None:
            return [batch] * len(self.graphs)
        return shared_out(batch, shares_of(batch.column(leaf.column), len(self.graphs)))


@dataclass(frozen=True)
class _Leaf:
    """Where the graph of a share begins."""

    stream: str
    runner: StageRunner | None
    """The filters and projections below it, if there are any."""
    column: str | None
    """The column that divides its rows; without one each share has all of them."""


def _cut_off(divided: Division) -> tuple[Plan, dict[str, _Leaf]]:
    """Return the plan of a share, and its leaves: filters and projections run before rows are divided."""
    plan, columns = divided.plan, divided.columns
    leaves: dict[str, _Leaf] = {}

    def leaf(node: Plan) -> Plan | None:
        if not isinstance(node, (Filter, Project, Source)) or node is plan:
            return None
        stage = stage_of(node)
        if not isinstance(stage.base, Source) or (stage.base.table and not isinstance(node, Source)):
            return None
        source, by = stage.base, columns.get(stage.base.name)
        name = internal(f"rows {len(leaves)}")
        kept = None if by is None else next(n for n, e in stage.outputs if e == Column(by))
        trivial = isinstance(node, Source)
        runner = None if trivial else stage_runner(stage.predicates, stage.outputs, source.schema)
        leaves[name] = _Leaf(source.name, runner, kept)
        return replace(source, name=name, declared=node.schema, columns=None, step=step_of(source))

    return plan.fold(lambda node, below: node.with_children(below), leaf), leaves


def _worked(
    graph: Graph, rows: Mapping[str, pa.RecordBatch | None], chunk: Chunk | None, below: int
) -> _Found:
    """Push rows into a share and set its watermark; that of a single input is computed only if needed."""
    found: list[pa.RecordBatch] = []
    for name, batch in rows.items():
        if batch is not None and batch.num_rows:
            found += graph.push(name, batch)
    if chunk is not None:
        below = chunk.complete_below if graph.wants_advance else BEGINNING
        below = BEGINNING if below == FOREVER else below  # the end comes once, by itself
    if below > BEGINNING:
        for name in rows:
            found += graph.advance(name, below)
    return found, graph.promise


def _chunks(calls: Iterable[Future[_Found]]) -> Iterator[Chunk]:
    """Yield what the shares made of one chunk, and what all of them promise after it."""
    done = [call.result() for call in calls]
    batches = [batch for found, _ in done for batch in found]
    for number, batch in enumerate(batches, 1):
        yield Chunk(batch, min(promise for _, promise in done) if number == len(batches) else BEGINNING)
