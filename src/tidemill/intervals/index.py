"""The time-travel index: rows by key and time, and aggregates of any interval of them (paper 004, V-A)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.aggregates.layout import Layout
from tidemill.codegen.kernel_errors import raise_for
from tidemill.core.errors import UnsupportedError
from tidemill.core.types import to_arrow
from tidemill.expr.nodes import Node
from tidemill.intervals.loops.answer import answer_kernel
from tidemill.intervals.loops.blocks import LEAF
from tidemill.intervals.loops.list_rows import list_all, list_intervals
from tidemill.intervals.loops.summaries import summary_kernel
from tidemill.intervals.memory import BlockMemory
from tidemill.intervals.partials import Lifting, folding, partial_fields, refusal
from tidemill.kernels.arrow import allocate, build
from tidemill.kernels.memory import empty
from tidemill.kernels.order import order_by
from tidemill.kernels.texts import Texts

Ints = npt.NDArray[np.int64]


class TimeTravelIndex:
    """Keeps rows by key and time, and aggregates those of any interval.

    Keys are numbers `0, 1, 2, …`. One thread at a time may write: `insert` and `expire`. Any thread may read
    at any time: it sees, of each key, all rows of a batch or none.

    >>> from tidemill.aggregates.basic import count, sum
    >>> from tidemill.aggregates.layout import layout
    >>> from tidemill.core.schema import schema
    >>> from tidemill.expr.fluent import col
    >>> asked = layout((("n", count()), ("s", sum(col.x))), schema({"x": "int64"}))
    >>> index = TimeTravelIndex(asked)
    >>> index.arguments
    (Column(col.x),)
    >>> index.insert(np.array([0, 1, 0]), np.array([5, 3, 2]), [pa.array([10, 20, 30])])
    >>> key, low, high = np.array([0, 0, 1]), np.array([1, 3, 9]), np.array([5, 5, 9])
    >>> [c.to_pylist() for c in index.answers(key, low, high)]
    [[2, 1, 0], [40, 10, None]]
    >>> index.answer(0, 1, 5)
    (2, 40)
    """

    def __init__(self, layout: Layout, *, ties: int = 0, fold: str = "incremental") -> None:
        """Rows of a key are in order of time, then of so many `ties`, then as they came.

        `fold` is how intervals are aggregated, `"incremental"`, `"tree"` or `"rows"` (`loops.answer`), to
        measure what each is worth.
        """
        if why := refusal(layout):
            raise UnsupportedError("the time-travel index", why, instead="aggregate the rows of `rows_in`")
        self.layout, self.ties = layout, ties
        self._lifting, self._texts = Lifting(layout), Texts()
        fields = [("time", "i8"), ("place", "i8"), *((f"tie{j}", "i8") for j in range(ties))]
        self._type = np.dtype([*fields, *partial_fields(layout)], align=True)
        self._memory = BlockMemory(self._type, partial_fields(layout))
        self._summary = summary_kernel(layout)
        self._answer = answer_kernel(layout, folding(layout, fold))
        self._placed = 0

    @property
    def arguments(self) -> tuple[Node, ...]:
        """The expressions over a row whose values `insert` is given."""
        return self._lifting.arguments

    @property
    def rows(self) -> int:
        """The number of rows that are kept."""
        return self._memory.rows

    def size(self) -> tuple[int, int]:
        """Return the number of rows, and the bytes that hold them."""
        return self.rows, self._memory.bytes

    # -- the writer

    def insert(
        self, keys: Ints, times: Ints, arguments: Sequence[pa.Array], *, places: Ints | None = None,
        ties: Sequence[Ints] = (),
    ) -> None:  # fmt: skip
        """Insert rows in any order. Rows with a key below 0 are left out.

        `arguments` has a column for each of `index.arguments`. `places` are numbers by which `rows_in` names
        rows, by default `0, 1, 2, …` as rows come. `ties` are columns that sort rows of one time.
        """
        records = empty(len(keys), self._type)
        records["time"] = times
        records["place"] = np.arange(self._placed, self._placed + len(keys)) if places is None else places
        for j, column in enumerate(ties):
            records[f"tie{j}"] = column
        self._lifting.into(records, arguments, self._texts)
        self._placed += len(keys)
        self._insert(keys, records)

    def _insert(self, keys: Ints, records: npt.NDArray[Any]) -> None:
        if self._lifting.text_fields:
            self._memory.place_texts(self._texts.pool.arrays)
        n = len(keys)
        if n == 1:
            order = np.zeros(1, dtype=np.int64)
        else:
            names = ("time", *(f"tie{j}" for j in range(self.ties)))
            order = order_by(keys, *(records[name].copy() for name in names))
        known = 0 if n == 0 or keys[order[0]] >= 0 else int(np.count_nonzero(keys < 0))
        self._memory.insert(keys, records, order, self.ties, known, self._summary)

    def expire(self, below: int, *, spare: int = 0) -> None:
        """Drop rows with a time below an instant, except for the last `spare` of each key.

        Rows go a block at a time: some of them may stay for a while. An interval that begins below the
        instant has no defined answer afterwards, but for the rows that are spared: a row that prevails, or
        the last few that `max_rows` asks for.
        """
        self._memory.expire(below, spare)

    def snapshot(self) -> pa.Table:
        """Return all rows with their keys and partials; `restore` takes it back."""
        view, n = self._memory.view, self.rows
        keys, places = empty(n), empty(n)
        list_all(view.heads, view.nodes, view.rows, keys, places)
        columns = {"key": pa.array(keys)}
        rows = view.elements[places]
        for name in self._type.names or ():
            own = rows[name].copy()
            columns[name] = self._texts.decode(own) if name in self._lifting.text_fields else pa.array(own)
        return pa.table(columns)

    def restore(self, saved: pa.Table) -> None:
        """Take the rows of a snapshot, in place of those that are kept."""
        rows = empty(saved.num_rows, self._type)
        for name in self._type.names or ():
            column = saved[name].combine_chunks()
            own = rows[name]
            text = name in self._lifting.text_fields
            own[:] = self._texts.pool.encode(column) if text else column.to_numpy(zero_copy_only=False)
        self._memory = BlockMemory(self._type, partial_fields(self.layout))
        self._insert(saved["key"].to_numpy(), rows)
        self._placed = int(rows["place"].max(initial=-1)) + 1

    # -- readers

    def answers(
        self, keys: Ints, low: Ints, high: Ints, *, prevailing: bool = False, max_rows: int | None = None,
        at: Ints | None = None,
    ) -> list[pa.Array]:  # fmt: skip
        """Return the results of the layout for intervals of keys: of rows with `low <= time <= high`.

        Unknown keys and those below 0 have no rows. With `prevailing`, the last row before the interval
        belongs to it. With `max_rows`, only so many rows nearest to the instant `at` do; of two that are as
        near, the earlier one.
        """
        n, first = len(keys), 0
        order = np.zeros(1, dtype=np.int64) if n == 1 else order_by(keys, low)
        outputs = [(allocate(r.type, n), empty(n, np.uint8)) for r in self.layout.results]
        most = -1 if max_rows is None else max_rows
        while first < n:
            view = self._memory.view
            first, err = self._answer.run(
                order, keys, low, high, low if at is None else at, most, prevailing, view.heads, view.nodes,
                view.rows, view.entries, view.elements, np.empty(LEAF, dtype=self._type), view.clock,
                view.limit, view.texts, first, *(a for o in outputs for a in o),
            )  # fmt: skip
            raise_for(err, "interval join")
        return [self._column(j, *output) for j, output in enumerate(outputs)]

    def answer(
        self, key: int, low: int, high: int, *, prevailing: bool = False, max_rows: int | None = None,
        at: int | None = None,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Return the results of the layout for one interval, as Python values. See `answers`.

        Instants and durations are ticks.
        """
        found = self.answers(
            np.array([key]), np.array([low]), np.array([high]), prevailing=prevailing, max_rows=max_rows,
            at=None if at is None else np.array([at]),
        )  # fmt: skip
        return tuple(_plain(column) for column in found)

    def rows_in(
        self, keys: Ints, low: Ints, high: Ints, *, prevailing: bool = False, max_rows: int | None = None,
        at: Ints | None = None,
    ) -> tuple[Ints, Ints]:  # fmt: skip
        """Return which rows belong to intervals, by the places given to `insert`. See `answers`.

        Those of interval `i` are `places[offsets[i]:offsets[i + 1]]`, in order of time.
        """
        n = len(keys)
        offsets, places = np.zeros(n + 1, dtype=np.int64), empty(max(2 * n, 64))
        i, most = 0, -1 if max_rows is None else max_rows
        while i < n:
            view = self._memory.view
            i, full = list_intervals(
                i, keys, low, high, low if at is None else at, most, prevailing, view.heads, view.nodes,
                view.rows, view.clock, view.limit, offsets, places,
            )  # fmt: skip
            if full:
                more = empty(2 * len(places))
                more[: offsets[i]] = places[: offsets[i]]
                places = more
        return offsets, places[: offsets[n]]

    def _column(self, j: int, data: npt.NDArray[Any], valid: npt.NDArray[Any]) -> pa.Array:
        kind = self.layout.results[j].type
        if kind.kind == "string":
            return self._texts.decode(np.where(valid != 0, data, -1))
        return build(data, valid, to_arrow(kind))


def _plain(column: pa.Array) -> Any:
    if pa.types.is_timestamp(column.type) or pa.types.is_duration(column.type):
        column = column.cast(pa.int64())
    return column[0].as_py()
