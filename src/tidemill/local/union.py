"""A union: the rows of all ports, under the promise that all of them keep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.local.operator import Operator, Snapshot, Watermarks
from tidemill.local.promise import Promise


class UnionOperator(Operator):
    """Rows pass as they come; no later one is below the least promise of the ports."""

    def __init__(self, ports: int) -> None:
        self.ports, self._marks, self._promised = ports, Watermarks(ports), Promise()

    def push(self, port: int, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        return (batch,)

    def advance(self, port: int, below: int, *, prompt: bool = False) -> Iterator[pa.RecordBatch]:
        self._promised = self._promised.raised(self._marks.raised(port, below))
        return iter(())

    @property
    def promise(self) -> Promise:
        return self._promised

    def snapshot(self) -> Snapshot:
        return {"below": pa.table({"below": pa.array(self._marks.ports, pa.int64())})}

    def restore(self, state: Snapshot) -> None:
        marks = state.get("below")
        if marks is None or marks.column_names != ["below"] or len(marks) != self.ports:
            raise UserError("restore", expected=f"the promises of {self.ports} ports", got=str(sorted(state)))
        for port, below in enumerate(marks["below"].to_pylist()):
            list(self.advance(port, below))
