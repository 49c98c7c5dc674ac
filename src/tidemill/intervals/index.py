"""The time-travel index: rows by key and time, and aggregates of any interval of them (paper 004, V-A)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.aggregates.layout import Layout
from tidemill.codegen.kernel_errors import raise_for
from tidemill.core.errors import UnsupportedError
from tidemill.expr.nodes import Node
from tidemill.intervals.loops.answer import answer_kernel
from tidemill.intervals.loops.blocks import LEAF
from tidemill.intervals.loops.list_rows import list_intervals
from tidemill.intervals.loops.summaries import summary_kernel
from tidemill.intervals.memory import BlockMemory, View, entry_type, shapes_of, view_of
from tidemill.intervals.partials import folding
from tidemill.intervals.records import Records
from tidemill.intervals.sharing import Publisher, Subscriber
from tidemill.kernels.memory import empty
from tidemill.kernels.order import order_by

Ints = npt.NDArray[np.int64]


class IndexReader:
    """Answers from an index that somebody writes."""

    def __init__(self, layout: Layout, ties: int, fold: str) -> None:
        self.layout, self.ties = layout, ties
        self._records = Records(layout, ties)
        self._answer = answer_kernel(layout, folding(layout, fold))

    def _view(self) -> View:
        """Return the newest arrays."""
        raise NotImplementedError

    def answers(
        self, keys: Ints, low: Ints, high: Ints, *, prevailing: bool = False, max_rows: int | None = None,
        at: Ints | None = None,
    ) -> list[pa.Array]:  # fmt: skip
        """Return the results of the layout for intervals of keys: of rows with `low <= time <= high`.

        Unknown keys and those below 0 have no rows. With `prevailing`, the last row before the interval
        belongs to it. With `max_rows`, only so many rows nearest to the instant `at` do; of two that are as
        near, the earlier one.
        """
        n = len(keys)
        order = np.zeros(1, dtype=np.int64) if n == 1 else order_by(keys, low)
        outputs = self._records.outputs(n)
        results = [a for o in outputs for a in o]
        most, instants = -1 if max_rows is None else max_rows, low if at is None else at

        def fold(own: Ints) -> None:
            first = 0
            while first < len(own):
                view = self._view()
                first, err = self._answer.run(
                    own, keys, low, high, instants, most, prevailing, view.heads, view.nodes, view.rows,
                    view.entries, view.elements, np.empty(LEAF, dtype=view.elements.dtype), view.clock,
                    view.limit, view.texts, first, *results,
                )  # fmt: skip
                raise_for(err, "interval join")

        self._fold(order, keys, fold)
        return self._records.columns(outputs)

    def _fold(self, order: Ints, keys: Ints, fold: Callable[[Ints], None]) -> None:
        """Call `fold` for all places in `order`, which is in order of key."""
        fold(order)

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
            view = self._view()
            i, full = list_intervals(
                i, keys, low, high, low if at is None else at, most, prevailing, view.heads, view.nodes,
                view.rows, view.clock, view.limit, offsets, places,
            )  # fmt: skip
            if full:
                more = empty(2 * len(places))
                more[: offsets[i]] = places[: offsets[i]]
                places = more
        return offsets, places[: offsets[n]]

    @property
    def _described(self) -> dict[str, str]:
        """What the index of a writer and of a reader must have in common."""
        return {"rows": str(self._records.type.descr), "results": str(self.layout.results)}


class TimeTravelIndex(IndexReader):
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
        super().__init__(layout, ties, fold)
        self._memory = BlockMemory(self._records.type, self._records.partial)
        self._summary = summary_kernel(layout)

    @property
    def arguments(self) -> tuple[Node, ...]:
        """The expressions over a row whose values `insert` is given."""
        return self._records.lifting.arguments

    @property
    def rows(self) -> int:
        """The number of rows that are kept."""
        return self._memory.rows

    @property
    def texts(self) -> int:
        """The number of texts that are kept: those of rows that were dropped stay."""
        return self._records.text_count

    def size(self) -> tuple[int, int]:
        """Return the number of rows, and the bytes that hold them."""
        return self.rows, self._memory.bytes + sum(int(a.nbytes) for a in self._records.texts)

    def _view(self) -> View:
        return self._memory.view

    def insert(
        self, keys: Ints, times: Ints, arguments: Sequence[pa.Array], *, places: Ints | None = None,
        ties: Sequence[Ints] = (),
    ) -> None:  # fmt: skip
        """Insert rows in any order. Rows with a key below 0 are left out.

        `arguments` has a column for each of `index.arguments`. `places` are numbers by which `rows_in` names
        rows, by default `0, 1, 2, …` as rows come. `ties` are columns that sort rows of one time.
        """
        self._insert(keys, self._records.of(times, arguments, places, ties))

    def _insert(self, keys: Ints, records: npt.NDArray[Any]) -> None:
        self._memory.place_texts(self._records.texts)
        order, known = self._records.order(keys, records)
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
        keys, records = self._memory.all_rows()
        return self._records.saved(keys, records)

    def restore(self, saved: pa.Table) -> None:
        """Take the rows of a snapshot, in place of those that are kept."""
        keys, records = self._records.restored(saved)
        publisher = self._memory.publisher
        self._memory = BlockMemory(self._records.type, self._records.partial)
        if publisher is not None:
            self._memory.share(publisher)
        self._insert(keys, records)

    def share(self, path: str | os.PathLike[str]) -> None:
        """Let other processes read this index, by files in a directory: `SharedIndex(path, layout)`.

        A directory in memory (`/dev/shm`) costs nothing but memory. Only the process that shares it writes.
        """
        if self._records.lifting.text_fields:
            raise UnsupportedError(
                "sharing an index", "texts are in the memory of its writer", instead="aggregate codes of them"
            )
        self._memory.share(Publisher(Path(path), self._described))


class SharedIndex(IndexReader):
    """A read-only index that another process writes: see `TimeTravelIndex.share`."""

    def __init__(
        self, path: str | os.PathLike[str], layout: Layout, *, ties: int = 0, fold: str = "incremental"
    ) -> None:
        super().__init__(layout, ties, fold)
        self._entry_type = entry_type(self._records.partial)
        shapes = shapes_of(self._records.type, self._entry_type)
        self._source = Subscriber(Path(path), self._described, shapes)
        self._attached: View | None = None

    @property
    def writer(self) -> str:
        """The state of the writer: "alive", or "gone", after which nothing changes any more."""
        return self._source.writer

    def _view(self) -> View:
        if self._attached is None or self._source.is_stale():
            self._attached = view_of(self._source.arrays(), self._records.type, self._entry_type)
        return self._attached


def _plain(column: pa.Array) -> Any:
    if pa.types.is_timestamp(column.type) or pa.types.is_duration(column.type):
        column = column.cast(pa.int64())
    return column[0].as_py()
