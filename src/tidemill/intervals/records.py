"""The rows of an index as records: time, place, ties and the partial of each; and as Arrow columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.aggregates.layout import Layout
from tidemill.core.errors import UnsupportedError
from tidemill.core.types import to_arrow
from tidemill.intervals.partials import Lifting, partial_fields, refusal
from tidemill.kernels.arrow import allocate, build
from tidemill.kernels.memory import empty
from tidemill.kernels.order import order_by
from tidemill.kernels.texts import Texts

Ints = npt.NDArray[np.int64]
Outputs = list[tuple[npt.NDArray[Any], npt.NDArray[Any]]]


class Records:
    """Makes the records of a layout. One thread at a time may call `of` and `restored`."""

    def __init__(self, layout: Layout, ties: int) -> None:
        if why := refusal(layout):
            raise UnsupportedError("the time-travel index", why, instead="aggregate the rows of `rows_in`")
        self.layout, self.ties, self.lifting = layout, ties, Lifting(layout)
        self.partial = partial_fields(layout)
        fields = [("time", "i8"), ("place", "i8"), *((f"tie{j}", "i8") for j in range(ties))]
        self.type = np.dtype([*fields, *self.partial], align=True)
        self._texts, self._placed = Texts(), 0

    @property
    def texts(self) -> tuple[Any, ...]:
        """The arrays with the texts that records refer to (`StringIndex.arrays`); empty if there are none."""
        return self._texts.pool.arrays if self.lifting.text_fields else ()

    @property
    def text_count(self) -> int:
        """The number of these texts."""
        return self._texts.pool.count

    def of(
        self, times: Ints, arguments: Sequence[pa.Array], places: Ints | None, ties: Sequence[Ints]
    ) -> npt.NDArray[Any]:
        """Return the records of rows; see `TimeTravelIndex.insert`."""
        n = len(times)
        found = empty(n, self.type)
        found["time"] = times
        found["place"] = np.arange(self._placed, self._placed + n) if places is None else places
        for j, column in enumerate(ties):
            found[f"tie{j}"] = column
        self.lifting.into(found, arguments, self._texts)
        self._placed += n
        return found

    def order(self, keys: Ints, records: npt.NDArray[Any]) -> tuple[Ints, int]:
        """Return the order of records by key, time and ties, and where that of known keys begins."""
        if len(keys) == 1:
            order = np.zeros(1, dtype=np.int64)
        else:
            names = ("time", *(f"tie{j}" for j in range(self.ties)))
            order = order_by(keys, *(records[name].copy() for name in names))
        known = len(keys) and keys[order[0]] < 0
        return order, int(np.count_nonzero(keys < 0)) if known else 0

    def saved(self, keys: Ints, records: npt.NDArray[Any]) -> pa.Table:
        """Return records as a table, which `restored` takes back."""
        columns = {"key": pa.array(keys)}
        for name in self.type.names or ():
            own = records[name].copy()
            text = name in self.lifting.text_fields
            columns[name] = self._texts.decode(own) if text else pa.array(own)
        return pa.table(columns)

    def restored(self, saved: pa.Table) -> tuple[Ints, npt.NDArray[Any]]:
        """Return the keys and the records of a table."""
        found = empty(saved.num_rows, self.type)
        for name in self.type.names or ():
            column = saved[name].combine_chunks()
            text = name in self.lifting.text_fields
            found[name] = (
                self._texts.pool.encode(column) if text else column.to_numpy(zero_copy_only=False)
            )
        self._placed = int(found["place"].max(initial=-1)) + 1
        return saved["key"].to_numpy(), found

    def outputs(self, n: int) -> Outputs:
        """Return arrays for the results of the layout: their values, and which of them are valid."""
        return [(allocate(r.type, n), empty(n, np.uint8)) for r in self.layout.results]

    def columns(self, outputs: Outputs) -> list[pa.Array]:
        """Return results as Arrow columns."""
        found = []
        for result, (data, valid) in zip(self.layout.results, outputs):
            if result.type.kind == "string":
                found.append(self._texts.decode(np.where(valid != 0, data, -1)))
            else:
                found.append(build(data, valid, to_arrow(result.type)))
        return found
