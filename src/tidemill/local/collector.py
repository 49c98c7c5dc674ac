"""Collect rows into partials by key and pane, the first half of a window aggregate.

Each thread that collects rows has a collector of its own, with its own keys and partials.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.aggregates.layout import Layout
from tidemill.codegen.accumulate import AccumulateKernel, LoopShape, accumulate_kernel
from tidemill.codegen.columns import Columns
from tidemill.codegen.state_plan import StatePlan
from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.core.time import BEGINNING
from tidemill.expr.nodes import Column, Node
from tidemill.kernels.arrow import values
from tidemill.kernels.keys import KeyIndex
from tidemill.local.calendar_panes import CalendarPanes
from tidemill.local.expressions import evaluate, row_by_row
from tidemill.local.intake import Intake, LoopNodes
from tidemill.local.marks import FIRST, LAST
from tidemill.local.pane_store import PaneStore
from tidemill.local.tuning import DEFAULT, Tuning
from tidemill.local.window_gaps import has_gaps, in_windows
from tidemill.plan.nodes import WindowAggregate
from tidemill.plan.physical import Panes

Ints = npt.NDArray[np.int64]
_NO_KEYS = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class RowLoop:
    """What happens to each row of a window aggregate: filters, the pane, the aggregates."""

    plan: WindowAggregate
    panes: Panes
    layout: Layout
    parts: StatePlan
    schema: Schema
    """The columns of the batches."""
    predicates: tuple[Node, ...]
    attribute: Node
    """The windowing attribute, over the columns of the batches."""
    gap: int | None
    """The gap of sessions whose records span rows (`pane_store`)."""
    outputs: dict[str, Node]
    """Columns that keys and aggregates refer to, as expressions over the columns of the batches."""

    @functools.cached_property
    def calendar(self) -> CalendarPanes | None:
        """Adds the pane of each row to batches, where panes are those of a calendar."""
        axis = self.panes.axis
        return None if axis is None else CalendarPanes(axis, self.attribute, self.schema)

    @functools.cached_property
    def grid(self) -> tuple[int, int, int]:
        """The start of all windows, the origin of the panes, and their size or the gap of sessions."""
        start = BEGINNING if self.plan.start is None else self.plan.start
        return start, self.panes.origin, self.panes.size if self.gap is None else self.gap

    @functools.cached_property
    def threadsafe(self) -> bool:
        """Whether several threads may collect rows; a user's Python function may not be thread-safe."""
        over_batch = (*self.predicates, self.attribute, *self.outputs.values())
        over_input = (arg for part in self.layout.parts for arg in part.part.args)
        python = [row_by_row(node, self.schema) for node in over_batch]
        python += [row_by_row(node, self.plan.input.schema) for node in over_input]
        return not any(python)

    @functools.cached_property
    def intake(self) -> Intake[AccumulateKernel]:
        """Gives all collectors their kernels and the columns of batches."""
        placed = self.calendar
        return Intake(
            self.schema if placed is None else placed.schema, self.layout, self.kernel,
            keys=self.plan.group_keys, predicates=self.predicates,
            attribute=self.attribute if placed is None else placed.column, outputs=self.outputs,
        )  # fmt: skip

    def kernel(
        self, columns: Columns, nodes: LoopNodes, store: str, key: str, picked: bool
    ) -> AccumulateKernel:
        assert nodes.attribute is not None
        ticks = self.panes.size == 1 and self.panes.axis is None
        shape = LoopShape(key, self.plan.start is not None, ticks, store, picked)
        return accumulate_kernel(
            columns, nodes.predicates, nodes.attribute, self.layout, nodes.args, self.parts.records,
            self.parts.kept, shape,
        )  # fmt: skip


class Prepared(NamedTuple):
    """A batch as parameters of the accumulate kernel."""

    columns: Columns
    args: list[Any]
    kid: Ints
    keys: int
    """The number of keys so far."""
    rows: int
    failure: UserError | None
    """Raised if the kernel reads a row for which a column failed."""
    wanted: npt.NDArray[np.bool_] | None
    """A mask of the rows to accumulate, or None for all rows."""
    panes: tuple[int, int] = (FIRST, LAST)
    """No row is in a pane outside this range; it is found out where changes are marked."""


class Collector:
    """Looks up the keys of batches and accumulates their rows in a store."""

    def __init__(self, loop: RowLoop, keys: KeyIndex, store: PaneStore, tuning: Tuning = DEFAULT) -> None:
        self.keys, self.store = keys, store
        self.before_start = 0
        """The number of rows in no window because they lie before the start of all windows."""
        self.ids: Ints = np.zeros(0 if loop.plan.group_keys else 1, dtype=np.int64)
        """The ids that keys of this collector have in the operator, where those differ."""
        self._spare: PaneStore | None = None
        """Takes turns with `store`, while lanes take the partials of the other one."""
        self._loop, self._gaps, self._keyed = loop, has_gaps(loop.plan), bool(loop.plan.group_keys)
        self._calendar, self._grid = loop.calendar, loop.grid
        self._by_value, self._loop_rows = self._keyed and not self._gaps, tuning.loop_rows
        self._sample = tuning.sample_rows
        self.intake = loop.intake

    def hand_over(self, keys: KeyIndex, needed: int, make: Callable[[], PaneStore] | None) -> PaneStore:
        """Return a store with all partials so far, for lanes to absorb; `ids` is then complete.

        `keys` is the index of the operator. With `make`, which makes a store, rows may be added while lanes
        absorb the partials; otherwise not before the lanes are done and `emptied` was called. Panes below
        `needed` may be evicted.
        """
        known = len(self.ids)
        if self.keys.count > known and self._loop.plan.group_keys:
            fresh = self.keys.decode(np.arange(known, self.keys.count))
            self.ids = np.concatenate((self.ids, keys.encode(fresh)))
        full = self.store
        full.released()
        if make is not None:
            self.store, self._spare = self._spare or make(), full
            self.store.emptied(needed)
        return full

    def key_ids(self, batch: pa.RecordBatch) -> Ints:
        """Return the key id of each row; empty if the query has no keys."""
        return self.intake.key_ids(batch, self.keys)

    def prepare(self, batch: pa.RecordBatch, kid: Ints) -> Prepared:
        """Prepare a batch; `kid` is what `key_ids` returned for it, or empty if it is not needed."""
        if self._calendar is not None:
            batch = self._calendar.added_to(batch)
        columns, args, failure = self.intake.prepare(batch)
        wanted = None
        if self._gaps:
            wanted = in_windows(self._loop.plan, evaluate(self._loop.attribute, batch, self._loop.schema))
        panes = (FIRST, LAST) if self.store.marks is None else self._panes(batch)
        return Prepared(columns, args, kid, self.keys.count, batch.num_rows, failure, wanted, panes)

    def _panes(self, batch: pa.RecordBatch) -> tuple[int, int]:
        """Return the first and the last pane of a batch, or those of all where the attribute is computed."""
        calendar, grid = self._calendar, self._loop.panes
        attribute = self._loop.attribute if calendar is None else calendar.column
        if not isinstance(attribute, Column) or not batch.num_rows:
            return FIRST, LAST
        ticks = values(batch.column(attribute.name))
        if ticks.dtype.kind != "i":
            return FIRST, LAST
        return (int(ticks.min()) - grid.origin) // grid.size, (int(ticks.max()) - grid.origin) // grid.size

    def add(self, batch: pa.RecordBatch, kid: Ints | None = None) -> None:
        """Accumulate all rows of a batch; `kid` is what `key_ids` returned for it, where it is known."""
        by_value = self._by_value and self.store.marks is None  # where changes are marked, ids must be known
        if kid is None and batch.num_rows >= self._loop_rows and by_value:
            self._add_by_value(batch)
            return
        found = self.prepare(batch, self.key_ids(batch) if kid is None else kid)
        rows: Any = found.rows
        if found.wanted is not None:
            rows = np.flatnonzero(found.wanted).astype(np.uint32)
        self.before_start += self.add_rows(found, rows, self.store, found.keys, shift=0)

    def _add_by_value(self, batch: pa.RecordBatch) -> None:
        """Accumulate a batch in a loop that looks up keys itself, where it can.

        The loop stops at a new key; then the keys of all rows from there on are added to the index.
        """
        columns = self.intake.key_columns(batch)
        if self.keys.count == 0:
            self.keys.encode([c.slice(0, self._sample) for c in columns])
        key = self.keys.in_loop(columns) or ("ids", (self.keys.encode(columns), 0))
        found, done = self.prepare(batch, _NO_KEYS), 0
        end = self._first_rows(self.store, found.rows)
        while done < found.rows:
            done, before = self._accumulate(found, end, done, self.store, self.keys.count, *key)
            self.before_start += before
            if done < end:
                self.keys.encode([c.slice(done) for c in columns])
                key = self.keys.in_loop(columns) or ("ids", (self.keys.encode(columns), 0))
            end = found.rows

    def _first_rows(self, store: PaneStore, rows: int) -> int:
        """Return how many of the next rows to add first: a few, where it is open how to arrange records."""
        return self._sample if rows > 2 * self._sample and store.unsampled else rows

    def add_rows(
        self, found: Prepared, rows: int | npt.NDArray[np.uint32], store: PaneStore, keys: int, shift: int
    ) -> int:
        """Accumulate rows in a store, and return how many lie before the start of all windows.

        `rows` is the number of rows, or an array of some of them. The store has so many keys, and numbers
        them by `kid >> shift`.
        """
        key = ("ids", (found.kid, shift)) if self._keyed else ("none", ())
        count = rows if isinstance(rows, int) else len(rows)
        before, done = 0, 0
        if (first := self._first_rows(store, count)) < count:
            some = first if isinstance(rows, int) else rows[:first]
            _, before = self._accumulate(found, some, 0, store, keys, *key)
            rows, done = (rows, first) if isinstance(rows, int) else (rows[first:], 0)
        _, more = self._accumulate(found, rows, done, store, keys, *key)
        return before + more

    def _accumulate(
        self, found: Prepared, rows: int | npt.NDArray[np.uint32], done: int, store: PaneStore, keys: int,
        key: str, key_args: tuple[Any, ...],
    ) -> tuple[int, int]:  # fmt: skip
        """Run the kernel over rows from `done` on; return how many are done, and how many before a start."""
        picked, count = (False, rows) if isinstance(rows, int) else (True, len(rows))
        kernel = self.intake.kernel(found.columns, store.arranged(count - done, keys), key, picked)
        args = [*found.args, *key_args]
        if store.marks is not None:
            store.marks.touch(_keys_of(rows, done, key_args), *found.panes)
        return store.add(kernel, rows, done, args, self._grid, found.failure)


def _keys_of(rows: int | npt.NDArray[np.uint32], done: int, key_args: tuple[Any, ...]) -> Ints:
    """Return the keys of rows in a store, given what a loop over ids gets to know of them."""
    if not key_args:
        return np.zeros(1, dtype=np.int64)
    kid, shift = key_args
    some: Ints = kid[done:rows] if isinstance(rows, int) else kid[rows[done:]]
    return some >> shift if shift else some
