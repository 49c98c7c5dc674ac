"""The table of names from elsewhere: what it says exists, and what exists is not in it."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

import pytest

import tidemill as tm
from tidemill import col
from tidemill.aggregates.algebra import Aggregate
from tidemill.core.brought_names import (
    AGGREGATE,
    EXPRESSION,
    GROUPED,
    MODULE,
    ORDERED,
    STREAM,
    WINDOWED,
    KnowsBroughtNames,
)
from tidemill.query import Ordered
from tidemill.stream import Grouped, Windowed

KINDS: dict[str, tuple[Any, Mapping[str, str]]] = {
    "expressions": (tm.Expr, EXPRESSION), "streams": (tm.Stream, STREAM), "groups": (Grouped, GROUPED),
    "windows": (Windowed, WINDOWED), "ordered": (Ordered, ORDERED), "aggregates": (Aggregate, AGGREGATE),
    "the package": (tm, MODULE),
}  # fmt: skip
ELSEWHERE = {"plot", "to_json", "to_excel", "to_pylist", "date_range", "then", "otherwise"}
"""What follows a call in the text, and is no method of ours."""


@pytest.mark.parametrize("kind", KINDS)
def test_no_name_of_ours_is_in_the_table(kind: str) -> None:
    owner, table = KINDS[kind]
    assert sorted(set(table) & set(dir(owner))) == []


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_table_says_exists(kind: str) -> None:
    methods = ELSEWHERE.union(*(dir(owner) for owner, _ in KINDS.values() if owner is not tm))
    for name, ours in KINDS[kind][1].items():
        public = set(re.findall(r"\btm\.(\w+)", ours))
        assert public <= set(dir(tm)), (name, ours)
        called = set(re.findall(r"(?<!tm)\.(\w+)\(", ours))
        assert called <= methods, (name, called - methods)


@pytest.mark.parametrize("name", ["avg", "nunique", "stddev"])
def test_aggregates_are_named_as_ours(name: str) -> None:
    with pytest.raises(AttributeError, match=r"tm\.(mean|distinct_count|std)\(col\.x\)"):
        getattr(col.v, name)


def test_an_object_with_the_table_is_an_object_like_others() -> None:
    stream = tm.stream("s", time="t", schema={"t": "int64"})
    assert not hasattr(stream, "filter")
    assert copy.copy(stream).plan == stream.plan
    with pytest.raises(AttributeError, match="has no attribute '_nothing'"):
        stream._nothing  # type: ignore[attr-defined]  # noqa: B018


def test_a_property_that_fails_says_how() -> None:
    class Failing(KnowsBroughtNames):
        _brought, _called = STREAM, "a stream"

        @property
        def broken(self) -> int:
            return self.absent  # type: ignore[attr-defined,no-any-return]

    with pytest.raises(AttributeError, match="'absent'"):
        Failing().broken  # noqa: B018
