"""Rows as kernels take them, for window aggregates and wheels alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidemill as tm
from tidemill import col
from tidemill.aggregates.layout import layout
from tidemill.codegen.columns import Columns
from tidemill.core.schema import schema
from tidemill.expr.nodes import Column, Node
from tidemill.expr.typing import resolve
from tidemill.kernels.keys import KeyIndex
from tidemill.local.intake import Intake, LoopNodes

BASE = schema({"t": "int64", "k": "string", "v": "int64"})
INPUT = schema({"t": "int64", "zone": "string", "twice": "int64"})


def node(expression: Any) -> Node:
    return resolve(expression.node, BASE, step="test")


def made(calls: list[Any], **options: Any) -> Intake[tuple[Any, ...]]:
    parts = layout((("a", tm.sum(col.twice)), ("b", tm.min(col.t))), INPUT)

    def make(columns: Columns, nodes: LoopNodes, *variant: Any) -> tuple[Any, ...]:
        calls.append((columns, *variant))
        return columns, nodes, variant

    outputs = {"t": Column("t"), "zone": Column("k"), "twice": node(col.v * 2)}
    return Intake(BASE, parts, make, keys=["zone"], outputs=outputs, **options)


def batch(v: list[int | None]) -> pa.RecordBatch:
    n = len(v)
    return pa.record_batch({"t": list(range(n)), "k": ["x", "y", None][:n], "v": pa.array(v, pa.int64())})


def test_aggregates_are_read_through_a_projection() -> None:
    intake = made([], predicates=(node(col.v > 1),), attribute=Column("t"))
    columns, args, failure = intake.prepare(batch([1, 2, 3]))
    _, nodes, _ = intake.kernel(columns)
    assert failure is None and [a.tolist() for a in args] == [[1, 2, 3], [0, 1, 2]]
    first, second = Column("$0"), Column("$1")
    assert [n.children()[0] for n in nodes.predicates] == [first] and nodes.attribute == second
    given = [part for part in nodes.args if part]
    assert given[0][0].children()[0] == first and (second,) in given


def test_keys_are_those_of_the_projection_and_of_the_caller() -> None:
    intake = made([])
    keys, others = KeyIndex(INPUT.select(["zone"])), KeyIndex(INPUT.select(["zone"]))
    ids = intake.key_ids(batch([1, 2, 3]), keys)
    assert keys.decode(ids)[0].to_pylist() == ["x", "y", None]
    assert intake.key_ids(batch([1]), keys).tolist() == ids[:1].tolist()
    assert others.find([pa.array(["x"])]).max() <= 0  # another index learned nothing


def test_without_keys_there_are_no_ids() -> None:
    parts = layout((("a", tm.sum(col.v)),), BASE)
    intake = Intake(BASE, parts, lambda columns, nodes: nodes)
    assert len(intake.key_ids(batch([1, 2]), KeyIndex(BASE.select([])))) == 0


@pytest.mark.parametrize("variant", [(), (True,)])
def test_a_kernel_is_made_once_for_each_layout_and_variant(variant: tuple[Any, ...]) -> None:
    calls: list[Any] = []
    intake = made(calls)
    for v in ([1, 2], [3, 4], [None, 4], [5, None]):
        intake.kernel(intake.prepare(batch(v))[0], *variant)
        intake.kernel(intake.prepare(batch(v))[0], "other")
    assert len(calls) == 4  # with nulls and without, of two variants


def test_a_row_that_fails_is_told_with_its_reason() -> None:
    parts = layout((("a", tm.sum(col.v)),), schema({"v": "int64"}))
    intake = Intake(BASE, parts, lambda columns, nodes: nodes, outputs={"v": node(col.k.cast("int64"))})
    columns, args, failure = intake.prepare(batch([1, 2]))
    assert failure is not None and "cast" in str(failure) and columns.bad
    assert np.asarray(args[-1]).tolist() == [1, 1]
