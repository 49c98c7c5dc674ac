"""Which plans can be divided by a key, and by which columns of their streams."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tidemill as tm
from tidemill import col
from tidemill.local.divided_run import parts_of
from tidemill.plan.division import division
from tidemill.stream import Stream

SCHEMA = {"t": "int64", "k": "int64", "j": "int64", "s": "string", "many": "list<int64>"}
A, B = (tm.stream(name, time="t", schema=SCHEMA) for name in "ab")
D = tm.table("d", schema={"k": "int64", "label": "string"})

IN_PYTHON = tm.udf(lambda k: len(str({k: [k]})), returns="int64")
"""A function that Numba cannot compile: it runs row by row, on one thread."""

DIVIDED: dict[str, tuple[Callable[[], Stream], dict[str, str]]] = {
    "a join goes by its keys": (lambda: A.lasting(5).join(B, on={"k": "j"}), {"a": "k", "b": "j"}),
    "of several keys, the first one": (lambda: A.join(B, on=["s", "k"]), {"a": "s", "b": "s"}),
    "a key with another name": (lambda: A.select(z="k").join(B, on={"z": "k"}), {"a": "k", "b": "k"}),
    "a key that is computed is none; another one is": (
        lambda: A.with_columns(k=col.k + 1).join(B, on=["k", "s"]), {"a": "s", "b": "s"}
    ),
    "an aggregate of a join": (
        lambda: A.lasting(5).join(B, on="k").group_by("k").agg(n=tm.count()), {"a": "k", "b": "k"}
    ),
    "by the key that both go by": (
        lambda: A.lasting(5).join(B, on=["s", "k"]).group_by("k").agg(n=tm.count()), {"a": "k", "b": "k"}
    ),
    "a stream with itself": (lambda: A.lasting(5).join(A, on="k"), {"a": "k"}),
    "a table is read by all": (
        lambda: A.join(D, on="k").until_next("s"), {"a": "s"}
    ),
    "or divided, if its key is the one": (lambda: A.join(D, on="k").until_next("k"), {"a": "k", "d": "k"}),
    "elements of another list": (lambda: A.select_many(e="many").until_next("k"), {"a": "k"}),
    "windows by key below": (
        lambda: A.group_by("k").window(tm.tumbling(5)).agg(n=tm.count()).until_next("k"), {"a": "k"}
    ),
    "equal rows have equal columns": (lambda: A.select("s").lasting(3).stitch(), {"a": "s"}),
    "apply": (lambda: A.group_by("k").apply(lambda g: g.lag(before="j")), {"a": "k"}),
    "a union": (lambda: A.union(B).until_next("k"), {"a": "k", "b": "k"}),
    "what follows": (lambda: A.until_next("k").where(col.j > 1).select("j").at_end(), {"a": "k"}),
}  # fmt: skip


@pytest.mark.parametrize("case", DIVIDED)
def test_divided(case: str) -> None:
    query, columns = DIVIDED[case]
    found = division(query().optimized)
    assert found is not None and dict(found.columns) == columns


WHOLE: dict[str, Callable[[], Stream]] = {
    "no key": lambda: A.lasting(5).agg(n=tm.count()),
    "a join without keys": lambda: A.lasting(5).join(B),
    "no key goes all the way": lambda: A.until_next("k").group_by("j").agg(n=tm.count()),
    "a stream by two columns": lambda: A.lasting(5).join(A, on={"k": "j"}),
    "what both sides share is by other keys": lambda: (
        A.lasting(5).join(A.until_next("j"), on="k")
    ),
    "elements as keys": lambda: A.select_many(many="many").until_next("many"),
    "a list": lambda: A.select("many").lasting(2).stitch(),
    "pieces up to the last row of all": lambda: A.until_next("k").chop(5).group_by("k").agg(n=tm.count()),
    "rows counted over all keys": lambda: (
        A.group_by("k").window(tm.rows(3, 1, partition_by=[])).agg(n=tm.count()).until_next("k")
    ),
    "empty windows between those of all keys": lambda: (
        A.group_by("k").window(tm.tumbling(5, fill_empty=True)).agg(n=tm.count()).until_next("k")
    ),
    "a float that an aggregate made": lambda: (
        A.group_by("k").window(tm.tumbling(5)).agg(m=tm.mean("j")).until_next("m")
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WHOLE)
def test_not_divided(case: str) -> None:
    assert division(WHOLE[case]().optimized) is None


def test_the_largest_parts_are_divided() -> None:
    found = parts_of(A.lasting(5).join(B, on="k").agg(n=tm.count()).optimized)
    assert found is not None
    [part] = found.below.values()
    assert dict(part.columns) == {"a": "k", "b": "k"}
    [agg] = (node for node in found.top.walk() if not node.children())
    assert found.top is not agg


def test_a_stream_is_read_once() -> None:
    total = A.lasting(5).agg(total=tm.count())
    assert parts_of(A.until_next("k").join(total).optimized) is None


@pytest.mark.parametrize(
    "query",
    [
        lambda: A.where(col.k > 1),  # keeps no rows
        lambda: A.join(D, on="k"),  # neither does this
        lambda: A.select("k", w=IN_PYTHON(col.k)).until_next("k"),
    ],
)
def test_not_worth_it_or_not_safe(query: Callable[[], Stream]) -> None:
    assert parts_of(query().optimized) is None
