"""Joiners on threads share the intervals of hot keys, by the balanced schedule (paper 004, V-B)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from concurrent.futures import Executor, Future, wait

import numpy as np
import numpy.typing as npt

from tidemill.aggregates.layout import Layout
from tidemill.core.threads import Threads, borrowed, returned
from tidemill.intervals.index import TimeTravelIndex
from tidemill.intervals.loops.divide import divide
from tidemill.intervals.schedule import Schedule, Statistics, balanced

Ints = npt.NDArray[np.int64]
_PARTITIONS = 16
"""So many partitions for each joiner."""
_REPLAN = 1 << 16
"""After so many intervals the schedule is made anew."""


class Team:
    """Divides intervals among joiners. The caller's thread is one of them; the others are borrowed."""

    def __init__(
        self, joiners: int, *, few: int, balance: bool = True, replan: int = _REPLAN,
        pool: Executor | None = None,
    ) -> None:  # fmt: skip
        """Use so many joiners, on threads of a `pool`, if given.

        Fewer than `few` intervals are not divided. Without `balance`, each key has one joiner, as in
        Key-OIJ. `replan` is after how many intervals the schedule is made anew.
        """
        self.joiners = joiners
        self._few = max(few, 1)
        self._balance, self._replan = balance, replan
        self._since = replan  # the first intervals say more than nothing
        self._statistics = Statistics(_PARTITIONS * self.joiners)
        self._loads = np.zeros(_PARTITIONS * self.joiners, dtype=np.int64)
        self._given = pool
        self._own: Threads | None = None
        self._process = os.getpid()
        self._follow(Schedule.by_key(_PARTITIONS * self.joiners, self.joiners))

    def close(self) -> None:
        """Give the threads back. They are borrowed again when they are needed."""
        pool, self._own = self._own, None
        if pool is not None:
            returned(pool, ())

    def _follow(self, schedule: Schedule) -> None:
        self.schedule = schedule
        most = max(len(team) for team in schedule.teams)
        self._teams = np.array([(*t, *t[:1] * (most - len(t))) for t in schedule.teams])
        self._sizes = np.array([len(t) for t in schedule.teams])

    def work(self, order: Ints, keys: Ints, fold: Callable[[Ints], None]) -> None:
        """Call `fold` on several threads for the places in `order`, which is in order of key.

        All of them are done when it returns, or raises.
        """
        if self.joiners == 1 or len(order) < self._few:
            fold(order)
            return
        pool = self._pool()
        found, first = divide(order, keys, self._teams, self._sizes, self.joiners, self._loads)
        self._count(len(order))
        own, *others = (found[a:b] for a, b in itertools.pairwise(first) if a < b)
        calls: list[Future[None]] = []
        try:
            for part in others:
                calls.append(pool.submit(fold, part))
            fold(own)
            for call, part in zip(calls, others):
                if call.cancel():  # no thread was free to begin it
                    fold(part)
        finally:  # also if it fails: nobody may read after this call
            running = [call for call in calls if not call.cancel()]
            wait(running)
        for call in running:
            call.result()

    def _count(self, intervals: int) -> None:
        """Count the intervals that were divided, and make the schedule anew if it is time."""
        self._statistics.add(self._loads)
        self._since += intervals
        if self._balance and self._since >= self._replan:
            self._follow(balanced(self.schedule, self._statistics.loads))
            self._statistics.decay()
            self._since = 0

    def _pool(self) -> Executor:
        if self._process != os.getpid():  # a forked child has none of the threads
            self._process, self._given, self._own = os.getpid(), None, None
        if self._given is not None:
            return self._given
        if self._own is None:
            self._own = borrowed(self.joiners - 1)
        return self._own


class TeamIndex(TimeTravelIndex):
    """A `TimeTravelIndex` whose answers are made by several joiners at once, and are the same.

    One index has all rows, as any number of threads may read it: the intervals of a key are divided among the
    joiners of its virtual team. The caller writes.

    >>> from tidemill.aggregates.basic import count, sum
    >>> from tidemill.aggregates.layout import layout
    >>> from tidemill.core.schema import schema
    >>> from tidemill.expr.fluent import col
    >>> import pyarrow as pa
    >>> asked = layout((("n", count()), ("s", sum(col.x))), schema({"x": "int64"}))
    >>> index = TeamIndex(asked, Team(2, few=1))
    >>> index.insert(np.array([0, 1, 0]), np.array([5, 3, 2]), [pa.array([10, 20, 30])])
    >>> found = index.answers(np.array([0, 0, 1]), np.array([1, 3, 9]), np.array([5, 5, 9]))
    >>> [column.to_pylist() for column in found]
    [[2, 1, 0], [40, 10, None]]
    >>> index.team.close()
    """

    def __init__(self, layout: Layout, team: Team, *, ties: int = 0, fold: str = "incremental") -> None:
        super().__init__(layout, ties=ties, fold=fold)
        self.team = team

    def _fold(self, order: Ints, keys: Ints, fold: Callable[[Ints], None]) -> None:
        self.team.work(order, keys, fold)
