"""The local engine: batches of a source pushed through operators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidemill.core.forks import in_one_process
from tidemill.core.time import BEGINNING, FOREVER
from tidemill.io.progress import shown
from tidemill.io.sources import Chunk, Reader, open_source
from tidemill.io.window_source import WindowSource
from tidemill.local.stages import StageRunner
from tidemill.local.threads import on_threads, threads
from tidemill.local.union import SharedChunks, merged
from tidemill.local.windows import WindowOperator
from tidemill.optimize import with_wheels
from tidemill.plan.checks import check_inputs
from tidemill.plan.nodes import (
    Filter,
    Plan,
    Project,
    Source,
    Union,
    WheelWindows,
    WindowAggregate,
    require_known,
    sources,
)  # fmt: skip
from tidemill.plan.stages import shared_bases, stage_of

NODES = (Source, Filter, Project, Union, WindowAggregate, WheelWindows)
FEW_ROWS = 1 << 17
"""An input that is known to have fewer rows is not worth a second thread."""


class Pipeline:
    """The operators of a plan, first to last, and the stage that shapes what comes out."""

    def __init__(self, plan: Plan, threads: int = 1, apart: Set[int] = frozenset()) -> None:
        stage = stage_of(plan)
        self._final = StageRunner(stage.predicates, stage.outputs, stage.base.schema)
        self._threads = threads
        self.operators: list[WindowOperator] = []
        base = stage.base
        while isinstance(base, WindowAggregate) and (base is plan or id(base) not in apart):
            # One that feeds another must tell it how far time has come, which lanes apart do not know.
            lanes = 1 if self.operators else 1 << (threads.bit_length() - 1)
            self.operators.insert(0, WindowOperator(base, lanes))
            base = stage_of(base.input).base
        self.source = base
        """What the rows come from: a stream, windows of a wheel, a union, or what is computed `apart`."""

    def run(self, chunks: Iterable[Chunk]) -> Iterator[pa.RecordBatch]:
        """What comes out of all chunks of the source."""
        if not self.operators:
            threads = self._threads if self._final.threadsafe else 1
            batches = on_threads(self._shaped, (c.batch for c in chunks), threads)
            yield from (b for b in batches if b.num_rows)
            return
        below = BEGINNING
        try:
            for chunk in chunks:
                if chunk.complete_below < FOREVER:  # the end of the input is told once, by `finish`
                    below = max(below, chunk.complete_below)
                yield from self.push(chunk.batch, below)
            yield from self.finish()
        finally:
            for operator in self.operators:
                operator.close()

    def chunks(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """What comes out, with promises: at least one chunk for each that goes in."""
        below, nothing = BEGINNING, pa.RecordBatch.from_pylist([], self._final.schema.to_arrow())
        for chunk in chunks:
            if not self.operators:
                yield Chunk(self._shaped(chunk.batch), chunk.complete_below)
                continue
            if chunk.complete_below < FOREVER:
                below = max(below, chunk.complete_below)
            closed = list(self.push(chunk.batch, below)) or [nothing]
            # Only after the last of them the promise holds.
            yield from (Chunk(batch, BEGINNING) for batch in closed[:-1])
            yield Chunk(closed[-1], self.operators[-1].promise)
        yield from (Chunk(batch, BEGINNING) for batch in self.finish())

    def push(self, batch: pa.RecordBatch, below: int) -> Iterator[pa.RecordBatch]:
        """What comes out when a batch goes in and no later row has a time below `below`."""
        yield from self._through([batch], below, 0)

    def finish(self) -> Iterator[pa.RecordBatch]:
        yield from self._through([], FOREVER, 0)

    def _shaped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch if self._final.trivial else self._final.run(batch)

    def _through(
        self, batches: list[pa.RecordBatch], below: int, at: int
    ) -> Iterator[pa.RecordBatch]:
        if at == len(self.operators):
            for batch in batches:
                if (out := self._shaped(batch)).num_rows:
                    yield out
            return
        operator = self.operators[at]
        for batch in batches:
            operator.push(batch)
        if at + 1 == len(self.operators):
            for batch in operator.advance(below):
                yield from self._through([batch], below, at + 1)
            return
        closed = list(operator.advance(below))
        promise = FOREVER if below == FOREVER else operator.promise
        yield from self._through(closed, promise, at + 1)


def run(
    plan: Plan, inputs: Mapping[str, Any], *, progress: bool = False,
    counts: dict[str, int] | None = None,
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    """The result of a plan, batch by batch, as windows close.

    In the end, `counts` has the rows that are in no window by the definition of the windows. A process
    that is forked meanwhile cannot go on with it.
    """
    yield from in_one_process(_run(plan, inputs, progress, counts), "run")


def _run(
    plan: Plan, inputs: Mapping[str, Any], progress: bool, counts: dict[str, int] | None
) -> Iterator[pa.RecordBatch]:
    require_known(plan, NODES, "local", "local/run.py, or run it on the reference engine")
    check_inputs(plan, inputs)
    wheels = {n: given for n, given in inputs.items() if isinstance(given, WindowSource)}
    plan = with_wheels(plan, {n: wheel.facts() for n, wheel in wheels.items()})
    stateful = any(isinstance(n, WindowAggregate) for n in plan.walk())
    readers = {s.name: open_source(inputs[s.name], s, promises=stateful) for s in sources(plan)}
    rows = [reader.total_rows for reader in readers.values()]
    few = None not in rows and sum(n for n in rows if n is not None) < FEW_ROWS
    streams = _Streams(readers, wheels, shared_bases(plan), progress)
    pipeline = Pipeline(plan, 1 if few else threads(), streams.apart)
    yield from pipeline.run(streams.of(pipeline))
    if counts is not None:
        operators = (o for p in (pipeline, *streams.inner) for o in p.operators)
        counts["before_start"] = sum(operator.before_start for operator in operators)


@dataclass
class _Streams:
    """What pipelines begin with, as chunks; what several of them begin with is read once."""

    readers: Mapping[str, Reader]
    wheels: Mapping[str, WindowSource]
    apart: frozenset[int]
    """The `shared_bases`: a window aggregate among them is a pipeline of its own."""
    progress: bool
    inner: list[Pipeline] = field(default_factory=list)
    """The pipelines of the inputs of unions, and of what is shared."""
    _shared: dict[int, SharedChunks] = field(default_factory=dict)

    def of(self, pipeline: Pipeline) -> Iterator[Chunk]:
        """The chunks that a pipeline reads."""
        base = pipeline.source
        if id(base) not in self._shared:
            self._shared[id(base)] = SharedChunks(self._begin(base))
        return self._shared[id(base)].reader()

    def _begin(self, base: Plan) -> Iterable[Chunk]:
        if isinstance(base, Source):
            reader = self.readers[base.name]
            return shown(reader, base.name, reader.total_rows) if self.progress else reader
        if isinstance(base, WheelWindows):
            windows = self.wheels[base.stream].read_windows(base)
            return shown(windows, base.stream, None) if self.progress else windows
        if isinstance(base, Union):
            return merged([self._through(one) for one in base.inputs])
        return self._through(base)

    def _through(self, plan: Plan) -> Iterator[Chunk]:
        pipeline = Pipeline(plan, apart=self.apart)
        self.inner.append(pipeline)
        return pipeline.chunks(self.of(pipeline))
