"""Groups of regular expressions: RE2's on every engine."""

from __future__ import annotations

import re
from typing import Any

import pytest

import tidemill as tm
from tests.conformance.harness import agree
from tidemill import col
from tidemill.core.errors import UserError
from tidemill.expr.nodes import Call, Column, Literal
from tidemill.expr.patterns import extracting

STREAM = tm.stream("s", time="t", schema={"t": "int64", "s": "string"})
TEXTS = ["id=12 (x)", "q", "", None, "a-b-c", "[x]", "id=7\nid=8", "é=ß", "(())", "\\\\(a)", "A.b"]
ROWS = [{"t": at, "s": text} for at, text in enumerate(TEXTS)]
PATTERNS: dict[str, tuple[str, int | str | None]] = {
    "the first group": (r"id=(\d+)", None), "the second": (r"(\w+)=(\d+)", 2), "all of it": (r"(\w)-(\w)", 0),
    "no group": ("[a-c]-", None), "by name": (r"(?P<key>\w+)=(?P<value>.+)", "value"),
    "groups that do not capture": (r"(?:i)(?i:D)=(\d)", None),
    "a class with parentheses": ("[(](.)[])]", None),
    "escaped parentheses": (r"\((.)\)", None), "of two": ("(q)|(x)", 1), "flags": ("(?i)(a)\\.(B)", 2),
    "a class that begins with a bracket": ("[]x[](.)", None), "in each other": ("((i)d)=", 2),
    "posix": ("([[:alpha:]]+)=", None),
}  # fmt: skip


def test_what_a_group_captures(spark: Any) -> None:
    asked = {f"c{at}": col.s.extract(*given) for at, given in enumerate(PATTERNS.values())}
    agree(STREAM.select(**asked), ROWS, spark)


@pytest.mark.parametrize(
    "name", [n for n in PATTERNS if n not in ("posix", "a class that begins with a bracket")]
)
def test_it_is_what_python_says(name: str) -> None:
    pattern, group = PATTERNS[name]
    number = (1 if re.compile(pattern).groups else 0) if group is None else group
    for row in agree(STREAM.select(x=col.s.extract(pattern, group)), ROWS):
        found = None if (text := TEXTS[row["t"]]) is None else re.search(pattern, text, re.ASCII)
        assert row["x"] == (None if found is None else found[number] or "")


def test_quoted_text_has_no_groups() -> None:
    assert extracting(r"\Q(a)\E(b)", None) == r"\Q(a)\E(?P<g>b)"


def test_a_pattern_without_the_group_is_refused() -> None:
    for pattern in ("a", "(?P<g>a)(?P<h>b)", "(a)", "(?P<h>a)"):
        made = tm.Expr(Call("extract", (Column("s"), Literal(pattern, STREAM.schema["s"]))))
        with pytest.raises(UserError, match="one group"):
            STREAM.select(x=made)
