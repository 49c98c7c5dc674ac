"""NumPy's functions of expressions: ours where there is one, or an error that says what to write."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tidemill as tm
from tidemill import col

ROWS = [{"t": 1, "v": 4.0}, {"t": 2, "v": 0.25}]


@pytest.mark.parametrize(("numpy", "ours"), [
    (np.log(col.v), col.v.log()), (np.sqrt(col.v), col.v.sqrt()), (np.abs(col.v), col.v.abs()),
    (np.float64(2) * col.v, 2.0 * col.v), (np.power(col.v, 2), col.v**2), (np.isnan(col.v), col.v.is_nan()),
    (np.logical_and(col.v > 1, col.v < 2), (col.v > 1) & (col.v < 2)), (np.less(1.0, col.v), col.v > 1.0),
])  # fmt: skip
def test_numpys_functions_are_ours(numpy: Any, ours: Any) -> None:
    s = tm.stream("s", time="t", schema={"t": "int64", "v": "float64"})
    assert s.select(x=numpy).run(ROWS) == s.select(x=ours).run(ROWS)


def test_numpys_functions_of_aggregates_are_ours() -> None:
    s = tm.stream("s", time="t", schema={"t": "int64", "v": "float64"})
    asked = s.window(tm.tumbling(10)).agg(x=np.sqrt(tm.sum(col.v) - 0.25))
    assert asked.run(ROWS)["x"].to_pylist() == [2.0]


@pytest.mark.parametrize(("call", "said"), [
    (lambda: np.arctan2(col.v, col.w), "np.arctan2 cannot see the values of col.v.*tm.udf"),
    (lambda: np.rint(col.v), r"np.rint cannot see.*\.round\(\)"),
    (lambda: np.add.reduce(col.v), r"np.add.reduce cannot see.*tm.sum\("),
    (lambda: np.log(col.v, dtype="f4"), "np.log with options"),
    (lambda: np.array([1.0, 2.0]) * col.v, "expected|cannot|array"),
])  # fmt: skip
def test_what_is_none_of_ours_says_what_to_write(call: Any, said: str) -> None:
    with pytest.raises(tm.UserError, match=said):
        call()
