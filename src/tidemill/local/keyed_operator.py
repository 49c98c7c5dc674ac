"""Operators on lifetimes whose advances cost what starts and ends, not what is kept."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.core.time import FOREVER
from tidemill.kernels.row_batches import joined_rows, taken_column
from tidemill.local.kept_by_key import KeptByKey
from tidemill.local.lifetimes import Ints, ends_of
from tidemill.local.temporal_operator import TemporalOperator

_Arrays = list[pa.Array]
_FEW_ADVANCES = 64
"""To put rows apart takes longer than to look at all of them, so it must be for many advances."""


class KeyedOperator(TemporalOperator):
    """Where nothing of a key starts or ends, an advance changes nothing of it.

    So if few rows are new, an advance works on the rows of their keys, and of the keys of which rows end. The
    other rows lie apart, by their keys (`KeptByKey`). What changes goes to the rows that are kept as usual;
    when these are many, all rows are put apart again.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._apart: list[KeptByKey] = []
        """The rows of each port that lie apart; nothing if none do."""
        self._until_apart = 0
        """So many small advances look at all rows before these are put apart again."""

    _keys_apart = True
    """Whether that is so."""

    @abstractmethod
    def _over(self, below: int) -> int:
        """Return the last end of rows that are not kept any more at a watermark."""

    def _matters_at(self, port: int, rows: pa.RecordBatch) -> Ints:
        """Return the instant at which each kept row of a port matters next, if nothing of its key starts."""
        return ends_of(self.inputs[port], rows)

    def _changes(self, port: int) -> bool:
        """Return whether an advance changes kept rows of a port, or leaves some out that have not ended."""
        return bool(self.state[port])

    def _held_back(self, port: int, rows: pa.RecordBatch) -> Ints | None:
        """Return the instant that each kept row of a port holds back, if they do."""
        return None

    def _worked_on(self, below: int) -> Iterable[pa.RecordBatch]:
        due = [self._taken(port, below) for port in range(self.ports)]
        if self._are_few(due, below):
            if not self._apart or self._recent > self._most_recent:
                self._gather()
                self._put_apart()
            keys = self._keys_touched(due, self._over(below))
            places = [rows.of(keys) for rows in self._apart] if keys else []
            if sum(map(len, places)) * self._tuning.many_touched <= self._kept_count:
                return self._worked_on_keys(due, keys, places, below) if keys else ()
        if self._apart:
            self._gather()
            self._until_apart = _FEW_ADVANCES if self._tuning.many_due else 0
        sides = [self._side(port, self._kept_rows[port], rows) for port, rows in enumerate(due)]
        return self._worked(sides, below)

    def _are_few(self, due: Sequence[Sequence[pa.RecordBatch]], below: int) -> bool:
        """Return whether it pays to look for the rows of some keys."""
        if not self._keys_apart or below == FOREVER or not all(self._key_columns):
            return False
        if any(self._by_key):  # promises about keys need all rows together, and more of them are to come
            return False
        new: int = sum(batch.num_rows for batches in due for batch in batches)
        if self._kept_count < self._tuning.few_kept or new * self._tuning.many_due > self._most_recent:
            return False
        self._until_apart = max(0, self._until_apart - 1)
        return not self._until_apart

    def _worked_on_keys(
        self, due: Sequence[list[pa.RecordBatch]], keys: _Arrays, places: Sequence[Ints], below: int
    ) -> Iterable[pa.RecordBatch]:  # fmt: skip
        """Work on the rows of some keys, which have these places among those that lie apart."""
        last, apart = self._over(below), self._apart
        self._fetch(keys)
        kept = [
            joined_rows([apart[p].rows_at(places[p]), recent]) if len(places[p]) else recent
            for p, recent in enumerate(self._kept_rows)
        ]
        sides = [self._side(port, kept[port], rows) for port, rows in enumerate(due)]
        results = self._worked(sides, below)
        for port, side in enumerate(sides):
            gone = places[port]
            if not self._changes(port):  # rows that stay are as they were
                over = side.ends[: len(gone)] <= last
                self._kept_rows[port] = self._kept_rows[port].slice(
                    len(gone) - np.count_nonzero(over)
                )
                gone = gone[over]
            apart[port].leave(gone)
            self._held = min(self._held, apart[port].first_held)
        self._put_back()
        return results

    def _keys_touched(self, due: Sequence[list[pa.RecordBatch]], last: int) -> _Arrays:
        """Return the keys of new rows, and of rows that end; some are there several times."""
        found: list[_Arrays] = [[] for _ in self._key_columns[0]]
        for port, names in enumerate(self._key_columns):
            recent, apart = self._kept_rows[port], self._apart[port]
            ended = np.flatnonzero(self._matters_at(port, recent) <= last)
            far = apart.ended(last)
            for arrays, name in zip(found, names):
                arrays += [batch.column(name) for batch in due[port]]
                if len(ended):
                    arrays.append(taken_column(recent.column(name), ended))
                if len(far):
                    arrays.append(apart.taken(far, name))
        return [pa.concat_arrays(arrays) for arrays in found if arrays]

    # -- rows that lie apart

    @property
    def _recent(self) -> int:
        """The number of rows, or values, that do not lie apart."""
        return sum(rows.num_rows for rows in self._kept_rows)

    @property
    def _most_recent(self) -> int:
        """To put more rows apart than this pays: an advance looks at all of them."""
        return max(self._tuning.few_kept // 32, 4 * math.isqrt(self._kept_count))

    def _put_apart(self) -> None:
        for port, rows in enumerate(self._kept_rows):
            keys = self.inputs[port].schema.select(self._key_columns[port])
            held = self._held_back(port, rows)
            self._apart.append(KeptByKey(rows, keys, self._matters_at(port, rows), held))
            self._kept_rows[port] = rows.slice(0, 0)

    def _gather(self) -> None:
        """Put all rows together again."""
        self._kept_rows = [self._all_kept(port) for port in range(self.ports)]
        self._apart = []

    def _fetch(self, keys: Sequence[pa.Array]) -> None:
        """Get what else is kept of some keys."""

    def _put_back(self) -> None:
        """The work on some keys is done."""

    def _all_kept(self, port: int) -> pa.RecordBatch:
        apart = [self._apart[port].rows] if self._apart else []
        return joined_rows([*apart, self._kept_rows[port]])

    @property
    def _kept_count(self) -> int:
        found: int = super()._kept_count + sum(rows.count for rows in self._apart)
        return found

    def _see_next(self) -> None:
        super()._see_next()
        for rows in self._apart:
            self._next = min(self._next, rows.first_end)

    def _advance_some(
        self, keys: Sequence[Mapping[str, pa.Array]], below: int
    ) -> Iterator[pa.RecordBatch]:
        self._gather()
        return super()._advance_some(keys, below)

    def restore(self, state: Any) -> None:
        self._apart = []
        super().restore(state)

    def size(self) -> tuple[int, int]:
        rows, nbytes = super().size()
        return rows + sum(r.count for r in self._apart), nbytes + sum(r.nbytes for r in self._apart)
