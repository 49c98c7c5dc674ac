"""Filters and projections over batches: rows that pass, in order, with every kind of column."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidemill as tm
from tests.conformance.cases import SCHEMA, TYPICAL
from tests.conformance.harness import assert_same, by_reference, locally
from tidemill import col
from tidemill.core.schema import schema
from tidemill.local.stage_runner import MANY, StageRunner
from tidemill.plan.stages import stage_of
from tidemill.stream import Stream

STREAM = tm.stream("s", time="t", schema=SCHEMA)


def runner(query: Stream) -> StageRunner:
    stage = stage_of(query.plan)
    return StageRunner(stage.predicates, stage.outputs, stage.base.schema)


QUERIES: dict[str, Stream] = {
    "as it is": STREAM,
    "fixed columns only": STREAM.select("v", "x", "b").where(col.v > 2),
    "strings beside": STREAM.where(col.v > 2),
    "strings alone": STREAM.select(up=col.s.upper(), k="k"),
    "by a string": STREAM.where(col.s == "ab").select("s", "v"),
    "by many ints": STREAM.where(col.v.is_in([-5, 0, 1, 3, 4, 1 << 62, -(1 << 63)])),
    "by many ints of any size": STREAM.where(col.v.is_in([-7, 2, 3, 5, 11, 1 << 62, 1 - (1 << 63)])),
    "by texts": STREAM.where(col.s.is_in(["ab", "", "b"]) | col.s.starts_with("a") | col.s.ends_with("ü")),
    "nothing passes": STREAM.where(col.v > 1000),
    "null is not true": STREAM.where((col.v > 2) | (col.x > 1.0)),
    "computed": STREAM.select(a=col.v * 2, b=tm.coalesce(col.x, 0.0), c=col.b & (col.v > 1)),
    "fewer columns": STREAM.select("s", "k"),
    "another order": STREAM.select("x", "v", "k").select("k", "x"),
    "a constant": STREAM.select(one=1, text="s", word=tm.lit("w")),
    "steps in a row": STREAM.where(col.v > 0).with_columns(w=col.v + 1).where(col.w < 6).select("w", "s"),
}


@pytest.mark.parametrize("name", QUERIES)
def test_rows_that_pass_come_in_order(name: str) -> None:
    query = QUERIES[name]
    got, expected = locally(query, TYPICAL), by_reference(query, TYPICAL)
    assert all(tuple(row) == query.schema.names for row in got)
    assert repr(got) == repr([{n: row[n] for n in query.schema.names} for row in expected])


def test_some_of_the_results_in_another_order() -> None:
    query = STREAM.group_by("k").window(tm.tumbling(4)).agg(n=tm.count(), m=tm.max(col.v)).select("m", "k")
    got = locally(query, TYPICAL)
    assert tuple(got[0]) == ("window_start", "m", "k")
    assert_same(got, by_reference(query, TYPICAL), query.schema)


def test_a_batch_that_passes_as_it_is_is_not_copied() -> None:
    assert runner(STREAM).trivial
    assert not runner(STREAM.where(col.v > 0)).trivial
    assert not runner(STREAM.select("v")).trivial


def test_a_condition_that_says_no_protects_what_comes_after() -> None:
    large = tm.stream("s", time="t", schema={"t": "int64", "v": "int64"})
    query = large.where(col.v < 10).select(cube=col.v * col.v * col.v)
    rows = [{"t": 1, "v": 3}, {"t": 2, "v": 1 << 40}]
    assert query.run(s=rows).column("cube").to_pylist() == [27]
    with pytest.raises(tm.UserError, match="overflow"):
        large.select(cube=col.v * col.v * col.v).run(s=rows)


@pytest.mark.parametrize("offset", [0, 1, 7, 8, 9])
def test_slices_of_arrow_arrays_are_read_from_their_offset(offset: int) -> None:
    values: list[Any] = [None if n % 3 == 0 else n for n in range(40)]
    table = pa.table({"t": range(40), "v": values, "b": [v is None for v in values]})
    kinds = schema({"t": "int64", "v": "int64", "b": "bool"})
    query = tm.stream("s", time="t", schema=kinds).where(~col.b).select(w=col.v + 1)
    got = query.run(s=table.slice(offset, 20)).column("w").to_pylist()
    assert got == [v + 1 for v in values[offset : offset + 20] if v is not None]


@pytest.mark.compiled
@pytest.mark.parametrize("count", [4, 20, 64, 65])
def test_constants_are_found_and_nothing_else(count: int) -> None:
    pick = random.Random(count)
    values = [pick.randint(-(1 << 63), (1 << 63) - 1) >> pick.choice([0, 30, 50]) for _ in range(count)]
    near = [v + d for v in values for d in (-1, 0, 1) if -(1 << 63) <= v + d < 1 << 63]
    asked = tm.stream("s", time="t", schema={"t": "int64"}).where(col.t.is_in(values))
    assert asked.run(s=pa.table({"t": near}))["t"].to_pylist() == [v for v in near if v in values]


LARGE = tm.stream("s", time="x", schema={"x": "int64", "name": "string"})


@pytest.mark.parametrize(("above", "kept"), [(-1, MANY), (MANY, 0), (MANY // 2, MANY // 2 - 1)])
def test_a_large_batch_of_which_all_rows_pass_is_not_copied(above: int, kept: int) -> None:
    numbers = np.arange(MANY)
    batch = pa.record_batch({"x": numbers, "name": numbers.astype(str)})
    found = runner(LARGE.where(col.x > above)).run(batch)
    assert found.to_pylist() == [{"x": i, "name": str(i)} for i in range(MANY) if i > above]
    assert found.num_rows == kept
    if kept:
        same = [found[n].buffers()[1].address == batch[n].buffers()[1].address for n in ("x", "name")]
        assert all(same) is (kept == MANY)


def test_a_condition_that_fails_on_a_row_of_a_large_batch_says_so() -> None:
    batch = pa.record_batch({"x": np.full(MANY, 1 << 62), "name": ["a"] * MANY})
    with pytest.raises(tm.UserError, match="where"):
        runner(LARGE.where(col.x * 4 > 0)).run(batch)
