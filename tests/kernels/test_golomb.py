"""Golomb codes against their definition (paper 002, section 4.2.1 and Figure 4.3)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.kernels.golomb import decode, encode, parameter


def definition(n: int, m: int) -> str:
    """The code of a number: unary, then truncated binary."""
    q, r = divmod(n, m)
    k = m.bit_length() - 1
    u = 2 ** (k + 1) - m
    tail = (f"{r:0{k}b}" if k else "") if r < u else f"{r + u:0{k + 1}b}"
    return "1" * q + "0" + tail


def bits_of(words: np.ndarray, bits: int) -> str:
    return "".join(f"{int(w):064b}" for w in words)[:bits]


def test_figure_4_3() -> None:
    words, bits = encode(np.array([6, 10, 17, 18]), 5)
    assert bits_of(words, bits) == "100101111010001"


@given(st.lists(st.integers(0, 500), max_size=60), st.integers(1, 70))
def test_codes_are_those_of_the_definition(distances: list[int], m: int) -> None:
    values = np.cumsum(np.array(distances, dtype=np.int64))
    words, bits = encode(values, m)
    assert bits_of(words, bits) == "".join(definition(d, m) for d in distances)
    assert decode(words, len(values), m).tolist() == values.tolist()


@given(
    st.lists(st.integers(1, 2**36), min_size=1, max_size=40), st.integers(0, 2**40),
    st.sampled_from([1 << 12, 1 << 30, 12_345_678]),
)  # fmt: skip
def test_far_apart(distances: list[int], before: int, m: int) -> None:
    values = before + np.cumsum(np.array(distances, dtype=np.int64))
    if distances and max(distances) // m > 1 << 20:
        values = values[:1] if values[0] - before < 1 << 30 else values[:0]
    words, _ = encode(values, m, before, least=1)
    assert decode(words, len(values), m, before, least=1).tolist() == values.tolist()


def test_words_that_end_too_early_are_refused() -> None:
    words, _ = encode(np.arange(0, 1000, 7), 5)
    with pytest.raises(ValueError, match="end before 143 values"):
        decode(words[:-1], 143, 5)
    with pytest.raises(ValueError, match="invalid parameter"):
        encode(np.arange(3), 0)


def test_size_at_a_false_positive_rate_of_one_in_eight() -> None:
    """Section 7.2.2: 4.73 bits for each of random distances in [1, 19], within 9/8 of their entropy."""
    values = np.cumsum(np.random.default_rng(0).integers(1, 20, 200_000))
    words, bits = encode(values, 8, least=1)
    assert bits / len(values) <= 4.8
    assert bits / len(values) <= 9 / 8 * np.log2(19)
    assert np.array_equal(decode(words, len(values), 8, least=1), values)


def test_the_parameter_is_near_the_best_one() -> None:
    rng = np.random.default_rng(1)
    for mean in (2, 8, 32, 1000):
        values = np.cumsum(rng.geometric(1 / mean, 20_000))
        sizes = {m: encode(values, m, least=1)[1] for m in (1 << i for i in range(14)) if mean // m < 100}
        assert sizes[parameter(mean)] <= 1.03 * min(sizes.values())
