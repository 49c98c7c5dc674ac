"""Interval joins that answer base rows as soon as their answers are certain, from an index of probe rows.

`IntervalOperator` gives the same answers. It looks at all that it keeps whenever it works, which suits many
rows at once; this one looks at what comes and at what is answered, which suits a few.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.core.time import BEGINNING, FOREVER
from tidemill.kernels.order import places_in_order
from tidemill.kernels.row_batches import divided, joined_rows, taken_rows
from tidemill.local.indexed_operator import Indexed, IndexedOperator, expiry, indexed
from tidemill.local.interval_ranges import Reach
from tidemill.local.lifetimes import Ints, Mask, check_lifetimes, starts_of
from tidemill.local.limits import Limits
from tidemill.local.operator import Snapshot
from tidemill.local.waiting_rows import WaitingRows
from tidemill.plan.intervals import IntervalJoin

_EACH = 16
"""So many pieces of about one length become one: rows may wait that came one at a time."""
_LONG = 1 << 15
"""Pieces with more rows stay as they are."""


@dataclass(frozen=True)
class _Asking:
    """Base rows that wait for their answers."""

    rows: pa.RecordBatch
    own: Reach
    starts: Ints
    sure: Ints
    """The instant up to which rows may come that belong to a base row, too."""
    level: int = 0
    """How often it was made of shorter pieces; those of which it was are in order of `sure`."""

    @functools.cached_property
    def first(self) -> int:
        return int(self.sure[0] if self.level else self.sure.min())

    @functools.cached_property
    def begins(self) -> int:
        return int(self.starts.min())

    def below(self, mark: int) -> _Parts:
        """Return the rows whose answers are certain at a watermark, and the others."""
        if self.first >= mark:
            return None, self
        if not self.level:
            return self.parts(self.sure < mark)
        end = int(np.searchsorted(self.sure, mark))
        if end == len(self.sure):
            return self, None
        due, rest = self.rows.slice(0, end), self.rows.slice(end)
        return self._some(slice(end), due), self._some(slice(end, None), rest)

    def parts(self, mask: Mask) -> _Parts:
        """Return the rows for which a mask is true, and the others."""
        if mask.all():
            return self, None
        if not mask.any():
            return None, self
        one, other = divided(self.rows, mask)
        return self._some(mask, one), self._some(~mask, other)

    def _some(self, places: Any, rows: pa.RecordBatch) -> _Asking:
        own = self.own
        arrays = {n: np.asarray(getattr(own, n))[places] for n in ("at", "low", "high")}
        bad = None if own.bad is None else own.bad[places]
        return _Asking(rows, Reach(**arrays, bad=bad), self.starts[places], self.sure[places], self.level)


_Parts = tuple[_Asking | None, _Asking | None]
"""Rows that are ready, and those that go on waiting."""


def _one(several: Sequence[_Asking]) -> _Asking:
    """Return pieces as one, in order of `sure`."""
    starts, sure = (np.concatenate([getattr(one, n) for one in several]) for n in ("starts", "sure"))
    rows, own = joined_rows([one.rows for one in several]), _joined([one.own for one in several])
    found = _Asking(rows, own, starts, sure, several[0].level + 1)
    order = places_in_order(sure)
    return found if order is None else found._some(order, taken_rows(rows, order))


def indexed_exactly(plan: IntervalJoin) -> Indexed | None:
    """As `indexed`, for answers that are certain.

    The nearest rows after a base row are there long before its interval ends, which an index does not tell.
    """
    asked = plan.interval
    return None if asked.max_rows is not None and asked.following != 0 else indexed(plan)


class IndexedExactOperator(IndexedOperator):
    """Keeps base rows that wait, and what the aggregates need of each probe row, by key and time."""

    def __init__(self, plan: IntervalJoin, *args: Any, kept: Indexed, **kwargs: Any) -> None:
        super().__init__(plan, kept, *args, **kwargs)
        self._asking: list[_Asking] = []
        self._sure = FOREVER
        """Before this instant no answer is certain."""

    @property
    def kind(self) -> str:
        return "interval"

    # -- rows

    def push(self, port: int, batch: pa.RecordBatch) -> Sequence[pa.RecordBatch]:
        check_lifetimes(self.inputs[port], batch)
        batch = self._in_time(port, batch)
        if batch.num_rows:
            self._came += batch.num_rows
            if port == 1:
                self._probe_came(batch)
            else:
                self._refuse_base(batch, self._ask(batch).own.bad)
        return ()

    def _ask(self, rows: pa.RecordBatch) -> _Asking:
        """Let base rows wait."""
        own, starts = self._asked_of(rows), starts_of(self.plan.base, rows)
        asking = _Asking(rows, own, starts, np.maximum(own.high, starts))
        self._asking.append(asking)
        self._sure = min(self._sure, asking.first)
        while len(some := self._asking[-_EACH:]) == _EACH and _are_few(some):
            self._asking[-_EACH:] = [_one(some)]
        return asking

    # -- time

    def advance(self, port: int, below: int, *, prompt: bool = False) -> Iterator[pa.RecordBatch]:
        self._marks.raise_to(port, below)
        lowest = self._marks.lowest
        if lowest > self._sure or lowest == FOREVER:
            yield from self._certain(lambda one: one.below(lowest))
        for limits, mark in zip(self._by_key, self._marks.ports):
            limits.forget(mark)
        if self.wants_forget or lowest == FOREVER:
            self._forget()

    def advance_keys(
        self, port: int, keys: Mapping[str, pa.Array], below: int, *, prompt: bool = False
    ) -> Iterator[pa.RecordBatch]:
        if not keys or not keys.keys() <= set(self._key_columns[port]):
            return
        self._by_key[port].raise_to(keys, below)
        yield from self._certain(lambda one: one.parts(one.sure < self._limit_of(one.rows)))

    def _limit_of(self, rows: pa.RecordBatch) -> Ints:
        """Return the watermark of the keys of base rows."""
        found = np.full(rows.num_rows, FOREVER, dtype=np.int64)
        for names, limits, mark in zip(self._key_columns, self._by_key, self._marks.ports):
            own = {name: rows.column(of) for name, of in zip(names, self._key_columns[0])}
            found = np.minimum(found, np.maximum(mark, limits.of_keys(own)))
        return found

    def _certain(self, parts: Callable[[_Asking], _Parts]) -> Iterator[pa.RecordBatch]:
        """Yield the answers to base rows that are ready; the others go on waiting."""
        ready, waiting = zip(*map(parts, self._asking)) if self._asking else ((), ())
        due, left = ([one for one in some if one is not None] for some in (ready, waiting))
        self._asking = left
        self._sure = min((one.first for one in left), default=FOREVER)
        if due:
            yield self._answer(joined_rows([one.rows for one in due]), _joined([one.own for one in due]))

    @property
    def promise(self) -> Limits:
        waiting = (one.begins for one in self._asking)
        return Limits(min(self._marks.lowest, *waiting, FOREVER))

    @property
    def wants_advance(self) -> bool:
        return True

    # -- what is kept

    def _forget(self) -> None:
        below = self._marks.ports[0]
        if below == FOREVER and not self._asking:
            self._new_index()
        elif below > BEGINNING:
            at = min((int(np.min(one.own.at)) for one in self._asking), default=FOREVER)
            low = min((int(np.min(one.own.low)) for one in self._asking), default=FOREVER)
            nearest = self.plan.interval.max_rows is not None
            ways = expiry(self.plan.interval, below)
            self._expire([
                (min(instant, at if nearest and not turn else low), spare)
                for turn, (instant, spare) in enumerate(ways)
            ])  # fmt: skip
        self._forgot()

    def size(self) -> tuple[int, int]:
        rows, held = self.index.size()
        waiting = [one.rows for one in self._asking]
        return rows + sum(b.num_rows for b in waiting), held + sum(b.nbytes for b in waiting)

    def so_far(self, more: Sequence[tuple[int, pa.RecordBatch]] = ()) -> Iterator[pa.RecordBatch]:
        copy = IndexedExactOperator(self.plan, self._tuning, kept=self._kept, lenient=self._lenient)
        copy.restore(self.snapshot())
        for port, batch in more:
            copy.push(port, batch)
        for port in range(self.ports):
            yield from copy.advance(port, FOREVER)

    def snapshot(self) -> Snapshot:
        self._waiting[0] = WaitingRows(self.inputs[0], [one.rows for one in self._asking])
        return super().snapshot()

    def restore(self, state: Snapshot) -> None:
        super().restore(state)
        self._asking, self._sure = [], FOREVER
        for rows in self._waiting[0].all():
            self._ask(rows)


def _are_few(some: Sequence[_Asking]) -> bool:
    """Return whether pieces are of one length and short, so that they become one."""
    return len({one.level for one in some}) == 1 and sum(len(one.sure) for one in some) <= _LONG


def _joined(several: Sequence[Reach]) -> Reach:
    if len(several) == 1:
        return several[0]
    bad = None
    if any(one.bad is not None for one in several):
        masks = (np.zeros(len(one.at), np.bool_) if one.bad is None else one.bad for one in several)
        bad = np.concatenate(list(masks))
    at, low, high = (np.concatenate([getattr(one, n) for one in several]) for n in ("at", "low", "high"))
    return replace(several[0], at=at, low=low, high=high, bad=bad)
