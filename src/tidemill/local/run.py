"""The local engine: batches of a source pushed through operators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from tidemill.core.errors import UnsupportedError, UserError
from tidemill.core.forks import in_one_process
from tidemill.core.time import BEGINNING, FOREVER
from tidemill.io.progress import shown
from tidemill.io.sources import Chunk, open_source
from tidemill.io.window_source import WindowSource
from tidemill.local.stages import StageRunner
from tidemill.local.threads import on_threads, threads
from tidemill.local.windows import WindowOperator
from tidemill.optimize import with_wheels
from tidemill.plan.nodes import Plan, Source, WheelWindows, WindowAggregate
from tidemill.plan.stages import stage_of

FEW_ROWS = 1 << 17
"""An input that is known to have fewer rows is not worth a second thread."""


class Pipeline:
    """The operators of a plan, first to last, and the stage that shapes what comes out."""

    def __init__(self, plan: Plan, threads: int = 1) -> None:
        stage = stage_of(plan)
        self._final = StageRunner(stage.predicates, stage.outputs, stage.base.schema)
        self._threads = threads
        self.operators: list[WindowOperator] = []
        base = stage.base
        while isinstance(base, WindowAggregate):
            # One that feeds another must tell it how far time has come, which lanes apart do not know.
            lanes = 1 if self.operators else 1 << (threads.bit_length() - 1)
            self.operators.insert(0, WindowOperator(base, lanes))
            base = stage_of(base.input).base
        if not isinstance(base, (Source, WheelWindows)):
            raise UnsupportedError("local", str(base), instead="run it on the reference engine")
        self.source = base

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
    source = next(node for node in plan.walk() if isinstance(node, Source))
    check_inputs(source, inputs)
    if isinstance(wheel := inputs[source.name], WindowSource):
        plan = with_wheels(plan, {source.name: wheel.facts()})
        [node] = (n for n in plan.walk() if isinstance(n, WheelWindows))
        windows = wheel.read_windows(node)
        yield from Pipeline(plan).run(shown(windows, source.name, None) if progress else windows)
        return
    stateless = stage_of(plan).base is source
    reader = open_source(inputs[source.name], source, promises=not stateless)
    few = reader.total_rows is not None and reader.total_rows < FEW_ROWS
    pipeline = Pipeline(plan, 1 if few else threads())
    yield from pipeline.run(shown(reader, source.name, reader.total_rows) if progress else reader)
    if counts is not None:
        counts["before_start"] = sum(operator.before_start for operator in pipeline.operators)


def check_inputs(source: Source, inputs: Mapping[str, Any], *, step: str = "run") -> None:
    """Each stream of the query needs its input, and nothing else."""
    if set(inputs) != {source.name}:
        raise UserError(
            step, expected=f"one input named {source.name!r}", got=f"{sorted(inputs)}",
            hint=f"write {step}({source.name}=...)",
        )  # fmt: skip
