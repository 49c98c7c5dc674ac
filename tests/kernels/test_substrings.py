"""Substrings against Arrow's own search."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tidemill.kernels import substrings
from tidemill.kernels.strings import call
from tidemill.kernels.substrings import begins, contains, ends, one_of, place, taken


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
        at = place(array, part)
        at.validate(full=True)
        assert at.to_pylist() == [None if text is None else text.find(part) for text in array.to_pylist()]


def test_a_match_in_two_strings_is_none() -> None:
    assert contains(pa.array(["xa", "bx", "ab"]), "ab").to_pylist() == [False, False, True]


def strings(pick: random.Random, alphabet: str) -> pa.Array:
    """Strings of all lengths around eight and sixteen bytes; some are null, and the array is a slice."""
    n = pick.randint(0, 30)
    sizes = [0, 1, 3, 7, 8, 9, 15, 16, 17, 40]
    listed = ["".join(pick.choices(alphabet, k=pick.choice(sizes))) for _ in range(n)]
    listed = [None if pick.random() < 0.1 else text for text in listed]
    start = pick.randint(0, n)
    return pa.array(listed, pa.string()).slice(start, pick.randint(0, n - start))


@pytest.mark.parametrize("alphabet", ["a", "ab", "aä"])
def test_arrow_compares_ends_and_values_as_we_do(alphabet: str) -> None:
    pick = random.Random(5)
    for _ in range(300):
        array = strings(pick, alphabet)
        known = [*array.drop_null().to_pylist(), "", "a", "a" * 17]
        some = pick.choice(known)
        for part in (some, some[: pick.randint(0, 20)], some[-9:], "b"):
            for ours, theirs in ((begins, pc.starts_with), (ends, pc.ends_with)):
                found = ours(array, part)
                found.validate(full=True)
                assert found.equals(theirs(array, part))
        values = tuple(pick.choices(known, k=pick.randint(0, 9)))
        expected = [None if s is None else s in values for s in array.to_pylist()]
        assert one_of(array, values).to_pylist() == expected


def test_values_that_differ_only_in_the_middle() -> None:
    array = pa.array([f"the same {n} and the same" for n in range(10)])
    assert one_of(array, ("the same 3 and the same", "the same 4 and the same")).to_pylist() == [
        n in (3, 4) for n in range(10)
    ]


@pytest.mark.parametrize("count", [5_000, 20_000])
def test_very_many_values(count: int) -> None:
    array = pa.array([str(n) for n in range(0, 2 * count, 7)])
    values = tuple(str(n) for n in range(count))
    assert one_of(array, values).to_pylist() == [n < count for n in range(0, 2 * count, 7)]


@pytest.mark.parametrize("alphabet", ["a", "aä"])
def test_arrow_takes_the_same_rows(alphabet: str) -> None:
    pick = random.Random(7)
    for _ in range(200):
        array = strings(pick, alphabet)
        count = pick.randint(0, 20) if len(array) else 0
        rows = np.array([pick.randrange(len(array)) for _ in range(count)], dtype=np.int64)
        found = taken(array, rows)
        found.validate(full=True)
        assert found.equals(array.take(pa.array(rows)))


def test_short_values_are_compared_within_their_memory() -> None:
    *_, values = substrings._slots_of(("b", "c"))  # type: ignore[misc]
    assert values.size >= 8
    assert one_of(pa.array(["b", "d", None, ""]), ("b", "c")).to_pylist() == [True, False, None, False]


@pytest.mark.parametrize(
    "pattern",
    ["ab.*ba", "ab", "ab*c", "a?b", "aab{2}", "ab|b", "ab+", "(?i)AB", "^ab", "ab$", "a b", r"ab\w", "a[b]"],
)
@pytest.mark.parametrize("alphabet", ["ab", "ab cä\n", "abcdefghijklm"])
def test_patterns_that_begin_with_text_match_as_arrow_says(pattern: str, alphabet: str) -> None:
    pick = random.Random(5)
    for _ in range(30):
        array = strings(pick, alphabet)
        found = call("matches", array, pattern)
        found.validate(full=True)
        assert found.to_pylist() == pc.match_substring_regex(array, pattern).to_pylist()
