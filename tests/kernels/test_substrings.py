"""Substrings against Arrow's own search."""

from __future__ import annotations

import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tidemill.kernels.substrings import contains


@pytest.mark.parametrize("alphabet", ["ab", "abc", "aä"])
def test_arrow_finds_the_same(alphabet: str) -> None:
    pick = random.Random(3)

    def text(most: int) -> str:
        return "".join(pick.choices(alphabet, k=pick.randint(0, most)))

    for _ in range(300):
        n = pick.randint(0, 30)
        array = pa.array(
            [None if pick.random() < 0.1 else text(pick.choice([3, 12, 90])) for _ in range(n)],
            "string",
        )
        array = array.slice(pick.randint(0, n))
        part = text(5)
        found = contains(array, part)
        found.validate(full=True)
        assert found.equals(pc.match_substring(array, part))


def test_a_match_in_two_strings_is_none() -> None:
    assert contains(pa.array(["xa", "bx", "ab"]), "ab").to_pylist() == [False, False, True]
