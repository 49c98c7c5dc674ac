"""Strings in every shape that Arrow knows: what a function gives depends on the values only."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import tidemill as tm
from tests.expressions import EDGES, SIGNATURES, Constant, random_value
from tidemill import col
from tidemill.core.batch import conform
from tidemill.core.schema import Schema
from tidemill.core.types import BOOL, STRING, DataType, to_arrow
from tidemill.kernels.strings import ARROW_FUNCTIONS, call, cast

ROWS = 90
CUTS = ((0, ROWS), (3, 40), (8, 64), (13, 1), (13, 0), (ROWS - 1, 1), (16, 7))
"""Also where the bits of nulls do not begin with a byte."""


def shapes(values: list[Any], kind: DataType, first: int, n: int) -> Iterator[tuple[str, pa.Array]]:
    """A part of a column as it comes out of `conform`, whatever it was before."""
    canonical = to_arrow(kind)
    whole = pa.array(values, canonical)
    kinds = [canonical]
    if kind == STRING:
        kinds += [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
    for one in kinds:
        given = whole.dictionary_encode() if pa.types.is_dictionary(one) else whole.cast(one)
        batch = pa.record_batch({"x": given.slice(first, n)})
        yield str(one), conform(batch, Schema((("x", kind),)), step="test").column(0)


STRICT = {"strptime"}
"""Functions that raise an error for most texts; `try_strptime` is the same without."""


@pytest.mark.parametrize("name", sorted(ARROW_FUNCTIONS - STRICT | {"cast"}))
def test_a_function_reads_slices_as_it_reads_whole_columns(name: str) -> None:
    rng = random.Random(name)
    texts = [s for s in SIGNATURES if s.function == name and STRING in (*s.args, s.result)]
    texts += [s for s in SIGNATURES if s.function == name and any(
        not isinstance(a, Constant) and a.kind == "list" for a in s.args
    )]  # fmt: skip
    for signature in texts:
        if name == "cast" and BOOL in (*signature.args, signature.result):
            continue
        for ascii_only in (True, False):
            columns = [_column(rng, a, ascii_only) for a in signature.args]
            for first, n in CUTS:
                _check(signature, columns, first, n)


def _column(rng: random.Random, arg: DataType | Constant, ascii_only: bool) -> Any:
    if isinstance(arg, Constant):
        return rng.choice(arg.values)
    if arg == STRING and ascii_only:
        known = [s for s in EDGES[STRING] if s.isascii()]
        return [None if rng.random() < 0.2 else rng.choice(known) for _ in range(ROWS)]
    return [random_value(rng, arg) for _ in range(ROWS)]


def _check(signature: Any, columns: list[Any], first: int, n: int) -> None:
    listed = [i for i, a in enumerate(signature.args) if not isinstance(a, Constant)]
    fresh = list(columns)
    for i in listed:
        fresh[i] = pa.array(columns[i][first : first + n], to_arrow(signature.args[i]))
    want = _compute(signature, fresh)
    for i in listed:
        for shape, array in shapes(columns[i], signature.args[i], first, n):
            given = [array if j == i else a for j, a in enumerate(fresh)]
            got = _compute(signature, given)
            got.validate(full=True)
            assert got.to_pylist() == want.to_pylist(), (signature, shape, first, n)


def _compute(signature: Any, args: list[Any]) -> pa.Array:
    if signature.function == "cast":
        return cast(args[0], signature.args[0], signature.result, strict=False)
    return call(signature.function, *args)


def test_text_before_the_first_offset_is_not_read() -> None:
    array = pa.array(["never seen ", "Ab", None, "Cd"]).slice(1)
    places = pa.array([11, 13, 13, 15], pa.int32()).buffers()[1]
    cut = pa.Array.from_buffers(
        pa.string(), 3, [pa.array([True, False, True]).buffers()[1], places, array.buffers()[2]]
    )
    assert cut.to_pylist() == ["Ab", None, "Cd"]
    assert call("upper", cut).to_pylist() == ["AB", None, "CD"]
    assert call("lower", cut).to_pylist() == ["ab", None, "cd"]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.string()], ids=str)
def test_upper_as_the_key_of_a_long_table_of_large_strings(kind: pa.DataType) -> None:
    n = 300_000
    table = pa.table(
        {"t": pa.array(range(n)), "s": pa.array([f"key{i % 7}" for i in range(n)]).cast(kind)}
    )
    stream = tm.stream("s", time="t", schema={"t": "int64", "s": "string"})
    query = stream.select(k=col.s.upper()).group_by("k").window(tm.tumbling(n)).agg(n=tm.count())
    for first in (0, 5, 131_077):
        part = table.slice(first)
        want = {f"KEY{k}": sum(i % 7 == k for i in range(first, n)) for k in range(7)}
        found = query.run(s=part).to_pylist()
        assert {row["k"]: row["n"] for row in found} == want


def test_substring_to_the_end_of_int64() -> None:
    text = pa.array(["abc", "é😀b", None, ""])
    last = (1 << 63) - 1
    assert call("substring", text, 1, last).to_pylist() == ["bc", "😀b", None, ""]
    assert call("substring", text, last, last).to_pylist() == ["", "", None, ""]
    assert call("substring", text, 0, last).to_pylist() == ["abc", "é😀b", None, ""]
    assert call("list_get", pa.array([[1], None]), last).to_pylist() == [None, None]
