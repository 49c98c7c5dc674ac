"""Filters and projections as an operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.expr.nodes import Column, Node
from tidemill.local.limits import Limits
from tidemill.local.operator import Operator, Snapshot
from tidemill.local.stage_runner import stage_runner
from tidemill.plan.stages import Stage


class StageOperator(Operator):
    """Filters and projects each batch; it keeps no rows, and passes the watermark on."""

    def __init__(self, stage: Stage) -> None:
        self.runner = stage_runner(stage.predicates, stage.outputs, stage.base.schema)
        self._outputs = stage.outputs
        self._promised = Limits()

    @property
    def keeps_rows(self) -> bool:
        return False

    def push(self, port: int, batch: pa.RecordBatch) -> Sequence[pa.RecordBatch]:
        out = self.runner.run(batch)
        return (out,) if out.num_rows else ()

    def stateless(self, port: int) -> Callable[[pa.RecordBatch], Sequence[pa.RecordBatch]] | None:
        return partial(self.push, port) if self.runner.threadsafe else None

    def keys_passed_on(
        self, port: int, keys: Mapping[str, pa.Array], below: int
    ) -> tuple[dict[str, pa.Array], int] | None:
        found = unchanged(self._outputs, keys)
        return None if found is None else (found, below)

    def advance(self, port: int, below: int, *, prompt: bool = False) -> tuple[()]:
        self._promised = self._promised.raised(Limits(below))
        return ()

    @property
    def wants_advance(self) -> bool:
        return False

    @property
    def promise(self) -> Limits:
        return self._promised

    def snapshot(self) -> Snapshot:
        return {}

    def restore(self, state: Snapshot) -> None:
        if state:
            raise UserError("restore", expected="no state of a stage", got=str(sorted(state)))


def unchanged(
    outputs: tuple[tuple[str, Node], ...], keys: Mapping[str, pa.Array]
) -> dict[str, pa.Array] | None:
    """Return columns under the names that outputs give them; None if one is not among the outputs."""
    names = {node.name: name for name, node in outputs if isinstance(node, Column)}
    return {names[n]: array for n, array in keys.items()} if keys.keys() <= names.keys() else None
