"""Patterns of RE2 as Java's: the same texts match."""

from __future__ import annotations

import random
import time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as F

import tidemill as tm
from tests.expressions import TEXTS
from tidemill import col
from tidemill.spark.dia import generate
from tidemill.spark.expr.regex import to_java, why_not_java

STREAM = tm.stream("s", time="t", schema={"t": "int64", "s": "string"})


def unlike(spark: Any, patterns: list[str], texts: list[str] = TEXTS) -> list[str]:
    """Where Java's answers to the patterns that it is given are not RE2's."""
    patterns = [p for p in patterns if why_not_java(p) is None]
    df = spark.createDataFrame(pa.table({"s": texts})).coalesce(1)
    columns = [F.col("s").rlike(to_java(p)).alias(f"p{i}") for i, p in enumerate(patterns)]
    got = df.select(*columns).toArrow()
    assert got.num_rows == len(texts)
    found = []
    for i, pattern in enumerate(patterns):
        want = pc.match_substring_regex(pa.array(texts), pattern).to_pylist()
        differ = [t for t, g, w in zip(texts, got.column(i).to_pylist(), want) if g != w]
        if differ:
            found.append(f"{pattern!r} as {to_java(pattern)!r} on {differ[:9]}")
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


CLASSES = [
    *(f"(?i){c}" for c in "abikstz0_"), ".", "(?s).", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", "[^a]",
    "[a-z]", r"[^\d]", "[[:alpha:]]", "[[:^space:]]", "[[:punct:]]", "[[:cntrl:]]", "[[:graph:]]",
    "[[:print:]]", "[[:^ascii:]]", "[[:word:]]", r"\b", "^.$", "é", "[à-ÿ]", "\u212a", "ſ", r"\v",
    r"[\x{10000}-\x{10FFFF}]",
]  # fmt: skip


def test_java_reads_characters_as_re2_does(spark: Any) -> None:
    """Those up to the end of Cyrillic, the signs that are letters in another case, and a few of the rest."""
    assert not unlike(spark, CLASSES, code_points([*range(0x530), 0x1E9E, 0x2028, 0x212A, 0xFEFF, 0x10FFFF]))


@pytest.mark.soak
def test_java_reads_every_character_as_re2_does(spark: Any) -> None:
    assert all(why_not_java(p) is None for p in CLASSES)
    assert not unlike(spark, CLASSES, code_points(range(0x110000)))


def code_points(numbers: Any) -> list[str]:
    return [chr(c) for c in numbers if not 0xD800 <= c < 0xE000]


@pytest.mark.parametrize(
    "pattern",
    [r"\pL", "(?i)é", "(?i)[a-z]", r"\B", "(?m)^a", "foo.*bar", "(ab)+", "a*b", "^a*b*$", "(a|b){9}",
     "(?:a|b)(?:a|b)(?:a|b)(?:a|b)(?:a|b)(?:a|b)(?:a|b)(?:a|b)(?:a|b)", "[ab]" * 400, r"\C", "(?i)ſ"],
)  # fmt: skip
def test_what_java_would_answer_otherwise_or_too_late_goes_to_re2(pattern: str) -> None:
    assert why_not_java(pattern) is not None


def test_patterns_that_hang_java_or_end_it_are_answered(spark: Any) -> None:
    """On Java a group that is repeated 4000 times ends the JVM, and nested repetition never ends."""
    patterns = ["(a|b)*c", "(a+)+b", "(a*)*$", "(x+x+)+y", "foo.*bar.*baz", r"(?i)[k]", r"\pL\B"]
    texts = ["ab" * 2000, "a" * 4000, "a" * 30 + "!", "x" * 200, "foobar" * 700, "\u212a", "é", None]
    rows = pa.table({"t": range(len(texts)), "s": pa.array(texts, pa.string())})
    query = STREAM.select(**{f"p{i}": col.s.matches(p) for i, p in enumerate(patterns)})
    assert "by RE2 in Arrow batches, as it repeats a group" in query.on_spark(spark).explain()
    begun = time.monotonic()
    got = query.on_spark(spark).run(s=spark.createDataFrame(rows)).toArrow()
    assert time.monotonic() - begun < 60
    assert got.sort_by("t").to_pylist() == query.run(s=rows).sort_by("t").to_pylist()


def test_a_dia_says_so_too(spark: Any) -> None:
    texts = generate(spark, 3).map(lambda i: "ab" * (i * 1000), returns=str)
    found = texts.filter(lambda s: s.matches("^(a|b)*$"))
    assert "(traced, a pattern by RE2 in Arrow batches, as it repeats a group)" in found.explain()
    assert found.size() == 3


TEXT_FUNCTIONS = {
    "length": (col.s.len(), len), "strip": (col.s.strip(), lambda s: s.strip(" ")),
    "substring": (col.s.substring(1, 3), lambda s: s[1:4]), "find": (col.s.find("Σ"), lambda s: s.find("Σ")),
    "split": (col.s.split("a"), lambda s: s.split("a")),
    "replace": (col.s.replace("Σ", "xx"), lambda s: s.replace("Σ", "xx")),
    "starts": (col.s.starts_with("İ"), lambda s: s.startswith("İ")),
    "upper": (col.s.upper(), str.upper), "lower": (col.s.lower(), str.lower),
}  # fmt: skip


def test_functions_of_text_beyond_ascii(spark: Any) -> None:
    """Letters that become two, or none; the sigma at the end of a word; marks, signs, planes."""
    alphabet = "Σσςa A.'İIiıß\u0307Ⅷŉ\u00ad΄1-ᾳǅﬁ\u0345你😀\u200d·"
    pick = random.Random(4)
    texts = ["".join(pick.choices(alphabet, k=pick.randint(0, 7))) for _ in range(3000)]
    assert not unlike_python(spark, texts)


@pytest.mark.soak
def test_functions_of_every_character(spark: Any) -> None:
    """Only letters differ that Python's Unicode does not know to have another case, and Spark's does."""
    for text, name, got in unlike_python(spark, code_points(range(0x110000))):
        assert name in ("upper", "lower") and len(got) == 1
        assert text.upper() == text.lower() == text


def unlike_python(spark: Any, texts: list[str]) -> list[tuple[str, str, Any]]:
    rows = pa.table({"t": range(len(texts)), "s": texts})
    query = STREAM.select(**{name: made for name, (made, _) in TEXT_FUNCTIONS.items()})
    got = query.on_spark(spark).run(s=spark.createDataFrame(rows)).toArrow().sort_by("t")
    return [
        (text, name, found)
        for name, (_, defined) in TEXT_FUNCTIONS.items()
        for text, found in zip(texts, got[name].to_pylist())
        if found != defined(text)
    ]
