"""A table of a live query: rows without a time, which are all there before the first event."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.io.sources import open_source
from tidemill.plan.nodes import Source


class LiveTable:
    """Reads the rows of a table, until the first event of a stream completes it."""

    def __init__(self, source: Source) -> None:
        self.name = source.name
        self.source = replace(source, step=f"push {source.name}")
        self.rows = 0
        self.complete = False

    def read(self, value: Any) -> list[pa.RecordBatch]:
        """Return rows in the types of the table."""
        if self.complete:
            raise UserError(
                f"push {self.name}", expected="all rows of a table before the first event",
                got="rows after it",
                hint="a table does not change; join a stream of changes: tm.stream(...).until_next(...)",
            )  # fmt: skip
        given = [value] if isinstance(value, dict) else value
        return [chunk.batch for chunk in open_source(given, self.source, promises=False)]

    def saved(self) -> dict[str, Any]:
        """Return the state as JSON; the rows are in the operators."""
        return {"rows": self.rows, "complete": self.complete}

    def load(self, saved: Any) -> None:
        """Load what `saved` returned."""
        if not isinstance(saved, dict) or not isinstance(saved.get("rows"), int):
            raise UserError(
                "restore", expected=f"the state of the table {self.name}", got=f"{saved!r:.80}"
            )
        self.rows, self.complete = saved["rows"], saved.get("complete") is True
