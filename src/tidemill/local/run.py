"""The local engine: batches of a source pushed through operators, on the caller's thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from tidemill.core.errors import UnsupportedError, UserError
from tidemill.core.time import BEGINNING, FOREVER
from tidemill.local.progress import shown
from tidemill.local.sources import open_source
from tidemill.local.stages import StageRunner
from tidemill.local.windows import WindowOperator
from tidemill.plan.nodes import Plan, Source, WindowAggregate
from tidemill.plan.stages import stage_of


class Pipeline:
    """The operators of a plan, first to last, and the stage that shapes what comes out."""

    def __init__(self, plan: Plan) -> None:
        stage = stage_of(plan)
        self._final = StageRunner(stage.predicates, stage.outputs, stage.base.schema)
        self.operators: list[WindowOperator] = []
        base = stage.base
        while isinstance(base, WindowAggregate):
            self.operators.insert(0, WindowOperator(base))
            base = stage_of(base.input).base
        if not isinstance(base, Source):
            raise UnsupportedError("local", str(base), instead="run it on the reference engine")
        self.source = base

    def push(self, batch: pa.RecordBatch, below: int) -> Iterator[pa.RecordBatch]:
        """What comes out when a batch goes in and no later row has a time below `below`."""
        yield from self._through([batch], below, 0)

    def finish(self) -> Iterator[pa.RecordBatch]:
        yield from self._through([], FOREVER, 0)

    def _through(
        self, batches: list[pa.RecordBatch], below: int, at: int
    ) -> Iterator[pa.RecordBatch]:
        if at == len(self.operators):
            for batch in batches:
                out = batch if self._final.trivial else self._final.run(batch)
                if out.num_rows:
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


def run(plan: Plan, inputs: Mapping[str, Any], *, progress: bool = False) -> Iterator[pa.RecordBatch]:
    """The result of a plan, batch by batch, as windows close."""
    pipeline = Pipeline(plan)
    source = pipeline.source
    check_inputs(source, inputs)
    reader = open_source(inputs[source.name], source)
    below = BEGINNING
    for chunk in shown(reader, source.name, reader.total_rows) if progress else reader:
        if chunk.complete_below < FOREVER:  # the end of the input is told once, by `finish`
            below = max(below, chunk.complete_below)
        yield from pipeline.push(chunk.batch, below)
    yield from pipeline.finish()


def check_inputs(source: Source, inputs: Mapping[str, Any]) -> None:
    """Each stream of the query needs its input, and nothing else."""
    if set(inputs) != {source.name}:
        raise UserError(
            "run", expected=f"one input named {source.name!r}", got=f"{sorted(inputs)}",
            hint=f"write run({source.name}=...)",
        )  # fmt: skip
