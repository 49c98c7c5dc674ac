"""One rule for NaN and zero: every representation of floats agrees with the one on Python values."""

from __future__ import annotations

import itertools
import math
import struct
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidemill as tm
from tests.conformance.harness import by_reference, locally
from tidemill.core.floats import canonical, canonical_array, canonical_arrow, equal, order_key
from tidemill.core.schema import schema
from tidemill.kernels.functions import equal_float, less_float
from tidemill.kernels.keys import KeyIndex
from tidemill.kernels.order import float_key

OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]
VALUES = (-math.inf, -1.5, -5e-324, -0.0, 0.0, 5e-324, 2.0, math.inf, math.nan, OTHER_NAN)
"""In the order of the rule; neighbours are equal where both are zero or both are NaN."""
PAIRS = list(itertools.product(VALUES, VALUES))
RANKS = {id(v): r for v, r in zip(VALUES, (0, 1, 2, 3, 3, 4, 5, 6, 7, 7))}


def rank(value: float) -> int:
    return RANKS[id(value)]


def test_python_values() -> None:
    for a, b in PAIRS:
        assert (order_key(a) < order_key(b)) == (rank(a) < rank(b))
        assert (order_key(a) == order_key(b)) == (rank(a) == rank(b)) == equal(a, b)
        assert (hash(order_key(a)) == hash(order_key(b))) or rank(a) != rank(b)
        assert (repr(canonical(a)) == repr(canonical(b))) == (rank(a) == rank(b))
    assert order_key((1, -0.0, OTHER_NAN)) == order_key((1, 0.0, math.nan))


def test_scalars_of_compiled_loops() -> None:
    for a, b in PAIRS:
        assert less_float(a, b) == (rank(a) < rank(b))
        assert equal_float(a, b) == (rank(a) == rank(b))


def bits(data: Any) -> list[int]:
    return np.asarray(data, dtype=np.float64).view(np.int64).tolist()  # type: ignore[no-any-return]


def test_arrays() -> None:
    data = np.array(VALUES)
    want = bits([canonical(v) for v in VALUES])
    assert bits(canonical_array(data)) == want
    assert bits(canonical_arrow(pa.array(data)).to_numpy()) == want
    assert canonical_arrow(pa.array([None, -0.0])).to_pylist() == [None, 0.0]
    keys = float_key(data)
    for (i, a), (j, b) in itertools.product(enumerate(VALUES), enumerate(VALUES)):
        assert (keys[i] < keys[j]) == (rank(a) < rank(b))
        assert (keys[i] == keys[j]) == (rank(a) == rank(b))


def test_keys_are_numbered_and_shown_by_the_rule() -> None:
    index = KeyIndex(schema({"x": "float64"}))
    ids = index.encode([pa.array(VALUES[::-1])])[::-1]
    for (i, a), (j, b) in itertools.product(enumerate(VALUES), enumerate(VALUES)):
        assert (ids[i] == ids[j]) == (rank(a) == rank(b))
    assert bits(index.decode([*ids])[0].to_numpy()) == bits([canonical(v) for v in VALUES])


STREAM = tm.stream("s", time="t", schema={"t": "int64", "x": "float64"})
GROUPED = STREAM.group_by("x").window(tm.tumbling(100)).agg(n=tm.count())
ROWS = [{"t": i, "x": x} for i, x in enumerate(VALUES)]
SHOWN = sorted(Counter(repr(canonical(v)) for v in VALUES).items())


@pytest.mark.parametrize("run", [locally, by_reference])
def test_a_group_is_shown_by_its_canonical_key(run: Any) -> None:
    assert sorted((repr(row["x"]), row["n"]) for row in run(GROUPED, ROWS)) == SHOWN
