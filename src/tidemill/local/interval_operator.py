"""Interval joins: each base row with its probe rows, when all of these are there (paper 004)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.core.time import BEGINNING, FOREVER
from tidemill.kernels.intervals import earlier_times, needed_rows
from tidemill.kernels.memory import empty
from tidemill.kernels.order import order_by
from tidemill.local.ahead import Ahead
from tidemill.local.interval_answers import IntervalAnswers
from tidemill.local.interval_ranges import FAR, Question, Reach, reach
from tidemill.local.lifetimes import Ints, Mask
from tidemill.local.limits import Limits
from tidemill.local.matching import Matching
from tidemill.local.temporal_operator import Side, TemporalOperator
from tidemill.plan.intervals import IntervalJoin

ANSWERED, PREVIOUS = "\0state answered", "\0state previous"
"""Whether a base row was answered, and the time of the base row before it."""


class IntervalOperator(TemporalOperator):
    """Keeps the base rows that wait for probe rows, and the probe rows that base rows to come may need."""

    plan: IntervalJoin

    def __init__(self, plan: IntervalJoin, *args: Any, ahead: int = 0, **kwargs: Any) -> None:
        """With `ahead`, so many threads compute answers while the caller reads on, and they come later.

        Nobody may ask such an operator for its state.
        """
        self.state = ((ANSWERED, PREVIOUS) if plan.interval.since_previous else (), ())
        super().__init__(plan, *args, **kwargs)
        self._answers = IntervalAnswers(plan)
        self._ahead = Ahead(ahead) if ahead else None

    def _work(
        self, sides: list[Side], below: int
    ) -> tuple[Iterable[pa.RecordBatch], list[pa.RecordBatch]]:
        base, probe = sides
        matching = Matching.of(self.plan.match, base, probe, self._refusing(base))
        answered, previous = self._since(base, matching.keys[0])
        waiting = None if answered is None else np.flatnonzero(~answered)
        own = reach(self.plan.interval, base, previous, lenient=self._lenient)
        if self._lenient:
            self._refuse_bad(base, probe, matching, own)
        asked = Question.of(self.plan, matching, base, probe, own, waiting)
        results, sure = self._asked(asked, base, probe, below)
        if below == FOREVER:
            return results, [side.rows.slice(0, 0) for side in sides]
        open_ = sure >= below
        rest = asked.base[open_]
        if len(rest):
            self._held, self._wake = int(base.starts[rest].min()), int(sure[open_].min())
        done = np.ones(len(base.starts), dtype=np.bool_)
        done[rest] = False
        kept = [
            self._base_to_keep(base, matching.keys[0], done, previous, below),
            self._probe_to_keep(asked, own, rest, probe, below),
        ]
        return results, kept

    def _asked(
        self, asked: Question, base: Side, probe: Side, below: int
    ) -> tuple[Iterable[pa.RecordBatch], Ints]:
        """Return answers to base rows that are ready, and when each row will be."""
        if self._ahead is None:
            found = asked.answer()
            ready = found if below == FOREVER else found.only(found.sure < below)
            return self._answers.of(ready, base, probe), found.sure
        now = asked if below == FOREVER else asked.only(asked.sure < below)
        if len(now.base):
            since = int(base.starts[now.base].min())
            self._ahead.submit(since, lambda: list(self._answers.of(now.answer(), base, probe)))
        return self._ahead.results(0 if below == FOREVER else None), asked.sure

    @property
    def promise(self) -> Limits:
        held = FOREVER if self._ahead is None else self._ahead.since
        return Limits(min(self._done, self._held, held))

    def close(self) -> None:
        if self._ahead is not None:
            self._ahead.close()

    def _since(self, base: Side, keys: Ints) -> tuple[Mask | None, Ints | None]:
        """Return which base rows were answered, and the time of the one before each, if that matters."""
        if not self.plan.interval.since_previous:
            return None, None
        known = ~base.is_new
        answered = known & (base.state(ANSWERED) != 0)
        previous = empty(len(base.starts))
        earlier_times(keys, base.starts, order_by(keys, base.starts), previous)
        return answered, np.where(known, base.state(PREVIOUS), previous)

    def _refuse_bad(self, base: Side, probe: Side, matching: Matching, own: Reach) -> None:
        """Keep copies of new rows that have nothing to do with another one because something is missing."""
        for port, (side, keys) in enumerate(zip((base, probe), matching.keys)):
            if len(null := np.flatnonzero((keys < 0) & side.is_new)):
                self._refuse_null_keys(side.rows.take(pa.array(null)), port)
        if own.bad is not None and len(bad := np.flatnonzero(own.bad & base.is_new)):
            self._refuse_no_interval(base.rows.take(pa.array(bad)))

    def _refuse_null_keys(self, rows: pa.RecordBatch, port: int) -> None:
        self._refuse(rows, "null key: nothing is equal to it", port)

    def _refuse_no_interval(self, rows: pa.RecordBatch) -> None:
        self._refuse(rows, "no interval: a bound is null or negative, or fails")

    # -- what is kept

    def _base_to_keep(
        self, base: Side, keys: Ints, done: Mask, previous: Ints | None, below: int
    ) -> pa.RecordBatch:
        if previous is None:
            return base.keep(~done)
        order = order_by(keys, base.starts)
        last = np.append(keys[order][1:] != keys[order][:-1], True)[: len(order)]
        keep = ~done
        keep[order[last]] = True  # rows to come are after it
        keep &= ~done | self._may_be_previous(base.starts, below)
        keep &= ~done | (keys >= 0)
        return base.keep(keep, **{ANSWERED: done.astype(np.int64), PREVIOUS: previous})

    def _may_be_previous(self, starts: Ints, below: int) -> Mask:
        """Return which base rows are near enough to begin the interval of one that is to come."""
        preceding = self.plan.interval.preceding
        low = max(below - preceding, BEGINNING) if isinstance(preceding, int) else BEGINNING
        return starts >= low

    def _probe_to_keep(
        self, question: Question, own: Reach, open_: Ints, probe: Side, below: int
    ) -> pa.RecordBatch:
        asked, by_condition = self.plan.interval, question.by_condition
        at = below - asked.offset
        low = BEGINNING if not isinstance(asked.preceding, int) else at - min(asked.preceding, FAR)
        if len(open_):
            at = min(at, int(own.at[open_].min()))
            low = min(low, int(own.low[open_].min()))
        if asked.prevailing and by_condition:
            low = BEGINNING
        begun = self._begun(question, own, open_, below)
        if question.wants_last:
            return probe.keep(question.rows.last_needed(low, at) & begun)
        rows = question.probe
        most = 0 if asked.max_rows is None or by_condition else asked.max_rows
        needed = np.zeros(len(probe.starts), dtype=np.bool_)
        needed_rows(rows.heads, rows.order, rows.times, low, at, most, asked.prevailing, needed)
        return probe.keep(needed & begun)

    def _begun(self, question: Question, own: Reach, open_: Ints, below: int) -> Mask:
        """Return which probe rows come after the base rows that end what others of their key ask for."""
        matching, asked = question.matching, self.plan.interval
        if not asked.since_previous or asked.prevailing:
            return np.ones(len(matching.right.starts), dtype=np.bool_)
        own_keys, keys = matching.keys
        first, starts = np.full(matching.count, BEGINNING), matching.left.starts
        past = np.flatnonzero((own_keys >= 0) & (starts < below))
        np.maximum.at(first, own_keys[past], starts[past] + 1)
        waiting = open_[own_keys[open_] >= 0]
        np.minimum.at(first, own_keys[waiting], own.low[waiting])
        return (keys >= 0) & (matching.right.starts >= first[np.maximum(keys, 0)])

    def _ends(self, port: int, kept: pa.RecordBatch) -> int:
        return FOREVER  # `_wake` says when base rows can be answered
