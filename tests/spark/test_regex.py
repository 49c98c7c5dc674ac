"""Patterns of RE2 as Java's: the same texts match."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as F

from tests.expressions import TEXTS
from tidemill.core.errors import UnsupportedError
from tidemill.spark.regex import to_java


def unlike(spark: Any, patterns: list[str]) -> list[str]:
    """Where Java's answers to translated patterns are not RE2's."""
    df = spark.createDataFrame([(t,) for t in TEXTS], "s string").coalesce(1)
    columns = [F.col("s").rlike(to_java(p)).alias(f"p{i}") for i, p in enumerate(patterns)]
    got = df.select(*columns).toArrow()
    assert got.num_rows == len(TEXTS)
    found = []
    for i, pattern in enumerate(patterns):
        want = pc.match_substring_regex(pa.array(TEXTS), pattern).to_pylist()
        differ = [t for t, g, w in zip(TEXTS, got.column(i).to_pylist(), want) if g != w]
        if differ:
            found.append(f"{pattern!r} as {to_java(pattern)!r} on {differ}")
    return found


def test_patterns_are_those_of_re2(spark: Any) -> None:
    assert not unlike(
        spark,
        ["a$", "^$", "(?m)^$", "(?m)a$", "(?s)a.b", "a.b", ".", r"\s", r"\S", r"[\s]", r"[^\s]",
         r"[\S]", r"[^\S]", r"\bb", r"\Bb", r"\b", "(?i)k", "(?i)s", "(?i)ΓΔ", "(?i)straße",
         "a[[b]", "[a&&b]", "[]]", "[^]]", "[-a]", "[a-]", "x{,2}", "a{2}", "(?:ab){2,}", "a{1,}?",
         r"\v",
         r"\a\f", r"\07", r"\x41", r"\x{1F600}", r"\Qa.b\E", r"\Qa.", r"\pL", r"\PL", r"\p{Greek}",
         r"\p{^Greek}", r"[\p{Lu}\d]", r"\p{Any}", "[[:alpha:]]", "[[:^alpha:]]", "[[:word:]]",
         "[[:space:]]", "[^[:space:]]", r"(?P<x>a)b", r"(?<x>a)b", "a(?i)B|c", "(a(?i)B)B",
         "(?i:A)A", "(?i)(?-i)A", "b(?i)+", "^*a", "(|a)", "a|", r"\A\d+\z", r"\D", r"\W",
         "é", r"\.", r"\$", r"[\]\[]",
         r"[\d-z]", "[+--]", r"\_", "(?U)a+", " ", "#", "(?-s).", "[^a]$", r"\d{2}\z"],
    )  # fmt: skip


def test_random_patterns_are_those_of_re2(spark: Any) -> None:
    pieces = [
        "a", "b", ".", "^", "$", "*", "+", "?", "|", "(", ")", "(?i)", "(?m)", "(?s:", "[a", "]",
        "[^", "-", r"\s", r"\S", r"\b", r"\d", r"\w", "{2}", "{", "[", "&&", "B", "ß", "\n", "9",
        r"\pL",
        "[:digit:]", r"\x{3a3}",
    ]  # fmt: skip
    rng, patterns = random.Random(3), []
    while len(patterns) < 120:
        pattern = "".join(rng.choice(pieces) for _ in range(rng.randint(1, 7)))
        try:
            pc.match_substring_regex(pa.scalar(""), pattern)
        except pa.ArrowInvalid:
            continue
        patterns.append(pattern)
    assert not unlike(spark, patterns)


def test_a_byte_of_a_character_has_no_java_form() -> None:
    with pytest.raises(UnsupportedError):
        to_java(r"\C")
