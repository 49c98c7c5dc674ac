"""The operator of a union, which merges the rows of several ports into one stream."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.local.limits import Limits
from tidemill.local.operator import Operator, Snapshot, Watermarks
from tidemill.local.snapshot import column, numbers, tables
from tidemill.plan.nodes import Union


class UnionOperator(Operator):
    """Passes batches on unchanged; its watermark is the minimum over its ports."""

    def __init__(self, plan: Union) -> None:
        self.ports = len(plan.inputs)
        self._marks = Watermarks(self.ports)

    @property
    def keeps_rows(self) -> bool:
        return False

    def push(self, port: int, batch: pa.RecordBatch) -> Sequence[pa.RecordBatch]:
        return (batch,)

    def advance(self, port: int, below: int, *, prompt: bool = False) -> tuple[()]:
        self._marks.raise_to(port, below)
        return ()

    @property
    def promise(self) -> Limits:
        return Limits(self._marks.lowest)

    def snapshot(self) -> Snapshot:
        return {"promised": numbers(below=self._marks.ports)}

    def restore(self, state: Snapshot) -> None:
        (promised,) = tables(state, {"promised": pa.schema([("below", pa.int64())])})
        if len(promised) != self.ports:
            raise UserError("restore", expected=f"{self.ports} ports", got=str(len(promised)))
        for port, below in enumerate(column(promised, "below").tolist()):
            self._marks.raise_to(port, below)
