"""Watermarks for all keys, and higher ones for some keys (paper 003, punctuations)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidemill.core.time import BEGINNING

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Promise:
    """A watermark: no future row has a time below it.

    `floor` holds for every key, also for keys not seen yet. `by_key`, if given, is the watermark of each
    key, by key id; none is below the floor.

    >>> Promise(5).of_keys(3), Promise(5, np.array([5, 9])).of_keys(3)
    (array([5]), array([5, 9, 5]))
    """

    floor: int = BEGINNING
    by_key: Ints | None = None

    def of_keys(self, keys: int) -> Ints:
        """Return the watermark of each of `keys` keys, or one number if it is the same for all."""
        if self.by_key is None:
            return np.array([self.floor], dtype=np.int64)
        found = np.full(keys, self.floor, dtype=np.int64)
        known = self.by_key[:keys]
        np.maximum(known, self.floor, out=found[: len(known)])
        return found

    def of_rows(self, kid: Ints) -> Ints:
        """Return the watermark for each row by its key id, or one number if it is the same for all."""
        found = self.of_keys(0 if self.by_key is None else len(self.by_key))
        if len(found) == 1 and self.by_key is None:
            return found
        return np.where(kid < len(found), found[np.minimum(kid, len(found) - 1)], self.floor)

    @property
    def highest(self) -> int:
        """The highest watermark of any key: a row at or above it is never late."""
        if self.by_key is None or not len(self.by_key):
            return self.floor
        return max(self.floor, int(self.by_key.max()))

    def raised(self, below: int) -> Promise:
        """Return this promise with the watermark of all keys raised."""
        return Promise(max(self.floor, below), self.by_key)

    def raised_for(self, kid: Ints, below: int, keys: int) -> Promise:
        """Return this promise with the watermark of some key ids raised; there are `keys` keys."""
        found = np.full(keys, BEGINNING, dtype=np.int64)
        if self.by_key is not None:
            found[: len(self.by_key)] = self.by_key
        np.maximum(found, self.floor, out=found)
        found[kid] = np.maximum(found[kid], below)
        return Promise(self.floor, found)

    def renumbered(self, kept: Ints) -> Promise:
        """Return this promise with the keys `kept` renumbered to `0, 1, 2, …` and the others dropped."""
        if self.by_key is None:
            return self
        found = self.of_rows(kept)
        return Promise(self.floor, found if (found > self.floor).any() else None)
