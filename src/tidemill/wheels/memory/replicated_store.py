"""Read several stores, each of which may have rows of any key, as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.core.time import FARTHEST
from tidemill.wheels.loops.answer import NOT_THERE, OFF_GRID
from tidemill.wheels.loops.range_plan import LOW
from tidemill.wheels.memory.bucketed_store import Buckets
from tidemill.wheels.memory.store import NOT_ASKED, Ints, RingStore


class ReplicaStores(Buckets):
    """Stores of one kind. Key `k` of store `i` is number `numbers[i][k]` of all `keys`.

    The watermark is the earliest of all stores: beyond it, some store is incomplete.
    """

    def __init__(self, stores: Sequence[RingStore], numbers: Sequence[Ints], keys: int) -> None:
        super().__init__(stores, np.zeros(keys, dtype=np.int64), np.zeros(keys, dtype=np.int64))
        self._own = [np.full(keys + 1, -1, dtype=np.int64) for _ in stores]
        for own, known in zip(self._own, numbers):
            own[known] = np.arange(len(known))
        self.typical = min(stores, key=lambda s: s.now)

    @property
    def now(self) -> int:
        """The first slot that is open in any store."""
        return self.typical.now

    @property
    def present(self) -> Ints:
        """The keys that ever had a row."""
        there = np.zeros(self.keys, dtype=np.bool_)
        for own, store in zip(self._own, self._stores):
            at = np.flatnonzero(own >= 0)
            there[at] |= np.isin(own[at], store.present)
        return np.flatnonzero(there)

    def had_rows(self, key: int) -> bool:
        """Whether a key ever had a row, in a closed slot or an open one."""
        return any(own[key] >= 0 and s.had_rows(own[key]) for own, s in zip(self._own, self._stores))

    def ring(self, number: int) -> Ints:
        """The numbers of a ring, from the store whose oldest slot is the newest."""
        return max((s.ring(number) for s in self._stores), key=lambda h: int(h[LOW]))

    def _numbers_in(self, keys: Ints) -> Iterator[Ints]:
        known = (keys >= 0) & (keys < self.keys)
        for own in self._own:
            yield np.where(known, own[np.where(known, keys, 0)], -1)

    def fold(self, starts: Ints, ends: Ints, keys: Ints, total: bool, partials: Any) -> tuple[int, int]:
        """Every store adds its cells, up to the common watermark."""
        now = self.now
        return super().fold(np.minimum(starts, now), np.minimum(ends, now), keys, total, partials)

    def answer(self, start: int, end: int, key: int) -> tuple[Any, ...]:
        """See `RingStore.answer`."""
        grain = self.rings[0].ticks
        if start % grain or end % grain or not -FARTHEST <= start <= end <= FARTHEST:
            return (OFF_GRID,)
        outputs = self.outputs(self.typical.layout.results, 1)
        at = np.array([start // grain]), np.array([end // grain]), np.array([key])
        bad, err = self.answers(*at, outputs)
        return (NOT_THERE,) if bad >= 0 else (err, *(o.tolist()[0] for o in outputs))

    def answers(
        self, starts: Ints, ends: Ints, keys: Ints, outputs: Sequence[npt.NDArray[Any]],
        rows: npt.NDArray[np.bool_] = NOT_ASKED,
    ) -> tuple[int, int]:  # fmt: skip
        """See `RingStore.answers`."""
        n = len(keys)
        a, b = (np.ascontiguousarray(np.broadcast_to(x, n)) for x in (starts, ends))
        partials = self.no_partials(n)
        bad, err = self.fold(a, b, keys, False, partials)
        if bad < 0:
            err |= self.lower(partials, self.typical.layout, outputs)
            if len(rows):
                rows[...] = self.any_rows(partials)
        return bad, err
