"""Read several stores that partition the keys as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.aggregates.layout import Layout, Result
from tidemill.wheels.memory.store import NOT_ASKED, Ints, RingStore


class Buckets:
    """Stores of one kind, with the same watermark, each with a part of the keys.

    Key `k` is number `numbers[k]` of store `owners[k]`; owner -1 means no store.
    """

    def __init__(self, stores: Sequence[RingStore], owners: Ints, numbers: Ints) -> None:
        self._stores, self._count = list(stores), len(owners)
        # One more entry, so that index 0 exists even without keys.
        self._owners, self._numbers = np.append(owners, -1), np.append(numbers, -1)
        self.typical = stores[0]
        """The store to use if any store will do."""
        self.rings = self.typical.rings

    @property
    def keys(self) -> int:
        return self._count

    @property
    def now(self) -> int:
        """The first open slot."""
        return self.typical.now

    @property
    def first(self) -> int:
        """The first slot of all stores."""
        return min(s.first for s in self._stores)

    @property
    def held(self) -> list[int]:
        """The number of closed slots in each ring, in the store that holds most."""
        return [max(h) for h in zip(*(s.held for s in self._stores))]

    @property
    def present(self) -> Ints:
        """The keys that ever had a row."""
        return np.flatnonzero(self._owners >= 0)

    def had_rows(self, key: int) -> bool:
        """Whether a key ever had a row."""
        return bool(self._owners[key] >= 0)

    def ring(self, number: int) -> Ints:
        """The numbers of a ring, from the store that starts first."""
        return min(self._stores, key=lambda s: s.first).ring(number)

    def ring_bytes(self, r: int) -> int:
        """The bytes of a ring's closed slots."""
        return sum(s.ring_bytes(r) for s in self._stores)

    @property
    def nbytes(self) -> dict[str, int]:
        """Bytes in memory or in mapped files, by purpose."""
        each = [s.nbytes for s in self._stores]
        return {name: sum(e[name] for e in each) for name in each[0]}

    def answer(self, start: int, end: int, key: int) -> tuple[Any, ...]:
        """See `RingStore.answer`."""
        owner = int(self._owners[key]) if 0 <= key < self.keys else -1
        if owner < 0:
            return self.typical.answer(start, end, -1)
        return self._stores[owner].answer(start, end, int(self._numbers[key]))

    def answers(
        self, starts: Ints, ends: Ints, keys: Ints, outputs: Sequence[npt.NDArray[Any]],
        rows: npt.NDArray[np.bool_] = NOT_ASKED,
    ) -> tuple[int, int]:  # fmt: skip
        """See `RingStore.answers`: each store answers for its keys."""
        known = (keys >= 0) & (keys < self.keys)
        owners = np.where(known, self._owners[np.where(known, keys, 0)], -1)
        numbers = np.where(owners >= 0, self._numbers[np.where(known, keys, 0)], -1)
        shared, errors = len(starts) != len(keys), 0
        order = np.argsort(owners, kind="stable")
        cuts = np.flatnonzero(np.diff(owners[order])) + 1
        for at in np.split(order, cuts) if len(order) else ():
            store = self._stores[max(0, int(owners[at[0]]))]
            own = [np.empty(len(at), dtype=o.dtype) for o in outputs]
            own_rows = rows[at] if len(rows) else rows
            # A shared range is passed on unchanged; otherwise there must be one range for each key.
            a, b = (starts, ends) if shared else (starts[at], ends[at])
            bad, err = store.answers(a, b, numbers[at], own, own_rows)
            if bad >= 0:
                return (0 if shared else int(at[bad])), err
            errors |= err
            for output, found in zip(outputs, own):
                output[at] = found
            if len(rows):
                rows[at] = own_rows
        return -1, errors

    # -- partials: see `RingStore`

    def no_partials(self, count: int) -> Any:
        return self.typical.no_partials(count)

    def fold(self, starts: Ints, ends: Ints, keys: Ints, total: bool, partials: Any) -> tuple[int, int]:
        """Every store adds the cells of its keys."""
        errors = 0
        for numbers, store in zip(self._numbers_in(keys), self._stores):
            if total:
                numbers = numbers[numbers >= 0]
            bad, err = store.fold(starts, ends, numbers, total, partials)
            if bad >= 0:
                return bad, err
            errors |= err
        return -1, errors

    def _numbers_in(self, keys: Ints) -> Iterator[Ints]:
        """The numbers of keys in each store; -1 where a key is in another."""
        known = (keys >= 0) & (keys < self.keys)
        at = np.where(known, keys, 0)
        for number in range(len(self._stores)):
            yield np.where(known & (self._owners[at] == number), self._numbers[at], -1)

    def outputs(self, results: Sequence[Result], count: int) -> list[npt.NDArray[Any]]:
        return self.typical.outputs(results, count)

    def lower(self, partials: Any, layout: Layout, outputs: Sequence[npt.NDArray[Any]]) -> int:
        return self.typical.lower(partials, layout, outputs)

    def any_rows(self, partials: Any) -> npt.NDArray[np.bool_]:
        return self.typical.any_rows(partials)
