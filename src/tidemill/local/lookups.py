"""Questions to a live query that answers on arrival: what base rows would get if they came now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.core.time import BEGINNING, FARTHEST, shown_instant
from tidemill.kernels.arrow import validity, values
from tidemill.local.graph import Graph
from tidemill.local.live_input import LiveInput
from tidemill.local.row_lookup import RowLookup, Unlike
from tidemill.local.unread_columns import Pushed


class Lookups:
    """Answers rows of one base stream. Nothing is kept of them."""

    def __init__(self, graph: Graph, given: LiveInput, lateness: int) -> None:
        self._graph, self._given, self._lateness = graph, given, lateness
        self._schema = graph.plan.schema.to_arrow()
        self._row = RowLookup.of(graph, given.source)

    def __call__(self, rows: Any) -> Any:
        """Return the answer to one row, a dict, as a dict; those to others as a table."""
        least = max(self._given.promise - self._lateness, BEGINNING)
        if not isinstance(rows, Mapping):
            return self._table(rows, least)
        if self._row is not None:
            try:
                return self._row(rows, least)
            except Unlike:  # whoever reads a batch converts it, or says what is wrong
                pass
        found = self._table(rows, least)
        if found.num_rows > 1:
            raise UserError(
                "lookup", expected="one answer to one row", got=f"{found.num_rows} rows",
                hint="a list of rows gives a table: lookup([row])",
            )  # fmt: skip
        return found.to_pylist()[0] if found.num_rows else None

    def _table(self, rows: Any, least: int) -> pa.Table:
        given, found, before = self._given, list[pa.RecordBatch](), 0
        for pushed in self._read(rows):
            self._require_usable(pushed.rows, least, before)
            found += self._graph.looked_up(given.name, given.shown(pushed.rows))
            before += pushed.rows.num_rows
        return pa.Table.from_batches(found, schema=self._schema)

    def _read(self, rows: Any) -> list[Pushed]:
        try:
            return self._given.read(rows)
        except UserError as wrong:  # which says that they were pushed
            said = str(wrong).removeprefix(f"{wrong.step}: ")
            raise UserError(wrong.step.replace("push", "lookup", 1), said) from wrong

    def _require_usable(self, batch: pa.RecordBatch, least: int, before: int) -> None:
        """Raise an error if a row cannot be answered: there is nobody else to hear of it."""
        given, times = self._given, batch.column(self._given.time)
        ticks, valid = values(times), validity(times)
        bad = (ticks < max(least, -FARTHEST)) | (ticks > FARTHEST)
        if valid is not None:
            bad |= valid == 0
        for mask in given.unusable(batch).values():
            bad |= mask
        if not bad.any():
            return
        row = int(np.flatnonzero(bad)[0])
        known = f"a time in {given.time!r}"
        if least > BEGINNING:
            known += f" from {shown_instant(least, given.domain)} on: older rows may be gone"
        raise UserError(
            f"lookup {given.name}, row {before + row + 1}", expected=known,
            got=f"{batch.slice(row, 1).to_pylist()[0]!r:.200}",
            hint="lateness= of an interval join keeps rows for longer" if least > BEGINNING else "",
        )  # fmt: skip
