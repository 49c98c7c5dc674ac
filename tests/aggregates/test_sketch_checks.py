"""Every sketch that is made is read again; bytes that are not one are refused."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tidemill.aggregates import sketches
from tidemill.aggregates.algebra import Sketch
from tidemill.aggregates.sketch_checks import check_sketch
from tidemill.core.errors import UserError

COUNTS = [0, 1, 2, 7, 8, 9, 24, 25, 100, 400, 5000, 40_000]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("size", [7, 8, 12])
def test_hll_sketches_of_all_forms_are_sound(size: int, count: int) -> None:
    sketch, pick = Sketch("hll", size), random.Random(count)
    one = sketches.update(sketch, sketches.new(sketch), [pick.getrandbits(60) for _ in range(count)])
    other = sketches.update(sketch, sketches.new(sketch), map(str, range(count // 3)))
    for made in (one, other, sketches.combine(sketch, one, other)):
        check_sketch(sketch, sketches.serialize(sketch, made))


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("size", [8, 20, 200])
def test_kll_sketches_of_all_forms_are_sound(size: int, count: int) -> None:
    sketch = Sketch("kll", size)
    values = np.random.default_rng(count).normal(size=count)
    one = sketches.update(sketch, sketches.new(sketch), values)
    other = sketches.update(sketch, sketches.new(sketch), np.array([np.inf, -np.inf, -0.0, 1.0]))
    for made in (one, other, sketches.combine(sketch, one, other)):
        check_sketch(sketch, sketches.serialize(sketch, made))


@pytest.mark.parametrize(("kind", "size"), [("hll", 7), ("kll", 8)])
@pytest.mark.parametrize("count", [5, 20, 3000])
def test_bytes_that_crash_datasketches_are_refused(kind: str, size: int, count: int) -> None:
    """Each byte of what says how much there is; in values, others may be as good."""
    sketch = Sketch(kind, size)
    values = np.arange(count, dtype=np.float64) if kind == "kll" else range(count)
    data = sketches.serialize(sketch, sketches.update(sketch, sketches.new(sketch), values))
    for size_ in range(len(data)):
        with pytest.raises(UserError, match="sketches of size"):
            check_sketch(sketch, data[:size_])
    for at in range(8):
        for bit in range(8):
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            try:
                check_sketch(sketch, bytes(changed))
            except UserError:
                continue
            again = sketches.deserialize(sketch, bytes(changed))  # flags that say nothing here
            assert sketches.lower(sketch, again, _lower(kind)) is not None


def _lower(kind: str) -> sketches.NamedLower:
    median = sketches.NamedLower("sketch_quantile", (0.5,))
    return sketches.NamedLower("estimate") if kind == "hll" else median
