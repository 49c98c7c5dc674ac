"""The public names: all there, all documented, and cheap to import."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tidemill as tm

PACKAGE = Path(tm.__file__).parent

DESIGN = {
    "stream", "col", "lit", "udf", "when", "calendar", "hopping", "tumbling", "landmark", "rows", "per_event",
    "session", "windows", "extent", "wids", "count", "count_if", "sum", "min", "max", "mean", "var",
    "std", "product", "first", "last", "arg_min", "arg_max", "any", "all", "top_k", "bottom_k",
    "distinct_count", "quantile", "median", "collect", "count_by", "sum_by", "mean_by", "min_by",
    "max_by", "top_keys", "ewma", "drawdown", "entropy", "first_k", "last_k",
    "covariance", "correlation", "aggregate",
    "UserError", "UnsupportedError", "InternalError", "FOREVER",
}  # fmt: skip


def test_names_are_listed_once_and_exist() -> None:
    assert len(tm.__all__) == len(set(tm.__all__))
    assert [name for name in tm.__all__ if not hasattr(tm, name)] == []


def test_the_names_that_the_design_promises_are_there() -> None:
    assert sorted(DESIGN - set(tm.__all__)) == []


def test_nothing_public_is_left_off_the_list() -> None:
    defined = {n for n, v in vars(tm).items() if not n.startswith("_") and not inspect.ismodule(v)}
    assert defined - {"annotations", "TYPE_CHECKING", "Any"} <= set(tm.__all__)


def test_dir_lists_the_public_names_and_no_others() -> None:
    assert set(dir(tm)) == {*tm.__all__, "datasets", "spark"}


@pytest.mark.parametrize("name", [n for n in tm.__all__ if callable(getattr(tm, n))])
def test_every_function_and_class_is_documented(name: str) -> None:
    assert inspect.getdoc(getattr(tm, name))


@pytest.mark.parametrize("kind", [tm.Stream, tm.Query], ids=["Stream", "Query"])
def test_every_method_of_the_fluent_surface_is_documented(kind: type) -> None:
    methods = [n for n, v in vars(kind).items() if not n.startswith("_") and callable(v)]
    assert methods
    assert [n for n in methods if not inspect.getdoc(getattr(kind, n))] == []


def test_methods_that_the_design_promises_are_there() -> None:
    for name in ("where", "select", "group_by", "window", "explain", "run", "on_spark"):
        assert callable(getattr(tm.Stream, name))


def test_importing_is_light() -> None:
    heavy = ("numba", "pyspark", "pandas", "polars", "datasketches", "pyarrow.compute", "rich")
    program = f"import sys, tidemill; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_in_the_reference() -> None:
    text = (Path(__file__).parent.parent / "docs" / "reference.md").read_text()
    methods = [n for n in dir(tm.Expr) if not n.startswith("_") and n != "node"]
    listed = set(re.findall(r"`(?:tm)?\.?(\w+)", text))
    assert {*tm.__all__, *methods} <= listed
