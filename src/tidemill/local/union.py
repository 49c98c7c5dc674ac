"""The operator of a union, which merges the rows of several ports into one stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from tidemill.local.operator import Operator, Snapshot, Watermarks
from tidemill.local.promise import Promise
from tidemill.local.snapshot import column, numbers
from tidemill.plan.nodes import Union


class UnionOperator(Operator):
    """Passes batches on unchanged; its watermark is the minimum over its ports."""

    def __init__(self, plan: Union) -> None:
        self.ports = len(plan.inputs)
        self._marks = Watermarks(self.ports)

    def push(self, port: int, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        return (batch,)

    def advance(self, port: int, below: int, *, prompt: bool = False) -> Iterator[pa.RecordBatch]:
        self._marks.raised(port, below)
        return iter(())

    @property
    def promise(self) -> Promise:
        return Promise(min(self._marks.ports))

    def snapshot(self) -> Snapshot:
        return {"promised": numbers(below=self._marks.ports)}

    def restore(self, state: Snapshot) -> None:
        for port, below in enumerate(column(state["promised"], "below").tolist()):
            self._marks.raised(port, below)
