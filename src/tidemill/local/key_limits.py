"""Watermarks of some keys of an input, for rows that have these keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.core.schema import Schema
from tidemill.core.time import BEGINNING
from tidemill.kernels.keys import KeyIndex
from tidemill.local.limits import Ints, Limits

_MANY = 1 << 10
"""So many keys more than were left the last time, and it is looked which ones say nothing any more."""


class KeyLimits:
    """A limit for each key that has one, by the columns that the keys are of.

    >>> from tidemill.core.schema import schema
    >>> limits = KeyLimits(schema({"sensor": "int64", "t": "int64"}))
    >>> limits.raise_to({"sensor": pa.array([7])}, 100)
    >>> limits.of(pa.record_batch({"sensor": [7, 8], "t": [3, 3]}))[0]
    np.int64(100)
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._keys: dict[tuple[str, ...], KeyIndex] = {}
        self._limits: dict[tuple[str, ...], Limits] = {}
        self._looked: dict[tuple[str, ...], int] = {}
        """Twice the number of keys that were left when keys were last forgotten."""

    def __bool__(self) -> bool:
        return bool(self._limits)

    def raise_to(self, keys: Mapping[str, pa.Array], below: int) -> None:
        """Raise the limit of some keys."""
        columns = tuple(sorted(keys))
        index = self._keys.setdefault(columns, KeyIndex(self._schema.select(columns)))
        kid = index.encode([keys[c] for c in columns])
        self._limits[columns] = self._limits.get(columns, Limits()).raised_for(kid, below)

    def forget(self, below: int) -> None:
        """Forget limits that say no more than this one, which is for all keys."""
        for columns, limits in list(self._limits.items()) if self._limits else ():
            if limits.highest <= below:
                del self._limits[columns], self._keys[columns]
                continue
            known = self._keys[columns].count
            if known > self._looked.get(columns, 0) + _MANY:  # keys come and go: forget those that are gone
                self._keep(columns, np.flatnonzero(limits.full(known) > below))
                self._looked[columns] = 2 * self._keys[columns].count

    def _keep(self, columns: tuple[str, ...], some: Ints) -> None:
        """Forget all keys but some."""
        arrays = self._keys[columns].decode(some)
        limits = self._limits[columns].full(self._keys[columns].count)[some]
        index = self._keys[columns] = KeyIndex(self._schema.select(columns))
        below = np.full(len(some) + 1, BEGINNING, dtype=np.int64)  # null may have an id of its own
        below[index.encode(arrays)] = limits
        self._limits[columns] = Limits(BEGINNING, below[: index.count])

    def of(self, batch: pa.RecordBatch) -> Any:
        """Return the limit of each row; one number, below all, where no row can have one."""
        return self.of_keys(dict(zip(batch.schema.names, batch.columns))) if self._limits else BEGINNING

    def of_keys(self, keys: Mapping[str, pa.Array]) -> Any:
        """Return the limit of each key, as `of` does of rows that have these columns only."""
        found: Any = BEGINNING
        for columns, limits in self._limits.items():
            if keys.keys() >= set(columns):
                kid = self._keys[columns].find([keys[c] for c in columns])
                found = np.maximum(found, np.where(kid >= 0, limits.of(np.maximum(kid, 0)), BEGINNING))
        return found

    def highest_of(self, keys: Mapping[str, pa.Array]) -> int:
        """Return the highest limit of some keys."""
        found = self.of_keys(keys)
        return int(found.max(initial=BEGINNING)) if isinstance(found, np.ndarray) else found

    def promises(self, above: int) -> Iterator[tuple[dict[str, pa.Array], int]]:
        """Yield the limits above one: columns of keys, and the limit that all of them have."""
        for columns, limits in self._limits.items():
            index = self._keys[columns]
            below = limits.full(index.count)
            for limit in np.unique(below[below > above]):
                arrays = index.decode(np.flatnonzero(below == limit))
                yield dict(zip(columns, arrays)), int(limit)

    def tables(self, name: str) -> Iterator[pa.Table]:
        """Yield the limits, a table for each set of columns; the column of limits has this name."""
        for columns, limits in self._limits.items():
            index = self._keys[columns]
            arrays = index.decode(np.arange(index.count))
            yield pa.table([*arrays, pa.array(limits.full(index.count))], names=[*columns, name])

    def load(self, keys: Mapping[str, pa.Array], below: Ints) -> None:
        """Load a table that `tables` yielded."""
        columns = tuple(keys)
        index = self._keys[columns] = KeyIndex(self._schema.select(columns))
        limits = np.full(len(below) + 1, BEGINNING, dtype=np.int64)  # null may have an id of its own
        limits[index.encode([keys[c] for c in columns])] = below
        self._limits[columns] = Limits(BEGINNING, limits[: index.count])
