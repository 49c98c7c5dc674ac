"""Joiners on threads that share hot keys (paper 004, V-B): each has an index and reads those of its team."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import wait
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.aggregates.layout import Layout
from tidemill.codegen.kernel_errors import raise_for
from tidemill.core.threads import Threads, borrowed, returned, threads
from tidemill.expr.nodes import Node
from tidemill.intervals.loops.answer import answer_kernel, lower_kernel
from tidemill.intervals.loops.blocks import LEAF
from tidemill.intervals.loops.summaries import summary_kernel
from tidemill.intervals.memory import BlockMemory
from tidemill.intervals.partials import folding
from tidemill.intervals.records import Records
from tidemill.intervals.schedule import Schedule, Statistics, balanced
from tidemill.kernels.memory import empty
from tidemill.kernels.order import order_by

Ints = npt.NDArray[np.int64]
_PARTITIONS = 16
"""So many partitions for each joiner."""
_REPLAN = 1 << 16
"""After so many rows the schedule is made anew."""


class TeamIndex:
    """As `TimeTravelIndex`, written and read by several joiners at once, with the same answers.

    Rows and intervals of a key are divided among the joiners of its team. Every call is complete when it
    returns, so what `answers` sees does not depend on the number of joiners.

    >>> from tidemill.aggregates.basic import count, sum
    >>> from tidemill.aggregates.layout import layout
    >>> from tidemill.core.schema import schema
    >>> from tidemill.expr.fluent import col
    >>> asked = layout((("n", count()), ("s", sum(col.x))), schema({"x": "int64"}))
    >>> with TeamIndex(asked, joiners=2) as index:
    ...     index.insert(np.array([0, 1, 0]), np.array([5, 3, 2]), [pa.array([10, 20, 30])])
    ...     found = index.answers(np.array([0, 0, 1]), np.array([1, 3, 9]), np.array([5, 5, 9]))
    >>> [column.to_pylist() for column in found]
    [[2, 1, 0], [40, 10, None]]
    """

    def __init__(
        self, layout: Layout, *, joiners: int | None = None, fold: str = "incremental",
        balance: bool = True, replan: int = _REPLAN,
    ) -> None:  # fmt: skip
        """Use so many joiners, by default as many as there are processors.

        Without `balance`, each key has one joiner, as in Key-OIJ. `replan` is after how many rows the
        schedule is made anew.
        """
        joiners = threads() if joiners is None else joiners
        self._records = Records(layout, 0)
        self._memories = [BlockMemory(self._records.type, self._records.partial) for _ in range(joiners)]
        self._summary = summary_kernel(layout)
        self._answer = answer_kernel(layout, folding(layout, fold), partial=True)
        self._lower = lower_kernel(layout)
        self._state_type = np.dtype(self._records.partial, align=True)
        self._balance, self._replan, self._since = balance, replan, 0
        self._statistics = Statistics(_PARTITIONS * joiners)
        self._follow(Schedule.by_key(_PARTITIONS * joiners, joiners))
        self._pool: Threads | None = borrowed(joiners) if joiners > 1 else None

    def __enter__(self) -> TeamIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the threads back. The index can be used on, on the caller's thread."""
        pool, self._pool = self._pool, None
        if pool is not None:
            returned(pool, [])

    @property
    def arguments(self) -> tuple[Node, ...]:
        """The expressions over a row whose values `insert` is given."""
        return self._records.lifting.arguments

    @property
    def rows(self) -> int:
        """The number of rows that are kept."""
        return sum(memory.rows for memory in self._memories)

    def size(self) -> tuple[int, int]:
        """Return the number of rows, and the bytes that hold them."""
        return self.rows, sum(memory.bytes for memory in self._memories)

    # -- the schedule

    def _follow(self, schedule: Schedule) -> None:
        self.schedule = schedule
        most = max(len(team) for team in schedule.teams)
        self._team = np.array([(*t, *t[:1] * (most - len(t))) for t in schedule.teams])
        self._team_size = np.array([len(t) for t in schedule.teams])
        self._reads = np.zeros((len(schedule.teams), schedule.joiners), dtype=np.bool_)
        for partition, team in enumerate(schedule.teams):
            self._reads[partition, list(team)] = True

    def _divided(self, keys: Ints) -> tuple[Ints, list[Ints]]:
        """Return the partition of each row, and the rows of each joiner: none with a key below 0."""
        partition = np.maximum(keys, 0) % len(self._team)
        self._statistics.add(partition)
        self._since += len(keys)
        turn = np.arange(len(keys)) * self._team_size[partition] // max(len(keys), 1)
        joiner = np.where(keys < 0, -1, self._team[partition, turn])
        return partition, [np.flatnonzero(joiner == j) for j in range(len(self._memories))]

    def _on_time(self) -> None:
        """Make the schedule anew, if it is time."""
        if self._balance and self._since >= self._replan:
            self._follow(balanced(self.schedule, self._statistics.loads))
            self._statistics.decay()
            self._since = 0

    def _each(self, work: Callable[[int], Any]) -> list[Any]:
        """Do something for each joiner, and wait for all of them."""
        numbers = range(len(self._memories))
        if self._pool is None:
            return [work(j) for j in numbers]
        calls = [self._pool.submit(work, j) for j in numbers]
        wait(calls)
        return [call.result() for call in calls]

    # -- rows

    def insert(self, keys: Ints, times: Ints, arguments: Sequence[pa.Array]) -> None:
        """Insert rows in any order; see `TimeTravelIndex.insert`."""
        records = self._records.of(times, arguments, None, ())
        self._insert(keys, records)

    def _insert(self, keys: Ints, records: npt.NDArray[Any]) -> None:
        self._on_time()
        _, parts = self._divided(keys)

        def work(joiner: int) -> None:
            own, memory = parts[joiner], self._memories[joiner]
            memory.place_texts(self._records.texts)
            if len(own):
                taken = records[own]
                order, first = self._records.order(keys[own], taken)
                memory.insert(keys[own], taken, order, 0, first, self._summary)

        self._each(work)

    def expire(self, below: int) -> None:
        """Drop rows with a time below an instant; see `TimeTravelIndex.expire`."""
        self._each(lambda joiner: self._memories[joiner].expire(below, 0))

    def snapshot(self) -> pa.Table:
        """Return all rows with their partials; `restore` takes it back, with any number of joiners."""
        return pa.concat_tables([self._records.saved(*m.all_rows()) for m in self._memories])

    def restore(self, saved: pa.Table) -> None:
        """Take the rows of a snapshot, in place of those that are kept."""
        keys, records = self._records.restored(saved)
        self._memories = [BlockMemory(self._records.type, self._records.partial) for _ in self._memories]
        self._insert(keys, records)

    def answers(self, keys: Ints, low: Ints, high: Ints) -> list[pa.Array]:
        """Return the results of the layout for intervals of keys; see `TimeTravelIndex.answers`."""
        n = len(keys)
        partition, parts = self._divided(keys)
        states, outputs = empty(n, self._state_type), self._records.outputs(n)
        if len(nobody := np.flatnonzero(keys < 0)):
            parts[0] = np.concatenate((parts[0], nobody))  # without rows, but with an answer

        def work(joiner: int) -> int:
            own = parts[joiner]
            if not len(own):
                return 0
            own = own[order_by(keys[own], low[own])]
            err = self._partials(joiner, own, False, keys, low, high, states)
            for other in range(len(self._memories)):
                if other != joiner and len(shared := own[self._reads[partition[own], other]]):
                    err |= self._partials(other, shared, True, keys, low, high, states)
            table = self._memories[joiner].view.texts
            return err | int(self._lower.run(own, states, table, *(a for o in outputs for a in o)))

        for err in self._each(work):
            raise_for(err, "interval join")
        return self._records.columns(outputs)

    def _partials(
        self, other: int, order: Ints, add: bool, keys: Ints, low: Ints, high: Ints, states: npt.NDArray[Any]
    ) -> int:
        """Write, or add, the partials of intervals in the index of a joiner."""
        first, errors, suffixes = 0, 0, np.empty(LEAF, dtype=self._records.type)
        while first < len(order):
            view = self._memories[other].view
            first, err = self._answer.run(
                order, keys, low, high, low, -1, False, view.heads, view.nodes, view.rows, view.entries,
                view.elements, suffixes, view.clock, view.limit, view.texts, first, states, add,
            )  # fmt: skip
            errors |= err
        return errors
