"""The columns of a stream that a query does not read: late rows have them, rows in time cost nothing.

They are read when rows are late, from what was pushed. Such a column is null where the rows lack it. It is
null, too, with a warning, where it cannot be read as the stream declares it: the query works without it.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.batch import conform
from tidemill.core.errors import UserError
from tidemill.core.types import to_arrow
from tidemill.io.arrow_checks import require_sound
from tidemill.io.dicts import column_of
from tidemill.io.other_columns import PartlyRead
from tidemill.io.sources import open_source
from tidemill.plan.nodes import Source

Ints = npt.NDArray[np.int64]


class Pushed(NamedTuple):
    """Rows of an input, and what they were read from."""

    rows: pa.RecordBatch
    origin: Any
    """A record batch, a list of dicts, a `PartlyRead`, or what `open_source` can open again."""
    start: int = 0
    """The position of the first row there."""


class UnreadColumns:
    """The columns that a stream declares and a query does not read."""

    def __init__(self, source: Source, read: Collection[str]) -> None:
        names = [name for name in source.declared.names if name not in read]
        self._sources = {name: replace(source, columns=(name,), ordered=False) for name in names}
        self._unfit: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._sources)

    def of(self, pushed: Pushed, places: Ints) -> dict[str, pa.Array]:
        """Return the columns of some rows."""
        found = {}
        for name, source in self._sources.items():
            kind = to_arrow(source.declared[name])
            column = None
            try:
                column = _column(pushed, source, name, places)
            except (UserError, pa.ArrowException, OSError) as unfit:
                if name not in self._unfit:
                    self._unfit.add(name)
                    warnings.warn(
                        f"late rows of {source.name} have null as {name!r}, which the query does not read: "
                        f"{unfit}", stacklevel=2,
                    )  # fmt: skip
            found[name] = pa.nulls(len(places), kind) if column is None else column
        return found


def _column(pushed: Pushed, source: Source, name: str, places: Ints) -> pa.Array | None:
    """Return a column of some rows in the type of the stream; None if they do not have it."""
    origin, places = pushed.origin, places + pushed.start
    if isinstance(origin, pa.RecordBatch):
        at = origin.schema.get_field_index(name)
        if at < 0:
            return None
        some = require_sound(origin.select([at]), source.step).take(pa.array(places))
        return conform(some, source.schema, source.reading, step=source.step).column(0)
    if isinstance(origin, (list, tuple)) and isinstance(origin[0], Mapping):
        values = [origin[at].get(name) for at in places.tolist()]
        return column_of(values, name, source.declared[name], source, first_row=1)
    if isinstance(origin, PartlyRead):
        found = origin.others(source)
        if name not in found.column_names:
            return None
    else:
        names = origin.column_names if isinstance(origin, pa.Table) else getattr(origin, "columns", (name,))
        if name not in names:  # of a frame
            return None
        found = pa.Table.from_batches(
            [chunk.batch for chunk in open_source(origin, source, promises=False)], source.schema.to_arrow()
        )
    return found.column(name).take(pa.array(places)).combine_chunks()
