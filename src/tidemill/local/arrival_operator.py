"""Interval joins that answer base rows when they come, from the probe rows that have come so far."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.core.time import BEGINNING, FOREVER
from tidemill.kernels.order import order_by
from tidemill.local.interval_operator import ANSWERED, PREVIOUS, IntervalOperator
from tidemill.local.interval_ranges import Question, reach
from tidemill.local.lifetimes import Ints, check_lifetimes, starts_of, without_nulls
from tidemill.local.limits import Limits
from tidemill.local.matching import Matching
from tidemill.local.temporal_operator import Side
from tidemill.plan.intervals import IntervalJoin


class ArrivalOperator(IntervalOperator):
    """Keeps the probe rows that base rows to come may need.

    No base row to come is below the watermark of the base rows less the lateness. Rows that are later than
    that do not come here.
    """

    def __init__(self, plan: IntervalJoin, *args: Any, lateness: int = 0, **kwargs: Any) -> None:
        super().__init__(plan, *args, **kwargs)
        self._lateness = lateness
        self._came = self._left = 0
        """How many rows came since old ones were last looked for, and how many were left then."""

    def push(self, port: int, batch: pa.RecordBatch) -> Sequence[pa.RecordBatch]:
        check_lifetimes(self.inputs[port], batch)
        if not batch.num_rows:
            return ()
        self._came += batch.num_rows
        if port == 0:
            return [found for rows in self._in_turn(batch) for found in self._answered(rows)]
        self._waiting[1].append(self._with_keys(batch))
        return ()

    def _with_keys(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the probe rows of a batch that have a key. The others belong to no base row."""
        match = self.plan.match
        names = match.right_keys[len(match.scope) :]
        null = without_nulls(np.zeros(batch.num_rows, np.int64), batch, names, -1) < 0
        if not null.any():
            return batch
        if self._lenient:
            self._refuse_null_keys(batch.filter(pa.array(null)), 1)
        return batch.filter(pa.array(~null))

    def _in_turn(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield base rows that may be answered together: none sees one that comes after it."""
        if not self.plan.interval.since_previous:
            yield batch
            return
        starts = starts_of(self.inputs[0], batch)
        cuts = [0, *(np.flatnonzero(starts[1:] < starts[:-1]) + 1).tolist(), len(starts)]
        for begin, end in itertools.pairwise(cuts):
            yield batch.slice(begin, end - begin)

    def _answered(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the answers to base rows."""
        self._waiting[0] = [rows]
        base, probe = self._due(0, FOREVER), self._due(1, FOREVER)
        matching = Matching.of(self.plan.match, base, probe, self._refusing(base))
        _, previous = self._since(base, matching.keys[0])
        own = reach(self.plan.interval, base, previous)
        if self._lenient:
            self._refuse_bad(base, probe, matching, own)
        new = None if previous is None else np.flatnonzero(base.is_new)
        asked = Question.of(self.plan, matching, base, probe, own, new)
        yield from self._answers.of(asked.answer(), base, probe)
        self._kept_rows = [self._base_kept(base, matching.keys[0], previous, BEGINNING), probe.rows]

    # -- time

    def advance(self, port: int, below: int, *, prompt: bool = False) -> Iterator[pa.RecordBatch]:
        self._marks.raise_to(port, below)
        if self.wants_advance or self._reached == FOREVER:
            self._forget()
        return iter(())

    @property
    def wants_advance(self) -> bool:
        return self._came >= max(self._left, self._tuning.few_arrived)

    @property
    def _reached(self) -> int:
        """No base row to come is below this."""
        below = self._marks.ports[0]
        return below if below == FOREVER else max(below - self._lateness, BEGINNING)

    @property
    def promise(self) -> Limits:
        return Limits(self._reached)

    def _forget(self) -> None:
        """Drop the rows that no base row to come needs."""
        base, probe, below = self._due(0, FOREVER), self._due(1, FOREVER), self._reached
        if below == FOREVER:
            self._kept_rows = [side.rows.slice(0, 0) for side in (base, probe)]
        elif below > BEGINNING:
            matching = Matching.of(self.plan.match, base, probe)
            previous = base.state(PREVIOUS) if self.plan.interval.since_previous else None
            own = reach(self.plan.interval, base, previous)
            nothing = np.empty(0, dtype=np.int64)
            asked = Question.of(self.plan, matching, base, probe, own, nothing)
            self._kept_rows = [
                self._base_kept(base, matching.keys[0], previous, below),
                self._probe_to_keep(asked, own, nothing, probe, below),
            ]
        else:
            self._kept_rows = [base.rows, probe.rows]
        self._came, self._left = 0, sum(rows.num_rows for rows in self._kept_rows)

    def _base_kept(self, base: Side, keys: Ints, previous: Ints | None, below: int) -> pa.RecordBatch:
        """Return the base rows after which intervals of base rows to come may begin."""
        if previous is None:
            return base.rows.slice(0, 0)
        order = order_by(keys, base.starts)
        own, starts = keys[order], base.starts[order]
        last = np.ones(len(order), dtype=np.bool_)  # of those of its key that are below
        last[:-1] = (own[1:] != own[:-1]) | (starts[1:] >= below)
        keep = np.zeros(len(order), dtype=np.bool_)
        keep[order] = (own >= 0) & ((starts >= below) | last)
        return base.keep(keep, **{ANSWERED: np.ones(len(order), np.int64), PREVIOUS: previous})
