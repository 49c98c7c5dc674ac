"""Random queries on tables: every way to group and to look up gives the rows of the definition."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest

import tidemill as tm
from tests.examples import later
from tidemill import col
from tidemill.core.batch import from_rows, to_rows
from tidemill.io.chunks import ChunkSizes
from tidemill.local.run import run
from tidemill.local.tuning import Tuning
from tidemill.plan.build_temporal import shown
from tidemill.plan.nodes import sources
from tidemill.reference.run import run as run_reference
from tidemill.stream import Stream

COLUMNS = {
    "k": "int64", "far": "int64", "f": "float64", "w": "string", "b": "bool", "at": "timestamp", "x": "int64",
}  # fmt: skip
A, B = (tm.table(name, schema=COLUMNS) for name in "ab")
VALUES: dict[str, list[Any]] = {
    "k": [*range(-2, 9), None],
    "far": [-(1 << 62), -5, 0, 1, 1 << 40, (1 << 62) + 1, None],
    "f": [0.0, -0.0, 1.5, -2.25, math.nan, math.inf, -math.inf, None],
    "w": ["", "a", "b", "ab", "a longer one", "a longer one still", "ü", None],
    "b": [True, False, None],
    "at": [0, 1, -1, 10**15, None],
    "x": list(range(-9, 9)),
}
EAGER = Tuning(
    few_rows=0, few_sprayed=0, output_rows=3, many_pairs=3, sample_rows=6, few_groups=4, long_runs=3, parts=4,
    many_grouped=15, loop_rows=0, few_closing=0, backlog=1,
)
WAYS = [
    (1, Tuning()), (2, EAGER), (1, EAGER), *(
        (threads, replace(EAGER, groups=ways, many_grouped=most))
        for threads, ways, most in (
            (2, ("rows",), 0), (3, ("sorted", "hashed"), 1 << 30), (2, ("hashed",), 0),
            (1, ("rows", "hashed"), 5), (2, ("rows", "hashed"), 1 << 30),
        )
    )
]  # fmt: skip


def rows_of(pick: random.Random) -> list[dict[str, Any]]:
    """Rows in any order, or those of some columns in order, all of them or up to the last ones."""
    nulls = pick.random() < 0.4
    values = {n: [v for v in some if nulls or v is not None] for n, some in VALUES.items()}
    rows = [{n: pick.choice(v) for n, v in values.items()} for _ in range(pick.choice([0, 3, 30, 60]))]
    by = pick.choice(["", *COLUMNS])
    if by:
        last = pick.choice([0, 0, 1, 5])
        order = lambda row: (row[by] is None, math.isnan(row[by] or 0) if by == "f" else False, row[by])
        some = [row for row in rows[last:] if row[by] is not None]
        none = [row for row in rows[last:] if row[by] is None]
        rows = sorted(some, key=order) + none + rows[:last]
    return rows


def query(pick: random.Random) -> Stream:
    one = A.where(col.x > -5) if pick.random() < 0.4 else A
    if pick.random() < 0.3:
        one = one.with_columns(far=pick.choice([col.k + 1, col.far]), x=col.x * 2)
    if pick.random() < 0.6:
        names = pick.sample(["k", "far", "f", "w", "b", "at"], pick.choice([1, 1, 2]))
        other = B.distinct(*names) if pick.random() < 0.3 else B
        where = pick.choice([None, None, lambda a, b: a.x > b.k]) if other is B else None
        how = pick.choice(["join", "left", "where_exists", "where_not_exists"])
        if how in ("join", "left"):
            one = one.join(other, on=names, how="inner" if how == "join" else how, where=where)
        else:
            one = getattr(one, how)(other, on=names, where=where)
    if pick.random() < 0.2:
        return one
    keys = pick.sample(["k", "far", "f", "w", "b", "at"], pick.choice([0, 1, 1, 1, 2, 3]))
    if pick.random() < 0.2 and keys:
        return one.distinct(*keys)
    more: dict[str, Any] = {
        "least_word": tm.min(col.w), "median": tm.median(col.x), "words": tm.distinct_count(col.w),
        "most": tm.max(col.f), "list": tm.top_k(col.x, 2),
    }  # fmt: skip
    asked = {name: more[name] for name in more if pick.random() < 0.2}
    found = (one.group_by(*keys) if keys else one).agg(x=tm.sum(col.x), n=tm.count(), y=tm.max("k"), **asked)
    return found.where(col.n > 1) if pick.random() < 0.3 else found


def canonical(rows: list[dict[str, Any]]) -> list[str]:
    """Rows as text, in order. An aggregate that picks one of equal values may show either zero."""
    plain = [{n: v + 0.0 if isinstance(v, float) else v for n, v in row.items()} for row in rows]
    return sorted(map(str, plain))


@pytest.mark.parametrize("seed", [*range(25), *later(*range(25, 400))])
def test_every_way_gives_the_rows_of_the_definition(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pick = random.Random(seed)
    asked, given = query(pick), {"a": rows_of(pick), "b": rows_of(pick)}
    read = {one.name: one.declared for one in sources(asked.plan)}
    wanted = canonical(run_reference(shown(asked.plan), {name: given[name] for name in read}))
    tables = {name: from_rows(given[name], schema) for name, schema in read.items()}
    for threads, tuning in WAYS:
        monkeypatch.setenv("TIDEMILL_THREADS", str(threads))
        sizes = ChunkSizes(*[pick.choice([4, 11, 40])] * 3, small=1)
        found = to_rows(list(run(asked.optimized, tables, tuning=tuning, sizes=sizes)), asked.schema)
        assert canonical(found) == wanted, (threads, tuning)


def test_keys_that_a_table_does_not_have_find_nothing() -> None:
    a = tm.table("a", schema={"k": "int64"})
    b = tm.table("b", schema={"k": "int64", "w": "string"})
    rows = [{"k": k} for k in (None, 5, 5, 7, None)]
    for texts in ([None], [None, "x"], ["x"]):
        held = [{"k": k, "w": w} for k, w in enumerate(texts)]
        found = a.join(b, on="k", how="left").run(a=rows, b=held).to_pylist()
        assert found == [{"k": row["k"], "w": None} for row in rows]
