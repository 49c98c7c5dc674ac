"""A number for each key, and one for all others: promises, and how far windows were given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.core.time import BEGINNING

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Limits:
    """A limit for every key.

    `common` holds for the keys that have no limit of their own, and for those that have not come yet.
    `by_key` has the limits of the first keys, by id. Arrays are never changed in place.

    As a promise (paper 003, punctuations) it says that no row to come has a time below its limit.

    >>> Limits(5).of(np.array([0, 1])), Limits(5, np.array([7])).of(np.array([0, 1]))
    (5, array([7, 5]))
    """

    common: int = BEGINNING
    by_key: Ints | None = None

    def of(self, kid: Ints) -> Any:
        """The limit of each key; one number where it is the same for all."""
        if self.by_key is None:
            return self.common
        if not len(self.by_key):
            return np.full(len(kid), self.common, dtype=np.int64)
        known = len(self.by_key)
        return np.where(kid < known, self.by_key[np.minimum(kid, known - 1)], self.common)

    def full(self, keys: int) -> Ints:
        """An array with the limit of each of so many keys."""
        found = np.full(keys, self.common, dtype=np.int64)
        if self.by_key is not None:
            found[: len(self.by_key)] = self.by_key[:keys]
        return found

    def array(self, keys: int) -> Ints:
        """The same for kernels: one number where it holds for all keys."""
        return self.full(1 if self.by_key is None else keys)

    @property
    def highest(self) -> int:
        """No key has a higher limit."""
        if self.by_key is None or not len(self.by_key):
            return self.common
        return max(self.common, int(self.by_key.max()))

    def mapped(self, change: Callable[[Any], Any]) -> Limits:
        """Every limit changed alike; `change` takes an int, and an array of them."""
        return Limits(int(change(self.common)), None if self.by_key is None else change(self.by_key))

    def raised(self, other: Limits) -> Limits:
        """The higher limit of both for each key."""
        common = max(self.common, other.common)
        if self.by_key is None and other.by_key is None:
            return Limits(common)
        keys = max(len(l.by_key) for l in (self, other) if l.by_key is not None)
        by_key = np.maximum(self.full(keys), other.full(keys))
        return Limits(common, by_key if (by_key != common).any() else None)

    def raised_for(self, kid: Ints, limit: int) -> Limits:
        """At least this limit for some keys, by their ids."""
        if not len(kid):
            return self
        found = self.full(max(int(kid.max()) + 1, 0 if self.by_key is None else len(self.by_key)))
        found[kid] = np.maximum(found[kid], limit)
        return Limits(self.common, found)

    def renumbered(self, kept: Ints) -> Limits:
        """The same where the keys `kept` are `0, 1, 2, …` from now on and others are forgotten."""
        return self if self.by_key is None else Limits(self.common, self.of(kept))

    def shared(self, number: int, lanes: int) -> Limits:
        """The limits of the keys of one lane, by the numbers that the lane gives them."""
        return self if self.by_key is None else Limits(self.common, self.by_key[number::lanes])

    @staticmethod
    def joined(lanes: Sequence[Limits], keys: int | None = None) -> Limits:
        """What `shared` gave to each lane, as one, for so many keys; the lowest holds for keys to come."""
        common = min(own.common for own in lanes)
        if all(own.by_key is None for own in lanes):
            return Limits(common)
        longest = max(len(own.by_key) for own in lanes if own.by_key is not None)
        return Limits(common, np.stack([own.full(longest) for own in lanes], axis=1).ravel()[:keys])
