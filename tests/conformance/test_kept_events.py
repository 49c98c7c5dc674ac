"""`per_event(…, keep=True)`: each row with its columns, and the aggregates of its window beside them."""

from __future__ import annotations

import random
from typing import Any

import pytest

import tidemill as tm
from tests.conformance.harness import Row, agree, by_reference
from tests.examples import later
from tidemill import col

STREAM = tm.stream(
    "s", time="t", schema={"t": "int64", "k": "int64", "p": "int64", "v": "int64", "s": "string"}
)
PICK = random.Random(5)
ROWS: list[Row] = [
    {
        "t": PICK.randrange(60), "k": PICK.choice([1, 2, None]), "p": PICK.randrange(2),
        "v": PICK.choice([1, 5, None]), "s": PICK.choice("ab"),
    }
    for _ in range(50)
]  # fmt: skip
ASKED: dict[str, Any] = {
    "n": tm.count(),
    "mean": tm.sum("v") / tm.count(),
    "last": tm.last("s"),
    "high": tm.max("v"),
}
WAYS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "by key": (("k",), {}),
    "the whole stream": ((), {}),
    "by key, windows of a partition": (("k",), {"partition_by": "p"}),
}


def ask(way: str, *, keep: bool) -> tm.Stream:
    keys, options = WAYS[way]
    return STREAM.group_by(*keys).window(tm.per_event(8, keep=keep, **options)).agg(**ASKED)


@pytest.mark.parametrize("way", WAYS)
def test_each_event_has_what_its_window_has(way: str) -> None:
    kept = agree(ask(way, keep=True), ROWS)
    keys = sorted({*WAYS[way][0], *([WAYS[way][1]["partition_by"]] if WAYS[way][1] else [])})
    windows = {
        (*(row[k] for k in keys), row["window_end"]): row
        for row in by_reference(ask(way, keep=False), ROWS)
    }
    for row in kept:
        window = windows[(*(row[k] for k in keys), row["t"])]
        assert [row[name] for name in ASKED] == [window[name] for name in ASKED]
    assert sorted(str([row[n] for n in STREAM.schema.names]) for row in kept) == sorted(
        str([row[n] for n in STREAM.schema.names]) for row in ROWS
    ), "no event is lost, and each comes once"


@pytest.mark.parametrize(
    "way", ["by key", *later("the whole stream", "by key, windows of a partition")]
)
def test_on_spark(spark: Any, way: str) -> None:
    agree(ask(way, keep=True), ROWS, spark)


def test_in_groups_and_after_other_steps() -> None:
    asked = STREAM.group_by("p").apply(
        lambda g: (
            g.where(col.v.is_not_null())
            .group_by("k")
            .window(tm.per_event(8, keep=True))
            .agg(tm.count())
        )
    )
    flat = (
        STREAM.where(col.v.is_not_null())
        .group_by("p", "k")
        .window(tm.per_event(8, keep=True))
        .agg(tm.count())
    )
    assert sorted(map(str, agree(asked, ROWS))) == sorted(map(str, agree(flat, ROWS)))
