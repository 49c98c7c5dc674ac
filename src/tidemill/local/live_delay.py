"""Rows of a live query that wait, so that they are processed in larger batches (`Latency`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.core.time import BEGINNING
from tidemill.local.live_input import LiveInput
from tidemill.local.operator import Snapshot
from tidemill.plan.emit import Latency

_LATE = "\0late"


class Delayed:
    """The rows of all inputs that wait, in the order of arrival for each input."""

    def __init__(self, latency: Latency, inputs: Mapping[str, LiveInput]) -> None:
        self._inputs, self._most = inputs, latency.rows
        self._every = {name: latency.ticks(given.domain) for name, given in inputs.items()}
        self._batches: dict[str, list[pa.RecordBatch]] = {}
        self._late: dict[str, bool] = {}
        self.rows = 0
        """The number of rows that wait."""
        self.reached = dict.fromkeys(inputs, BEGINNING)
        """The greatest time of each input when the watermark was last raised."""

    def add(self, name: str, rows: pa.RecordBatch, late: bool) -> Iterator[tuple[str, pa.RecordBatch, bool]]:
        """Let rows wait. If too many wait, return all: the name of the input, rows, whether some are late.

        The rows are taken from here at once, not when the iterator is read.
        """
        self._batches.setdefault(name, []).append(rows)
        self._late[name] = self._late.get(name, False) or late
        self.rows += rows.num_rows
        return self.take() if self.rows >= self._most else iter(())

    def take(self) -> Iterator[tuple[str, pa.RecordBatch, bool]]:
        """Return all that waits, and keep nothing."""
        batches, late, self._batches, self._late, self.rows = self._batches, self._late, {}, {}, 0
        return ((name, _one(given), late[name]) for name, given in batches.items())

    def due(self) -> bool:
        """Return whether a time has passed a multiple of the latency since this last was so."""
        now = {name: given.latest for name, given in self._inputs.items()}
        passed = any(t // self._every[n] > self.reached[n] // self._every[n] for n, t in now.items())
        if passed:
            self.reached = now
        return passed

    # -- state

    def snapshot(self) -> Snapshot:
        """Return the rows that wait, of each input, with whether some are late."""
        found = {}
        for name, given in self._batches.items():
            table = pa.Table.from_batches(given)
            found[name] = table.append_column(_LATE, pa.array([self._late[name]] * len(table), pa.bool_()))
        return found

    def restore(self, saved: Snapshot, reached: Any) -> None:
        """Load what `snapshot` returned, and `reached`, if that query had a latency, too."""
        if not isinstance(reached, dict) or not all(isinstance(t, int) for t in reached.values()):
            raise UserError("restore", expected="times that inputs have reached", got=f"{reached!r:.80}")
        self.reached |= {name: t for name, t in reached.items() if name in self._inputs}
        for name, table in saved.items():
            kinds = self._inputs[name].accepted_schema if name in self._inputs else pa.schema([])
            if not table.schema.equals(kinds.append(pa.field(_LATE, pa.bool_()))):
                raise UserError("restore", expected=f"rows of {kinds.names}", got=f"{name}: {table.schema}")
            self._batches[name] = table.drop_columns(_LATE).to_batches()
            self._late[name] = any(table.column(_LATE).to_pylist())
            self.rows += len(table)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
