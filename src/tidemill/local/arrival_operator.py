"""Interval joins that answer base rows when they come, from the probe rows that have come so far."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.core.time import BEGINNING, FOREVER
from tidemill.kernels.order import order_by
from tidemill.local.interval_operator import ANSWERED, PREVIOUS, IntervalOperator
from tidemill.local.interval_ranges import Question, reach
from tidemill.local.lifetimes import Ints, Mask, check_lifetimes, starts_of, without_nulls
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

    @property
    def on_arrival(self) -> bool:
        return True

    def push(self, port: int, batch: pa.RecordBatch) -> Sequence[pa.RecordBatch]:
        check_lifetimes(self.inputs[port], batch)
        if not batch.num_rows:
            return ()
        self._came += batch.num_rows
        if port == 0:
            return [found for rows in self._in_turn(batch) for found in self._answered(rows)]
        self._probe_came(batch)
        return ()

    def _probe_came(self, batch: pa.RecordBatch) -> None:
        """Take probe rows; those without a key belong to no base row."""
        null = self._null_keys(batch, 1)
        if null is not None:
            if self._lenient:
                self._refuse_null_keys(batch.filter(pa.array(null)), 1)
            batch = batch.filter(pa.array(~null))
        if batch.num_rows:
            self._arrived(batch)

    def _arrived(self, batch: pa.RecordBatch) -> None:
        """Keep probe rows, which have keys."""
        self._waiting[1].add(batch)

    def _null_keys(self, batch: pa.RecordBatch, port: int) -> Mask | None:
        """Return which rows of a port have a null among their keys; None if there are none."""
        names = self._key_columns[port][len(self.plan.match.scope) :]
        if not any(batch.column(n).null_count for n in names):
            return None
        return without_nulls(np.zeros(batch.num_rows, np.int64), batch, names, -1) < 0

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
        base, probe, asked, bad = self._asked_by(rows, self._refusing)
        self._refuse_base(rows, None if bad is None else bad[-rows.num_rows :])
        yield from self._answers.of(asked.answer(), base, probe)
        self._kept_rows[0] = self._base_kept(base, asked.matching.keys[0], BEGINNING)

    def looked_up(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the answers that base rows would have now, each alone. Nothing is kept of them."""
        if self.plan.interval.since_previous and rows.num_rows > 1:
            for row in range(rows.num_rows):
                yield from self.looked_up(rows.slice(row, 1))
            return
        base, probe, asked, _ = self._asked_by(rows, lambda side: lambda *refused: None)
        yield from self._answers.of(asked.answer(), base, probe)

    def _asked_by(
        self, rows: pa.RecordBatch, refusing: Callable[[Side], Callable[[Ints, list[str]], None] | None]
    ) -> tuple[Side, Side, Question, Mask | None]:
        """Return both sides, new base rows last; what the new ones ask for; and whose bounds are bad."""
        self._waiting[0].add(rows)
        base, probe = self._due(0, FOREVER), self._due(1, FOREVER)
        self._kept_rows[1] = probe.rows
        matching = Matching.of(self.plan.match, base, probe, refusing(base))
        own = reach(self.plan.interval, base, self._since(base, matching.keys[0])[1], lenient=self._lenient)
        new = np.flatnonzero(base.is_new) if self.plan.interval.since_previous else None
        return base, probe, Question.of(self.plan, matching, base, probe, own, new), own.bad

    def _refuse_base(self, rows: pa.RecordBatch, bad: Mask | None) -> None:
        """Keep copies of base rows that have nothing to do with another one because something is missing."""
        if not self._lenient:
            return
        if (null := self._null_keys(rows, 0)) is not None:
            self._refuse_null_keys(rows.filter(pa.array(null)), 0)
        if bad is not None and bad.any():
            self._refuse_no_interval(rows.filter(pa.array(bad)))

    # -- time

    def advance(self, port: int, below: int, *, prompt: bool = False) -> Iterator[pa.RecordBatch]:
        self._marks.raise_to(port, below)
        if self.wants_forget or self._reached == FOREVER:
            self._forget()
        return iter(())

    @property
    def wants_advance(self) -> bool:
        return self.wants_forget

    @property
    def wants_forget(self) -> bool:
        """Whether it pays to look for rows that nobody needs any more."""
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
            previous = self._since(base, matching.keys[0])[1]
            own = reach(self.plan.interval, base, previous, lenient=self._lenient)
            nothing = np.empty(0, dtype=np.int64)
            asked = Question.of(self.plan, matching, base, probe, own, nothing)
            self._kept_rows = [
                self._base_kept(base, matching.keys[0], below),
                self._probe_to_keep(asked, own, nothing, probe, below),
            ]
        else:
            self._kept_rows = [base.rows, probe.rows]
        self._came, self._left = 0, sum(rows.num_rows for rows in self._kept_rows)

    def _base_kept(self, base: Side, keys: Ints, below: int) -> pa.RecordBatch:
        """Return the base rows after which intervals of base rows to come may begin."""
        if not self.plan.interval.since_previous:
            return base.rows.slice(0, 0)
        order = order_by(keys, base.starts)
        own, starts = keys[order], base.starts[order]
        last = np.ones(len(order), dtype=np.bool_)  # of those of its key that are below
        last[:-1] = (own[1:] != own[:-1]) | (starts[1:] >= below)
        keep = np.zeros(len(order), dtype=np.bool_)
        keep[order] = (own >= 0) & ((starts >= below) | (last & self._may_be_previous(starts, below)))
        done = np.ones(len(order), np.int64)
        return base.keep(keep, **{ANSWERED: done, PREVIOUS: base.starts})
