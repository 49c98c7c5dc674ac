"""Aggregates of tables by key, in a query that runs to its end (paper 000, sections 6 and 7.3).

Rows of a table have no time, so a group is complete at the end, and there is nothing to do but to find the
rows of each key. The first rows show how:

- `rows`: keys are few. Each thread takes whole batches, with keys and partials of its own.
- `sorted`: a key column does not fall. Batches are cut where its value changes, so that no key has rows in
  two pieces: each thread takes whole pieces. What lies across a cut goes to a share of its own. Where a key
  comes in order, its id needs no hash table (`IntIndex`).
- `hashed`: keys are many. Rows are divided by a hash of their keys, on all threads, and at the end each
  thread takes whole parts, one after another, whose keys and partials fit in its cache.

Nothing depends on what the first rows show: where a key falls later, or keys become many, what was collected
so far is divided among the parts.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.core.errors import InternalError
from tidemill.core.schema import internal
from tidemill.core.threads import Strand, Threads, borrowed, on_threads, returned
from tidemill.core.time import BEGINNING, FOREVER
from tidemill.expr.nodes import Column, Literal, columns_of
from tidemill.kernels.keys import KeyIndex
from tidemill.kernels.partitions import partitioned
from tidemill.kernels.row_batches import joined_rows, taken_rows
from tidemill.kernels.runs import rising
from tidemill.local.limits import Limits
from tidemill.local.operator import Operator, Snapshot
from tidemill.local.pane_store import PaneStore
from tidemill.local.stage_runner import stage_runner
from tidemill.local.tuning import Tuning
from tidemill.local.window_operator import WindowOperator
from tidemill.plan.nodes import Source, WindowAggregate
from tidemill.plan.stages import Stage
from tidemill.plan.temporal import ALWAYS, ALWAYS_END, ALWAYS_START

_Partials = tuple[KeyIndex, PaneStore]
_Parted = tuple[pa.RecordBatch, list[int]]
"""Rows in the order of their parts, and where each part begins."""


class GroupOperator(Operator):
    """Aggregates of a table by key. It gives all its results at the end, and has no state to save."""

    def __init__(self, plan: WindowAggregate, stage: Stage, threads: int, tuning: Tuning) -> None:
        """`stage` has the filters and projections that are fused with it."""
        self.plan, self._stage, self._count, self._tuning = plan, stage, threads, tuning
        self._way: _Way | None = None
        self._ended = False
        self._pool: Threads | None = None
        self._coming: deque[Future[pa.RecordBatch | None]] = deque()
        """Calls for results that are not read yet."""

    @property
    def kind(self) -> str:
        return "window"

    def push(self, port: int, batch: pa.RecordBatch) -> tuple[()]:
        if not batch.num_rows:
            return ()
        if self._way is None:
            self._way = self._chosen(batch)
        while (rest := self._way.take(batch)) is not None:
            self._way = _Hashed(self, self._way.partials())
            batch = rest
        return ()

    def _chosen(self, batch: pa.RecordBatch) -> _Way:
        """Choose how to find the rows of each key."""
        ways, share = self._tuning.groups, self.share()
        if not share.divides_rows or not self._threadsafe:
            return _Rows(self, fixed=True)
        some = batch.slice(0, self._tuning.sample_rows)
        keys = KeyIndex(self.plan.input.schema.select(self.plan.group_keys))
        rows = self.compact.run(some)
        if rows.num_rows:
            keys.encode([rows.column(n) for n in self.plan.group_keys])
        few = 2 * keys.count <= self._tuning.few_groups
        if "sorted" in ways and not share.holds_text:
            column = self._in_order(some)
            long = keys.count * self._tuning.long_runs <= rows.num_rows
            if column is not None and not (few and long and "rows" in ways):
                return _Sorted(self, column)
        if "rows" in ways and (few or "hashed" not in ways):
            return _Rows(self, fixed=share.keeps_much or "hashed" not in ways)
        return _Hashed(self, [])

    def _in_order(self, batch: pa.RecordBatch) -> str | None:
        """Return a column of the input that is a key, and does not fall in a batch; None if there is none."""
        for key in self.plan.group_keys:
            node = self._stage.output(key)
            if isinstance(node, Column):
                run = rising(batch.column(node.name))
                if run is not None and run.first < run.last:
                    return node.name
        return None

    # -- parts

    @property
    def _needed(self) -> list[str]:
        """The columns of the input that groups are made of."""
        parts = self.plan.layout.parts
        read = {*self.plan.group_keys}.union(*(columns_of(a) for part in parts for a in part.part.args))
        return [n for n in self.plan.input.schema.names if n in read and n not in (ALWAYS, ALWAYS_END)]

    @property
    def compact(self) -> Any:
        """Computes these columns of the rows that pass the filters."""
        outputs = tuple((n, self._stage.output(n)) for n in self._needed)
        return stage_runner(self._stage.predicates, outputs, self._stage.base.schema)

    @property
    def _threadsafe(self) -> bool:
        return bool(self.compact.threadsafe)

    @property
    def _needed_stage(self) -> Stage:
        """The stage over these columns."""
        schema = self.plan.input.schema
        source = Source(internal("rows"), schema.select(tuple(self._needed)), ALWAYS, table=True)
        ticks = {ALWAYS: ALWAYS_START, ALWAYS_END: None}
        always = ((name, Literal(tick, schema[name])) for name, tick in ticks.items())
        return Stage(source, (), (*((n, Column(n)) for n in self._needed), *always))

    def share(self, *, needed: bool = False, lanes: int = 1, tuning: Tuning | None = None) -> WindowOperator:
        """Return an operator for some rows: of the input, or of the `needed` columns."""
        stage = self._needed_stage if needed else self._stage
        return WindowOperator(
            self.plan, lanes, tuning=tuning or self._tuning, stage=stage, watch=False, keep_late=False
        )

    @property
    def tuning(self) -> Tuning:
        return self._tuning

    @property
    def threads(self) -> int:
        return self._count

    @property
    def pool(self) -> Threads:
        """Threads of its own."""
        if self._pool is None:
            self._pool = borrowed(self._count)
        return self._pool

    def interleaved(self, results: Sequence[Iterable[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of several results, each computed by one call at a time."""
        if self._count == 1:
            yield from itertools.chain.from_iterable(results)
            return
        waiting = deque(map(iter, results))
        self._coming.extend(self.pool.submit(next, one, None) for one in waiting)
        while waiting:
            one, batch = waiting.popleft(), self._coming[0].result()
            self._coming.popleft()
            if batch is not None:
                waiting.append(one)
                self._coming.append(self.pool.submit(next, one, None))
                yield batch

    def advance(self, port: int, below: int, *, prompt: bool = False) -> Iterable[pa.RecordBatch]:
        if below != FOREVER or self._ended:
            return ()
        self._ended = True
        return self._results()

    def _results(self) -> Iterator[pa.RecordBatch]:
        if self._way is None:  # without rows there are no groups, but there may be a row without keys
            self._way = _Rows(self, fixed=True)
        yield from self._way.results()

    def close(self) -> None:
        calls = [] if self._way is None else self._way.close()
        if self._pool is not None:
            returned(self._pool, [*calls, *self._coming])
            self._pool = None

    @property
    def wants_advance(self) -> bool:
        return False

    @property
    def promise(self) -> Limits:
        return Limits(FOREVER if self._ended else BEGINNING)

    def snapshot(self) -> Snapshot:
        raise InternalError("the state of a query that runs to its end was asked for")

    def restore(self, state: Snapshot) -> None:
        raise InternalError("a query that runs to its end has no state")


class _Way:
    """A way to find the rows of each key."""

    def take(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """Take rows; return those from which on another way must be found, if any."""
        raise NotImplementedError

    def partials(self) -> list[_Partials]:
        """Give away all that was collected."""
        raise NotImplementedError

    def results(self) -> Iterator[pa.RecordBatch]:
        """Return all groups."""
        raise NotImplementedError

    def close(self) -> list[Future[Any]]:
        """Stop threads of its own, and return the calls on those of the group that are not read yet."""
        return []


class _Rows(_Way):
    """Each thread takes whole batches."""

    def __init__(self, group: GroupOperator, *, fixed: bool) -> None:
        """If the way is `fixed`, it stays, however many keys there are."""
        self._fixed, self._most = fixed, group.tuning.few_groups
        tuning = group.tuning if fixed else replace(group.tuning, keys_by_row=FOREVER)
        self._operator = group.share(lanes=_lanes(group.threads), tuning=tuning)

    def take(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        if not self._fixed and self._operator.known_keys > self._most:
            return batch
        self._operator.push(0, batch)
        return None

    def partials(self) -> list[_Partials]:
        found = self._operator.give_away()
        self._operator.close()
        return found

    def results(self) -> Iterator[pa.RecordBatch]:
        yield from self._operator.advance(0, FOREVER)

    def close(self) -> list[Future[Any]]:
        self._operator.close()
        return []


class _Sorted(_Way):
    """Each thread takes whole pieces, which have no key in common."""

    def __init__(self, group: GroupOperator, column: str) -> None:
        self._group, self._column = group, column
        count = group.threads
        self._shares = [group.share() for _ in range(count + 1)]
        """The last one has the rows that lie across a cut."""
        pool = group.pool if count > 1 else None
        self._strands = [None if pool is None else Strand(pool) for _ in self._shares]
        self._running: list[deque[Future[Any]]] = [deque() for _ in self._shares]
        self._across: list[pa.RecordBatch] = []
        self._last: Any = None

    def take(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        run = rising(batch.column(self._column))
        if run is None or (self._last is not None and run.first < self._last):
            return batch
        start = run.first_end if run.first == self._last else 0
        self._cross(batch.slice(0, start))
        end = max(start, run.last_begin)
        self._cross(batch.slice(end))
        if start < end:
            number = min(range(len(self._shares) - 1), key=self._busy)
            self._push(number, batch.slice(start, end - start))
        self._last = run.last
        return None

    def _cross(self, rows: pa.RecordBatch) -> None:
        """Take rows that lie across a cut."""
        if rows.num_rows:
            self._across.append(rows)
        if sum(b.num_rows for b in self._across) >= self._group.tuning.sample_rows:
            self._push(len(self._shares) - 1, joined_rows(self._across))
            self._across = []

    def _busy(self, number: int) -> int:
        calls = self._running[number]
        while calls and calls[0].done():
            calls.popleft().result()
        return len(calls)

    def _push(self, number: int, rows: pa.RecordBatch) -> None:
        strand, operator = self._strands[number], self._shares[number]
        if strand is None:
            operator.push(0, rows)
            return
        while self._busy(number) >= self._group.tuning.backlog:
            self._running[number].popleft().result()
        self._running[number].append(strand.submit(operator.push, 0, rows))

    def _settle(self) -> None:
        if self._across:
            self._push(len(self._shares) - 1, joined_rows(self._across))
            self._across = []
        for calls in self._running:
            while calls:
                calls.popleft().result()

    def partials(self) -> list[_Partials]:
        self._settle()
        return [found for operator in self._shares for found in operator.give_away()]

    def results(self) -> Iterator[pa.RecordBatch]:
        self._settle()
        yield from self._group.interleaved([share.advance(0, FOREVER) for share in self._shares])

    def close(self) -> list[Future[Any]]:
        return [call for calls in self._running for call in calls]


class _Hashed(_Way):
    """Rows are divided by a hash of their keys; each part is worked on alone."""

    def __init__(self, group: GroupOperator, before: list[_Partials]) -> None:
        """What was collected `before` is divided, too."""
        self._group, self._before = group, before
        self._compact, self._keys = group.compact, group.plan.group_keys
        self._parts = group.tuning.parts
        self._parted: list[_Parted] = []
        self._running: deque[Future[_Parted]] = deque()
        self._rows = 0
        self._shares: list[WindowOperator] = []

    def take(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        if self._group.threads == 1:
            self._parted.append(self._divided(batch))
        else:
            self._running.append(self._group.pool.submit(self._divided, batch))
            while len(self._running) > 2 * self._group.threads or (
                self._running and self._running[0].done()
            ):
                self._parted.append(self._running.popleft().result())
        self._rows += batch.num_rows
        if self._rows > self._group.tuning.many_grouped:
            self._flush()
        return None

    def _divided(self, batch: pa.RecordBatch) -> _Parted:
        """Return the rows of a batch in the order of their parts."""
        rows = self._compact.run(batch)
        if not rows.num_rows:
            return rows, [0] * (self._parts + 1)
        order, first = partitioned([rows.column(n) for n in self._keys], self._parts)
        return taken_rows(rows, order), first.tolist()

    def _flush(self) -> None:
        """Let the parts take the rows that wait."""
        list(on_threads(self._add, self._due(), self._group.threads))

    def _due(self) -> list[tuple[WindowOperator, list[pa.RecordBatch]]]:
        while self._running:
            self._parted.append(self._running.popleft().result())
        if not self._shares:
            self._shares = [self._group.share(needed=True) for _ in range(self._parts)]
        due = [
            (share, [rows.slice(first[p], first[p + 1] - first[p]) for rows, first in self._parted])
            for p, share in enumerate(self._shares)
        ]
        self._parted, self._rows = [], 0
        return due

    def _add(self, due: tuple[WindowOperator, list[pa.RecordBatch]]) -> None:
        share, batches = due
        waiting: list[pa.RecordBatch] = []
        rows = 0
        for batch in itertools.chain(batches, (None,)):
            if batch is None or rows + batch.num_rows > self._group.tuning.sample_rows * 4:
                if rows:
                    share.push(0, joined_rows(waiting))
                waiting, rows = [], 0
            if batch is not None and batch.num_rows:
                waiting.append(batch)
                rows += batch.num_rows

    def partials(self) -> list[_Partials]:
        raise InternalError("there is no other way to go on from here")

    def results(self) -> Iterator[pa.RecordBatch]:
        due = self._due()
        before = [(keys, store, *self._places(keys)) for keys, store in self._before]

        def finished(part: int) -> list[pa.RecordBatch]:
            share = self._shares[part]
            for keys, store, order, first in before:
                share.take_over(keys, store, order[first[part] : first[part + 1]])
            self._add(due[part])
            found = list(share.advance(0, FOREVER))
            self._shares[part] = due[part] = None  # type: ignore[call-overload]  # its memory is used again
            return found

        for batches in on_threads(finished, range(self._parts), self._group.threads):
            yield from batches

    def _places(self, keys: KeyIndex) -> tuple[Any, list[int]]:
        """Return the ids of keys in the order of their parts, and where each part begins."""
        if not keys.count:
            return np.zeros(0, dtype=np.int64), [0] * (self._parts + 1)
        order, first = partitioned(keys.decode(np.arange(keys.count)), self._parts)
        return order, first.tolist()

    def close(self) -> list[Future[Any]]:
        return list(self._running)


def _lanes(threads: int) -> int:
    return 1 << (threads.bit_length() - 1)
