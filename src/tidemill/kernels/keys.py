"""Map group keys to dense ids, for any number of columns of comparable types."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.core.floats import canonical_array
from tidemill.core.schema import Schema
from tidemill.core.types import DataType, to_arrow
from tidemill.kernels.arrow import build, validity, values
from tidemill.kernels.index import IntIndex, StringIndex
from tidemill.kernels.memory import empty, empty_like, taken
from tidemill.kernels.order import min_max

Ints = npt.NDArray[np.int64]
_CLOSE = 1 << 12
"""Keys in a span of this size, or of the number of rows, are ids without being looked up."""


class KeyIndex:
    """Maps rows of key columns to ids `0, 1, 2, …`, and back.

    >>> from tidemill.core.types import INT64, STRING
    >>> keys = KeyIndex(Schema((("a", INT64), ("b", STRING))))
    >>> keys.encode([pa.array([1, 1, 1]), pa.array(["x", "y", "x"])])
    array([0, 1, 0])
    >>> [c.to_pylist() for c in keys.decode(np.array([1]))]
    [[1], ['y']]
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._columns = [_column(kind) for _, kind in schema]
        self._pairs = [IntIndex() for _ in self._columns[1:]]

    @property
    def count(self) -> int:
        """The number of keys; 1 if there are no key columns."""
        if not self._columns:
            return 1
        return self._pairs[-1].count if self._pairs else self._columns[0].count

    @property
    def quick(self) -> bool:
        """Whether a lookup takes about a nanosecond, so that threads would not pay."""
        return len(self._columns) == 1 and isinstance(self._columns[0], _Fixed) and self._columns[0].direct

    def copy(self) -> KeyIndex:
        """Return an independent index with the same keys and ids."""
        return copy.deepcopy(self)

    def encode(self, arrays: list[pa.Array]) -> Ints:
        ids: Ints = self._columns[0].encode(arrays[0])
        if not self._pairs:
            return ids
        for column, pairs, array in zip(self._columns[1:], self._pairs, arrays[1:]):
            # Two ids are packed into one int64: both are far below 2**31.
            ids = pairs.encode((ids << 32) | column.encode(array))
        return ids

    def in_loop(self, arrays: list[pa.Array]) -> tuple[str, tuple[Any, ...]] | None:
        """Return how a loop finds ids of key columns itself, and its parameters; None if it cannot.

        It can for one column of numbers without nulls.
        """
        [only, *more] = self._columns
        if more or not isinstance(only, _Fixed) or arrays[0].null_count:
            return None
        return only.in_loop(arrays[0])

    def restore(self, arrays: list[pa.Array]) -> None:
        """Add keys that `decode` returned for consecutive ids, so that they get the same ids here.

        >>> from tidemill.core.types import INT64
        >>> one, other = (KeyIndex(Schema((("a", INT64),))) for _ in range(2))
        >>> one.encode([pa.array([7])]), one.encode([pa.array([8, None])])
        (array([0]), array([2, 1]))
        >>> other.restore(one.decode(np.arange(3)))
        >>> other.find([pa.array([7, 8, None])])
        array([0, 2, 1])
        """
        # `encode` gives null the first id of a batch, so null gets a batch of its own.
        null = pc.index(arrays[0].is_null(), True).as_py()
        cuts = (0, len(arrays[0])) if null < 0 else (0, null, null + 1, len(arrays[0]))
        for start, end in itertools.pairwise(cuts):
            if start < end:
                self.encode([a.slice(start, end - start) for a in arrays])

    def find(self, arrays: list[pa.Array]) -> Ints:
        """Return ids like `encode`, but do not add new keys: their ids are negative."""
        ids: Ints = self._columns[0].encode(arrays[0], add=False)
        for column, pairs, array in zip(self._columns[1:], self._pairs, arrays[1:]):
            code = column.encode(array, add=False)
            known = (ids >= 0) & (code >= 0)
            ids = np.where(known, pairs.encode((ids << 32) | code, add=False), -1)
        return ids

    def decode(self, ids: Ints) -> list[pa.Array]:
        codes: list[Ints] = []
        for pairs in reversed(self._pairs):
            both = pairs.keys[ids]
            codes.append(both & 0xFFFFFFFF)
            ids = both >> 32
        codes.append(ids)
        return [c.decode(i) for c, i in zip(self._columns, reversed(codes))]


def ids_of(schema: Schema, sides: Sequence[list[pa.Array]]) -> tuple[list[Ints], int]:
    """Return ids of keys that only say which rows have equal ones, and a number above all of them.

    Numbers that lie close together are ids themselves; others are looked up.

    >>> from tidemill.core.types import INT64
    >>> ids_of(Schema((("a", INT64),)), [[pa.array([7, 9])], [pa.array([9])]])
    ([array([0, 2]), array([2])], 3)
    """
    close = _close_numbers(schema, sides)
    if close is not None:
        return close
    index = KeyIndex(schema)
    return [index.encode(columns) for columns in sides], index.count


def _close_numbers(schema: Schema, sides: Sequence[list[pa.Array]]) -> tuple[list[Ints], int] | None:
    kinds = [kind for _, kind in schema]
    if len(kinds) != 1 or not kinds[0].is_fixed or kinds[0].kind in ("float64", "bool"):
        return None
    columns = [column for [column] in sides if len(column)]
    if not columns or any(column.null_count for column in columns):
        return None
    lows, highs = zip(*(min_max(values(column)) for column in columns))
    low, high = min(lows), max(highs)
    if high - low >= max(_CLOSE, sum(map(len, columns))):
        return None
    return [np.subtract(d := values(c), low, out=empty(len(d))) for [c] in sides], high - low + 1


def _column(kind: DataType) -> Any:
    return _Strings(kind) if kind.kind in ("string", "binary") else _Fixed(kind)


class _Fixed:
    """A column of numbers, bools or instants, compared by bits; floats in their canonical form."""

    def __init__(self, kind: DataType) -> None:
        self._kind, self._index, self._floats = kind, IntIndex(), kind.kind == "float64"

    @property
    def count(self) -> int:
        return self._index.count

    @property
    def direct(self) -> bool:
        return self._index.direct

    def encode(self, array: pa.Array, *, add: bool = True) -> Ints:
        return self._index.encode(self._bits(array), validity(array), add=add)

    def in_loop(self, array: pa.Array) -> tuple[str, tuple[Any, ...]] | None:
        found = self._index.in_loop()
        if found is None:
            return None
        how, tables = found
        return how, (self._bits(array), *tables)

    def _bits(self, array: pa.Array) -> Ints:
        """The values that the index has."""
        data = values(array)
        return canonical_array(data).view(np.int64) if self._floats else data

    def decode(self, ids: Ints) -> pa.Array:
        data = taken(self._index.keys, ids)
        valid = None if self._index.null_id < 0 else ids != self._index.null_id
        if self._floats:
            data = data.view(np.float64)
        elif self._kind.kind == "bool":
            data = data != 0
        return build(data, valid, to_arrow(self._kind))


class _Strings:
    def __init__(self, kind: DataType) -> None:
        self._kind, self._index = kind, StringIndex()

    @property
    def count(self) -> int:
        return self._index.count + 1

    def encode(self, array: pa.Array, *, add: bool = True) -> Ints:
        # Null is id 0, so that ids stay dense and never negative.
        ids = self._index.encode(array, add=add)
        ids += 1
        return ids

    def decode(self, ids: Ints) -> pa.Array:
        found = self._index.decode(np.subtract(ids, 1, out=empty_like(ids)))
        return found if self._kind.kind == "string" else found.cast(pa.binary())
