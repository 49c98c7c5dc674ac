"""How far time has come: for all keys together, or for some keys apart (paper 003, punctuations)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidemill.core.time import BEGINNING

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Promise:
    """No row to come has a time below this.

    `floor` holds for every key, also for those that have not come yet. `by_key` has the promise of each
    key by its id, where some keys are promised apart; none is below the floor.

    >>> Promise(5).of_keys(3), Promise(5, np.array([5, 9])).of_keys(3)
    (array([5]), array([5, 9, 5]))
    """

    floor: int = BEGINNING
    by_key: Ints | None = None

    def of_keys(self, keys: int) -> Ints:
        """The promise of each of so many keys; one number where it is the same for all."""
        if self.by_key is None:
            return np.array([self.floor], dtype=np.int64)
        found = np.full(keys, self.floor, dtype=np.int64)
        known = self.by_key[:keys]
        np.maximum(known, self.floor, out=found[: len(known)])
        return found

    def of_rows(self, kid: Ints) -> Ints:
        """The promise for each row, by the id of its key; one number where it is the same for all."""
        found = self.of_keys(0 if self.by_key is None else len(self.by_key))
        if len(found) == 1 and self.by_key is None:
            return found
        return np.where(kid < len(found), found[np.minimum(kid, len(found) - 1)], self.floor)

    @property
    def highest(self) -> int:
        """No row at or above this is late, whatever its key."""
        if self.by_key is None or not len(self.by_key):
            return self.floor
        return max(self.floor, int(self.by_key.max()))

    def raised(self, below: int) -> Promise:
        """This promise and another one for all keys."""
        return Promise(max(self.floor, below), self.by_key)

    def raised_for(self, kid: Ints, below: int, keys: int) -> Promise:
        """This promise and another one for some keys, by their ids."""
        found = np.full(keys, BEGINNING, dtype=np.int64)
        if self.by_key is not None:
            found[: len(self.by_key)] = self.by_key
        np.maximum(found, self.floor, out=found)
        found[kid] = np.maximum(found[kid], below)
        return Promise(self.floor, found)

    def renumbered(self, kept: Ints) -> Promise:
        """The same where the keys `kept` are `0, 1, 2, …` from now on and others are forgotten."""
        if self.by_key is None:
            return self
        found = self.of_rows(kept)
        return Promise(self.floor, found if (found > self.floor).any() else None)
