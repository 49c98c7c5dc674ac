"""What an input has promised about attributes of its rows that are not their time (paper 003, 5.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.core.schema import Schema, internal
from tidemill.core.time import BEGINNING
from tidemill.expr.fluent import Expr
from tidemill.kernels.arrow import validity, values
from tidemill.local.attributes import Attribute
from tidemill.local.expressions import evaluate
from tidemill.local.key_limits import KeyLimits
from tidemill.local.limits import Ints
from tidemill.windows.real_grid import NOWHERE

_MARK = internal("on ")
"""Begins the name of a column of limits in a table of limits by key; the number of the attribute follows."""


class AttributeLimits:
    """A watermark for each attribute, in its ticks, for all rows or for those of some keys."""

    def __init__(self, attributes: Sequence[Attribute], schema: Schema) -> None:
        self._attributes, self._schema = list(attributes), schema
        self._below = [BEGINNING] * len(self._attributes)
        self._by_key = [KeyLimits(schema) for _ in self._attributes]

    def __bool__(self) -> bool:
        if not self._attributes:  # as most often, and at every push
            return False
        return any(below > BEGINNING for below in self._below) or any(self._by_key)

    def find(self, on: Any) -> Attribute:
        """Return the attribute that a user means."""
        found = next((a for a in self._attributes if a.matches(on, self._schema)), None)
        if found is None:
            known = [str(a) for a in self._attributes]
            raise UserError(
                "punctuate", expected=f"on= an attribute of windows that read this input: {known}",
                got=str(on.node) if isinstance(on, Expr) else repr(on),
                hint="without on= the promise is about the time of the stream",
            )  # fmt: skip
        return found

    def require(self, attribute: Attribute, below: int, keys: Mapping[str, pa.Array] | None) -> None:
        """Raise an error if a promise says less than an earlier one, of one of the keys if there are any."""
        at = self._attributes.index(attribute)
        known = self._below[at]
        if keys is not None:
            known = max(known, self._by_key[at].highest_of(keys))
        if below < known:
            raise UserError(
                "punctuate", expected=f"a promise about {attribute} of at least {known} (ticks)",
                got=f"{below} (ticks)", hint="a promise cannot be taken back; later ones are greater",
            )  # fmt: skip

    def raise_to(self, attribute: Attribute, below: int, keys: Mapping[str, pa.Array] | None) -> None:
        """Raise the limit of an attribute, for all rows or for those of some keys."""
        at = self._attributes.index(attribute)
        if keys is not None:
            self._by_key[at].raise_to(keys, below)
            return
        self._below[at] = below
        self._by_key[at].forget(below)

    def late(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Return a mask of the rows with an attribute below its limit; rows without one are not late."""
        found = np.zeros(batch.num_rows, dtype=np.bool_)
        for attribute, below, by_key in zip(self._attributes, self._below, self._by_key):
            if below == BEGINNING and not by_key:
                continue
            given = evaluate(attribute.ticks, batch, self._schema)
            ticks, valid = values(given), validity(given)
            late = (ticks < np.maximum(below, by_key.of(batch))) & (ticks != NOWHERE)
            found |= late if valid is None else late & (valid != 0)
        return found

    # -- state

    def saved(self) -> list[int]:
        """Return the limits for all keys, as JSON."""
        return list(self._below)

    def tables(self) -> Iterator[pa.Table]:
        """Yield the limits of keys."""
        for at, by_key in enumerate(self._by_key):
            yield from by_key.tables(f"{_MARK}{at}")

    def load(self, below: Sequence[int]) -> None:
        """Load what `saved` returned."""
        if len(below) != len(self._below):
            raise UserError("restore", expected=f"{len(self._below)} attributes", got=str(len(below)))
        self._below = list(below)

    def load_keys(self, name: str, keys: Mapping[str, pa.Array], below: Ints) -> None:
        """Load a table that `tables` yielded, whose last column has this name."""
        self._by_key[self._number(name)].load(keys, below)

    def knows(self, name: str) -> bool:
        """Return whether this is the name of the last column of a table of `tables`."""
        number = name.removeprefix(_MARK)
        return name.startswith(_MARK) and number.isdecimal() and int(number) < len(self._attributes)

    def _number(self, name: str) -> int:
        return int(name.removeprefix(_MARK))


