"""Tracing without Spark: what becomes an expression, and what is refused with a reason."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from tidemill.core.types import FLOAT64, INT64, STRING, list_of, struct_of
from tidemill.spark.dia.elements import NoField, infer, parse_element, spelled, tuple_of
from tidemill.spark.dia.folds import recognised
from tidemill.spark.dia.tracing import Opaque, Traced, trace, trace_list

PAIR = tuple_of([STRING, INT64])
ROW = struct_of({"a": INT64, "in": PAIR})


@pytest.mark.parametrize(
    ("function", "kind", "text"),
    [
        (lambda e: e[1] + 1, PAIR, "(col.f1 + 1)"),
        (lambda e: (*e, 1.5), PAIR, "(col.f0, col.f1, 1.5)"),
        (lambda e: e[::-1], PAIR, "(col.f1, col.f0)"),
        (
            lambda e: {**e, "b": e.a * 2},
            ROW,
            "{a: col.a, in: (col.in.f0, col.in.f1), b: (col.a * 2)}",
        ),
        (lambda e: e["in"][1] > e.a, ROW, "(col.in.f1 > col.a)"),
        (lambda e: 7, PAIR, "7"),
        (lambda e: max(e[1], 3), PAIR, None),
        (lambda e: e[2], PAIR, None),
        (lambda e: [e[1]], PAIR, None),
        (lambda e: None, PAIR, None),
        (lambda e: e[0] in ("a", "b"), PAIR, None),
        (lambda e: e[0].startswith("a"), PAIR, None),
        (lambda e: os.listdir(e[0]), PAIR, None),
    ],
)
def test_traces(function: Any, kind: Any, text: str | None) -> None:
    traced = trace(function, [kind])
    if text is None:
        assert isinstance(traced, Opaque) and traced.why
    else:
        assert isinstance(traced, Traced)
        assert str(traced) == text


def test_a_field_that_is_not_there_is_an_error_at_once() -> None:
    with pytest.raises(NoField, match=r"record: expected a field of \['a', 'in'\], got 'b'"):
        trace(lambda e: e.b, [ROW])


def test_lists() -> None:
    assert str(trace_list(lambda e: [e, (e[0], 0)], [PAIR])) == "[(col.f0, col.f1), (col.f0, 0)]"
    assert str(trace_list(lambda e: e.split(","), [STRING])) == "split(col.value, ',')"
    assert isinstance(trace_list(lambda e: [e[0], e[1]], [PAIR]), Opaque)
    assert isinstance(trace_list(lambda e: [], [PAIR]), Opaque)


@pytest.mark.parametrize(
    ("reduce", "ways"),
    [
        (lambda a, b: (a[0], a[1] + b[1]), ("key", "sum")),
        (lambda a, b: (b[0], b[1] + a[1]), ("key", "sum")),
        (lambda a, b: (a[0], a[1] + a[1]), None),
        (lambda a, b: (a[0], a[1] - b[1]), None),
        (lambda a, b: (a[0], a[1]), None),
        (lambda a, b: (a[1], a[1] + b[1]), None),
        (lambda a, b: a[1] + b[1], None),
    ],
)
def test_reduce_functions_that_are_aggregates(reduce: Any, ways: Any) -> None:
    found = recognised(reduce, PAIR, ("f0",))
    if ways is None:
        assert isinstance(found, Opaque)
    else:
        assert isinstance(found, tuple)
        assert tuple(way for _, way in found[1].leaves) == ways


def test_types_of_elements() -> None:
    assert infer([(1, None), (2.5, ["a"])], step="x") == tuple_of([FLOAT64, list_of(STRING)])
    assert parse_element({"a": int, "b": [str]}, step="x") == struct_of(
        {"a": INT64, "b": list_of(STRING)}
    )
    assert spelled(ROW) == "{a: int64, in: (string, int64)}"


def test_the_package_is_imported_only_when_used() -> None:
    program = (
        "import sys, tidemill as tm\n"
        "assert 'pyspark' not in sys.modules\n"
        "assert tm.spark.dia.generate\n"
        "assert 'pyspark' in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=dict(os.environ), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
